# SPDX-License-Identifier: GPL-2.0-only
"""What happens between two looks, as events: each made in a guest by itself, and named as it is, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Changes, Guest, Layout, Process, View

from command import wait_until

KSM = "/sys/kernel/mm/ksm"
# A pass takes it milliseconds, on a host that has nothing else to do.
KSM_SECONDS = 30

pytestmark = pytest.mark.parametrize("granule", ["4k"])


class Steps:
    """A process, and its last look."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.last = self.look()

    def look(self) -> View:
        """A look that finds nothing wrong; without order records (``unrecorded``) it says so."""
        view = self.process.look(check=False)
        assert not view.errors, view.errors
        return view

    def next(self) -> Changes:
        """What happened since the look before."""
        before, self.last = self.last, self.look()
        changes = self.last.diff(before)
        # Folios and VMAs are known: nothing is left out.
        assert changes.notes == ()
        assert all(each.notes == () for each in changes.processes)
        return changes


@pytest.fixture
def steps(process: Process) -> Steps:
    """The process of the test, looked at."""
    return Steps(process)


@pytest.fixture
def area(process: Process, steps: Steps) -> Area:
    """Two blocks, written, and looked at."""
    area = process.blocks(2)
    area.write()
    assert "fault 0-32" in steps.next().told(area)
    return area


def test_a_mapping_comes_and_goes(process: Process, steps: Steps) -> None:
    """A VMA, its hint, its pages, its protection, and all of it gone."""
    area = process.blocks(2, hint=None)
    assert steps.next().told(area) == ["map 0-32"]
    area.madvise("hugepage")
    changes = steps.next()
    assert changes.told(area) == ["flags 0-32"]
    assert next(event.detail for event in changes.events if event.va == area.address) == "+hg"
    area.write()
    changes = steps.next()
    assert changes.told(area) == ["fault 0-32"]
    [fault] = [event for event in changes.events if event.va == area.address]
    assert fault.detail == "anonymous, order 4, contiguous"
    assert fault.before is None and fault.after is not None
    assert (fault.after.level, fault.after.order, fault.after.contiguous) == (3, 4, True)
    assert fault.after.word == steps.last.word(area.address)
    area.mprotect(["read"], 0, 16)
    assert steps.next().told(area) == ["protection 0-16", "write-protect 0-16"]
    area.mprotect(["read", "write"], 0, 16)
    assert steps.next().told(area) == ["protection 0-16", "write-unprotect 0-16"]
    area.mprotect([], 16, 16)
    assert steps.next().told(area) == ["protection 16-32", "unfold 16-32", "deny 16-32", "write-protect 16-32"]
    area.munmap(8)
    changes = steps.next()
    assert sorted(changes.told(area)) == ["unfold 0-8", "unmap 16-32", "unmap 8-16"]
    gone = [event.detail for event in changes.events if event.kind == "unmap" and event.va >= area.address]
    assert gone == ["rw-p, 8 of its pages were mapped", "---p, 16 of its pages were mapped"]


def test_nothing_happens(steps: Steps) -> None:
    """Two looks at a process that does nothing in between are alike."""
    steps.next()
    assert steps.next().events == ()


def test_a_hole_unfolds_its_block(area: Area, steps: Steps) -> None:
    """And a fault into it brings a page, and folds nothing."""
    area.madvise("dontneed", 5, 1)
    assert steps.next().told(area) == ["unfold 0-5", "zap 5-6", "unfold 6-16"]
    area.write(5, 1)
    changes = steps.next()
    assert changes.told(area) == ["fault 5-6"]
    [fault] = [event for event in changes.events if event.va == area.address + 5 * 4096]
    assert fault.detail == "anonymous, order 0"


def test_a_block_folds(area: Area, steps: Steps) -> None:
    """Half of a block with another protection unfolds it, and the way back folds it."""
    area.mprotect(["read"], 8, 8)
    told = steps.next().told(area)
    assert sorted(told) == ["protection 8-16", "unfold 0-16", "write-protect 8-16"]
    area.mprotect(["read", "write"], 8, 8)
    assert sorted(steps.next().told(area)) == ["fold 0-16", "protection 8-16", "write-unprotect 8-16"]


def test_pages_come_back_otherwise(area: Area, steps: Steps) -> None:
    """What was thrown away and faulted in again is no migration, whichever frames it got: the record tells."""
    area.madvise("dontneed", 0, 16)
    area.write(0, 16)
    changes = steps.next()
    assert changes.told(area) == ["replace 0-16"]
    assert "faulted in again with order 4" in changes.events[0].detail


def test_a_migration(area: Area, steps: Steps) -> None:
    """A folio on another node is the same folio: it stays folded, and is told of as one."""
    area.move_to_node(1, 0, 16)
    changes = steps.next()
    # A migration entry has room for the age of the page, or has not: that depends on the addresses' size.
    assert [each for each in changes.told(area) if each != "old 0-16"] == ["migrate 0-16"]
    [event] = [event for event in changes.events if event.kind == "migrate"]
    assert event.before is not None and event.after is not None
    assert event.before.pfn != event.after.pfn
    assert (event.before.order, event.after.order) == (4, 4)


def test_a_fork_and_copies(area: Area, steps: Steps) -> None:
    """A fork protects; whoever writes first gets a copy, and the other keeps the page."""
    unborn = steps.last
    child = area.process.fork()
    assert steps.next().told(area) == ["write-protect 0-32"]
    theirs = Steps(child)
    lives = {each.process.pid: each.lives for each in theirs.last.diff(unborn).processes}
    assert lives == {area.process.pid: "both", child.pid: "started"}
    # From now on the child is looked at beside its parent.
    steps.last = steps.look()
    area.write(3, 1)
    changes = steps.next()
    assert changes.told(area) == ["unfold 0-16", "copy-on-write 3-4"]
    assert theirs.next().told(area) == []
    # Both of one look: the process that is looked at, and the one beside it.
    area.in_process(child).write(20, 1)
    changes = theirs.next()
    assert changes.told(area, child.pid) == ["unfold 16-32", "copy-on-write 20-21"]
    assert changes.told(area, area.process.pid) == []
    # Nobody else has it now, so its writer keeps it.
    child.kill()
    area.write(21, 1)
    assert "copy-on-write" not in " ".join(steps.next().told(area))


def test_the_zero_page(process: Process, steps: Steps) -> None:
    """A read maps it, a write copies it."""
    area = process.blocks(1)
    area.read(2, 1)
    changes = steps.next()
    assert "fault 2-3" in changes.told(area)
    assert "zero page" in next(event.detail for event in changes.events if event.kind == "fault" and event.pages == 1)
    area.write(2, 1)
    changes = steps.next()
    assert changes.told(area) == ["copy-on-write 2-3"]


@pytest.fixture
def swap(guest: Guest) -> Iterator[None]:
    """A place to swap to."""
    guest.swap_on("/dev/ram0")
    yield
    if not guest.session.lost:
        guest.swap_off("/dev/ram0")


@pytest.mark.usefixtures("swap")
def test_swap(area: Area, steps: Steps) -> None:
    """Out, and in."""
    area.swap_out(0, 16)
    assert steps.next().told(area) == ["swap-out 0-16"]
    area.swap_in(0, 16)
    assert steps.next().told(area) == ["swap-in 0-16"]


def test_age_and_dirt(area: Area, steps: Steps) -> None:
    """MADV_COLD ages, MADV_FREE cleans, an access makes young and a write dirty, of a whole group."""
    area.madvise("cold", 0, 16)
    assert steps.next().told(area) == ["old 0-16"]
    area.read(7, 1)
    assert steps.next().told(area) == ["young 0-16"]
    area.madvise("free", 0, 16)
    assert sorted(steps.next().told(area)) == ["clean 0-16", "old 0-16"]
    area.write(7, 1)
    assert sorted(steps.next().told(area)) == ["dirty 0-16", "young 0-16"]


def test_a_folio_is_split(area: Area, steps: Steps) -> None:
    """MADV_FREE of a part splits the folio first."""
    area.madvise("free", 0, 1)
    told = steps.next().told(area)
    assert "split 0-16" in told and "unfold 0-16" in told
    assert not any(each.startswith(("replace", "zap", "fault")) for each in told)


def test_a_block_of_level_2(process: Process, layout: Layout, steps: Steps) -> None:
    """MADV_COLLAPSE makes one of pages, and one page less makes pages of it."""
    # Without a hint, or khugepaged comes first.
    area = process.map(layout.pmd, hint=None)
    area.write()
    assert steps.next().told(area) == ["map 0-512", "fault 0-512"]
    area.madvise("collapse")
    changes = steps.next()
    assert changes.told(area) == ["collapse 0-512"]
    assert "512 of 512 pages were mapped" in next(e.detail for e in changes.events if e.kind == "collapse")
    area.madvise("dontneed", 511, 1)
    told = steps.next().told(area)
    assert "split 0-512" in told and "zap 511-512" in told
    assert not any(each.startswith(("replace", "migrate", "fault")) for each in told)


def test_a_move(area: Area, steps: Steps) -> None:
    """mremap() takes the pages along."""
    moved = area.mremap(area.address + 0x80_0000)
    changes = steps.next()
    assert changes.told(area) == ["unmap 0-32"]
    assert sorted(changes.told(moved)) == ["map 0-32", "move 0-32"]


def test_userfaultfd(process: Process, steps: Steps) -> None:
    """Write protection by it, and what it marks."""
    area = process.blocks(1)
    area.uffd_register("write_protect")
    area.write()
    steps.next()
    area.uffd_writeprotect(True, 0, 4)
    changes = steps.next()
    assert "write-protect 0-4" in changes.told(area)
    assert "by userfaultfd" in [event.detail for event in changes.events if event.kind == "write-protect"]
    area.uffd_writeprotect(False, 0, 4)
    assert "write-unprotect 0-4" in steps.next().told(area)


def test_marks_have_names(guest: Guest, process: Process, steps: Steps) -> None:
    """Broken memory is named as `explain` names it."""
    area = process.blocks(1, hint="nohugepage")
    area.write()
    view = steps.look()
    steps.last = view
    folio = view.folio(area.address + 3 * guest.layout.page)
    assert folio
    area.madvise("hwpoison", 3, 1)
    try:
        changes = steps.next()
        assert "mark 3-4" in changes.told(area), changes.told(area)
        assert [event.detail for event in changes.events if event.kind == "mark"] == ["hwpoison"]
    finally:
        guest.write("/sys/kernel/debug/hwpoison/unpoison-pfn", str(folio.pfn))


def test_ksm(guest: Guest, process: Process, steps: Steps) -> None:
    """Equal pages are merged, and a writer gets a copy."""
    area = process.blocks(1, hint="nohugepage")
    area.write()
    for page in (1, 3):
        area.poke(page, [0x6B73_6D20])
    steps.next()
    try:
        area.madvise("mergeable")
        guest.write(f"{KSM}/sleep_millisecs", "1")
        guest.write(f"{KSM}/pages_to_scan", "1000")
        guest.write(f"{KSM}/run", "1")
        # Of this process alone: what others had merged is counted in sysfs until ksmd comes by.
        merged = f"/proc/{process.pid}/ksm_merging_pages"
        counters = ("full_scans", "pages_scanned", "pages_shared", "pages_sharing")
        assert wait_until(lambda: guest.read(merged).strip() == "2", KSM_SECONDS), {
            name: guest.read(f"{KSM}/{name}") for name in counters
        }
        guest.write(f"{KSM}/run", "0")
        told = steps.next().told(area)
        assert "merge 1-2" in told and "merge 3-4" in told
        area.write(3, 1)
        assert "copy-on-write 3-4" in steps.next().told(area)
    finally:
        guest.write(f"{KSM}/run", "2")
        guest.write(f"{KSM}/run", "0")


def test_files(process: Process, layout: Layout, steps: Steps) -> None:
    """A private mapping's writer gets a copy of the file's page; truncation takes pages away."""
    path = "/tmp/diff"
    process.file_create(path, layout.block)
    process.file_write(path, 0, layout.block)
    area = process.map_file(path, layout.block, shared=False)
    area.read()
    told = steps.next().told(area)
    assert [each for each in told if not each.startswith("fault")] == ["map 0-16"]
    area.write(2, 1)
    changes = steps.next()
    assert changes.told(area) == ["copy-on-write 2-3"]
    assert "of a file's page" in [event.detail for event in changes.events]
    process.file_truncate(path, layout.block // 2)
    assert steps.next().told(area) == ["zap 8-16"]
    process.file_unlink(path)


def test_looks_are_kept_for_a_while(steps: Steps) -> None:
    """The last 16; an older one is refused by name."""
    first = steps.last
    for _ in range(16):
        steps.look()
    with pytest.raises(Exception, match="is not kept any more: the last 16 looks are"):
        steps.look().diff(first)
    # Earlier, it is compared.
    before = steps.look()
    assert steps.look().diff(before).notes == ()
