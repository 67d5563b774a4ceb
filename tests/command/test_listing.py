# SPDX-License-Identifier: GPL-2.0-only
"""What the plugin says of the kernel's own structures: tasks, VMAs, and the folio behind an address."""

from __future__ import annotations

import pytest
from folioscope import Guest, Layout, Process

from test_workloads import look

pytestmark = pytest.mark.parametrize("granule", ["4k", "64k"])


def test_tasks(guest: Guest, process: Process) -> None:
    """init, a thread of the kernel, and the process of the test; a child is started later than its parent."""
    child = process.fork(name="child")
    tasks = {task.pid: task for task in guest.tasks()}
    assert tasks[1].name == "init" and tasks[1].mm is not None
    assert tasks[2].name == "kthreadd" and (tasks[2].mm, tasks[2].table) == (None, None)
    assert tasks[process.pid].threads == (process.pid,)
    assert tasks[child.pid].name == "child"
    assert tasks[1].started_ns < tasks[process.pid].started_ns < tasks[child.pid].started_ns
    assert tasks[child.pid].table != tasks[process.pid].table
    child.kill()
    assert child.pid not in {task.pid for task in guest.tasks() if task.mm}


def test_tasks_that_ended_and_threads_of_the_kernel(guest: Guest) -> None:
    """Name, kernel thread (PF_KTHREAD) and zombie (state Z) are as /proc/PID/stat has them."""
    # A child that nobody waits for: its parent has become another program.
    script = "sleep 1 & exec sleep 300"
    guest.run("/bin/busybox", "sh", "-c", f"{{ sh -c '{script}' >/dev/null 2>&1 </dev/null & }}; sleep 2")

    def stats() -> dict[int, tuple[str, bool, bool]]:
        theirs = {}
        said = guest.run("/bin/busybox", "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null").stdout
        for line in str(said).splitlines():
            pid, rest = line.split(" (", 1)
            name, fields = rest.rsplit(") ", 1)
            state, flags = fields.split()[0], int(fields.split()[6])
            theirs[int(pid)] = (name, bool(flags & 0x20_0000), state in "ZX")
        return theirs

    before = stats()
    tasks = {task.pid: task for task in guest.tasks()}
    # Other tests' processes may be about to end: what is the same before and after is compared.
    theirs = {pid: fields for pid, fields in stats().items() if before.get(pid) == fields}
    both = set(tasks) & set(theirs)
    # A worker's name in /proc has its work in it.
    named = {pid for pid in both if not theirs[pid][0].startswith("kworker")}
    # Of a thread of the kernel /proc has the whole name (get_kthread_comm()), the task's `comm` 15 bytes of it.
    assert {pid: tasks[pid].name for pid in named} == {pid: theirs[pid][0][:15] for pid in named}
    assert {pid: (tasks[pid].is_kernel, tasks[pid].has_ended) for pid in both} == {pid: theirs[pid][1:] for pid in both}
    assert all((tasks[pid].mm is None) == any(theirs[pid][1:]) for pid in both)
    ended = [pid for pid in both if theirs[pid][2]]
    assert ended, theirs
    assert {tasks[pid].name for pid in ended} >= {"sleep"}
    guest.run("/bin/busybox", "killall", "-9", "sleep")


def test_vmas(process: Process, layout: Layout) -> None:
    """Range, flags, and what is mapped there by which folio order."""
    area = process.blocks(2)
    area.write()
    area.madvise("dontneed", 0, 1)
    (vma,) = (vma for vma in process.vmas() if vma.start == area.address)
    assert (vma.end, vma.permissions, vma.name) == (area.address + area.length, "rw-p", "")
    assert "hg" in vma.flags and (vma.offset, vma.device, vma.inode) == (0, (0, 0), 0)
    assert vma.mapped == 2 * layout.block - layout.page and vma.contiguous == layout.block
    assert vma.folios == {layout.cont_order: vma.mapped}
    assert vma.blocks == {"folded": 1, "partial": 1}


def test_vmas_of_files(process: Process, layout: Layout) -> None:
    """Their name, inode and offset."""
    path = "/tmp/listing"
    process.file_create(path, 2 * layout.block)
    area = process.map_file(path, layout.block, offset=layout.block)
    area.read()
    (vma,) = (vma for vma in process.vmas() if vma.start == area.address)
    assert (vma.name, vma.offset, vma.permissions) == (path, layout.block, "rw-s")
    assert vma.inode > 0 and vma.folios == {0: layout.block}
    process.file_unlink(path)


def test_folio(guest: Guest, process: Process, layout: Layout) -> None:
    """Of the instant of the view, whatever happens afterwards; and who else maps the page."""
    area = process.blocks(1)
    area.write()
    view = look(process)
    at = area.address + 3 * layout.page
    child = process.fork(name="child")
    shared = look(process)
    child.kill()
    area.munmap()
    folio = view.folio(at)
    assert folio is not None
    assert (folio.order, folio.pfn - folio.head, folio.kind) == (layout.cont_order, 3, "anonymous")
    assert folio.pfn * layout.page == view.output(at)
    assert (folio.mapcount, folio.large, folio.exclusive) == (1, layout.cont_pages, True)
    (mine,) = folio.mapped
    assert (mine.pid, mine.va, mine.level, mine.word) == (process.pid, at, 3, view.word(at))
    both = shared.folio(at)
    assert both is not None
    assert sorted((place.pid, place.va) for place in both.mapped) == [(process.pid, at), (child.pid, at)]
    assert (both.mapcount, both.exclusive) == (2, False)
    assert look(process).folio(at) is None


def test_a_look_again_has_no_folios(process: Process) -> None:
    """It reads only what was written to, and says so."""
    area = process.blocks(1)
    area.write()
    view = process.look(again=True)
    with pytest.raises(Exception, match="is not known"):
        view.folio(area.address)


def test_kernel_map(guest: Guest, layout: Layout) -> None:
    """All RAM is in the linear map, by blocks that the granule has; new processes have stacks."""
    map_ = guest.kernel_map()
    linear = map_.parts["linear map"]
    assert sum(linear.values()) > guest.hello["memory_bytes"] // 8 * 7
    assert linear.keys() <= {"PTE", "CONTPTE", "PMD", "CONTPMD"}
    # Debian's 7.x has it in single pages.
    assert len(linear) > 1 or not guest.has_policies
    assert map_.areas is not None

    def allocated() -> set[int]:
        """By their first address; none has pages that are not mapped. Per-CPU memory has none of its own."""
        found = [area for area in guest.kernel_map().areas or () if "vmalloc" in area.kinds and area.pages]
        wrong = [area for area in found if sum(area.mapped.values()) != area.pages * layout.page]
        assert not wrong
        return {area.start for area in found}

    before = allocated()
    # More stacks than CPUs keep for themselves of those that have ended.
    children = [guest.spawn() for _ in range(8)]
    assert len(allocated() - before) >= 4
    for child in children:
        child.kill()
