# SPDX-License-Identifier: GPL-2.0-only
"""What a test states of its last step is held against the tables, and is found where it is not so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from folioscope import Area, Guest, Layout, Process

CONTIGUOUS = 1 << 52
# PTE_DIRTY and PTE_RDONLY: a page that Linux holds to be clean.
DIRTY = 1 << 55
RDONLY = 1 << 7

pytestmark = pytest.mark.parametrize("granule", ["4k"])


@pytest.fixture
def area(process: Process, layout: Layout) -> Area:
    """Two blocks: the first contiguous, the second full and not."""
    area = process.blocks(2)
    area.write()
    area.madvise("dontneed", layout.cont_pages, 1)
    area.write(layout.cont_pages, 1)
    assert process.look().pattern(area) == "C-"
    return area


RIGHT: list[Callable[[Area, int], Area]] = [
    lambda area, block: area.must_fold(0, block),
    lambda area, block: area.must_not_fold("a page came in by itself", block),
    lambda area, block: area.written(),
]
WRONG: list[tuple[Callable[[Area, int], Area], str, int]] = [
    (lambda area, block: area.must_fold(), "C1", 1),
    (lambda area, block: area.must_not_fold("nothing may fold here"), "C2", 0),
    (lambda area, block: area.not_written(block), "L6", 1),
]


@pytest.mark.parametrize("state", RIGHT, ids=["must_fold", "must_not_fold", "written"])
def test_what_is_so_is_no_finding(area: Area, layout: Layout, state: Callable[[Area, int], Area]) -> None:
    """Right statements change nothing."""
    state(area, layout.cont_pages)
    view = area.process.look()
    assert not view.errors and not view.not_judged


@pytest.mark.parametrize("state,rule,block", WRONG, ids=["must_fold", "must_not_fold", "not_written"])
def test_what_is_not_so_is_found(
    area: Area, layout: Layout, state: Callable[[Area, int], Area], rule: str, block: int
) -> None:
    """By its rule, in the block that it is about; and only at the next look."""
    state(area, layout.cont_pages)
    errors = area.process.look(check=False).errors
    assert {(error.rule, error.va // layout.block * layout.block) for error in errors} == {
        (rule, area.address + block * layout.block)
    }
    assert not area.process.look().errors


def test_a_reason_is_in_the_finding(area: Area) -> None:
    """Who reads the finding learns why it must not fold."""
    area.must_not_fold("nothing may fold here")
    (error,) = area.process.look(check=False).errors
    assert "nothing may fold here" in error.message
    assert str(error).startswith(f"C2 at {area.address:#x}")


def test_written_needs_a_dirty_page(area: Area, layout: Layout) -> None:
    """A page that is clean although it was written."""
    page = area.address + layout.block + 3 * layout.page
    with area.process.hold() as held:
        entry = held.judge().entry(page)
        assert entry
        clean = [(entry.address, entry.word & ~DIRTY | RDONLY)]
        assert not held.judge(clean).errors
        area.written()
        assert [(error.rule, error.va) for error in held.judge(clean).errors] == [("L6", page)]


def test_orders(guest: Guest, layout: Layout) -> None:
    """Each fault since the look before, by the kernel's record; nothing is said of what has no record."""
    process = guest.spawn()
    area = process.blocks(4)
    area.write(0, 1)
    assert not process.look().errors
    block, whole = layout.cont_pages, layout.cont_order
    area.write(block, 1)
    area.order(whole, block, block)
    view = process.look()
    assert not view.errors and not view.not_judged
    process.fail_allocations(whole)
    area.write(2 * block, 1)
    process.allow_allocations()
    area.order(whole)
    (error,) = process.look(check=False).errors
    assert (error.rule, error.va) == ("order", area.address + 2 * layout.block)
    assert "got order 0 where the test expects order" in error.message and "allocation-failed" in error.message
    area.order(whole, 3 * block)
    view = process.look(check=False)
    assert not view.errors
    (reason,) = view.not_judged
    assert "has no record of a fault there" in reason


def test_errors_of_companions_count(process: Process, layout: Layout) -> None:
    """A look at one process shows what is wrong with another one that was looked at at the same instant."""
    area = process.blocks(1)
    area.write()
    child = process.fork()
    # Its first table is known from a look of its own.
    entry = child.look().entry(area.address + 3 * layout.page)
    assert entry
    assert not process.look().errors
    process.guest.poke([(entry.address, entry.word & ~CONTIGUOUS)])
    (error,) = process.look(check=False).errors
    process.guest.poke([(entry.address, entry.word)])
    assert error.process
    assert (error.rule, error.process.pid, error.va) == ("A4", child.pid, area.address)
    assert not process.look().errors
