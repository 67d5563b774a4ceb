# SPDX-License-Identifier: GPL-2.0-only
"""Operations that the tour has brought, as a test writer uses them."""

from __future__ import annotations

import pytest
from folioscope import CommandFailed, Guest, Layout, Process

pytestmark = pytest.mark.every_granule

ENOENT = -2


def test_nodes(process: Process, layout: Layout) -> None:
    """Guests have two NUMA nodes; a block goes to the other one and is told to be there."""
    area = process.blocks(1)
    assert set(area.nodes()) == {ENOENT}
    area.write()
    assert set(area.nodes()) == {0}
    area.move_to_node(1)
    assert area.nodes() == [1] * layout.cont_pages
    assert area.verify().wrong == 0


def test_userfaultfd(process: Process) -> None:
    """Missing pages and protected ones raise SIGBUS, until they are resolved."""
    area = process.blocks(1)
    area.uffd_register("missing", "write_protect")
    with pytest.raises(CommandFailed, match="SIGBUS"):
        area.read(0, 1)
    area.uffd_copy(0, 2, salt=3, write_protect=True)
    area.uffd_zeropage(2, 1)
    assert area.verify(0, 2, salt=3).wrong == 0
    assert area.verify(2, 1, zero=True).wrong == 0
    with pytest.raises(CommandFailed, match="SIGBUS"):
        area.write(1, 1)
    area.uffd_writeprotect(False, 1, 1)
    area.write(1, 1)
    area.uffd_unregister()
    area.write(0, 1)


def test_swap(guest: Guest, process: Process) -> None:
    """What goes out to a RAM disk comes back as it was, also by ``swap_off``."""
    guest.swap_on("/dev/ram0")
    area = process.blocks(2)
    area.write()
    area.swap_out()
    view = process.look()
    assert not view.errors
    assert view.pages(area) == "." * area.pages
    guest.swap_off("/dev/ram0")
    assert process.look().pages(area) == "v" * area.pages
    assert area.verify().wrong == 0
