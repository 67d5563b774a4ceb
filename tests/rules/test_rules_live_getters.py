# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel's own getters say, inside, against tables and pages from outside, made to disagree (L17).

They disagree by words changed from outside of which no other rule has anything to say.

The getters are read by the agent before the guest is stopped; the words are others only while it stands still.
"""

from __future__ import annotations

import pytest
from folioscope import Area, Guest, Layout, Process, View
from folioscope.model import Finding
from folioscope.process import Held

from live_pages import FLAGS, MAPCOUNT, SPECIAL, page_of, word
from test_rules_live import errors, words_of
from test_rules_live_counted import size_of
from test_zero_page import zeroes

pytestmark = pytest.mark.every_granule

#: ``PTE_UFFD_WP``.
UFFD_WP = 1 << 58
#: ``PG_referenced`` of 6.12.
REFERENCED = 1 << 2


def told(held: Held, pokes: list[tuple[int, int]]) -> list[Finding]:
    """What a break gives where getters were read; nothing is wrong before it and after it, nor where they were not."""
    assert errors(held.judge(getters=True)) == [] and pokes
    broken = held.judge(pokes, getters=True)
    assert not broken.not_judged, broken.not_judged
    assert errors(held.judge(pokes)) == [], "another rule has something to say of it"
    assert errors(held.judge(getters=True)) == []
    assert {finding.rule for finding in broken.errors} <= {"L17"}, broken.errors
    return sorted(broken.errors, key=lambda finding: finding.va)


@pytest.fixture
def zero(process: Process, layout: Layout) -> Area:
    """An area in which the zero page is mapped at the fourth page."""
    area = process.map(layout.block)
    zeroes(area, 3)
    return area


def test_l17_page_frame(zero: Area, layout: Layout) -> None:
    """The entry of a zero page leads to another frame; pagemap says which it was, and no other getter is told of."""
    va = zero.address + 3 * layout.page
    with zero.process.hold() as held:
        ((word_of_it,), (at,)) = words_of(held.judge(), va, layout, 1)
        assert word_of_it & SPECIAL
        (finding,) = told(held, [(at, word_of_it + layout.page)])
    assert finding.va == va
    frame = (word_of_it & (1 << 48) - layout.page) // layout.page
    assert f"pagemap says {1 << 63 | frame:#x} (" in finding.message and "kpage" not in finding.message


def test_l17_no_entry(zero: Area, layout: Layout) -> None:
    """It is gone from the table, as of all else that counts nothing."""
    va = zero.address + 3 * layout.page
    with zero.process.hold() as held:
        (_, (at,)) = words_of(held.judge(), va, layout, 1)
        found = told(held, [(at, 0)])
    assert [finding.va for finding in found] == [0, va]
    assert "PAGEMAP_SCAN finds" in found[0].message and "there is no entry" in found[1].message


def test_l17_flags(guest: Guest, paged: Area, folded: Area, layout: Layout) -> None:
    """A bit of ``flags`` and one of an entry that only getters are asked about."""
    for area, of in ((paged, "flags"), (folded, "flags"), (paged, "entry")):
        if of == "entry":
            # L8 allows the bit where a userfaultfd protects pages.
            area.uffd_register("write_protect")
        with area.process.hold() as held:
            view = held.judge()
            words, places = words_of(view, area.address, layout)
            head = page_of(guest, view, area.address, layout)
            if of == "flags":
                found = told(held, [(head.at + FLAGS, word(guest, head.at + FLAGS) ^ REFERENCED)])
                # Flags are the folio's: each of its pages says it, of which not more are listed.
                pages = range(min(1 << head.order, 100))
                assert [finding.va for finding in found] == [area.address + at * layout.page for at in pages]
                assert all("kpageflags says" in finding.message for finding in found)
                assert all("REFERENCED" in finding.message for finding in found)
            else:
                assert not words[0] & UFFD_WP
                (finding,) = told(held, [(places[0], words[0] | UFFD_WP)])
                assert finding.va == area.address and "pagemap says" in finding.message
                assert "(not UFFD_WP)" in finding.message


def test_l17_sizes(guest: Guest, folded: Area, layout: Layout) -> None:
    """One folio more is counted than sysfs has said; and than there are (L12)."""
    with folded.process.hold() as held:
        assert errors(held.judge(getters=True)) == []
        size = size_of(guest, layout.cont_order)
        at = size["at"][0]
        view = held.judge([(at, word(guest, at) + 1)], getters=True)
        assert errors(held.judge(getters=True)) == []
    assert errors(view) == [("L12", 0), ("L17", 0)]
    (finding,) = (finding for finding in view.errors if finding.rule == "L17")
    said, counted = size["anonymous"], size["anonymous"] + 1
    assert f"nr_anon of order {layout.cont_order} is {said}, and the kernel's counters are {counted}" in finding.message


def test_one_rule_tells(guest: Guest, paged: Area, layout: Layout) -> None:
    """A count that is wrong by its entries is L9's, although kpagecount says otherwise as well."""
    with paged.process.hold() as held:
        page = page_of(guest, held.judge(), paged.address, layout)
        now = word(guest, page.at + MAPCOUNT)
        low = now & ~0xFFFF_FFFF | (now + 1) & 0xFFFF_FFFF
        view = held.judge([(page.at + MAPCOUNT, low)], getters=True)
    assert errors(view) == [("L9", paged.address)]


def test_every_kind_of_page_agrees(process: Process, layout: Layout) -> None:
    """Folded and not, shared, forked and written to in part, a PMD's block split in part, without access, hugetlb."""
    folded, paged = process.blocks(2), process.blocks(1, hint="nohugepage")
    shared = process.blocks(1, flags=["shared"])
    zeroes(process.map(layout.block), 0, 5)
    none = process.blocks(1)
    for area in (folded, paged, shared, none):
        area.write()
    none.mprotect([])
    child = process.fork()
    folded.in_process(child).write(1, 3)
    folded.in_process(child).madvise("dontneed", 9, 2)
    shared.in_process(child).read()

    def clean(of: Process) -> View:
        view = of.look(getters=True)
        assert errors(view) == []
        return view

    for of in (process, child, process):
        clean(of)
    child.exit()
    clean(process)
