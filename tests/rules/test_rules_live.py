# SPDX-License-Identifier: GPL-2.0-only
"""Each rule broken on a running guest, one at a time, by words of its tables changed from outside.

A break is in guest memory for the time of one capture; before it and after it no rule may be broken.
What a break must give is written down as (rule, VA) from the rule's text; where a second rule speaks
too, the break says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from folioscope import Area, Expectation, Layout, Process, View
from folioscope.guest import Held

pytestmark = pytest.mark.every_granule

VALID = 1 << 0
USER = 1 << 6
RDONLY = 1 << 7
SH = 1 << 8
AF = 1 << 10
NG = 1 << 11
WRITE = 1 << 51
CONT = 1 << 52
UXN = 1 << 54
DIRTY = 1 << 55
SPECIAL = 1 << 56
DEVMAP = 1 << 57
UFFD_WP = 1 << 58
# AttrIndx of MT_NORMAL_NC; MT_NORMAL has 0 (asm/memory.h).
NORMAL_NC = 2 << 2

Words = list[int]
Changed = dict[int, int]
Errors = list[tuple[str, int]]


@dataclass(frozen=True)
class Case:
    """A break of the words of one folded block: by index, the word that is to be there instead.

    ``rules`` are all that must be found, each at the block's own VA, or at none where it is of all memory.
    """

    name: str
    change: Callable[[Words, Layout], Changed]
    rules: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def every(words: Words, change: Callable[[int], int]) -> Changed:
    """The same change of all words."""
    return {index: change(word) for index, word in enumerate(words)}


def swapped(words: Words, one: int, two: int) -> Changed:
    """Two words exchange their output addresses; the attributes of a block's words are equal."""
    return {one: words[two], two: words[one]}


BY_ANY_CPU = [
    Case("A2-misaligned", lambda w, size: every(w, lambda word: word + size.page), ("A2",)),
    Case("A3-swapped", lambda w, size: swapped(w, 2, 5), ("A3",)),
    Case("A3-one-elsewhere", lambda w, size: {3: w[3] + size.block}, ("A3",)),
    Case("A4-one-without", lambda w, size: {7: w[7] & ~CONT}, ("A4",)),
    Case("A4-first-without", lambda w, size: {0: w[0] & ~CONT}, ("A4",)),
    Case("A4-only-last", lambda w, size: {i: w[i] & ~CONT for i in range(len(w) - 1)}, ("A4",)),
    Case("A5-memory-type", lambda w, size: {4: w[4] ^ NORMAL_NC}, ("A5",)),
    Case("A5-EL0-access", lambda w, size: {4: w[4] & ~USER}, ("A5",)),
    Case("A5-execute", lambda w, size: {len(w) - 1: w[-1] ^ UXN}, ("A5",)),
    Case("A5-global", lambda w, size: {1: w[1] & ~NG}, ("A5",)),
    Case("L1-hole", lambda w, size: {9: 0}, ("L1",)),
    Case("L1-only-one", lambda w, size: {i: 0 for i in range(1, len(w))}, ("L1",)),
    # A swap entry is not valid; its own bit 52 is offset and says nothing. Here is no swap that it could lead to.
    Case("L1-swapped-out", lambda w, size: {9: 0x1_0000_0000_1004 | CONT}, ("L1", "L16")),
    # PROT_NONE is not valid either, so the group is not complete.
    Case("L4-protnone", lambda w, size: {5: w[5] & ~VALID}, ("L1", "L4")),
    Case("L3-special", lambda w, size: every(w, lambda word: word | SPECIAL), ("L3",)),
    # Special on one entry alone is unequal too.
    Case("L3-one-special", lambda w, size: {6: w[6] | SPECIAL}, ("L3", "L5")),
    # No userfaultfd protects the area either.
    Case("L5-uffd-wp", lambda w, size: {6: w[6] | UFFD_WP}, ("L5", "L8")),
    Case("L5-devmap", lambda w, size: {6: w[6] | DEVMAP}, ("L5",)),
    Case("L6-all", lambda w, size: every(w, lambda word: word | WRITE | DIRTY | RDONLY), ("L6",)),
]

# Where the CPU updates AF and AP[2] by itself, members may differ in them.
WITH_HARDWARE_UPDATES = [
    Case("old", lambda w, size: {3: w[3] & ~AF}, ()),
    Case("all-old-but-one", lambda w, size: {i: w[i] & ~AF for i in range(1, len(w))}, ()),
    Case("clean", lambda w, size: {3: w[3] & ~DIRTY | RDONLY}, ()),
    Case("L6-one", lambda w, size: {3: w[3] | WRITE | DIRTY | RDONLY}, ("L6",)),
]

WITHOUT_HARDWARE_UPDATES = [
    Case("L5-old", lambda w, size: {3: w[3] & ~AF}, ("L5",)),
    Case("L5-dirty", lambda w, size: {3: w[3] & ~DIRTY}, ("L5",)),
    Case("L5-write", lambda w, size: {3: w[3] & ~WRITE}, ("L5",)),
    Case("all-old", lambda w, size: every(w, lambda word: word & ~AF), ()),
    # AP[2] is the architecture's, the dirty bit is Linux's.
    Case("A5-clean", lambda w, size: {3: w[3] & ~DIRTY | RDONLY}, ("A5", "L5")),
    # One entry that is inconsistent in itself, and differs in AP[2].
    Case("A5-L6-one", lambda w, size: {3: w[3] | WRITE | DIRTY | RDONLY}, ("A5", "L6")),
]


def errors(view: View) -> Errors:
    """Rule and VA of each error, in order."""
    assert not view.not_judged, view.not_judged
    return sorted((finding.rule, finding.va) for finding in view.errors)


def words_of(view: View, va: int, layout: Layout, count: int | None = None) -> tuple[Words, list[int]]:
    """The words of a block's pages, and where each stands."""
    entries = [view.entry(va + i * layout.page) for i in range(count or layout.cont_pages)]
    assert all(entry and entry.level == 3 for entry in entries), "the block is not mapped by pages"
    found = [entry for entry in entries if entry]
    return [entry.word for entry in found], [entry.address for entry in found]


def broken(held: Held, pokes: list[tuple[int, int]], **params: object) -> Errors:
    """What a break gives; nothing is broken before it and after it."""
    before = held.judge()
    assert errors(before) == []
    assert pokes, "nothing to break"
    found = errors(held.judge(pokes, **params))
    after = held.judge()
    assert errors(after) == []
    assert {e.address: e.word for e in after.entries} == {e.address: e.word for e in before.entries}
    return found


def alone(view: View, area: Area, layout: Layout) -> int | None:
    """One of the area's blocks behind whose memory none of the process's is: a page that is off by a little must not be
    somebody's, or two mappings of it are found as well."""
    outputs = {e.va: e.output_address for e in view.entries if e.output_address}
    for va in range(area.address, area.address + area.length, layout.block):
        behind = range(outputs[va] + layout.block, outputs[va] + 2 * layout.block)
        if not any(output in behind for output in outputs.values()):
            return va
    return None


def check(area: Area, case: Case, layout: Layout) -> None:
    """Breaks a block of the area, or of another one, as the case says."""
    for _ in range(8):
        with area.process.hold() as held:
            view = held.judge()
            assert view.pattern(area.address, area.length) == "CC"
            if (va := alone(view, area, layout)) is not None:
                words, places = words_of(view, va, layout)
                pokes = [(places[index], word) for index, word in case.change(words, layout).items()]
                assert all(words[places.index(place)] != word for place, word in pokes)
                # A finding of L8 begins at its entry; one of L16 has no address.
                at = {"L8": va + places.index(pokes[0][0]) * layout.page, "L16": 0}
                assert broken(held, pokes) == [(rule, at.get(rule, va)) for rule in sorted(case.rules)]
                return
        area = area.process.blocks(2)
        area.write()
    pytest.fail("each block has memory of the process behind it")


@pytest.mark.parametrize("case", BY_ANY_CPU, ids=str)
def test_folded_block(folded: Area, layout: Layout, case: Case) -> None:
    """A break of a folded block is found at that block, by that rule alone."""
    check(folded, case, layout)


@pytest.mark.parametrize("case", WITH_HARDWARE_UPDATES, ids=str)
def test_hardware_updates(folded: Area, layout: Layout, case: Case) -> None:
    """AF and AP[2] may differ where the CPU updates them."""
    check(folded, case, layout)


@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("cpu", ["cortex-a72"])
@pytest.mark.parametrize("granule", ["4k", "64k"])
@pytest.mark.parametrize("case", BY_ANY_CPU[:1] + BY_ANY_CPU[7:8] + WITHOUT_HARDWARE_UPDATES, ids=str)
def test_software_updates(folded: Area, layout: Layout, case: Case) -> None:
    """AF, AP[2] and the dirty bit must be equal where only the kernel updates them."""
    check(folded, case, layout)


def test_a1_group_between_two(folded: Area, layout: Layout) -> None:
    """An aligned output range that starts in the middle of a group; both groups are incomplete too."""
    pages = layout.cont_pages
    with folded.process.hold() as held:
        words, places = words_of(held.judge(), folded.address, layout, 2 * pages)
        moved = [0] * (pages // 2) + words[:pages] + [0] * (pages // 2)
        found = broken(held, list(zip(places, moved, strict=True)))
    blocks = [folded.address, folded.address + layout.block]
    # The second half of the run starts at its group's first index, with an output range out of step.
    assert found == sorted([("A1", va) for va in blocks] + [("L1", va) for va in blocks])


@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_bits_9_8_are_what_the_regime_says(folded: Area, layout: Layout) -> None:
    """With TCR_EL1.DS they are address (A3), else shareability (A5). `-cpu max` has DS at 4K and 16K."""
    with folded.process.hold() as held:
        words, places = words_of(held.judge(), folded.address, layout)
        rule = "A5" if layout.granule == "64k" else "A3"
        assert broken(held, [(places[6], words[6] ^ SH)]) == [(rule, folded.address)]


def test_a7_reserved_type(paged: Area, layout: Layout) -> None:
    """0b01 is no type at level 3: found at that very page."""
    with paged.process.hold() as held:
        words, places = words_of(held.judge(), paged.address, layout)
        assert broken(held, [(places[3], words[3] & ~2)]) == [("A7", paged.address + 3 * layout.page)]


@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("cpu", ["cortex-a72"])
@pytest.mark.parametrize("granule,bit", [("4k", 44), ("4k", 47), ("4k", 48), ("64k", 44), ("64k", 12)])
def test_a7_beyond_output_size(paged: Area, layout: Layout, bit: int) -> None:
    """The CPU has 44 bits of physical address: a page above them, and a set RES0 bit."""
    with paged.process.hold() as held:
        words, places = words_of(held.judge(), paged.address, layout)
        assert broken(held, [(places[2], words[2] | 1 << bit)]) == [("A7", paged.address + 2 * layout.page)]


def test_l4_contiguous_protnone(process: Process, layout: Layout) -> None:
    """The bit on PROT_NONE entries, as a whole block and on one of them."""
    area = process.blocks(2)
    area.write()
    area.mprotect([])
    with process.hold() as held:
        words, places = words_of(held.judge(), area.address, layout)
        assert not any(word & (VALID | CONT) for word in words)
        assert broken(held, [(place, word | CONT) for place, word in zip(places, words, strict=True)]) == [
            ("L4", area.address)
        ]
        assert broken(held, [(places[1], words[1] | CONT)]) == [("L4", area.address)]


def test_l4_not_in_swap_entries(process: Process, layout: Layout) -> None:
    """Bit 52 of an entry that is not present belongs to a swap offset and is never read."""
    area = process.blocks(2)
    area.write(0, layout.cont_pages)
    with process.hold() as held:
        _, places = words_of(held.judge(), area.address, layout)
        empty = places[-1] + 8
        # It is one that the process's counter of swapped pages does not count, and leads to no swap that there is.
        assert broken(held, [(empty, 0x1_0000_0000_1004 | CONT)]) == [("L16", 0), ("L9", 0)]


def test_l6_one_page(paged: Area, layout: Layout) -> None:
    """WRITE, DIRTY and RDONLY at once on a page of its own."""
    with paged.process.hold() as held:
        words, places = words_of(held.judge(), paged.address, layout)
        assert broken(held, [(places[0], words[0] | WRITE | DIRTY | RDONLY)]) == [("L6", paged.address)]


def test_l6_written_is_dirty(paged: Area, layout: Layout) -> None:
    """A clean entry is legal, unless the page is known to have been written."""
    page = layout.page
    with paged.process.hold() as held:
        words, places = words_of(held.judge(), paged.address, layout)
        clean = [(places[1], words[1] & ~DIRTY | RDONLY)]
        written = Expectation(paged.address, paged.address + paged.length, "written")
        assert broken(held, clean) == []
        assert broken(held, clean, expectations=[written]) == [("L6", paged.address + page)]


def test_l6_unwritten_is_clean(process: Process, layout: Layout) -> None:
    """A dirty entry for a page that nobody wrote."""
    area = process.blocks(1, flags=["shared"])
    area.read()
    with process.hold() as held:
        words, places = words_of(held.judge(), area.address, layout)
        assert not any(word & DIRTY or not word & RDONLY for word in words)
        unwritten = Expectation(area.address, area.address + area.length, "not-written")
        assert errors(held.judge(expectations=[unwritten])) == []
        found = errors(
            held.judge(
                [(p, (w | DIRTY) & ~RDONLY) for p, w in zip(places, words, strict=True)], expectations=[unwritten]
            )
        )
        assert found == [("L6", area.address)]


def test_l5_access_that_was_asked_for(folded: Area, layout: Layout) -> None:
    """A block of which no entry lets the CPU read, or write, without another fault: legal, unless that was just done.

    One entry will do, as this CPU updates AF and AP[2]. What software carried is in every raw entry.
    """
    third = folded.address + 3 * layout.page
    readable, writable = (Expectation(third, third + layout.page, what) for what in ("readable", "writable"))
    young, dirty = (Expectation(folded.address, folded.address + layout.block, what) for what in ("young", "dirty"))
    with folded.process.hold() as held:
        words, places = words_of(held.judge(), folded.address, layout)
        for just, carried, rule, change in (
            (readable, young, "L5", lambda word: word & ~AF),
            (writable, dirty, "L6", lambda word: word & ~DIRTY | RDONLY),
        ):
            pokes = [(place, change(word)) for place, word in zip(places, words, strict=True)]
            asked, raw = [just], [carried]
            assert errors(held.judge(expectations=asked + raw)) == []
            assert broken(held, pokes) == []
            assert broken(held, pokes, expectations=asked) == [("L5", folded.address)]
            assert broken(held, pokes[1:], expectations=asked) == []
            assert broken(held, pokes[5:6], expectations=raw) == [(rule, folded.address + 5 * layout.page)]


def test_l5_what_may_not_go(paged: Area, layout: Layout) -> None:
    """A page that the kernel gave up, as it was asked to; one that it may not give up is still there."""
    look = functools.partial(paged.process.look, check=False)
    paged.mapped()
    assert errors(look()) == []
    paged.madvise("dontneed", 2, 1)
    paged.mapped()
    gone = paged.address + 2 * layout.page
    assert errors(look()) == [("L5", gone)]
    # A load maps the zero page.
    paged.read(2, 1)
    paged.mapped()
    assert errors(look()) == [("L5", gone)]
    paged.mapped(3)
    assert errors(look()) == []


def test_l8_outside_every_vma(paged: Area, layout: Layout) -> None:
    """A present entry behind the area's end."""
    with paged.process.hold() as held:
        words, places = words_of(held.judge(), paged.address, layout)
        behind = paged.address + paged.length
        assert broken(held, [(places[-1] + 8, words[0])]) == [("L8", behind)]


def test_l8_outside_by_unmapping(process: Process, layout: Layout) -> None:
    """The word that was there before munmap, put back."""
    area = process.blocks(2, hint="nohugepage")
    area.write()
    words, places = words_of(process.look(), area.address, layout)
    area.munmap(0, layout.cont_pages)
    with process.hold() as held:
        assert broken(held, [(places[1], words[1])]) == [("L8", area.address + layout.page)]


def test_l8_left_by_unmapping(process: Process, layout: Layout) -> None:
    """A marker in place of a page that was unmapped."""
    area = process.blocks(2, hint="nohugepage")
    area.write()
    _, places = words_of(process.look(), area.address, layout)
    area.munmap(0, layout.cont_pages)
    # PTE_MARKER_POISONED of swap type 31 (include/linux/swapops.h).
    marker = 31 << 6 | 2 << 12
    with process.hold() as held:
        assert broken(held, [(places[1], marker)]) == [("L8", area.address + layout.page)]


@pytest.mark.parametrize("hint", ["hugepage", "nohugepage"])
def test_l8_writable_in_readonly_area(process: Process, layout: Layout, hint: str) -> None:
    """A block, and one page, that EL0 may write in an area that it may only read."""
    area = process.blocks(1, hint=hint)
    area.write()
    area.mprotect(["read"])
    with process.hold() as held:
        words, places = words_of(held.judge(), area.address, layout)
        assert all(word & RDONLY and not word & WRITE for word in words)
        count = layout.cont_pages if hint == "hugepage" else 1
        pokes = [(places[i], words[i] & ~RDONLY | WRITE) for i in range(count)]
        assert broken(held, pokes) == [("L8", area.address)]


def test_c1_must_be_folded(folded: Area, layout: Layout) -> None:
    """An unfolded block is legal, unless the step before must have folded it."""
    with folded.process.hold() as held:
        words, places = words_of(held.judge(), folded.address, layout)
        unfolded = [(place, word & ~CONT) for place, word in zip(places, words, strict=True)]
        both = Expectation(folded.address, folded.address + folded.length, "contiguous")
        assert broken(held, unfolded) == []
        assert errors(held.judge(expectations=[both])) == []
        assert broken(held, unfolded, expectations=[both]) == [("C1", folded.address)]
        where_possible = Expectation(both.start, both.end, "contiguous-if-possible")
        assert errors(held.judge(expectations=[where_possible])) == []
        assert broken(held, unfolded, expectations=[where_possible]) == [("C1", folded.address)]
        # With a hole it cannot be; that a page is mapped no more is L9's.
        hole = [(places[3], 0), *(change for change in unfolded if change[0] != places[3])]
        assert {rule for rule, _ in broken(held, hole, expectations=[where_possible])} == {"L9"}


def test_c2_must_not_be_folded(paged: Area, folded: Area, layout: Layout) -> None:
    """A folded block where the step before must have unfolded it."""
    second = folded.address + layout.block
    no = Expectation(second, second + layout.page, "not-contiguous")
    pages = Expectation(paged.address, paged.address + paged.length, "not-contiguous")
    with folded.process.hold() as held:
        assert errors(held.judge(expectations=[pages])) == []
        assert errors(held.judge(expectations=[pages, no], check=False)) == [("C2", second)]


def test_l11_fresh_folio(folded: Area, layout: Layout) -> None:
    """Two pages of a folio that was just faulted in, exchanged; the bit is taken so that A3 has no say."""
    with folded.process.hold() as held:
        words, places = words_of(held.judge(), folded.address, layout)
        fresh = Expectation(folded.address, folded.address + folded.length, "freshly-faulted")
        assert errors(held.judge(expectations=[fresh])) == []
        plain = [word & ~CONT for word in words]
        plain[2], plain[5] = plain[5], plain[2]
        pokes = list(zip(places, plain, strict=True))
        # The pages have their numbers by themselves; the record says more.
        moved = [("L7", folded.address + 2 * layout.page)]
        assert broken(held, pokes) == moved
        assert broken(held, pokes, expectations=[fresh]) == [("L11", folded.address), *moved]
