# SPDX-License-Identifier: GPL-2.0-only
"""Policy ``adaptive``: every order of every fault as the model has it, in records, tables, folios and counts."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from folioscope import Area, Decision, Guest, Layout, Process, View

from adaptive_model import EVERY, SPEND, Adaptive, Memory
from command import folioscope
from order_model import ALLOCATION, NOT_CONSIDERED, Model

THP = "/sys/kernel/mm/transparent_hugepage"
HINTS = pytest.mark.parametrize("hint", ["hugepage", None])
Fault = tuple[int, int, dict[int, str]]


@pytest.fixture(autouse=True)
def adaptive(guest: Guest, layout: Layout) -> None:
    """A kernel that has the policy, in force."""
    if "adaptive" not in guest.policies:
        pytest.skip("this kernel has no policy adaptive")
    guest.set_policy("adaptive")
    # Folios of a PMD's size come before any policy.
    guest.write(f"{THP}/hugepages-{layout.pmd >> 10}kB/enabled", "never")


def model(area: Area, layout: Layout, hint: str | None) -> Adaptive:
    """Of a VMA that is this area; pages are numbers of virtual pages."""
    first = area.address // layout.page
    preferred = layout.hinted_order if hint else layout.unhinted_order
    return Adaptive(preferred, first, first + area.pages, bool(hint), table=layout.page // 8)


def write(area: Area, it: Adaptive, pages: Iterable[int]) -> list[Fault]:
    """Single writes to pages of an area, in this order; the faults that the model has for them."""
    origin = area.address // area.process.guest.layout.page
    pages = list(pages)
    area.touch(order=pages)
    return it.explain(origin + page for page in pages)


def recorded(view: View, areas: Iterable[Area], page: int) -> list[Fault]:
    """What the kernel has recorded of first writes in these areas, oldest first."""
    areas = list(areas)
    return [
        (
            record.address // page,
            -1 if record.chosen is None else record.chosen,
            {order: why for order, why in enumerate(record.reasons) if why != NOT_CONSIDERED},
        )
        for record in view.records
        if record.path == "anonymous" and any(it.address <= record.address < it.address + it.length for it in areas)
    ]


def check(guest: Guest, view: View, wanted: list[Fault], *areas: Area) -> None:
    """Records, tables and folios are as the model has them."""
    layout = guest.layout
    assert wanted, "nothing has faulted, and nothing was tested"
    assert not view.errors and not view.not_judged, (view.errors, view.not_judged)
    assert recorded(view, areas, layout.page) == wanted
    for page, order, _ in wanted:
        first = page >> order << order
        frames = [view.output(at * layout.page) for at in range(first, first + (1 << order))]
        assert frames[0] is not None
        assert frames == [frames[0] + at * layout.page for at in range(1 << order)]
        folio = guest.page(frames[0] // layout.page)
        assert (folio.order, folio.head) == (order, frames[0] // layout.page)


def ways(pages: int, block: int) -> dict[str, list[int]]:
    """Orders of writing an area."""
    # Odd, so that it comes to every page, and far from each multiple of a block.
    far = 3 * block + 5
    return {
        "ascending": list(range(pages)),
        "descending": list(range(pages - 1, -1, -1)),
        "scattered": [at * far % pages for at in range(24)],
        "scattered, then ascending": [at * 5 % 12 * block + 3 for at in range(12)] + list(range(12 * block, pages)),
        "ascending, then scattered": [*range(48), *(at * far % pages for at in range(24))],
        "by threes": list(range(0, pages, 3)),
        "by blocks and one": list(range(0, pages, block + 1)) * 2,
        "two at a time": [at for pair in zip(range(40), range(pages // 2, pages), strict=False) for at in pair],
        "there and back": [*range(24), *range(pages - 1, pages - 25, -1), *range(24, 48)],
    }


@HINTS
def test_ways_of_writing(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """Each in an area of its own; orders are raised and lowered somewhere, where there is more than one."""
    seen = set()
    for name in ways(24 * layout.cont_pages, layout.cont_pages):
        area = process.map(24 * layout.block, hint=hint)
        it = model(area, layout, hint)
        pages = ways(area.pages, layout.cont_pages)[name]
        # The rings have 256 records, and a granule's smallest folios are many.
        pages = pages[:200]
        before = guest.counts()
        wanted = write(area, it, pages)
        orders = guest.counts().since(before).orders
        check(guest, process.look(), wanted, area)
        # Its records stay, so its addresses do too.
        area.madvise("dontneed")
        whys = Counter(Decision("adaptive", "anonymous", order, why[it.preferred]) for _, order, why in wanted)
        assert orders is not None
        assert all(orders.get(decision, 0) >= count for decision, count in whys.items()), name
        chosen = [order for _, order, _ in wanted]
        seen |= {"raised" for low, high in zip(chosen, chosen[1:], strict=False) if low < high}
        seen |= {"lowered" for high, low in zip(chosen, chosen[1:], strict=False) if low < high}
    assert seen == ({"raised", "lowered"} if hint or layout.unhinted_order else set())


@HINTS
@pytest.mark.parametrize("walked", [0, 4], ids=["fresh", "walked"])
def test_memory_by_stride(guest: Guest, process: Process, layout: Layout, hint: str | None, walked: int) -> None:
    """Pages that are there after touches at a distance, up, down and at random, in a new VMA and behind a walk.

    `test_adaptive_rule` has the whole table of what `adaptive` gives. Under `variable` each touch that is a block from
    the others has a block.
    """
    preferred = layout.hinted_order if hint else layout.unhinted_order
    block = 1 << preferred
    walk, count = walked * block, 24
    ways = {}
    for stride in sorted({1, 2, 3, block - 1, block, block + 1, 2 * block} - {0}):
        up = [walk + at * stride for at in range(count)]
        ways |= {f"{stride} up": up, f"{stride} down": [walk + up[-1] - page for page in up]}
    ways["random"] = random.Random(1).sample(range(walk, walk + 2 * block * count), count)
    table: dict[str, dict[str, float]] = {}
    for policy in ("adaptive", "variable"):
        guest.set_policy(policy)
        for name, pages in ways.items():
            area = process.map((walk + max(2 * block, 3) * count + block) * layout.page, hint=hint)
            it: Adaptive | Model = model(area, layout, hint)
            if policy == "variable":
                it = Model(policy, preferred, it.first, it.end)
            origin = it.first
            touched = [*range(walk), *pages]
            area.touch(order=touched)
            it.explain(origin + page for page in touched)
            there = [entry & 1 << 63 for entry in process.pagemap(area.address, area.pages)]
            assert {origin + page for page, is_there in enumerate(there) if is_there} == it.populated, (policy, name)
            table.setdefault(policy, {})[name] = len(it.populated - set(range(origin, origin + walk))) / count
            area.munmap()
    far = [f"{block} up", f"{block} down", f"{2 * block} up"]
    assert all(table["variable"][way] >= block - 1 / count for way in far), table
    # In vain: as many blocks as were walked through, and in a hinted VMA the seven before the first that probes.
    bound = 1 + ((2 * EVERY - 1 if hint else 0) + walked) * block / count
    assert all(table["adaptive"][way] <= bound for way in far), table
    assert table["adaptive"]["1 up"] <= 1 + block / count


@HINTS
def test_small_areas(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """No folio is larger than its VMA, without a hint than a quarter of it, wherever the VMA begins."""
    n = layout.cont_pages
    for pages in (1, 2, 4, 7, 8, 12, n - 1, n, n + 1, 2 * n, 5 * n):
        for first in (0, n // 2, n - 3):
            area = process.map(pages * layout.page, hint=hint, offset=first * layout.page)
            wanted = write(area, model(area, layout, hint), list(range(min(pages, 64))))
            check(guest, process.look(), wanted, area)
            largest = max(order for _, order, _ in wanted)
            assert 1 << largest <= (pages if hint else max(pages // 4, 1))


def test_hint_that_comes_later(guest: Guest, process: Process, layout: Layout) -> None:
    """What is known stays when the hint changes; where there is no choice nothing is learned."""
    n = layout.cont_pages
    area = process.map(8 * layout.block, hint=None)
    it = model(area, layout, None)
    wanted = write(area, it, [0, 3 * n])
    area.madvise("nohugepage")
    late = [5 * n, 1]
    for page in late:
        area.write(page, 1)
    # Each page as it was, and what MADV_NOHUGEPAGE got is single.
    origin = area.address // layout.page
    nohuge = [fault for fault in recorded(process.look(), [area], layout.page) if "nohugepage" in fault[2].values()]
    if layout.unhinted_order:
        assert [(page, order) for page, order, _ in nohuge] == [(origin + page, 0) for page in late]
    it.populated |= {origin + page for page in late}
    area.madvise("hugepage")
    it.preferred, it.hinted = layout.hinted_order, True
    assert it.known == Memory(), "what single touches leave is not what a hinted VMA begins with"
    hinted = write(area, it, [6 * n, 7 * n])
    assert hinted[0][1] == layout.hinted_order
    check(guest, process.look(), hinted, area.part(6 * n))
    assert wanted


def learned(area: Area, it: Adaptive) -> list[Fault]:
    """A walk through ten of the VMA's largest folios, in which one that probes is found dense."""
    wanted = write(area, it, range(10 << it.preferred))
    assert it.known.trust > 0 or it.preferred == 0
    return wanted


@HINTS
def test_split_and_merge(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """Both parts of a split know what the whole knew; of merged ones the lowest remains, with what it knows."""
    u = 1 << (layout.hinted_order if hint else layout.unhinted_order)
    area = process.map(48 * u * layout.page, hint=hint)
    it = model(area, layout, hint)
    wanted = learned(area, it)
    area.mprotect(["read"], 16 * u, 1)
    low, high = it.part(it.first, it.first + 16 * u), it.part(it.first + 16 * u + 1, it.end)
    # In the upper part block 31, which probes, is begun and left; in the lower the walk goes on.
    wanted += write(area, high, [31 * u, 32 * u])
    wanted += write(area, low, range(10 * u, 14 * u))
    check(guest, process.look(), wanted, area)
    assert it.preferred == 0 or low.known != high.known
    area.mprotect(["read", "write"], 16 * u, 1)
    merged = low.part(it.first, it.end)
    merged.populated = low.populated | high.populated
    other = high.part(it.first, it.end)
    other.populated = set(merged.populated)
    # Block 35 probes for the upper part, that has lost its trust.
    more = [14 * u, *range(34 * u, 37 * u)]
    after = write(area, merged, more)
    check(guest, process.look(), wanted + after, area)
    # The test can fail: by what the upper part knew there would have been other folios.
    assert it.preferred == 0 or other.explain(it.first + page for page in more) != after


@HINTS
def test_fork(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """The child begins anew; the parent goes on where it was."""
    u = 1 << (layout.hinted_order if hint else layout.unhinted_order)
    area = process.map(48 * u * layout.page, hint=hint)
    it = model(area, layout, hint)
    before = learned(area, it)
    if hint:
        # Beside nothing: so a hinted VMA has spent what it may.
        before += write(area, it, [at * u + u // 2 for at in range(34, 46, 2)])
    check(guest, process.look(), before, area)
    if it.preferred == 0:
        # Nothing to choose, as in unhinted areas of 64K pages: so nothing to remember.
        assert it.known == Memory() and all(order == 0 for _, order, _ in before)
        return
    child = process.fork()
    inherited = area.in_process(child)
    anew = Adaptive(it.preferred, it.first, it.end, it.hinted, populated=set(it.populated), table=it.table)
    other = it.moved(0)
    # What was there before is copied by a write of either, and has no record yet: so blocks with nothing in them.
    new = [*range(18 * u, 21 * u), 24 * u, 26 * u, 26 * u + 1]
    own = write(inherited, anew, new)
    # The test can fail: what the parent knows would have given other orders.
    origin = area.address // layout.page
    assert other.explain(origin + page for page in new) != own
    wanted = write(area, it, new)
    check(guest, child.look(), own, inherited)
    assert recorded(process.look(), [area], layout.page) == before + wanted


@HINTS
def test_mremap(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """What was moved goes on with what is known and what is there; what has grown may have larger folios."""
    n = layout.cont_pages
    area = process.map(3 * layout.block, hint=hint)
    it = model(area, layout, hint)
    wanted = write(area, it, range(17))
    check(guest, process.look(), wanted, area)
    by = area.pages + 7
    moved = area.mremap(to=area.address + by * layout.page)
    there = it.moved(by)
    after = write(moved, there, [17, 18, 30, 22, 40, 26, 2 * n + 1, 2 * n + 9])
    check(guest, process.look(), after, moved)
    grown = moved.mremap(length=5 * layout.block // 2 + 2 * layout.block)
    assert grown.address == moved.address
    there.end = there.first + grown.pages
    after += write(grown, there, range(3 * n, 4 * n))
    check(guest, process.look(), after, grown)


def test_orders_have_reasons(guest: Guest, process: Process, layout: Layout) -> None:
    """A populated neighbour and a failing allocation lower the folio, and not what is tried the next time."""
    n = layout.cont_pages
    area = process.map(4 * layout.block)
    it = model(area, layout, "hugepage")
    wanted = write(area, it, [0])
    process.fail_allocations(layout.hinted_order)
    area.write(n, 1)
    process.allow_allocations()
    # The rest of that block is not there, and its second half has something in the way.
    wanted += write(area, it, [2 * n])
    view = process.look()
    (failed,) = [record for record in view.records if record.address == area.address + layout.block]
    assert failed.chosen == layout.hinted_order - 1
    assert failed.reasons[layout.hinted_order] == ALLOCATION
    assert [order for _, order, _ in wanted] == [layout.hinted_order] * 2
    check(guest, view, wanted, area.part(0, n), area.part(2 * n))


def test_what_it_went_by_is_recorded(guest: Guest, process: Process, layout: Layout) -> None:
    """Each record has the row beside the fault, what is remembered after it, and whether the block probes."""
    n = layout.cont_pages
    area = process.map(40 * layout.block)
    it = model(area, layout, "hugepage")
    origin, wanted = it.first, []
    pages = [*range(10 * n), *(at * n + n // 2 for at in range(12, 34, 2))]
    for page in pages:
        at = origin + page
        if at in it.populated:
            continue
        run = max(min(it.row(at, -1), n), min(it.row(at, 1), n))
        it.fault(at)
        wanted.append((run, it.known.trust, it.known.spent, it.probes(at // n)))
    area.touch(order=pages)
    records = [
        record for record in process.look().records if area.address <= record.address < area.address + area.length
    ]
    found = [(it.run, it.trust, it.spent, it.probe) for it in (record.adapted for record in records) if it]
    assert found == wanted
    assert {probe for *_, probe in wanted} == {True, False} and max(spent for *_, spent, _ in wanted) == SPEND


def test_explain(guest: Guest, process: Process, layout: Layout, tmp_path: Path) -> None:
    """`explain` says what is remembered of the VMA, and why the policy left an order out."""
    n, core = layout.cont_pages, tmp_path / "adaptive.core"
    area = process.map(24 * layout.block)
    it = model(area, layout, "hugepage")
    # None has anything beside it, and none is in a block that probes.
    far = [0, 5 * n, 9 * n, 13 * n, 17 * n, 21 * n]
    faults = write(area, it, far)
    assert [order for _, order, _ in faults[-2:]] == [0, 0], "nothing was lowered, and nothing is to be explained"
    with process.hold():
        guest.call("snapshot", path=str(core), pid=process.pid)
    said = folioscope("explain", hex(area.address + 21 * layout.block), core, "--pid", process.pid).ok()
    known = (
        f"one block in {4 << it.known.trust} is a probe ({it.known.trust} came out dense), {SPEND} of {SPEND} faults"
    )
    state = f"0 pages in a row were there beside the fault; {known} with nothing beside them"
    assert re.findall(r"^  adaptive +(.*)$", said, re.MULTILINE) == [state], said
    assert re.findall(r"^  state +(.*)$", said, re.MULTILINE) == ["as after this fault"], said
    left_out = re.findall(rf"^  order {layout.hinted_order} +is left out by the policy: (.*)$", said, re.MULTILINE)
    assert left_out == ["no page right beside the fault was touched"], said


def test_explain_a_probe(guest: Guest, process: Process, layout: Layout, tmp_path: Path) -> None:
    """A block that begins with single pages in a walk is named as what it is, and so is a VMA that is too small."""
    n, core = layout.cont_pages, tmp_path / "probe.core"
    area, small = process.map(24 * layout.block), process.map(layout.block // 2)
    it = model(area, layout, "hugepage")
    faults = write(area, it, range(8 * n))
    (begun,) = [page for page, order, _ in faults if order == 0 and page % n == 0]
    small.write(0, 1)
    with process.hold():
        guest.call("snapshot", path=str(core), pid=process.pid)
    order = layout.hinted_order
    said = folioscope("explain", hex(begun * layout.page), core, "--pid", process.pid).ok()
    why = re.findall(rf"^  order {order} +is left out by the policy: (.*)$", said, re.MULTILINE)
    assert why == ["this block is a probe, which begins with single pages to see whether all of it is touched"], said
    said = folioscope("explain", hex(small.address), core, "--pid", process.pid).ok()
    why = re.findall(rf"^  order {order} +is left out by the policy: (.*)$", said, re.MULTILINE)
    assert why == [f"it would be larger than the VMA ({n // 2} pages)"], said
