# SPDX-License-Identifier: GPL-2.0-only
"""The page cache of a file as a whole: what is in its tree, and what is counted of it; and both made wrong (L18)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, FileCache, Guest, Layout, Process

from live_pages import FLAGS, INDEX, MAPCOUNT, MAPPING, page_of, word
from test_rules_live import broken, errors

pytestmark = pytest.mark.every_granule

#: ``i_mmap``'s root of a struct address_space, before ``nrpages``.
I_MMAP = -16
PATH = "/tmp/cached"
PAGES = 40
SWAP = "/dev/ram0"
THP = "/sys/kernel/mm/transparent_hugepage"


def cache_of(guest: Guest, area: Area, layout: Layout) -> FileCache:
    """The page cache of the file that an area maps, by the mapping of its first page."""
    area.read(0, 1)
    mapping = page_of(guest, area.process.look(), area.address, layout).mapping
    (found,) = (file for file in guest.space(area.process.pid).files if file.mapping == mapping)
    return found


@pytest.fixture
def cached(process: Process, layout: Layout) -> Iterator[Area]:
    """A file of forty pages, of which no more than the first need be mapped."""
    process.file_create(PATH, PAGES * layout.page)
    process.file_write(PATH, 0, PAGES * layout.page)
    yield process.map_file(PATH, PAGES * layout.page)
    process.file_unlink(PATH)


def test_a_file_is_counted_as_a_whole(guest: Guest, cached: Area, layout: Layout) -> None:
    """Whatever is mapped of it; as it grows, and where it is cut."""
    process, page = cached.process, layout.page
    found = cache_of(guest, cached, layout)
    assert (found.counted, found.found, found.gone) == (PAGES, PAGES, 0)
    cached.read()
    assert cache_of(guest, cached, layout) == found
    # A hole of sixty pages has none; one page behind it has.
    process.file_write(PATH, 100 * page, page)
    assert cache_of(guest, cached, layout).found == PAGES + 1
    process.file_truncate(PATH, 10 * page)
    found = cache_of(guest, cached, layout)
    assert (found.counted, found.found) == (10, 10)
    assert errors(process.look()) == []


def test_all_of_a_long_file_is_listed(guest: Guest, process: Process, layout: Layout) -> None:
    """What only leads to pages that nobody maps is in no copy: dozens of the tree's nodes, and the pages themselves."""
    process.file_create(PATH, 4000 * layout.page)
    process.file_write(PATH, 0, 4000 * layout.page)
    area = process.map_file(PATH, 4000 * layout.page)
    try:
        area.read(0, 1)
        vmas = guest.call("maps", pid=process.pid)["vmas"]
        (vma,) = (vma for vma in vmas if int(vma["start"], 16) == area.address)
        assert vma["cache"]["bytes"] == 4000 * layout.page and 0 < vma["mapped"] < vma["cache"]["bytes"] // 10
    finally:
        process.file_unlink(PATH)


def test_large_folios_stand_for_all_their_pages(guest: Guest, process: Process, layout: Layout) -> None:
    """Shared memory with a folio of a block's size, single pages beside it, and pages in swap."""
    guest.write(f"{THP}/hugepages-{layout.block >> 10}kB/shmem_enabled", "always")
    area = process.blocks(3, flags=["shared"], hint=None)
    area.write(0, 1)
    assert page_of(guest, process.look(), area.address, layout).order == layout.cont_order
    assert cache_of(guest, area, layout).found == layout.cont_pages
    guest.write(f"{THP}/hugepages-{layout.block >> 10}kB/shmem_enabled", "never")
    area.write(2 * layout.cont_pages, 3)
    found = cache_of(guest, area, layout)
    assert found.counted == found.found == layout.cont_pages + 3
    assert errors(process.look()) == []


def test_l18_count_of_a_file(guest: Guest, cached: Area, layout: Layout) -> None:
    """One page more is counted than is there, and one less."""
    found = cache_of(guest, cached, layout)
    with cached.process.hold() as held:
        assert word(guest, found.counted_at) == PAGES
        for wrong in (PAGES + 1, PAGES - 1, 0):
            assert broken(held, [(found.counted_at, wrong)]) == [("L18", 0)]


def test_l19_of_a_file(guest: Guest, cached: Area, layout: Layout) -> None:
    """The tree of a file's VMAs is empty, and has another root."""
    found = cache_of(guest, cached, layout)
    at = found.counted_at + I_MMAP
    with cached.process.hold() as held:
        root = word(guest, at)
        assert root & 7 == 0 and root >> 52 == 0xFFF
        for wrong in (0, root + 8):
            assert broken(held, [(at, wrong)]) == [("L19", cached.address)]


def test_l18_what_shmem_counts(guest: Guest, swapped_file: Area, layout: Layout) -> None:
    """A page in swap too many or too few; fewer in all than there are. More may be a hole's that were dropped."""
    found = cache_of(guest, swapped_file, layout)
    (alloced, alloced_at), (swapped, swapped_at) = found.shmem["alloced"], found.shmem["swapped"]
    assert (found.counted, swapped, alloced) == (layout.cont_pages, layout.cont_pages, 2 * layout.cont_pages)
    with swapped_file.process.hold() as held:
        assert errors(held.judge()) == []
        for at, wrong in (
            (swapped_at, swapped + 1),
            (swapped_at, swapped - 1),
            (swapped_at, 0),
            (alloced_at, alloced - 1),
            (alloced_at, 0),
        ):
            assert broken(held, [(at, wrong)]) == [("L18", 0)], (at, wrong)
        assert broken(held, [(alloced_at, alloced + 7)]) == []


@pytest.fixture
def swapped_file(guest: Guest, process: Process) -> Iterator[Area]:
    """Two blocks of shared memory, of which the second is in swap."""
    guest.swap_on(SWAP)
    area = process.blocks(2, flags=["shared"])
    area.write()
    area.swap_out(area.pages // 2)
    yield area
    area.munmap()
    guest.swap_off(SWAP)


def test_l18_folios_of_a_file(guest: Guest, cached: Area, layout: Layout) -> None:
    """A page that nobody maps has another number, is of another file, anonymous, free, or without a reference."""
    process, other = cached.process, cached.process.blocks(1, flags=["shared"])
    other.write()
    cached.read()
    view = process.look()
    page = page_of(guest, view, cached.address + 7 * layout.page, layout)
    theirs = page_of(guest, view, other.address, layout).mapping
    cached.madvise("dontneed")
    with process.hold() as held:
        assert errors(held.judge()) == []
        now = guest.page(page.pfn)
        assert (now.kind, now.mapcount, now.index) == ("file", 0, 7)
        counts = word(guest, page.at + MAPCOUNT)
        assert not word(guest, page.at + FLAGS) & 1
        # The kernel still counts what is no page of a file any more. L15 is exact at a stop where no CPU is in the
        # kernel; one of 20 stops is such a one.
        for member, wrong, rules in (
            (INDEX, 8, ["L18"]),
            (MAPPING, theirs, ["L18"]),
            (MAPPING, now.mapping | 1, ["L15", "L18"]),
            (MAPPING, 0, ["L15", "L18"]),
            (MAPCOUNT, counts & 0xFFFF_FFFF, ["L18"]),
            (MAPCOUNT, counts & ~0xFFFF_FFFF | 0xF200_0000, ["L15", "L18"]),
        ):
            for _ in range(20):
                found = {rule for rule, _ in broken(held, [(page.at + member, wrong)])}
                assert "L18" in found and found <= set(rules), (member, hex(wrong), found)
                if found == set(rules):
                    break
            assert found == set(rules), (member, hex(wrong))
