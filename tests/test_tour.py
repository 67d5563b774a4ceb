"""The tour: which blocks must be contiguous after each step, which order was chosen, and why.

A pattern has a character per block (see ``View.pattern``): ``C`` contiguous, ``-`` full without the
bit, ``p`` partly there, ``.`` empty, ``B`` mapped at level 2. They are written down by hand from what
the step does; the orders come from ``order_model``.
"""

from __future__ import annotations

import pytest
from folioscope import Guest, Layout, View

from order_model import Model

pytestmark = pytest.mark.every_machine

POLICIES = ["sysfs", "baseline", "simple", "variable", "retry"]


def expected(name: str, layout: Layout) -> dict[str, list[str]]:
    """Checkpoint -> the pattern of each area of the process, for a policy that fills blocks."""
    in_pmd = layout.pmd // layout.block
    return {
        "anon": {
            "forward": ["CCCC"],
            "backward": ["CCCC", "CCCC"],
            "sparse": ["CCCC", "CCCC", "C.C.C.C."],
        },
        "neighbour": {"beside": ["pC"], "filled": ["-C"]},
        "munmap": {"populated": ["CC"], "partial": ["pC"]},
        "mprotect": {"populated": ["CCC"], "protected": ["-C."], "restored": ["-CC"]},
        "dontneed": {"hole": ["pC"], "refilled": ["-C"]},
        "fork": {"parent": ["CC"], "child": ["CC"], "child-wrote": ["-C"], "parent-after": ["CC"]},
        "shmem": {"first": ["C."], "both": ["CC"]},
        "thp": {"huge": ["B" * in_pmd], "split": ["C-" + "C" * (in_pmd - 2)]},
        "allocfail": {"failing": ["-."], "recovered": ["-C"]},
        "zeropage": {"read": ["p."], "written": ["pC"]},
    }[name]


def tour(guest: Guest, name: str, policy: str) -> dict[str, tuple[View, list[dict[str, int]]]]:
    """Runs one workload of the tour under a policy; no checkpoint may have an error finding."""
    raw = guest.call("tour", name=name, policy=policy, seconds=120)
    if raw["left_out"]:
        pytest.skip(raw["left_out"])
    assert raw["checkpoints"], f"{name} made no checkpoint"
    seen = {}
    for checkpoint in raw["checkpoints"]:
        view = View(checkpoint["look"], guest.layout)
        assert not view.errors, f"{checkpoint['label']}: {view.errors}"
        assert not view.not_judged, f"{checkpoint['label']}: {view.not_judged}"
        seen[checkpoint["label"]] = (view, checkpoint["areas"])
    return seen


@pytest.mark.parametrize(
    "name", ["anon", "neighbour", "munmap", "mprotect", "dontneed", "fork", "shmem", "thp", "allocfail", "zeropage"]
)
@pytest.mark.parametrize("policy", ["sysfs", "simple", "variable", "retry"])
def test_blocks(guest: Guest, layout: Layout, name: str, policy: str) -> None:
    """Every block of every area is as it must be, at every checkpoint."""
    seen = tour(guest, name, policy)
    for label, patterns in expected(name, layout).items():
        view, areas = seen[label]
        found = [view.pattern(area["address"], area["length"]) for area in areas[: len(patterns)]]
        assert found == patterns, f"{name}/{label}"


@pytest.mark.parametrize("name", ["anon", "munmap", "mprotect", "dontneed", "fork", "allocfail"])
def test_baseline_never_folds(guest: Guest, name: str) -> None:
    """Order 0 everywhere: full blocks, and not one contiguous bit."""
    for label, (view, areas) in tour(guest, name, "baseline").items():
        for area in areas:
            pattern = view.pattern(area["address"], area["length"])
            assert not set(pattern) & set("CB!"), f"{label}: {pattern}"
        assert any("-" in view.pattern(area["address"], area["length"]) for area in areas) or name == "anon", label


@pytest.mark.parametrize("policy", POLICIES)
def test_orders_of_anonymous_faults(guest: Guest, layout: Layout, policy: str) -> None:
    """Forward, backward, sparse, and across a VMA's ends: each fault's order, from the record."""
    seen = tour(guest, "anon", policy)
    view, areas = seen["ends"]
    pages = layout.cont_pages

    def model(first: int, end: int) -> Model:
        return Model(policy, layout.hinted_order, first, end)

    forward, backward, sparse, ends = areas
    want = {
        "forward": model(0, 4 * pages).write(range(4 * pages)),
        "backward": model(0, 4 * pages).write(range(4 * pages - 1, -1, -1)),
        "sparse": model(0, 8 * pages).write(range(3, 8 * pages, 2 * pages)),
        # The area starts half a block into a block.
        "ends": [
            (page - pages // 2, order)
            for page, order in model(pages // 2, 5 * pages // 2).write(range(pages // 2, 5 * pages // 2))
        ],
    }
    for label, area in (("forward", forward), ("backward", backward), ("sparse", sparse), ("ends", ends)):
        found = seen[label][0].orders(area["address"], area["length"])
        # The ring keeps the last records only; what it kept must be the end of what had to happen.
        assert found, label
        assert found == want[label][-len(found) :], label
        if policy not in ("baseline",):
            assert len(found) == len(want[label]), label
    if policy != "baseline":
        middle = view.pages(ends["address"] + layout.block // 2, layout.block)
        assert middle == "c" * pages
        assert "c" not in view.pages(ends["address"], layout.block // 2)
        assert "c" not in view.pages(ends["address"] + 3 * layout.block // 2, layout.block // 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_orders_beside_a_neighbour(guest: Guest, layout: Layout, policy: str) -> None:
    """A page that is there already limits the window, and the record says so."""
    view, (area,) = tour(guest, "neighbour", policy)["filled"]
    pages = layout.cont_pages
    there = pages // 2 + 1
    model = Model(policy, layout.hinted_order, 0, 2 * pages, populated={there})
    want = [(there, 0)]
    want += model.write([0, pages])
    want += model.write(range(pages))
    assert view.orders(area["address"], area["length"]) == want
    beside = view.record(area["address"])
    if policy == "baseline":
        assert beside.chosen == 0
    else:
        assert beside.reasons[layout.hinted_order] == "overlap"


@pytest.mark.parametrize("policy", POLICIES)
def test_orders_when_allocation_fails(guest: Guest, layout: Layout, policy: str) -> None:
    """At the preferred order allocation fails: variable and simple take a page, retry the next lower order."""
    seen = tour(guest, "allocfail", policy)
    view, (area,) = seen["recovered"]
    pages = layout.cont_pages
    model = Model(policy, layout.hinted_order, 0, 2 * pages, fails=lambda order: order >= layout.cont_order)
    want = model.write(range(pages))
    model.fails = lambda order: False
    want += model.write(range(pages, 2 * pages))
    assert view.orders(area["address"], area["length"]) == want
    if policy != "baseline":
        record = seen["failing"][0].record(area["address"])
        assert record.reasons[layout.hinted_order] == "allocation-failed"
        assert record.chosen == (layout.hinted_order - 1 if policy == "retry" else 0)


@pytest.mark.parametrize("policy", ["simple", "variable", "retry"])
def test_orders_beside_a_zero_page(guest: Guest, layout: Layout, policy: str) -> None:
    """A zero page is a populated entry: it limits the window like any other page."""
    view, (area,) = tour(guest, "zeropage", policy)["written"]
    pages = layout.cont_pages
    model = Model(policy, layout.hinted_order, 0, 2 * pages, populated={pages // 2 + 3})
    assert view.orders(area["address"], area["length"]) == model.write([0, pages])
