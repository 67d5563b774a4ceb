# SPDX-License-Identifier: GPL-2.0-only
"""Where the kernel puts memory for which no address is given: at a block, once ``anon_order/align`` asks for that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from folioscope import Area, CommandFailed, Guest, Layout, Process

pytestmark = pytest.mark.every_granule

ALIGN = "/sys/kernel/mm/transparent_hugepage/anon_order/align"


@pytest.fixture
def switch(guest: Guest) -> Iterator[Guest]:
    """The guest; the switch is off before and behind."""
    assert guest.read(ALIGN) == "0\n"
    yield guest
    guest.write(ALIGN, "0")


def put(process: Process, length: int) -> Area:
    """Memory where the kernel likes, behind a page that is no part of its VMA."""
    process.map(process.guest.layout.page, place="kernel", prot=["read"], hint=None)
    return process.map(length, place="kernel")


def lengths(layout: Layout) -> list[int]:
    """Of whole blocks, of more, and of one alone; none is a multiple of what a level-2 descriptor spans."""
    return [2 * layout.block, 3 * layout.block + layout.page, layout.block, 2 * layout.block + 5 * layout.page]


def test_off_nothing_is_aligned(switch: Guest, process: Process, layout: Layout) -> None:
    """Each mapping ends where the last one begins, so no two in a row of these can be aligned, and blocks are lost."""
    areas = [put(process, length) for length in lengths(layout)]
    assert not all(area.address % layout.block == 0 for area in areas)
    assert all(above.address - layout.page == area.address + area.length for above, area in pairwise(areas))
    for area in areas:
        area.write()
    view = process.look()
    assert not view.errors and not view.not_judged
    folded = [view.pages(area.address, area.length).count("c") * layout.page // layout.block for area in areas]
    # A block begins and ends within its VMA.
    inside = [(area.address + area.length) // layout.block + -area.address // layout.block for area in areas]
    assert folded == inside and sum(inside) < sum(area.length // layout.block for area in areas)


def test_on_every_whole_block_is_folded(switch: Guest, process: Process, layout: Layout) -> None:
    """What is shorter than a block lies as densely as ever, and an address that is asked for is taken."""
    switch.write(ALIGN, "1")
    areas = [put(process, length) for length in lengths(layout)]
    assert [area.address % layout.block for area in areas] == [0] * len(areas)
    for area in areas:
        area.write()
    view = process.look()
    assert not view.errors and not view.not_judged
    for area in areas:
        whole = area.length // layout.block * layout.block
        assert view.pages(area.address, whole) == "c" * (whole // layout.page)
    short = process.map(layout.block - layout.page, place="kernel", prot=["read", "exec"], hint=None)
    assert short.address + short.length in [vma.start for vma in process.vmas()]
    wanted = areas[-1].address - 64 * layout.block + layout.page
    assert process.map(2 * layout.block, place={"at": {"address": wanted}}, hint=None).address == wanted


def test_on_what_is_moved_stays_folded(switch: Guest, process: Process, layout: Layout) -> None:
    """mremap() to where the kernel likes: the blocks come to lie at blocks."""
    switch.write(ALIGN, "1")
    area = put(process, 2 * layout.block + layout.page)
    area.write()
    above = process.map(layout.page, place={"at": {"address": area.address + area.length}}, prot=["read"], hint=None)
    assert above.address == area.address + area.length
    moved = area.mremap(length=4 * layout.block + layout.page)
    assert moved.address != area.address and moved.address % layout.block == 0
    view = process.look()
    assert not view.errors and not view.not_judged
    assert view.pages(moved.address, 2 * layout.block) == "c" * (2 * layout.block // layout.page)
    assert moved.verify(0, 2 * layout.cont_pages + 1, origin=area.address).wrong == 0


def test_switch_is_yes_or_no(switch: Guest) -> None:
    """Anything else is EINVAL, and changes nothing."""
    for text in ("2", "always"):
        with pytest.raises(CommandFailed) as refused:
            switch.write(ALIGN, text)
        assert refused.value.errno == "EINVAL"
    assert switch.read(ALIGN) == "0\n"
