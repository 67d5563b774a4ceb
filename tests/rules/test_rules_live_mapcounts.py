# SPDX-License-Identifier: GPL-2.0-only
"""L9 broken on a running guest: what folios, processes and page tables count of what is mapped, both ways."""

from __future__ import annotations

import re

import pytest
from folioscope import Area, Guest, Layout, Process

from live_pages import ANONYMOUS, MAPCOUNT, REFCOUNT_SHIFT, TABLE_LOCK, page_of, word
from test_rules_live import broken, errors, words_of

pytestmark = pytest.mark.every_granule

#: A zone whose counts cannot be judged while a task holds the lock of a CPU's free pages.
LOCKED = re.compile(r"L14 was not judged of zone \w+ of node \d+, the lock of a CPU's free pages was held; ")


def test_l9_fewer_references(guest: Guest, folded: Area, layout: Layout) -> None:
    """A folio has one reference less than entries map it."""
    with folded.process.hold() as held:
        page = page_of(guest, held.judge(), folded.address, layout)
        counts = word(guest, page.at + MAPCOUNT)
        assert counts >> REFCOUNT_SHIFT == page.refcount >= layout.cont_pages
        few = counts & 0xFFFF_FFFF | layout.cont_pages - 1 << REFCOUNT_SHIFT
        assert broken(held, [(page.at + MAPCOUNT, few)]) == [("L9", folded.address)]


def test_l9_page_that_is_free(guest: Guest, paged: Area, layout: Layout) -> None:
    """No references; the buddy allocator's type; and, of a page that was given back, the entry put back."""
    va = paged.address + layout.page
    with paged.process.hold() as held:
        view = held.judge()
        page = page_of(guest, view, va, layout)
        counts = word(guest, page.at + MAPCOUNT)
        assert counts >> REFCOUNT_SHIFT == page.refcount > 0
        assert broken(held, [(page.at + MAPCOUNT, counts & 0xFFFF_FFFF)]) == [("L9", va)]
        buddy = counts & ~0xFFFF_FFFF | 0xF000_0000
        assert broken(held, [(page.at + MAPCOUNT, buddy)]) == [("L9", va)]
        words, places = words_of(view, paged.address, layout)
    paged.madvise("dontneed", 1, 1)
    with paged.process.hold() as held:
        assert broken(held, [(places[1], words[1])]) == [("L9", va)]


def test_l9_mapcount(guest: Guest, paged: Area, folded: Area, layout: Layout) -> None:
    """A count without an entry and an entry without a count, of a page and of a folio's sum."""
    va = paged.address + 3 * layout.page
    with paged.process.hold() as held:
        page = page_of(guest, held.judge(), va, layout)
        counts = word(guest, page.at + MAPCOUNT)
        assert counts & 0xFFFF_FFFF == 0
        assert broken(held, [(page.at + MAPCOUNT, counts + 1)]) == [("L9", va)]
        assert broken(held, [(page.at + MAPCOUNT, counts | 0xFFFF_FFFF)]) == [("L9", va)]
    with folded.process.hold() as held:
        second = page_of(guest, held.judge(), folded.address + layout.page, layout)
        # _large_mapcount, in the second struct page.
        sums = word(guest, second.at + 16)
        assert sums & 0xFFFF_FFFF == layout.cont_pages - 1
        for wrong in (sums - 1, sums + 1):
            assert broken(held, [(second.at + 16, wrong)]) == [("L9", folded.address)]


def test_l9_folio_that_nobody_maps(guest: Guest, paged: Area, folded: Area, layout: Layout) -> None:
    """An entry is gone whose page is counted as before; a page of a file counts a mapping that nobody has."""
    for area, count in ((paged, 1), (folded, layout.cont_pages)):
        va = area.address
        with area.process.hold() as held:
            _, places = words_of(held.judge(), va, layout, count)
            # The process counts it, too.
            assert broken(held, [(place, 0) for place in places]) == [("L9", 0), ("L9", va)]
    shared = paged.process.blocks(1, hint="nohugepage", flags=["shared"])
    shared.write()
    with paged.process.hold() as held:
        view = held.judge()
        pages = [page_of(guest, view, shared.address + at * layout.page, layout) for at in range(4)]
    shared.madvise("dontneed")
    # The second does not have the file, and what has it is looked at beside it.
    for at, process in ((3, paged.process), (2, guest.spawn())):
        va = shared.address + at * layout.page
        with process.hold() as held:
            place = pages[at].at + MAPCOUNT
            counts = word(guest, place)
            assert counts & 0xFFFF_FFFF == 0xFFFF_FFFF
            assert broken(held, [(place, counts & ~0xFFFF_FFFF)]) == [("L9", va)]


@pytest.mark.parallel
def test_l9_mapcount_while_others_fork(guest: Guest, paged: Area, layout: Layout) -> None:
    """What is under way elsewhere hides no count without an entry, and is taken for none."""
    va = paged.address + 3 * layout.page
    forks = "(while :; do (:); /bin/busybox true; done) </dev/null >/dev/null 2>&1 & echo $!"
    # hold() looks too, at its beginning and its end: nothing forks then.
    with paged.process.hold() as held:
        forker = guest.run("/bin/busybox", "sh", "-c", forks).stdout.strip()
        try:
            page = page_of(guest, held.judge(), va, layout)
            counts = word(guest, page.at + MAPCOUNT)
            for _ in range(8):
                view = held.judge()
                # The task that forks may hold the lock of its CPU's free pages, which L14 needs.
                unjudged = [it for it in view.not_judged if not LOCKED.match(it)]
                assert not view.errors and not unjudged, (view.errors, unjudged)
                assert broken(held, [(page.at + MAPCOUNT, counts + 1)]) == [("L9", va)]
        finally:
            assert guest.run("/bin/busybox", "kill", "-9", forker).status == 0


def test_l9_two_processes(guest: Guest, paged: Area, layout: Layout) -> None:
    """What a child maps too is counted twice, and both are right; one count less is not."""
    va = paged.address + 3 * layout.page
    child = paged.process.fork()
    child.look()
    with paged.process.hold() as held:
        view = held.judge()
        assert errors(view) == []
        page = page_of(guest, view, va, layout)
        assert (page.mapcount, page.exclusive) == (2, False)
        counts = word(guest, page.at + MAPCOUNT)
        assert broken(held, [(page.at + MAPCOUNT, counts - 1)]) == [("L9", va)]


def test_l9_rss(guest: Guest, paged: Area) -> None:
    """A counter of the process is one off, in each direction."""
    with paged.process.hold() as held:
        space = guest.space(paged.process.pid)
        assert space.rss and space.rss["anonymous"] > 0
        at = space.rss_at[ANONYMOUS]
        count = word(guest, at)
        for wrong in (count + 1, count - 1):
            assert broken(held, [(at, wrong & (1 << 64) - 1)]) == [("L9", 0)]


def test_l9_rss_under_the_lock_of_a_table(guest: Guest, paged: Area, layout: Layout) -> None:
    """The same counter, and the lock of the table is held, as while an entry is being changed: it is not judged."""
    with paged.process.hold() as held:
        entry = held.judge().entry(paged.address)
        assert entry
        table = guest.page(entry.address // layout.page)
        at = guest.space(paged.process.pid).rss_at[ANONYMOUS]
        wrong = (at, word(guest, at) + 1)
        assert word(guest, table.at + TABLE_LOCK) == 0
        view = held.judge([wrong, (table.at + TABLE_LOCK, 1)])
        assert not view.errors
        assert any("the lock of one of its tables" in said for said in view.not_judged), view.not_judged
        assert broken(held, [wrong]) == [("L9", 0)]


def test_l9_page_tables(guest: Guest, paged: Area, layout: Layout) -> None:
    """The count of page tables is one table off; before, it counts the one that lies ready for a block, too."""
    process = paged.process
    before = guest.space(process.pid).tables_bytes
    if layout.granule == "4k":
        area = process.map(layout.pmd)
        area.write()
        entry = process.look().entry(area.address)
        assert entry and entry.level == 2, "this guest has no THP"
        after = guest.space(process.pid).tables_bytes
        assert before and after and after > before
        # Split, it is in use.
        area.mprotect(["read"], 0, 1)
        assert guest.space(process.pid).tables_bytes == after
        assert errors(process.look()) == []
    with process.hold() as held:
        at = guest.space(process.pid).tables_bytes_at
        assert at
        count = word(guest, at)
        for wrong in (count + layout.page, count - layout.page):
            assert broken(held, [(at, wrong)]) == [("L9", 0)]


# A block of the other granules is large.
@pytest.mark.parametrize("granule", ["4k"])
def test_l9_huge_zero_folio(guest: Guest, process: Process, layout: Layout) -> None:
    """A process that maps the huge zero folio has no reference on it by its flags."""
    area = process.map(layout.pmd)
    area.read()
    entry = process.look().entry(area.address)
    assert entry and entry.level == 2, "this guest has no huge zero folio"
    with process.hold() as held:
        space = guest.space(process.pid)
        assert space.huge_zero and space.huge_zero["is_holder"] and space.flags_at
        assert space.huge_zero["references"] > space.huge_zero["holders"] >= 1
        flags = word(guest, space.flags_at) & ~(1 << space.huge_zero["bit"])
        assert broken(held, [(space.flags_at, flags)]) == [("L9", 0)]


def test_l9_hugetlb_usage(guest: Guest, process: Process, layout: Layout) -> None:
    """The process counts a page of hugetlb too many, and one too few; the kernel's own file says what it counts."""
    size = layout.block >> 10
    assert guest.hugetlb_pages(size, 2) == 2
    try:
        area = process.map_hugetlb(2, size)
        area.write()
        with process.hold() as held:
            space = guest.space(process.pid)
            assert space.hugetlb == {"pages": 2 * layout.cont_pages, "may_share": False}
            status = guest.read(f"/proc/{process.pid}/status")
            assert f"HugetlbPages:\t{2 * size:8} kB" in status
            at = space.hugetlb_at
            assert at
            for wrong in (layout.cont_pages, 2 * layout.cont_pages + 1, (1 << 64) - 1):
                assert broken(held, [(at, wrong)]) == [("L9", 0)]
        area.munmap(0, layout.cont_pages)
        assert errors(process.look()) == []
        space = guest.space(process.pid)
        assert space.hugetlb == {"pages": layout.cont_pages, "may_share": False}
    finally:
        guest.hugetlb_pages(size, 0)
