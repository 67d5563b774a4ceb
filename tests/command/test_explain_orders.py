# SPDX-License-Identifier: GPL-2.0-only
"""What `explain` and the records say behind a reason: which entry was in the way, and what was free."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from folioscope import Area, Guest, Layout, Process

from command import folioscope
from order_model import ALLOCATION, PTE_OVERLAP

THP = "/sys/kernel/mm/transparent_hugepage"


@pytest.fixture(autouse=True)
def variable(guest: Guest, layout: Layout) -> None:
    """Blocks by policy, and none of a PMD's size."""
    guest.set_policy("variable")
    guest.write(f"{THP}/hugepages-{layout.pmd >> 10}kB/enabled", "never")


def words(guest: Guest, area: Area, page: int, core: Path) -> str:
    """What `explain` says of a page of an area, out of a snapshot of now."""
    process = area.process
    with process.hold():
        guest.call("snapshot", path=str(core), pid=process.pid)
    return folioscope("explain", hex(area.address + page * guest.layout.page), core, "--pid", process.pid).ok()


def test_the_entry_in_the_way(guest: Guest, process: Process, layout: Layout, tmp_path: Path) -> None:
    """The record names the first populated page of the largest range that has one, `explain` the fault before it."""
    n, order = layout.cont_pages, layout.hinted_order
    area = process.map(2 * layout.block)
    guest.set_policy("baseline")
    area.touch(order=[3, 5])
    guest.set_policy("variable")
    area.write(n - 1, 1)
    record = process.look().record(area.address + (n - 1) * layout.page)
    assert (record.chosen, record.reasons[order]) == (order - 1, PTE_OVERLAP)
    assert record.overlap == area.address + 3 * layout.page
    said = words(guest, area, n - 1, tmp_path / "overlap.core")
    (why,) = re.findall(rf"^  order {order} +(.*)$", said, re.MULTILINE)
    assert re.search(rf": the page at {record.overlap:#x}, which a fault \d\.\d+ s before had brought in$", why), said
    # Nothing was in the way of a fault in the other block.
    area.write(n, 1)
    assert process.look().record(area.address + layout.block).overlap is None


def free_blocks(guest: Guest) -> dict[str, list[int]]:
    """Free blocks of all zones by order, by node."""
    found: dict[str, list[int]] = {}
    for line in guest.read("/proc/buddyinfo").splitlines():
        _, node, _, _, *blocks = line.split()
        found[node] = [a + int(b) for a, b in zip(found.get(node, [0] * len(blocks)), blocks, strict=True)]
    return found


def test_what_was_free(guest: Guest, process: Process, layout: Layout, tmp_path: Path) -> None:
    """After an allocation that failed, the record has the free blocks of each order, as /proc/buddyinfo has them."""
    order = layout.hinted_order
    area = process.map(2 * layout.block)
    process.fail_allocations(order)
    before = free_blocks(guest)
    area.write(0, 1)
    after = free_blocks(guest)
    process.allow_allocations()
    record = process.look().record(area.address)
    assert (record.chosen, record.reasons[order]) == (0, ALLOCATION)
    assert record.free is not None

    def like(node: str) -> bool:
        # The faults and files of the reading itself split and merge a few.
        near = zip(before[node], after[node], record.free or (), strict=False)
        return all(min(min(a, b) - 12, 255) <= found <= min(max(a, b) + 12, 255) for a, b, found in near)

    assert any(like(node) for node in before), (before, record.free, after)
    assert any(record.free)
    said = words(guest, area, 0, tmp_path / "free.core")
    (why,) = re.findall(rf"^  order {order} +(.*)$", said, re.MULTILINE)
    last = max(at for at, blocks in enumerate(record.free) if blocks)
    told = [f"{at}: {blocks if blocks < 255 else '255 or more'}" for at, blocks in enumerate(record.free[: last + 1])]
    assert why.endswith(f"; blocks free on its node by order {', '.join(told)}"), said
    # Where all could be allocated nothing is looked at.
    area.write(layout.cont_pages, 1)
    assert process.look().record(area.address + layout.block).free is None
