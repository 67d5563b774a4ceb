"""Policy ``adaptive``: every order of every fault as the model has it, in records, tables, folios and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from folioscope import Area, Decision, Guest, Layout, Process, View

from adaptive_model import Adaptive
from order_model import NOT_CONSIDERED

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
    return Adaptive(preferred, first, first + area.pages, bool(hint))


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
    """Another hint is another beginning; where there is no choice nothing is learned."""
    area = process.map(8 * layout.block, hint=None)
    it = model(area, layout, None)
    wanted = write(area, it, [0, 3 * layout.cont_pages])
    area.madvise("nohugepage")
    for page in (5 * layout.cont_pages, 1):
        area.write(page, 1)
    view = process.look()
    # Each page as it was, and what MADV_NOHUGEPAGE got is single.
    nohuge = [fault for fault in recorded(view, [area], layout.page) if "nohugepage" in fault[2].values()]
    origin = area.address // layout.page
    populated = it.populated
    late = [page for page in (5 * layout.cont_pages, 1) if origin + page not in populated]
    if layout.unhinted_order:
        assert [(page, order) for page, order, _ in nohuge] == [(origin + page, 0) for page in late]
    it.populated |= {origin + page for page in late}
    area.madvise("hugepage")
    it.preferred, it.hinted = layout.hinted_order, True
    hinted = write(area, it, [6 * layout.cont_pages, 7 * layout.cont_pages])
    assert [order for _, order, _ in hinted] == [layout.hinted_order] * 2
    check(guest, process.look(), hinted, area.part(6 * layout.cont_pages))
    assert wanted


@HINTS
def test_split_and_merge(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """Both parts of a split know what the whole knew; of merged ones the lowest remains, with what it knows."""
    n = layout.cont_pages
    area = process.map(8 * layout.block, hint=hint)
    it = model(area, layout, hint)
    wanted = write(area, it, [*range(24), 5 * n, 2 * n + 7, 6 * n, 3 * n + 1])
    # The last fault is in the lower part.
    area.mprotect(["read"], 4 * n, 1)
    low, high = it.part(it.first, it.first + 4 * n), it.part(it.first + 4 * n + 1, it.end)
    wanted += write(area, high, [7 * n, 7 * n + 1, 4 * n + n // 2, 6 * n + n // 2])
    wanted += write(area, low, [4 * n - 1, 3 * n - 1])
    check(guest, process.look(), wanted, area)
    area.mprotect(["read", "write"], 4 * n, 1)
    merged = low.part(it.first, it.end)
    merged.end = it.end
    merged.populated = low.populated | high.populated
    after = write(area, merged, [n + n // 2, 2 * n, *range(7 * n - 1, 7 * n - 20, -1)])
    check(guest, process.look(), wanted + after, area)


@HINTS
def test_fork(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """The child begins anew; the parent goes on where it was."""
    n = layout.cont_pages
    area = process.map(24 * layout.block, hint=hint)
    it = model(area, layout, hint)
    # Without the hint that is raised, and with it lowered.
    pages = [at * (5 * n + 3) % area.pages for at in range(10)] if hint else list(range(2 * n))
    before = write(area, it, pages)
    check(guest, process.look(), before, area)
    known = it.known
    if it.preferred == 0:
        # Nothing to choose, as in unhinted areas of 64K pages: so nothing to remember.
        assert known is None and all(order == 0 for _, order, _ in before)
        return
    assert known is not None
    child = process.fork()
    inherited = area.in_process(child)
    anew = Adaptive(it.preferred, it.first, it.end, it.hinted, populated=set(it.populated))
    # What was there before is copied by a write of either, and has no record yet: blocks with nothing in them.
    free = [b for b in range(24) if not it.populated & set(range(it.first + b * n, it.first + b * n + n))]
    new = [free[0] * n + 1, free[4] * n + 2, free[4] * n + 1, *range(free[8] * n, free[8] * n + 9)]
    own = write(inherited, anew, new)
    # The test can fail: what the parent knows would have given other orders.
    other = Adaptive(it.preferred, it.first, it.end, it.hinted, it.moved(0).known, set(it.populated))
    if it.preferred:
        assert other.explain([page for page, *_ in own])[0][1] != own[0][1]
    wanted = write(area, it, new)
    check(guest, child.look(), own, inherited)
    assert recorded(process.look(), [area], layout.page) == before + wanted


@HINTS
def test_mremap(guest: Guest, process: Process, layout: Layout, hint: str | None) -> None:
    """What was moved keeps its order and begins a new run; what has grown may have larger folios."""
    n = layout.cont_pages
    area = process.map(3 * layout.block, hint=hint)
    it = model(area, layout, hint)
    # Raised to order 2 without a hint, and in a row.
    wanted = write(area, it, range(17))
    check(guest, process.look(), wanted, area)
    by = area.pages + 7
    moved = area.mremap(to=area.address + by * layout.page)
    there = it.moved(by)
    # The first has none before it, so that the last is the third that is far from the one before.
    after = write(moved, there, [30, 22, 40, 26, 2 * n + 1, 2 * n + 9])
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
    wanted += write(area, it, [2 * n])
    view = process.look()
    (failed,) = [record for record in view.records if record.address == area.address + layout.block]
    assert failed.chosen == layout.hinted_order - 1
    assert failed.reasons[layout.hinted_order] == "allocation-failed"
    assert [order for _, order, _ in wanted] == [layout.hinted_order] * 2
    check(guest, view, wanted, area.part(0, n), area.part(2 * n))
