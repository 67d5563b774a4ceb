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


def test_bind(process: Process, layout: Layout) -> None:
    """A policy moves what lies elsewhere, and what is touched later comes from its node; without one nothing moves."""
    area = process.blocks(1)
    area.write(0, 1)
    where = {"address": area.address, "length": area.length}
    process.op("mbind", **where, node=1)
    area.write()
    assert area.nodes() == [1] * layout.cont_pages
    process.op("mbind", **where)
    assert area.nodes() == [1] * layout.cont_pages
    with pytest.raises(CommandFailed, match="EINVAL"):
        process.op("mbind", **where, node=63)


def test_migrate_pages(process: Process, layout: Layout) -> None:
    """All that the process has on a node goes to the other one."""
    area = process.blocks(1)
    area.write()
    process.op("migrate_pages", **{"from": 0, "to": 1})
    assert area.nodes() == [1] * layout.cont_pages
    assert area.verify().wrong == 0


def frames(process: Process, address: int, pages: int) -> list[int]:
    """The page frames of a range."""
    return [entry & (1 << 55) - 1 for entry in process.pagemap(address, pages)]


def test_pages_go_to_another_vma(process: Process) -> None:
    """UFFDIO_MOVE brings the pages themselves, and the old place is unmapped; those of two processes it refuses."""
    for shared in (False, True):
        area, there = process.blocks(1), process.blocks(1)
        area.write()
        if shared:
            process.fork()
        had, words = frames(process, area.address, area.pages), process.peek(area.address)
        assert 0 not in had
        there.uffd_register("missing")
        where = {"source": area.address, "length": area.length, "address": there.address}
        by_mremap = process.op("uffd_relocate", **where)["pages"]["pages"]
        page = process.guest.layout.page
        all_pages = [there.address + at * page for at in range(there.pages)]
        assert by_mremap == (all_pages if shared else [])
        assert frames(process, there.address, there.pages) == had
        assert process.peek(there.address) == words
        with pytest.raises(CommandFailed, match="SIGSEGV"):
            area.read(0, 1)


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


def test_minor_faults(process: Process, layout: Layout) -> None:
    """A page of shared memory that is there and not mapped raises SIGBUS, until it is mapped."""
    area = process.map_memfd(layout.page)
    area.write()
    area.madvise("dontneed")
    area.uffd_register("minor")
    with pytest.raises(CommandFailed, match="SIGBUS"):
        area.read()
    process.op("uffd_continue", address=area.address, length=area.length)
    assert area.verify().wrong == 0


def test_advice_on_another(guest: Guest, process: Process) -> None:
    """What another process advises to page out is swapped out."""
    guest.swap_on("/dev/ram0")
    area = process.blocks(1)
    area.write()
    where = {"pid": process.pid, "address": area.address, "length": area.length}
    other = guest.spawn("advises")
    other.op("process_madvise", **where, advice="pageout")
    assert process.look().pages(area) == "." * area.pages
    with pytest.raises(CommandFailed, match="ESRCH"):
        other.op("process_madvise", **{**where, "pid": 2**22 - 1}, advice="pageout")
    guest.swap_off("/dev/ram0")
    assert area.verify().wrong == 0


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
