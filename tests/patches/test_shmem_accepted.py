# SPDX-License-Identifier: GPL-2.0-only
"""What mTHP for anonymous shmem promises of controls, counters, addresses, and the entries that a fault sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, CommandFailed, Guest, Layout, Process

from test_paths import shared
from test_write_faults_pressed import GROUP, of_a_group, shell
from write_faults import THP, look, outputs

#: What is there of each size: hugepages-<size>kB/stats.
COUNTERS = ("shmem_alloc", "shmem_fallback", "shmem_fallback_charge")


@pytest.fixture
def group(guest: Guest) -> Iterator[None]:
    """A memory cgroup without a limit and, as yet, without a process."""
    yield from of_a_group(guest)


def control(layout: Layout, order: int) -> str:
    """The directory of a size."""
    return f"{THP}/hugepages-{(layout.page << order) >> 10}kB"


def counters(guest: Guest, order: int) -> tuple[int, ...]:
    """Those of a size."""
    folder = control(guest.layout, order)
    return tuple(int(guest.read(f"{folder}/stats/{name}")) for name in COUNTERS)


def sizes(guest: Guest) -> dict[int, str | None]:
    """What each size that shmem can have was set to when the guest was booted, by order."""
    page_kib = guest.layout.page >> 10
    return {
        (size.size_kib // page_kib).bit_length() - 1: size.shmem_enabled
        for size in guest.hello.mthp
        if size.shmem_enabled is not None
    }


def test_defaults(guest: Guest, layout: Layout) -> None:
    """Every size is off but a PMD's, which does as the control above says, and that is off."""
    pmd = (layout.pmd // layout.page).bit_length() - 1
    found = sizes(guest)
    assert found and found == {order: "inherit" if order == pmd else "never" for order in found}
    assert (pmd in found) == (pmd <= 11)
    assert guest.knobs(f"{THP}/shmem_enabled") == {f"{THP}/shmem_enabled": "never"}


@pytest.mark.parametrize("wrong", ["force", "deny", "huge"])
def test_words_that_a_size_does_not_take(guest: Guest, layout: Layout, wrong: str) -> None:
    """``force`` and ``deny`` are for the control above all sizes; a size refuses them and stays as it was."""
    for order, mode in sizes(guest).items():
        path = f"{control(layout, order)}/shmem_enabled"
        with pytest.raises(CommandFailed) as refused:
            guest.write(path, wrong)
        assert refused.value.errno == "EINVAL"
        assert guest.knobs(path) == {path: mode}
    if wrong in ("force", "deny"):
        guest.write(f"{THP}/shmem_enabled", wrong)
        assert guest.knobs(f"{THP}/shmem_enabled") == {f"{THP}/shmem_enabled": wrong}
        guest.write(f"{THP}/shmem_enabled", "never")


def test_counters(guest: Guest, process: Process, layout: Layout) -> None:
    """A folio that is had is counted, and one that is not, each by its own size; single pages are not."""
    size = layout.cont_order
    for order in (size, 2):
        guest.write(f"{control(layout, order)}/shmem_enabled", "always")
    before = {order: counters(guest, order) for order in (2, size)}
    shared(process, 2 * layout.block).write()
    assert counters(guest, size) == (before[size][0] + 2, *before[size][1:])
    assert counters(guest, 2) == before[2]
    process.fail_allocations(size)
    shared(process, layout.block).write(0, 1)
    process.allow_allocations()
    assert counters(guest, size) == (before[size][0] + 2, before[size][1] + 1, before[size][2])
    assert counters(guest, 2) == (before[2][0] + 1, *before[2][1:])
    for order in (size, 2):
        guest.write(f"{control(layout, order)}/shmem_enabled", "never")
    now = {order: counters(guest, order) for order in (2, size)}
    shared(process, layout.block).write()
    assert {order: counters(guest, order) for order in (2, size)} == now


# The group may not have a folio, and may have what the kernel needs for itself: of larger granules that is one page.
@pytest.mark.parametrize("granule", ["4k"])
def test_a_charge_that_fails(guest: Guest, group: None, process: Process, layout: Layout) -> None:
    """A folio that the memory cgroup may not have is given back: counted as fallen back, and as not charged."""
    size = layout.cont_order
    guest.write(f"{control(layout, size)}/shmem_enabled", "always")
    area = shared(process, layout.block)
    shell(guest, f"echo {process.pid} >{GROUP}/cgroup.procs")
    before = counters(guest, size)
    charged = int(guest.read(f"{GROUP}/memory.current"))
    guest.write(f"{GROUP}/memory.max", str(charged + (layout.cont_pages - 1) * layout.page))
    area.write(5, 1)
    assert counters(guest, size) == (before[0], before[1] + 1, before[2] + 1)
    view = look(process)
    folio = view.folio(area.address + 5 * layout.page)
    assert folio is not None and folio.order == 0
    assert area.verify(5, 1).wrong == 0


def placed(process: Process, length: int) -> Area:
    """Shared memory for which the kernel chooses the address."""
    return process.map(length, hint=None, flags=["shared"], place="kernel")


@pytest.mark.parametrize("granule", ["4k", pytest.param("16k", marks=pytest.mark.long), "64k"])
def test_addresses(guest: Guest, process: Process, layout: Layout) -> None:
    """They are multiples of the largest size that is not off, for what is as long; with all off, of no size."""
    size, length = layout.cont_order, layout.block + layout.page

    def aligned(length: int) -> list[bool]:
        return [placed(process, length).address % layout.block == 0 for _ in range(3)]

    # Of three in a row that lie as densely as they can, not all are aligned.
    assert not all(aligned(length))
    for mode in ("always", "within_size", "advise"):
        guest.write(f"{control(layout, size)}/shmem_enabled", mode)
        assert all(aligned(length)), mode
        # What is shorter than the size is put beside what was there.
        first, second = (placed(process, layout.page).address for _ in range(2))
        assert second == first - layout.page
    # The largest counts.
    guest.write(f"{control(layout, size)}/shmem_enabled", "never")
    guest.write(f"{control(layout, 2)}/shmem_enabled", "always")
    small = [placed(process, length).address for _ in range(3)]
    assert all(address % (layout.page << 2) == 0 for address in small)
    assert any(address % layout.block for address in small)
    # What the control above refuses altogether is not aligned for either.
    guest.write(f"{control(layout, size)}/shmem_enabled", "always")
    guest.write(f"{THP}/shmem_enabled", "deny")
    assert not all(aligned(length))
    guest.write(f"{THP}/shmem_enabled", "never")


@pytest.mark.parametrize("how", ["whole", "start", "end", "uffd"])
def test_entries_of_a_fault(guest: Guest, process: Process, layout: Layout, how: str) -> None:
    """A fault maps all of a folio that another process has put there; but one page where the VMA has not all of it,
    and where userfaultfd wants to see each page."""
    n = layout.cont_pages
    guest.write(f"{control(layout, layout.cont_order)}/shmem_enabled", "always")
    area = shared(process, layout.block)
    child = process.fork()
    area.write()
    theirs = area.in_process(child)
    assert not any(outputs(theirs, look(child)))
    if how == "start":
        theirs.munmap(0, 1)
    elif how == "end":
        theirs.munmap(n - 1)
    elif how == "uffd":
        theirs.uffd_register("missing")
    # A write: a read would have its neighbours mapped by fault-around.
    theirs.write(5, 1, salt=8)
    found = outputs(theirs, look(child))
    there = [page for page, output in enumerate(found) if output is not None]
    assert there == (list(range(n)) if how == "whole" else [5])
    mine = outputs(area, look(process))
    assert all(found[page] == mine[page] for page in there)
    head = (mine[0] or 0) // layout.page
    folio = guest.page(head)
    assert (folio.order, folio.large) == (layout.cont_order, n + len(there))
    assert area.verify(5, 1, salt=8).wrong == 0
    if how == "uffd":
        theirs.uffd_unregister()
        theirs.write(7, 1)
        # One of its entries is there already: a page at a time.
        assert [page for page, output in enumerate(outputs(theirs, look(child))) if output is not None] == [5, 7]
