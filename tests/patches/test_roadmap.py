# SPDX-License-Identifier: GPL-2.0-only
"""What the RFC left for later, each behind its switch in ``anon_order/``: LRU lists that are added to in batches,
advice that splits a folio no further than it must, and entries that are zapped one by one, as once they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from folioscope import Area, Guest, Layout, Process

THP = "/sys/kernel/mm/transparent_hugepage"
LRU_BATCH = f"{THP}/anon_order/lru_batch"
MADVISE_SPLIT = f"{THP}/anon_order/madvise_split"
ZAP_BATCH = f"{THP}/anon_order/zap_batch"
DEFAULTS = {LRU_BATCH: "0", MADVISE_SPLIT: "0", ZAP_BATCH: "1"}
#: Folios that are larger are not batched.
MOST_BATCHED = 64 << 10
#: Folios of a batch (PAGEVEC_SIZE).
BATCH = 31
#: Bytes of a struct page, and of what comes before ``lru`` in it.
PAGE, LRU = 64, 8


@pytest.fixture(autouse=True)
def switches(guest: Guest) -> Iterator[None]:
    """Every switch is as it was at boot, before and behind."""
    assert {path: guest.read(path).strip() for path in DEFAULTS} == DEFAULTS
    yield
    for path, value in DEFAULTS.items():
        guest.write(path, value)


def sized(process: Process, order: int, count: int) -> Area:
    """An area for folios of one order alone, whose size is enabled for all; nothing is written yet."""
    size = process.guest.layout.page << order
    process.guest.set_policy("sysfs")
    process.guest.write(f"{THP}/hugepages-{size >> 10}kB/enabled", "always")
    return process.map(count * size, hint=None)


def frames(area: Area) -> list[int]:
    """The page frames behind an area, page by page."""
    view = area.process.look()
    assert not view.errors and not view.not_judged
    page = area.process.guest.layout.page
    outputs = {entry.va: entry.output_address for entry in view.entries}
    return [(outputs[va] or 0) // page for va in range(area.address, area.address + area.length, page)]


def orders(area: Area) -> list[int]:
    """The order of the folio that each page of an area is of."""
    return [area.process.guest.page(pfn).order for pfn in frames(area)]


# Batches of folios that are to be on an LRU list.


def batched_order(layout: Layout) -> int:
    """Folios of 64K, or the smallest that there are."""
    return max(2, (MOST_BATCHED // layout.page).bit_length() - 1)


def drain(guest: Guest) -> None:
    """No folio waits any more."""
    guest.write(LRU_BATCH, "1")
    guest.write(LRU_BATCH, "0")


@pytest.mark.parametrize("on", [False, True])
def test_large_folios_wait_for_their_list(guest: Guest, process: Process, layout: Layout, on: bool) -> None:
    """In a batch a folio has a reference more, and is on no list, until the batch is full or drained."""
    guest.write(LRU_BATCH, str(int(on)))
    order = batched_order(layout)
    area = sized(process, order, 4)
    process.pin(1)
    area.write()
    heads = frames(area)[:: 1 << order]
    waits = on and layout.page << order <= MOST_BATCHED
    for head in heads:
        folio = guest.page(head)
        assert folio.order == order
        assert ("lru" in folio.folio_flags, folio.refcount) == (not waits, (1 << order) + waits)
    # To switch it off leaves nothing behind.
    guest.write(LRU_BATCH, "0")
    for head in heads:
        folio = guest.page(head)
        assert "lru" in folio.folio_flags and folio.refcount == 1 << order
    assert area.verify().wrong == 0


def test_larger_folios_do_not_wait(guest: Guest, process: Process, layout: Layout) -> None:
    """The next size is put on its list at once, whatever the switch says."""
    guest.write(LRU_BATCH, "1")
    order = batched_order(layout) + 1
    area = sized(process, order, 2)
    process.pin(1)
    area.write()
    for head in frames(area)[:: 1 << order]:
        folio = guest.page(head)
        assert folio.order == order and layout.page << order > MOST_BATCHED
        assert "lru" in folio.folio_flags and folio.refcount == 1 << order


def test_a_batch_has_room_for_so_many(guest: Guest, process: Process, layout: Layout) -> None:
    """The folio that fills a batch takes all of them to their list."""
    order = batched_order(layout)
    area = sized(process, order, BATCH + BATCH // 2)
    process.pin(1)
    drain(guest)
    guest.write(LRU_BATCH, "1")
    area.write()
    heads = frames(area)[:: 1 << order]
    waiting = [head for head in heads if "lru" not in guest.page(head).folio_flags]
    if layout.page << order > MOST_BATCHED:
        assert not waiting
    else:
        # One whole batch went, if not more: pages of others are in it too.
        assert 0 < len(waiting) < BATCH and waiting == heads[-len(waiting) :]


@pytest.mark.parametrize("on", [False, True])
def test_lists_are_in_the_order_of_faults(guest: Guest, process: Process, layout: Layout, on: bool) -> None:
    """Large folios and single pages in turn: each is before the one that came before it, batched or not."""
    guest.write(LRU_BATCH, str(int(on)))
    order = batched_order(layout)
    area = sized(process, order, 6)
    single = process.map(6 * layout.page, hint="nohugepage")
    process.pin(1)
    for at in range(6):
        area.write(at << order, 1)
        single.write(at, 1)
    large, small = frames(area)[:: 1 << order], frames(single)
    waits = on and layout.page << order <= MOST_BATCHED
    assert ["lru" in guest.page(head).folio_flags for head in large] == [not waits] * 6
    drain(guest)
    pfns = [pfn for pair in zip(large, small, strict=True) for pfn in pair]
    assert listed_behind(guest, pfns[-1], 64 + len(pfns), pfns) == pfns[::-1]


def listed_behind(guest: Guest, pfn: int, steps: int, known: list[int]) -> list[int]:
    """Those of some page frames that are on the list of one, from it on: ``next`` is the ``lru`` of another page."""

    def following(pfn: int) -> int:
        (found,) = guest.words(guest.page(pfn).at + LRU, 1)
        return found - LRU

    # Where the array of pages is in the kernel's half: nearly all pairs say so, and others' pages may come in between.
    bases = Counter(following(pfn) - before * PAGE for before, pfn in pairwise(known))
    base = bases.most_common(1)[0][0]
    found = []
    for _ in range(steps):
        found.append(pfn)
        if set(known) <= set(found):
            break
        pfn = (following(pfn) - base) // PAGE
    return [pfn for pfn in found if pfn in known]


def test_a_batch_keeps_nobody_from_his_own(guest: Guest, process: Process, layout: Layout) -> None:
    """Memory that waits in a batch is unmapped and advised like any other, and is free once the batch is drained."""
    guest.write(LRU_BATCH, "1")
    order = batched_order(layout)
    area = sized(process, order, 3)
    process.pin(1)
    area.write()
    heads = frames(area)[:: 1 << order]
    if layout.page << order <= MOST_BATCHED:
        assert not any("lru" in guest.page(head).folio_flags for head in heads)
    area.munmap(0, 1 << order)
    area.madvise("free", 1 << order, 1 << order)
    area.madvise("cold", 2 << order, 1 << order)
    assert orders(area.part(1 << order)) == [order] * (2 << order)
    guest.write(LRU_BATCH, "0")
    freed = guest.page(heads[0])
    # Somebody else may have it by now, as another folio.
    assert freed.refcount == 0 or (freed.head, freed.order, freed.kind) != (heads[0], order, "anonymous")
    assert not process.look().errors


# Advice for a part of a folio.


def pieces(folio: int, first: int, pages: int) -> int:
    """The order of the pieces that a folio is split into for the sake of these pages: none lies across their bounds,
    none is of order 1, and advice for all of it splits nothing."""
    if pages == 1 << folio:
        return folio
    order = folio
    while order and (first % (1 << order) or (first + pages) % (1 << order)):
        order -= 1
    return 0 if order == 1 else order


def parts(order: int) -> list[tuple[int, int]]:
    """First page and count: halves, quarters, the middle, ends that differ, one page, and all."""
    whole = 1 << order
    return [
        (0, whole // 2),
        (whole // 2, whole // 2),
        (whole // 4, whole // 4),
        (whole // 4, whole // 2),
        (0, 3 * whole // 4),
        (whole // 2, whole // 4 + 1),
        (2, 2),
        (whole - 1, 1),
        (0, whole),
    ]


# Larger granules have many more pages to ask for, and nothing that is not there at 4K.
@pytest.mark.parametrize(
    "granule", ["4k", pytest.param("16k", marks=pytest.mark.long), pytest.param("64k", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("advice", ["cold", "free", "pageout"])
@pytest.mark.parametrize("on", [False, True])
def test_advice_splits_no_further_than_it_must(
    guest: Guest, process: Process, layout: Layout, on: bool, advice: str
) -> None:
    """Folios that fill a contiguous block, a part of each advised. There is no swap, so pages stay where they are; but
    reclaim splits what it cannot swap out."""
    guest.write(MADVISE_SPLIT, str(int(on)))
    order = layout.cont_order
    wanted = parts(order)
    area = sized(process, order, len(wanted))
    area.write(salt=3)
    before = frames(area)
    assert orders(area) == [order] * area.pages
    for block, (first, pages) in enumerate(wanted):
        area.madvise(advice, (block << order) + first, pages)
    found = orders(area)
    for block, (first, pages) in enumerate(wanted):
        to = pieces(order, first, pages)
        expected = [to if on or to == order else 0] * (1 << order)
        if advice == "pageout":
            expected[first : first + pages] = [0] * pages
        assert found[block << order : (block + 1) << order] == expected, (first, pages)
    assert frames(area) == before
    assert area.verify(salt=3).wrong == 0
    # Only the last one was advised as a whole.
    kept = "-" if advice == "pageout" else "C"
    assert process.look().pattern(area) == "-" * (len(wanted) - 1) + kept


@pytest.mark.parametrize("advice", ["cold", "free"])
@pytest.mark.parametrize("on", [False, True])
def test_advice_for_a_part_of_what_one_descriptor_maps(
    guest: Guest, process: Process, layout: Layout, on: bool, advice: str
) -> None:
    """A quarter of a folio that a descriptor of level 2 maps: four folios of a quarter, or single pages."""
    if layout.granule == "64k":
        pytest.skip("a 64K granule's PMD page is 512 MiB, more than a guest of this size has in one piece")
    guest.write(MADVISE_SPLIT, str(int(on)))
    order = (layout.pmd // layout.page).bit_length() - 1
    area = sized(process, order, 1)
    area.write(salt=5)
    quarter = area.pages // 4
    (block,) = (entry for entry in process.look().entries if entry.va == area.address)
    first = (block.output_address or 0) // layout.page
    assert block.level == 2 and guest.page(first).order == order
    area.madvise(advice, quarter, quarter)
    after = frames(area)
    assert after == list(range(first, first + area.pages))
    expected = pieces(order, quarter, quarter) if on else 0
    assert expected == (order - 2 if on else 0)
    for pfn in after[:: 1 << max(expected, 3)] + after[-1:]:
        page = guest.page(pfn)
        assert (page.order, page.head) == (expected, pfn & -1 << expected)
    assert area.verify(salt=5).wrong == 0
    assert not process.look().errors


def test_advice_beyond_a_hole_splits_all(guest: Guest, process: Process, layout: Layout) -> None:
    """Pieces with a hole are no use to advice that wants whole folios: they become single pages, the others do not."""
    guest.write(MADVISE_SPLIT, "1")
    order = layout.cont_order
    whole = 1 << order
    area = sized(process, order, 1)
    area.write()
    # Order 1 there is none, so that at 4K an eighth would be split to single pages in any case.
    part = whole // 4
    area.madvise("dontneed", part, 1)
    area.madvise("cold", 0, whole // 2)
    view = process.look()
    assert not view.errors
    entries = {entry.va: entry.output_address or 0 for entry in view.entries}
    page = layout.page
    there = [at for at in range(whole) if at != part]
    found = {at: guest.page(entries[area.address + at * page] // page).order for at in there}
    first = pieces(order, 0, part)
    assert first == order - 2
    # The pages before the hole decide; what then still has the hole in it is split once more.
    with_hole = range(part, part + (1 << first))
    assert {found[at] for at in there if at not in with_hole} == {first}
    assert all(found[at] == 0 for at in there if at in with_hole)
    assert area.verify(0, part).wrong == 0 and area.verify(part + 1, whole - part - 1).wrong == 0


# Entries that are zapped one by one.


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("how", ["dontneed", "munmap", "exit"])
def test_entries_are_zapped_one_by_one(guest: Guest, process: Process, layout: Layout, batched: bool, how: str) -> None:
    """Without batches each block is unfolded, and each folio is queued to be split meanwhile; with them neither."""
    guest.write(ZAP_BATCH, str(int(batched)))
    guest.write(f"{THP}/anon_order/contpte", "1")
    folder = f"{THP}/hugepages-{layout.block >> 10}kB/stats"
    guest.set_policy("variable")
    area = process.blocks(5)
    area.write()
    heads = frames(area)[:: layout.cont_pages]
    guest.set_policy("baseline")
    before, queued = guest.counts(), int(guest.read(f"{folder}/split_deferred"))
    if how == "dontneed":
        area.madvise("dontneed")
    elif how == "munmap":
        area.munmap()
    else:
        process.exit()
    contpte = guest.counts().since(before).contpte
    deferred = int(guest.read(f"{folder}/split_deferred")) - queued
    guest.write(f"{THP}/anon_order/contpte", "0")
    assert contpte is not None
    gap = 0 if batched else 5
    assert contpte.get("unfold", 0) >= gap and deferred >= gap
    if how != "exit":
        assert (contpte.get("unfold", 0), deferred) == (gap, gap)
        assert not process.look().errors
    assert all(guest.page(head).order == 0 or guest.page(head).refcount for head in heads)
