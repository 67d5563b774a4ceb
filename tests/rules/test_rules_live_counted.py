# SPDX-License-Identifier: GPL-2.0-only
"""Each rule on what the kernel counts of all memory broken on a running guest: counters and lists changed from outside.

Where a member lies is written down here a second time, from include/linux/mm_types.h and mmzone.h of 6.12; the rig
has it from the kernel's BTF.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from folioscope import Area, Guest, Layout, Process
from folioscope.process import Held

from live_pages import ANON_EXCLUSIVE, FLAGS, MAPCOUNT, REFCOUNT_SHIFT, page_of, word
from test_rules_live import Errors, broken, errors, words_of

pytestmark = pytest.mark.every_granule

#: Bytes of a struct page.
PAGE = 64
#: ``PG_partially_mapped`` is ``PG_reclaim`` of a folio's second page.
PARTIALLY_MAPPED = 1 << 16
SWAP = "/dev/ram0"
#: Brings the counts of all CPUs together now.
REFRESH = "/proc/sys/vm/stat_refresh"
FILES = ("Active(file)", "Inactive(file)")
#: Where RAM begins.
RAM = 0x4000_0000
#: ``private`` in a ``struct page``: the order of a free block.
PRIVATE = 40
#: ``page_type`` and ``_refcount`` of a free block's first page.
BUDDY = 0xF000_0000
#: No page, and no address of the kernel's.
NOWHERE = 0xDEAD_BEEF_DEAD_BEE8
#: What a counter is wrong by: the guest goes on between our reading it and the look.
FAR = 1000
#: More pages than a guest of the tests has.
ALL = 1 << 24


def counted(guest: Guest) -> dict[str, Any]:
    """The kernel's counters and lists. All of them are known here; read again while a task changes one."""
    for _ in range(20):
        found: dict[str, Any] = guest.call("counted")["counted"]
        if all("Ok" in part for part in found.values()):
            break
    return {name: part["Ok"] for name, part in found.items()}


def zones(guest: Guest) -> list[dict[str, Any]]:
    """The zones with memory; nobody holds a lock while the guest does nothing."""
    for _ in range(8):
        found: list[dict[str, Any]] = counted(guest)["zones"]
        if all("Ok" in part for zone in found for part in (zone["areas"], *zone["cpus"])):
            return found
    raise AssertionError("a lock of a zone was held at each of 8 stops")


def size_of(guest: Guest, order: int) -> dict[str, Any]:
    """The counters of one order."""
    return next(size for size in counted(guest)["sizes"] if size["order"] == order)


@pytest.fixture
def split(folded: Area) -> Area:
    """Two folded blocks, of the first of which a page was given back: its folio waits to be split."""
    folded.madvise("dontneed", 0, 1)
    return folded


def test_counters_are_the_kernels_own(guest: Guest, split: Area, layout: Layout) -> None:
    """Ours against /sys/kernel/mm/transparent_hugepage/hugepages-*/stats, and free pages against /proc/buddyinfo."""
    size = size_of(guest, layout.cont_order)
    assert size["anonymous"] >= 2 and size["partial"] >= 1
    folder = f"/sys/kernel/mm/transparent_hugepage/hugepages-{layout.block >> 10}kB/stats"
    for name, ours in (("nr_anon", size["anonymous"]), ("nr_anon_partially_mapped", size["partial"])):
        assert int(guest.read(f"{folder}/{name}")) == ours
    lines = guest.read("/proc/buddyinfo").splitlines()
    theirs = [(line.split()[3], len(line.split()) - 4) for line in lines]
    assert theirs == [(zone["name"], len(zone["areas"]["Ok"])) for zone in zones(guest)]
    assert split.process.look().errors == []


def meminfo(guest: Guest, layout: Layout) -> dict[str, int]:
    """Pages, by the names of /proc/meminfo, with each CPU's own part of every counter."""
    guest.write(REFRESH, "1")
    lines = [line.split() for line in guest.read("/proc/meminfo").splitlines()]
    return {name.rstrip(":"): int(value) * 1024 // layout.page for name, value, *_ in lines}


def test_available_is_the_kernels_own(guest: Guest, layout: Layout) -> None:
    """Ours against /proc/meminfo and /proc/zoneinfo: the same to a page, where nothing went on while we looked.

    What is the same before and after can have been another at our instant: a CPU gives a batch of its free pages back
    and takes one again. Then free pages alone differ, and what is available by as many; that holds at each look.
    """
    for _ in range(32):
        before, ours, theirs = meminfo(guest, layout), counted(guest)["available"], meminfo(guest, layout)
        if any(before[name] != theirs[name] for name in ("MemAvailable", "MemFree", *FILES, "KReclaimable")):
            continue
        assert ours["cache"] == sum(theirs[name] for name in FILES)
        assert 0 < ours["reclaimable"] == theirs["KReclaimable"]
        assert ours["pages"] - theirs["MemAvailable"] == ours["free"] - theirs["MemFree"]
        if ours["free"] == theirs["MemFree"]:
            break
    else:
        raise AssertionError(f"pages were freed or taken at each of 32 looks, at the last {before}, {ours}, {theirs}")
    low = [int(line.split()[1]) for line in guest.read("/proc/zoneinfo").splitlines() if line.split()[0] == "low"]
    assert ours["low"] == sum(low) > 0 < ours["reserved"]


def test_l12_counters(guest: Guest, split: Area, layout: Layout) -> None:
    """Fewer folios of a size are counted than there are, and more; one more, and one less, waits than is queued."""
    with split.process.hold() as held:
        size = size_of(guest, layout.cont_order)
        anonymous, partial = size["at"]
        now = word(guest, anonymous)
        for wrong in (now - size["anonymous"], now - FAR, now - 1, now + 1, now + FAR):
            assert broken(held, [(anonymous, wrong & (1 << 64) - 1)]) == [("L12", 0)]
        now = word(guest, partial)
        for wrong in (now + 1, now - 1):
            assert broken(held, [(partial, wrong & (1 << 64) - 1)]) == [("L12", 0)]


def test_l12_folios_that_nobody_maps(guest: Guest, process: Process, layout: Layout) -> None:
    """What is in swap and in the swap cache is counted as long as its folio is there, and not when it has gone."""
    guest.swap_on(SWAP)
    area = process.blocks(4)
    area.write(salt=1)
    before = size_of(guest, layout.cont_order)["anonymous"]
    assert before >= 4
    area.swap_out()
    assert errors(process.look()) == []
    swapped = size_of(guest, layout.cont_order)["anonymous"]
    there = counted(guest)["census"]["folios"].get(str(layout.cont_order), {"least": 0, "most": 0})
    assert there["least"] <= swapped <= there["most"]
    # Back in the swap cache, by a read of one page of each.
    area.swap_in()
    assert errors(process.look()) == []
    area.munmap()
    guest.swap_off(SWAP)
    assert size_of(guest, layout.cont_order)["anonymous"] <= before - 4
    assert errors(process.look()) == []


def break_queue(guest: Guest, held: Held, queue: dict[str, Any]) -> int:
    """Its length is one off; its list leads nowhere, and to a folio that is not on it. Gives where it leads."""
    assert queue["length"] == len(queue["folios"])
    length = queue["at"]
    for wrong in (queue["length"] + 1, queue["length"] - 1):
        assert broken(held, [(length, wrong)]) == [("L13", 0)]
    # The list's head lies before its length, and its first word is `next`.
    first = word(guest, length - 16)
    for wrong in (NOWHERE, first + PAGE):
        assert broken(held, [(length - 16, wrong)]) == [("L13", 0)]
    return first


def test_l13_queue(guest: Guest, split: Area, layout: Layout) -> None:
    """A queue's length is one off; its list leads nowhere; a folio on it leads to itself, as if on none."""
    with split.process.hold() as held:
        queues = counted(guest)["queues"]
        assert not queues["is_scanned"]
        # Folios of other processes may wait as well.
        ours = page_of(guest, held.judge(), split.address + layout.page, layout).head
        queue = next(queue for queue in queues["queues"] if ours in queue["folios"])
        first = break_queue(guest, held, queue)
        node = guest.page(ours).head_at + 2 * PAGE + 16
        itself = first + (ours - queue["folios"][0]) * PAGE
        assert broken(held, [(node, itself)]) == [("L13", 0), ("L13", split.address + layout.page)]


def test_l13_folio_on_no_list(guest: Guest, split: Area, layout: Layout) -> None:
    """A folio is marked as partially mapped that nobody has queued."""
    va = split.address + layout.block
    with split.process.hold() as held:
        second = page_of(guest, held.judge(), va + layout.page, layout)
        assert second.pfn == second.head + 1
        flags = word(guest, second.at + FLAGS)
        assert not flags & PARTIALLY_MAPPED
        assert broken(held, [(second.at + FLAGS, flags | PARTIALLY_MAPPED)]) == [("L13", va)]


def test_l14_free_lists(guest: Guest, paged: Area) -> None:
    """nr_free of a list is off; a list leads nowhere."""
    with paged.process.hold() as held:
        for zone in zones(guest):
            areas = [area for area in zone["areas"]["Ok"] if area["listed"]]
            assert areas
            assert all(area["counted"] == area["listed"] for area in areas)
            free = areas[-1]["at"]
            assert broken(held, [(free, word(guest, free) + FAR)]) == [("L14", 0)]
            # The last list's `next` and `prev` lie before nr_free.
            assert broken(held, [(free - 16, NOWHERE)]) == [("L14", 0)]


def test_l14_pages_on_no_list(guest: Guest, paged: Area, layout: Layout) -> None:
    """A free block is said to have one page: those behind it have no owner, and no list has them."""
    with paged.process.hold() as held:
        first = RAM // layout.page
        pages = (guest.page(pfn) for pfn in range(first, 2 * first, 1 << 6))
        page = next(it for it in pages if word(guest, it.at + MAPCOUNT) == BUDDY and word(guest, it.at + PRIVATE))
        view = held.judge([(page.at + PRIVATE, 0)])
        lost = [finding.message for finding in view.errors if "no list of free pages has them" in finding.message]
        assert len(lost) == 1 and f"page frames 0x{page.pfn + 1:x}" in lost[0], view.errors
        assert errors(view) == [("L14", 0)] * 2
    assert errors(paged.process.look()) == []


def test_l14_lists_of_cpus(guest: Guest, paged: Area) -> None:
    """What a CPU keeps for itself is miscounted; a page of it has references."""
    with paged.process.hold() as held:
        for _ in range(8):
            cpus = [cpu["Ok"] for zone in zones(guest) for cpu in zone["cpus"]]
            assert all(cpu["counted"] == cpu["listed"] for cpu in cpus)
            cpu = max(cpus, key=lambda cpu: len(cpu["blocks"]))
            # An int behind the lock, which is free.
            assert cpu["at"] % 8 == 4
            wrong = cpu["counted"] + FAR << 32
            assert broken(held, [(cpu["at"] - 4, wrong)]) == [("L14", 0)]
            pfn, _ = cpu["blocks"][-1]
            page = guest.page(pfn)
            counts = word(guest, page.at + MAPCOUNT)
            if counts >> REFCOUNT_SHIFT == 0:
                # What is on no list any more gives nothing.
                found = broken(held, [(page.at + MAPCOUNT, counts | 1 << REFCOUNT_SHIFT)])
                if found == [("L14", 0)]:
                    return
                assert not found
        raise AssertionError("no page stayed on its CPU's list")


def test_memory_is_counted_as_the_kernel_does(guest: Guest, process: Process, layout: Layout) -> None:
    """Ours against /proc/vmstat, which leaves out what CPUs have not added yet; and free pages against their lists."""
    area = process.blocks(8, flags=["shared"])
    area.write()
    area.mlock()
    lines = guest.read("/proc/vmstat").splitlines()
    theirs = {name: int(count) for name, count in (line.split() for line in lines)}
    ours = counted(guest)["memory"]
    # Each CPU keeps up to 125 of each counter; programs of the guest's come and go besides.
    near = 125 * ours["cpus"] * len(guest.read("/sys/devices/system/node/online")) + 128
    assert abs(theirs["nr_anon_pages"] - ours["anonymous"]) <= near
    assert abs(theirs["nr_mapped"] - ours["file"][0]) <= near
    assert theirs["nr_anon_transparent_hugepages"] == ours["blocks"]
    assert abs(theirs["nr_shmem"] - ours["shmem"]) <= near
    assert abs(theirs["nr_file_pages"] - ours["cache"][0]) <= near
    assert ours["shmem"] >= 8 * layout.cont_pages
    assert abs(theirs["nr_mlock"] - ours["mlocked"][0]) <= near and ours["mlocked"][0] >= 8 * layout.cont_pages
    for zone in zones(guest):
        listed = sum(part["listed"] << part["order"] for part in zone["areas"]["Ok"])
        assert zone["free"] == listed > 0
    assert errors(process.look()) == []


def test_l15_mapped(guest: Guest, paged: Area) -> None:
    """Less is counted than there is, and more: of anonymous memory, of what blocks map, of shmem, files, page cache."""
    area = paged.process.blocks(1, flags=["shared"])
    area.write()
    with paged.process.hold() as held:
        memory = counted(guest)["memory"]
        places = [*zip((memory["anonymous"], memory["blocks"], memory["shmem"]), memory["at"], strict=True)]
        lists = memory["lists"]["Ok"]
        more = (memory["file"], memory["cache"], memory["mlocked"], *memory["large"].values(), *lists.values())
        more = (*more, *memory["written"].values())
        for counted_now, at in (*places, *more):
            for by in (-counted_now - FAR, -FAR, FAR, ALL):
                wrong = word(guest, at) + by
                assert broken(held, [(at, wrong & (1 << 64) - 1)]) == [("L15", 0)], (counted_now, by)


def test_l15_is_exact(guest: Guest, paged: Area) -> None:
    """One page too many or too few is an error at a stop where no CPU is in the kernel, as at one of 20 stops. At
    others a page may be counted that is not yet in its page cache."""
    area = paged.process.blocks(1, flags=["shared"])
    area.write()
    with paged.process.hold() as held:
        memory = counted(guest)["memory"]
        places = [*memory["at"], *(memory[name][1] for name in ("file", "isolated", "pinned", "poisoned"))]
        for at in places:
            for by in (-1, 1):
                wrong = (word(guest, at) + by) & (1 << 64) - 1
                said = any(broken(held, [(at, wrong)]) == [("L15", 0)] for _ in range(20))
                assert said, (memory, places.index(at), by)


def test_l15_memory_that_is_promised(guest: Guest, paged: Area) -> None:
    """More or less is counted than VMAs and files have, and of a tmpfs; a shared and a private area add to it."""

    def promised() -> dict[str, Any]:
        for _ in range(20):
            now: dict[str, Any] = counted(guest)["committed"]
            if now["busy"] is None:
                break
        return now

    before, pages = promised(), 250
    length = pages * paged.length // paged.pages
    paged.process.map(length)
    private = promised()
    paged.process.map(length, flags=["shared"])
    with paged.process.hold() as held:
        both = promised()
        assert (private["vmas"] - before["vmas"], both["shmem"] - private["shmem"]) == (pages, pages)
        assert both["counted"] == both["vmas"] + both["shmem"]
        assert both["limited"]
        for at in (both["at"], *(tmpfs["at"] for tmpfs in both["limited"])):
            for by in (-FAR, -1, 1, ALL):
                wrong = word(guest, at) + by
                assert broken(held, [(at, wrong & (1 << 64) - 1)]) == [("L15", 0)], by


def off_by(guest: Guest, held: Held, at: int, by: int) -> Errors:
    """What a counter gives that is wrong by so much.

    The guest runs between reading and judging: each CPU's list can go back to the zone there, hundreds of pages, and a
    stop can meet somebody who holds the zone's lock. Then it is done again, since the counter was not off by that, or
    nothing of the zone was judged.
    """
    for _ in range(8):
        counted_now = word(guest, at)
        view = held.judge([(at, counted_now + by & (1 << 64) - 1)])
        stayed = abs(word(guest, at) - counted_now) < abs(by) // 4
        assert errors(held.judge()) == []
        if stayed and not view.not_judged:
            return errors(view)
    raise AssertionError(f"the counter at {at:#x} never stayed, or its zone was judged at none of 8 stops")


def test_l15_free_pages(guest: Guest, paged: Area) -> None:
    """A zone counts more free pages than are on its lists, and fewer."""
    with paged.process.hold() as held:
        for zone in zones(guest):
            for by in (FAR, -FAR):
                assert off_by(guest, held, zone["free_at"], by) == [("L15", 0)]


@pytest.fixture
def swapped(guest: Guest, process: Process) -> Iterator[Area]:
    """A block of which parent and child have each page in swap."""
    guest.swap_on(SWAP)
    area = process.blocks(1)
    area.write(salt=1)
    area.swap_out()
    child = process.fork()
    yield area
    child.kill()
    area.munmap()
    guest.swap_off(SWAP)


def test_l16_swap_slots(guest: Guest, swapped: Area, layout: Layout) -> None:
    """A slot is counted once too often, once too rarely, and not at all; and as the kernel's own file has it."""
    with swapped.process.hold() as held:
        assert errors(held.judge()) == []
        (area,) = counted(guest)["swap"]["areas"]
        used = next(line for line in guest.read("/proc/swaps").splitlines() if line.startswith(SWAP))
        # The kernel counts those as well that CPUs keep to give them out again.
        assert int(used.split()[3]) << 10 >= layout.block
        runs = [run for run in area["counted"] if run["count"]]
        assert sum(run["slots"] for run in runs) == layout.cont_pages
        assert {run["count"] for run in runs} == {2}
        # The first that is counted may be the area's header, which is no slot.
        at = area["at"] + runs[0]["first"] - area["counted"][0]["first"]
        assert at // layout.page == area["at"] // layout.page
        shift = at % 8 * 8
        now = word(guest, at - at % 8)
        assert now >> shift & 0xBF == 2
        for count in (3, 1, 0):
            wrong = now & ~(0xBF << shift) | count << shift
            assert broken(held, [(at - at % 8, wrong)]) == [("L16", 0)]


def test_l16_slots_of_files(guest: Guest, process: Process, layout: Layout) -> None:
    """A slot that a file in memory has is counted twice, and not at all."""
    guest.swap_on(SWAP)
    area = process.blocks(1, flags=["shared"])
    try:
        area.write()
        area.swap_out()
        with process.hold() as held:
            assert errors(held.judge()) == []
            swap = counted(guest)["swap"]
            assert sum(slots for _, _, slots in swap["shmem"]) == layout.cont_pages
            (swap_area,) = swap["areas"]
            slot = next(run["first"] for run in swap_area["counted"] if run["count"] == 1)
            assert any(first <= slot < first + slots for _, first, slots in swap["shmem"])
            at = swap_area["at"] + slot - swap_area["counted"][0]["first"]
            shift = at % 8 * 8
            now = word(guest, at - at % 8)
            assert now >> shift & 0xFF == 0xBF
            for count in (2, 0):
                wrong = now & ~(0xFF << shift) | count << shift
                assert broken(held, [(at - at % 8, wrong)]) == [("L16", 0)]
    finally:
        area.munmap()
        guest.swap_off(SWAP)


def test_l8_exclusive_page_in_swap(guest: Guest, swapped: Area, layout: Layout) -> None:
    """A page that was brought back is called exclusive, and the child still has its slot."""
    va = swapped.address + 3 * layout.page
    swapped.read(3, 1)
    with swapped.process.hold() as held:
        view = held.judge()
        assert errors(view) == []
        page = page_of(guest, view, va, layout)
        assert page.swapcache and not page.exclusive
        flags = word(guest, page.at + FLAGS)
        assert broken(held, [(page.at + FLAGS, flags | ANON_EXCLUSIVE)]) == [("L8", va)]


def test_l9_page_that_a_cpu_keeps(guest: Guest, paged: Area, layout: Layout) -> None:
    """An entry maps a page that a CPU has on its list of free ones, whatever its references say."""
    va = paged.address + 5 * layout.page
    with paged.process.hold() as held:
        view = held.judge()
        assert errors(view) == []
        entry, pages = words_of(view, va, layout, 1), layout.page
        (entry_word,), (place,) = entry
        old = page_of(guest, view, va, layout).pfn
        for _ in range(8):
            cpus = [cpu["Ok"] for zone in zones(guest) for cpu in zone["cpus"]]
            pfn, _ = max(cpus, key=lambda cpu: len(cpu["blocks"]))["blocks"][-1]
            page = guest.page(pfn)
            counts = word(guest, page.at + MAPCOUNT)
            other = entry_word + (pfn - old) * pages
            # With a reference nothing but the list says that it is free.
            pokes = [(place, other), (page.at + MAPCOUNT, counts & 0xFFFF_FFFF | 1 << REFCOUNT_SHIFT)]
            found = held.judge(pokes)
            if ("L14", 0) in errors(found):
                assert errors(found) == [("L14", 0), ("L9", va)]
                assert any("a CPU's list of free pages" in finding.message for finding in found.errors)
                return
        raise AssertionError("no page stayed on its CPU's list")
