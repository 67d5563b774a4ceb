# SPDX-License-Identifier: GPL-2.0-only
"""What Linux does with blocks of several processes, of a stack, and with one CPU: exact patterns and contents."""

from __future__ import annotations

import pytest
from folioscope import Area, Guest, Layout, Process
from folioscope.rig import Rig, Wanted

from order_model import Model
from test_workloads import POLICIES, Folds, intact, look, pattern

pytestmark = pytest.mark.every_granule


@pytest.mark.parametrize("policy", POLICIES)
def test_stack_growth(guest: Guest, process: Process, layout: Layout, policy: str) -> None:
    """The VMA grows to the page of the fault, so a window that lies below that page does not fit."""
    guest.set_policy(policy)
    block = layout.cont_pages
    area = process.map(layout.block, offset=4 * layout.block, flags=["growsdown"])
    origin = area.address - 4 * layout.block
    folds = Folds(Model(policy, layout.hinted_order, 4 * block, 5 * block), block)
    below = Area(process, origin, 4 * layout.block)
    # In the VMA's first block, then a block further down than anything before, at its first page and not.
    for page in [4 * block - 1, 4 * block - 2, 3 * block, 2 * block + block // 2, block, 2 * block]:
        folds.model.first = min(folds.model.first, page)
        folds.write(page)
        below.write(page, 1)
    view = look(process)
    assert view.orders(origin, 5 * layout.block) == folds.chosen
    assert view.pages(origin + block * layout.page, 4 * layout.block) == folds.pages()
    assert ("c" in folds.pages()) == (policy != "baseline")
    for page in (4 * block - 1, 2 * block + block // 2, 2 * block):
        intact(below, page, 1)


def test_three_generations(process: Process, layout: Layout) -> None:
    """Each writer gets its page, everybody else keeps the block and the contents."""
    area = process.blocks(2)
    area.write(salt=1)
    child = process.fork()
    grandchild = child.fork()
    mine = [Area(who, area.address, area.length) for who in (process, child, grandchild)]
    assert [pattern(one) for one in mine] == ["CC", "CC", "CC"]
    mine[2].write(5, 1, salt=2)
    assert [pattern(one) for one in mine] == ["CC", "CC", "-C"]
    mine[1].write(layout.cont_pages, 1, salt=3)
    assert [pattern(one) for one in mine] == ["CC", "C-", "-C"]
    mine[0].write(0, 1, salt=4)
    assert [pattern(one) for one in mine] == ["-C", "C-", "-C"]
    for one, page, salt in ((0, 0, 4), (1, layout.cont_pages, 3), (2, 5, 2)):
        intact(mine[one], page, 1, salt=salt)
        intact(mine[one], 0, page, salt=1)
        intact(mine[one], page + 1, area.pages - page - 1, salt=1)
    grandchild.kill()
    child.kill()
    # Nobody else maps the folio now, but it is reused page by page: the block stays as it is.
    mine[0].write(salt=5)
    assert pattern(mine[0])[0] == "-"
    intact(mine[0], salt=5)


def test_side_by_side(guest: Guest, process: Process, layout: Layout) -> None:
    """Two processes with the same addresses share no frame and see their own data."""
    other = guest.spawn()
    areas = [one.blocks(3) for one in (process, other)]
    assert areas[0].address == areas[1].address
    frames: list[set[int]] = []
    for salt, area in enumerate(areas, 1):
        area.write(salt=salt)
    for salt, area in enumerate(areas, 1):
        view = look(area.process)
        assert view.pattern(area.address, area.length) == "CCC"
        assert view.pid == area.process.pid
        frames.append(
            {e.output_address for e in view.entries if e.va >= area.address and e.va < area.address + area.length}
        )
        intact(area, salt=salt)
    assert len(frames[0]) == len(frames[1]) == areas[0].pages
    assert not frames[0] & frames[1]
    other.kill()


@pytest.mark.parametrize("granule", ["4k"])
def test_one_cpu(rig: Rig, wanted: Wanted, layout: Layout) -> None:
    """A guest with one CPU: agent and waiting process take turns, and everything is judged."""
    guest = rig.guest(Wanted(wanted.granule, wanted.cpu, wanted.machine, ("--smp", "1")))
    assert guest.hello.cpus == 1
    guest.reset()
    process = guest.spawn()
    area = process.blocks(2)
    area.write()
    assert pattern(area) == "CC"
    child = process.fork()
    Area(child, area.address, area.length).write(1, 1, salt=1)
    assert pattern(Area(child, area.address, area.length)) == "-C"
    assert pattern(area) == "CC"
    assert look(process).orders(area.address, area.length) == [(0, 4), (16, 4)]
    intact(area)
    guest.reset()
