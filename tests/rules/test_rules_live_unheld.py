# SPDX-License-Identifier: GPL-2.0-only
"""What nothing else holds, made wrong from outside: a reference too many (C4), a lost dirty state (C5), a lock that
stays and a list that lacks it (C6), a lost charge (C7)."""

from __future__ import annotations

import pytest
from folioscope import Area, Guest, Layout, Process
from folioscope.expect import Expectation

from live_pages import FLAGS, MAPCOUNT, REFCOUNT_SHIFT, page_of, word
from test_rules_live import broken, words_of

pytestmark = pytest.mark.every_granule

#: ``PG_uptodate`` and ``PG_dirty`` of 6.12 (include/linux/page-flags.h).
UPTODATE, DIRTY = 1 << 3, 1 << 4
#: ``PG_lru``, ``PG_unevictable`` and ``PG_mlocked``.
LRU, UNEVICTABLE, MLOCKED = 1 << 5, 1 << 18, 1 << 19
#: ``memcg_data`` of a struct page.
MEMCG_DATA = 56


def unheld(area: Area) -> Expectation:
    """Nothing but entries and caches holds a folio of the area."""
    return Expectation(area.address, area.address + area.length, "unheld")


def drain(guest: Guest) -> None:
    """Takes what was just faulted in from the batches of the LRU lists, which hold it (``lru_add_drain_all()``)."""
    guest.write("/proc/sys/vm/drop_caches", "1")


def test_a_leaked_reference_is_named(guest: Guest, folded: Area, paged: Area, layout: Layout) -> None:
    """Of a large folio and of a single page; where nothing is known of who holds it, one more may be anybody's."""
    drain(guest)
    for area in (folded, paged):
        with area.process.hold() as held:
            page = page_of(guest, held.judge(expectations=[unheld(area)]), area.address, layout)
            more = [(page.at + MAPCOUNT, word(guest, page.at + MAPCOUNT) + (1 << REFCOUNT_SHIFT))]
            assert broken(held, more) == []
            assert broken(held, more, expectations=[unheld(area)]) == [("C4", area.address)]


def test_lost_dirty_state_is_named(guest: Guest, process: Process, layout: Layout) -> None:
    """Written by mmap(), then mapped by clean entries, as after fork(); and one that was read alone."""
    area = process.blocks(1, flags=["shared"])
    area.write()
    drain(guest)
    with process.hold() as held:
        view = held.judge(expectations=[unheld(area)])
        page = page_of(guest, view, area.address, layout)
        words, places = words_of(view, area.address, layout)
        clean = [(at, entry & ~(1 << 55 | 1 << 51) | 1 << 7) for at, entry in zip(places, words, strict=True)]
        flags = (page.at + FLAGS, word(guest, page.at + FLAGS) & ~DIRTY)
        # Each by itself is legal.
        assert broken(held, clean, expectations=[unheld(area)]) == []
        assert broken(held, [flags], expectations=[unheld(area)]) == []
        assert broken(held, [flags, *clean], expectations=[unheld(area)]) == [("C5", area.address)]
        never = (page.at + FLAGS, word(guest, page.at + FLAGS) & ~UPTODATE)
        assert broken(held, [never], expectations=[unheld(area)]) == [("C5", area.address)]
    # Read alone it holds zeroes, and is clean.
    read = process.blocks(1, flags=["shared"])
    read.read()
    drain(guest)
    with process.hold() as held:
        assert not [it for it in held.judge(expectations=[unheld(read)]).findings if it.severity == "error"]


def test_a_lock_that_stays_is_named(guest: Guest, folded: Area, paged: Area, layout: Layout) -> None:
    """A page and a large folio that no locked VMA maps have the mark of those that one does; or are on no list."""
    locked = paged.process.map(4 * layout.page, hint="nohugepage")
    locked.write()
    locked.mlock()
    drain(guest)
    for area, marked in ((locked, True), (paged, False), (folded, False)):
        with area.process.hold() as held:
            page = page_of(guest, held.judge(expectations=[unheld(area)]), area.address, layout)
            flags = word(guest, page.at + FLAGS)
            assert bool(flags & MLOCKED) == marked == ("mlocked" in guest.page(page.pfn).folio_flags)
            assert bool(flags & UNEVICTABLE) == marked
            other = [(page.at + FLAGS, flags ^ MLOCKED)]
            assert broken(held, other) == []
            # Reclaim would never find it: marked and not locked, or not marked and on the list of what is.
            assert broken(held, other, expectations=[unheld(area)]) == [("C6", area.address)]
            neither = [(page.at + FLAGS, flags & ~(MLOCKED | UNEVICTABLE))]
            assert broken(held, neither, expectations=[unheld(area)]) == []
            nowhere = [(page.at + FLAGS, flags & ~LRU)]
            assert broken(held, nowhere, expectations=[unheld(area)]) == [("C6", area.address)]


def test_a_lost_charge_is_named(guest: Guest, folded: Area, paged: Area, layout: Layout) -> None:
    """Of a large folio and of a single page; elsewhere nothing is asked."""
    drain(guest)
    for area in (folded, paged):
        with area.process.hold() as held:
            page = page_of(guest, held.judge(expectations=[unheld(area)]), area.address, layout)
            at = guest.page(page.head).at + MEMCG_DATA
            assert word(guest, at)
            assert broken(held, [(at, 0)]) == []
            assert broken(held, [(at, 0)], expectations=[unheld(area)]) == [("C7", area.address)]
