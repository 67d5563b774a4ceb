# SPDX-License-Identifier: GPL-2.0-only
"""Tables and blocks broken on a running guest: as in test_rules_live.py, above the last level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from folioscope import Area, Guest, Layout, Process, View
from folioscope.guest import Held, number

from test_rules_live import AF, CONT, VALID, broken

pytestmark = pytest.mark.every_granule


@dataclass(frozen=True)
class Slot:
    """A descriptor on the way to an address."""

    level: int
    address: int
    va: int
    word: int


def way(guest: Guest, view: View, va: int, levels: range) -> list[Slot]:
    """The descriptors from the first table to the last, read word by word: a walk of this test's own."""
    layout = guest.layout
    bits = layout.page.bit_length() - 1
    per_level = bits - 3
    table, slots = number(view.raw["verdict"]["root"]), []
    for level in levels:
        shift = bits + (3 - level) * per_level
        index = va >> shift & ((1 << per_level) - 1)
        address = table + 8 * index
        word = guest.words(address, 1)[0]
        slots.append(Slot(level, address, va >> shift << shift, word))
        if level == 3 or word & 3 != 3:
            break
        # RAM ends far below 2^48, so the high address bits are 0 in every format.
        table = word & ((1 << 48) - 1) & ~(layout.page - 1)
    return slots


@pytest.fixture
def levels(layout: Layout, cpu: str) -> range:
    """Lookup levels of a process: 52 bits of VA with LVA/LPA2, else 48."""
    first = {"4k": -1, "16k": 0, "64k": 1}[layout.granule] if cpu == "max" else {"4k": 0, "64k": 1}[layout.granule]
    return range(first, 4)


@pytest.fixture
def tables(guest: Guest, paged: Area, levels: range) -> Iterator[tuple[Held, list[Slot]]]:
    """A process that waits, and the way to the first page of its area."""
    with paged.process.hold() as held:
        view = held.judge()
        slots = way(guest, view, paged.address, levels)
        assert slots[-1].level == 3
        assert slots[-1].word == view.word(paged.address)
        yield held, slots


# At 64K the table of level 1 is the first one and smaller than a page: no descriptor can lead to it.
@pytest.mark.parametrize("above,granule", [(1, "4k"), (1, "16k"), (1, "64k"), (2, "4k"), (2, "16k")])
def test_w1_loop(tables: tuple[Held, list[Slot]], layout: Layout, above: int) -> None:
    """A table descriptor that leads back to a table above it."""
    held, slots = tables
    slot = slots[-1 - above]
    own = slot.address & ~(layout.page - 1)
    mask = (1 << 48) - layout.page
    assert broken(held, [(slot.address, slot.word & ~mask | own)]) == [("W1", slot.va)]


@pytest.mark.parametrize("to", [0, 1 << 40, (1 << 48) - (1 << 16)], ids=hex)
def test_w1_outside_ram(tables: tuple[Held, list[Slot]], layout: Layout, to: int) -> None:
    """A table descriptor that leads to where no RAM is."""
    held, slots = tables
    mask = (1 << 48) - layout.page
    assert broken(held, [(slots[-2].address, slots[-2].word & ~mask | to)]) == [("W1", slots[-2].va)]


@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("cpu", ["cortex-a72"])
@pytest.mark.parametrize("granule", ["4k", "64k"])
def test_w1_beyond_output_size(tables: tuple[Held, list[Slot]]) -> None:
    """A table above 44 bits cannot be walked, and its descriptor holds an address that it must not."""
    held, slots = tables
    va = slots[-2].va
    assert broken(held, [(slots[-2].address, slots[-2].word | 1 << 45)]) == [("A7", va), ("W1", va)]


# With 52 bits of address the 64K granule has blocks at its first level too.
@pytest.mark.parametrize("granule", ["4k", "16k"])
def test_a8_block_above(tables: tuple[Held, list[Slot]], levels: range, layout: Layout) -> None:
    """A block where the granule has none: the first level. Linux holds it to be present, outside any VMA."""
    held, slots = tables
    bits = layout.page.bit_length() - 1
    step = 1 << (bits + (3 - levels[0]) * (bits - 3))
    # The next first-level slot; it is empty, as all of the process lies below 2^48, or at most one slot further.
    place, va = slots[0].address + 8, slots[0].va + step
    if va >> 52 or (levels[0] == 0 and va >> 48 and layout.granule == "4k"):
        place, va = slots[0].address - 8, slots[0].va - step
    assert held.process.guest.words(place, 1) == [0]
    assert broken(held, [(place, AF | VALID)]) == [("A8", va), ("L8", va)]


@pytest.mark.parametrize("granule", ["4k"])
def test_contiguous_pmd(process: Process, layout: Layout) -> None:
    """The bit on one block of level 2: its group of 16 is not complete, and aligned only by chance."""
    group = 16 * layout.pmd
    # Alone in its group: a table beside it would be A4's, as it lies in the range that a TLB may take.
    area = process.map(layout.pmd, place={"isolated": {"align": 2 * group, "gap": group}})
    area.write(0, 1)
    with process.hold() as held:
        entry = held.judge().entry(area.address)
        assert entry
        assert entry.level == 2, "this guest has no THP"
        word, output = entry.word, entry.output_address
        want = [("L1", area.address)] + ([("A2", area.address)] if output % group else [])
        assert broken(held, [(entry.address, word | CONT)]) == sorted(want)
