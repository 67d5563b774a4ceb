# SPDX-License-Identifier: GPL-2.0-only
"""Histories that look alike to `diff`: it names none without proof. The guest itself tells them apart.

The truth is what the workload did, and the guest's own /proc/vmstat before and after.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Changes, Guest, Layout, Process

from test_diff import Steps, swap

__all__ = ["swap"]
THP = "/sys/kernel/mm/transparent_hugepage"
RECORD = f"{THP}/anon_order/record"
MIGRATIONS = ("pgmigrate_success",)

pytestmark = pytest.mark.parametrize("granule", ["4k"])


def vmstat(guest: Guest, *names: str) -> int:
    """The sum of these counters of the guest; one that it does not have counts nothing."""
    counts = dict(line.split() for line in guest.read("/proc/vmstat").splitlines())
    return sum(int(counts.get(name, 0)) for name in names)


class Counted(Steps):
    """Looks, and what the guest counted between the last two."""

    def __init__(self, process: Process, *names: str) -> None:
        self.names, self.more = names, 0
        super().__init__(process)
        self.count = vmstat(process.guest, *names)

    def next(self) -> Changes:
        """What happened since the look before."""
        before, self.count = self.count, vmstat(self.process.guest, *self.names)
        self.more = self.count - before
        return super().next()


def details(changes: Changes, area: Area) -> dict[str, str]:
    """What more is known of each event of an area."""
    inside = (event for event in changes.events if area.address <= event.va < area.address + area.length)
    return {event.kind: event.detail for event in inside}


@pytest.fixture
def single(process: Process) -> Area:
    """Sixteen single pages, written."""
    area = process.blocks(1, hint="nohugepage")
    area.write()
    return area


@pytest.fixture
def unrecorded(guest: Guest) -> Iterator[None]:
    """The kernel keeps no record meanwhile, as no stock kernel does."""
    guest.write(RECORD, "0")
    yield
    if not guest.session.lost:
        guest.write(RECORD, "1")


def test_copies_whose_sharer_is_gone(single: Area, process: Process) -> None:
    """A process forks, writes, and its child ends: its pages are in other frames, and none was migrated."""
    steps = Counted(process, *MIGRATIONS)
    child = process.fork("gone")
    single.write(salt=2)
    child.kill()
    changes = steps.next()
    assert steps.more == 0, "the guest migrated pages: nothing to be told apart"
    assert changes.told(single) == ["replace 0-16"]
    detail = details(changes, single)["replace"]
    assert "copied on write" in detail and "the kernel migrated no page" in detail


def test_pages_that_were_migrated(single: Area, process: Process) -> None:
    """Single pages on another node, by a process that has no fault meanwhile; or that has, and then it is left open."""
    steps = Counted(process, *MIGRATIONS)
    single.move_to_node(1)
    changes = steps.next()
    assert steps.more >= 16
    assert {each for each in changes.told(single) if each != "old 0-16"} <= {"migrate 0-16", "replace 0-16"}
    said = details(changes, single)
    said.pop("old", "")
    [(kind, detail)] = said.items()
    assert f"the kernel migrated {steps.more} pages" in detail, detail
    assert kind == "migrate" or "copied on write, or gone" in detail


def test_what_was_dropped_beside_a_sharer(single: Area, process: Process, unrecorded: None) -> None:
    """Thrown away and written to again, while a child has the old pages: no copy, and nothing shows that it is none."""
    child = process.fork("holder")
    steps = Counted(process, *MIGRATIONS)
    single.madvise("dontneed", 0, 8)
    single.write(0, 8, salt=3)
    changes = steps.next()
    assert changes.told(single) == ["replace 0-8"]
    assert "copied on write, or gone and faulted in again" in details(changes, single)["replace"]
    child.kill()


def test_what_was_dropped_beside_a_sharer_and_recorded(single: Area, process: Process) -> None:
    """The same with the kernel's record, which has the faults."""
    child = process.fork("holder")
    steps = Counted(process, *MIGRATIONS)
    single.madvise("dontneed", 0, 8)
    single.write(0, 8, salt=3)
    changes = steps.next()
    assert changes.told(single) == ["replace 0-8"]
    assert "faulted in again with order 0" in details(changes, single)["replace"]
    child.kill()


def test_a_record_that_was_off_for_a_while(process: Process, guest: Guest) -> None:
    """A record that is on at both looks, and was off in between, has no faults of that time."""
    area = process.blocks(1)
    area.write()
    steps = Counted(process, *MIGRATIONS)
    guest.write(RECORD, "0")
    area.madvise("dontneed")
    other = process.blocks(1)
    other.write()
    area.write(salt=3)
    guest.write(RECORD, "1")
    changes = steps.next()
    assert steps.more == 0
    assert not {each.split()[0] for each in changes.told(area)} & {"migrate", "copy-on-write"}


@pytest.mark.usefixtures("swap")
def test_what_was_dropped_from_swap(single: Area, process: Process, guest: Guest) -> None:
    """Swapped out, thrown away there, and written to anew: it did not come from swap."""
    single.swap_out()
    steps = Counted(process, "pswpin", "swpin_zero")
    single.madvise("dontneed")
    single.write(0, 8, salt=3)
    changes = steps.next()
    assert steps.more == 0
    assert sorted(changes.told(single)) == ["replace 0-8", "zap 8-16"]
    assert "thrown away there" in details(changes, single)["replace"]


@pytest.mark.usefixtures("swap", "unrecorded")
def test_what_was_dropped_from_swap_without_a_record(single: Area, process: Process) -> None:
    """The same without a record: the guest read nothing from swap."""
    single.swap_out()
    steps = Counted(process, "pswpin", "swpin_zero")
    single.madvise("dontneed")
    single.write(0, 8, salt=3)
    changes = steps.next()
    assert steps.more == 0
    assert sorted(changes.told(single)) == ["replace 0-8", "zap 8-16"]


@pytest.mark.usefixtures("swap", "unrecorded")
def test_what_came_from_swap(single: Area, process: Process) -> None:
    """Read from swap, by the guest's count, without a record."""
    single.swap_out()
    steps = Counted(process, "pswpin", "swpin_zero")
    single.swap_in()
    changes = steps.next()
    assert steps.more >= 16
    assert changes.told(single) == ["swap-in 0-16"]


@pytest.fixture
def uncollapsed(guest: Guest) -> Iterator[None]:
    """khugepaged collapses no range of which a page is missing."""
    path = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none"
    before = guest.read(path).strip()
    guest.write(path, "0")
    yield
    if not guest.session.lost:
        guest.write(path, before)


@pytest.mark.usefixtures("unrecorded", "uncollapsed")
def test_a_block_that_a_fault_brought(process: Process, layout: Layout) -> None:
    """Pages that were thrown away, and a block in their place by one fault: no collapse, and the guest counts none."""
    area = process.map(layout.pmd, hint="nohugepage")
    area.write(0, 64)
    steps = Counted(process, "thp_collapse_alloc")
    area.madvise("dontneed")
    area.madvise("hugepage")
    area.write(salt=3)
    changes = steps.next()
    assert steps.more == 0
    told = {each.split()[0] for each in changes.told(area)}
    assert "collapse" not in told and "split" not in told, told


@pytest.mark.usefixtures("unrecorded")
def test_small_pages_where_a_block_was(process: Process, layout: Layout) -> None:
    """A block that was thrown away, and pages in its place: no split, whatever frames they got."""
    area = process.map(layout.pmd)
    area.write()
    steps = Counted(process, "thp_split_page", "thp_split_pmd")
    area.madvise("dontneed")
    area.madvise("nohugepage")
    area.write(salt=3)
    changes = steps.next()
    assert steps.more == 0
    for each in changes.told(area):
        kind, pages = each.split()
        assert kind in ("replace", "flags", "fault", "zap", "young", "old", "dirty"), each


def test_a_file_that_is_mapped_elsewhere(process: Process, layout: Layout) -> None:
    """Unmapped, and mapped again at another address: its pages did not move."""
    path = "/tmp/evidence"
    process.file_create(path, layout.block)
    process.file_write(path, 0, layout.block)
    area = process.map_file(path, layout.block)
    area.read()
    steps = Counted(process, *MIGRATIONS)
    area.munmap()
    again = process.map_file(path, layout.block)
    again.read()
    changes = steps.next()
    assert not any(each.startswith("move") for each in changes.told(again)), changes.told(again)
    process.file_unlink(path)


def test_a_mapping_in_the_place_of_another(process: Process, layout: Layout) -> None:
    """A private file where a page of it was read, and anonymous memory there instead: nothing was copied."""
    path = "/tmp/evidence"
    process.file_create(path, layout.block)
    process.file_write(path, 0, layout.block)
    area = process.map_file(path, layout.block, shared=False)
    area.read()
    steps = Counted(process, *MIGRATIONS)
    area.munmap()
    other = process.map(layout.block, place={"at": {"address": area.address}}, hint=None)
    other.write()
    told = {each.split()[0] for each in steps.next().told(other)}
    assert told == {"unmap", "map", "fault"}, told
    process.file_unlink(path)


def test_pages_that_are_used_again(process: Process, guest: Guest) -> None:
    """Written to once nobody else has them: the same pages, whatever record there is of it."""
    area = process.blocks(1)
    area.write()
    child = process.fork("gone")
    child.kill()
    steps = Counted(process, *MIGRATIONS)
    guest.write(f"{THP}/anon_order/reuse", "1")
    try:
        area.write(3, 1, salt=2)
    finally:
        # The guest is other tests' as well.
        guest.write(f"{THP}/anon_order/reuse", "0")
    kinds = {each.split()[0] for each in steps.next().told(area)}
    assert kinds <= {"write-unprotect", "unfold", "dirty", "young"}, kinds
    assert "write-unprotect" in kinds
