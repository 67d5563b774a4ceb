# SPDX-License-Identifier: GPL-2.0-only
"""Files of ramfs with large folios where something is in the way: limits, failing allocations, advice, and what a
write and a read bring in; times of files that are written through mappings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Guest, Layout, Process, View

from page_cache_model import Cache
from ramfs_files import FILE, SWITCH, busybox, cached, events, folios, kib, look, mounted, same, vma_smaps
from test_rules_live_folios import of_pfn
from test_write_faults_pressed import GROUP, of_a_group, shell

#: Another day than the guest's, whose clock begins in 1970.
ANOTHER_DAY = "200101010000"


@pytest.fixture
def ramfs(guest: Guest) -> Iterator[Process]:
    """A process in a guest with an empty ramfs; the switch is on."""
    yield from mounted(guest)


@pytest.fixture
def group(guest: Guest) -> Iterator[None]:
    """A memory cgroup without a limit and, as yet, without a process."""
    yield from of_a_group(guest)


def inode(guest: Guest) -> int:
    """By which /proc/kpagecgroup names the group."""
    return int(guest.run("/bin/busybox", "stat", "-c", "%i", GROUP).stdout)


def charged(guest: Guest, view: View, area: Area) -> int:
    """Pages of an area that the group is charged for, as the guest says it."""
    page = guest.layout.page
    outputs = [view.output(area.address + number * page) for number in range(area.pages)]
    group = inode(guest)
    return sum(of_pfn(guest, "/proc/kpagecgroup", output // page) == group for output in outputs if output is not None)


# Of 512 pages all but what two CPUs may keep in stock (MEMCG_CHARGE_BATCH) are given back at once.
@pytest.mark.parametrize("granule", ["4k"])
def test_folios_are_charged(guest: Guest, group: None, ramfs: Process, layout: Layout) -> None:
    """What writes and faults bring in is the group's, page by page, and no longer once the file has gone."""
    shell(guest, f"echo {ramfs.pid} >{GROUP}/cgroup.procs")
    ramfs.file_create(FILE, layout.pmd)
    for at in range(0, layout.pmd // 2, layout.block):
        ramfs.file_write(FILE, at, layout.block, chunk=layout.block)
    area = ramfs.map_file(FILE, layout.pmd)
    area.write()
    view = look(ramfs)
    assert {order for _, order in folios(view, area).values()} == {layout.cont_order}
    assert charged(guest, view, area) == cached(guest) == area.pages
    folio = view.folio(area.address)
    assert folio is not None and folio.memcg is not None
    memcg = guest.page(folio.pfn).memcg
    assert memcg is not None and memcg.path == GROUP.removeprefix("/sys/fs/cgroup")
    before = int(guest.read(f"{GROUP}/memory.current"))
    area.munmap()
    ramfs.file_unlink(FILE)
    gone = (before - int(guest.read(f"{GROUP}/memory.current"))) // layout.page
    assert gone >= area.pages - 2 * 64


# Large folios of the page cache alone, and no hint: what the kernel charges for itself must not decide.
@pytest.mark.parametrize("granule", ["4k"])
def test_a_group_that_may_not_have_a_block(guest: Guest, group: None, ramfs: Process, layout: Layout) -> None:
    """A fault gets the first order below that the group can be charged for."""
    ramfs.file_create(FILE, layout.block)
    area = ramfs.map_file(FILE, layout.block)
    shell(guest, f"echo {ramfs.pid} >{GROUP}/cgroup.procs")
    now = int(guest.read(f"{GROUP}/memory.current"))
    guest.write(f"{GROUP}/memory.max", str(now + (layout.cont_pages - 1) * layout.page))
    area.write(5, 1, salt=2)
    view = look(ramfs)
    assert folios(view, area) == dict.fromkeys(range(8), (0, layout.cont_order - 1))
    assert cached(guest) == charged(guest, view, area) == 8
    assert area.verify(5, 1, salt=2).wrong == 0
    same(area, 0, 5 * layout.page)


@pytest.mark.parametrize("order", [2, None], ids=["two", "block"])
def test_a_fault_without_memory(guest: Guest, ramfs: Process, layout: Layout, order: int | None) -> None:
    """Where an order cannot be had, the highest below it comes; a write's counters do not count that."""
    order = order or layout.cont_order
    before = events(guest)
    ramfs.file_create(FILE, 2 * layout.block)
    area = ramfs.map_file(FILE, 2 * layout.block)
    ramfs.fail_allocations(order)
    area.write(layout.cont_pages + 5, 1, salt=3)
    ramfs.allow_allocations()
    wanted = min(order - 1, layout.unhinted_order)
    cache = Cache(layout)
    assert cache.fault(layout.cont_pages + 5, 0, area.pages, wanted) == wanted
    assert folios(look(ramfs), area) == cache.folios
    assert cached(guest) == 1 << wanted
    assert events(guest) == before
    assert area.verify(layout.cont_pages + 5, 1, salt=3).wrong == 0


def unwanted(process: Process, area: Area, how: str) -> None:
    """Large folios are not wanted there."""
    if how == "prctl":
        process.thp_disable()
    else:
        area.madvise("nohugepage")


@pytest.mark.parametrize("how", ["nohugepage", "prctl"])
def test_single_pages_by_advice(guest: Guest, ramfs: Process, layout: Layout, how: str) -> None:
    """Faults bring in single pages, of reads and writes; a write(2), which knows of no mapping, a folio as before."""
    ramfs.file_create(FILE, 4 * layout.block)
    area = ramfs.map_file(FILE, 4 * layout.block)
    unwanted(ramfs, area, how)
    area.write(3, 1)
    area.read(layout.cont_pages, 1)
    assert folios(look(ramfs), area) == {page: (page, 0) for page in (3, layout.cont_pages)}
    assert cached(guest) == 2
    ramfs.file_write(FILE, 2 * layout.block, layout.block, chunk=layout.block)
    area.read(2 * layout.cont_pages, 1)
    found = folios(look(ramfs), area)
    assert found[2 * layout.cont_pages] == (2 * layout.cont_pages, layout.cont_order)
    assert cached(guest) == 2 + layout.cont_pages
    # Taken back, the next fault has its folio.
    if how == "prctl":
        ramfs.thp_disable(False)
    else:
        area.madvise("hugepage")
    area.write(3 * layout.cont_pages, 1)
    order = layout.unhinted_order if how == "prctl" else layout.cont_order
    assert folios(look(ramfs), area)[3 * layout.cont_pages] == (3 * layout.cont_pages, order)


def test_a_read_of_a_hole(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """``read(2)`` brings in the pages that it reads, one by one; a fault beside them does not meet any."""
    ramfs.file_create(FILE, 4 * layout.block)
    before = events(guest)
    assert ramfs.file_read(FILE, layout.block + 5 * layout.page, 3 * layout.page) == 3 * layout.page
    assert cached(guest) == 3
    area = ramfs.map_file(FILE, 4 * layout.block, hint="hugepage")
    n = layout.cont_pages
    area.write(n + 5, 3)
    area.write(2 * n, 1)
    # Pages beside them that are not cached are not mapped: fault-around brings nothing in.
    found = folios(look(ramfs), area)
    assert {page: found[page] for page in range(n, 2 * n) if page in found} == {
        page: (page, 0) for page in range(n + 5, n + 8)
    }
    assert found[2 * n] == (2 * n, layout.cont_order)
    assert events(guest) == before


# A process writes no more than 4 MiB at once: a PMD of 4K granules.
@pytest.mark.parametrize("granule", ["4k"])
def test_a_pmd_by_a_write(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """A write of a PMD's size brings in one folio, which a fault maps by one descriptor of level 2."""
    before, huge = events(guest), kib(guest.read("/proc/meminfo"), "FileHugePages")
    ramfs.file_create(FILE, 0)
    ramfs.file_write(FILE, 0, layout.pmd, salt=4, chunk=layout.pmd)
    assert events(guest) == (before[0] + 1, before[1])
    assert kib(guest.read("/proc/meminfo"), "FileHugePages") - huge == layout.pmd // 1024
    assert cached(guest) == layout.pmd // layout.page
    area = ramfs.map_file(FILE, layout.pmd)
    area.read(3, 1)
    view = look(ramfs)
    assert set(view.pattern(area)) == {"B"}
    folio = view.folio(area.address)
    assert folio is not None and (folio.entire, folio.index) == (1, 0)
    assert kib(vma_smaps(ramfs, area), "FilePmdMapped") == layout.pmd // 1024
    same(area, 0, layout.pmd, salt=4)


def changed(guest: Guest) -> int:
    """When the file was written to last, in seconds."""
    program = guest.run("/bin/busybox", "stat", "-c", "%Y", FILE)
    assert program.status == 0, program.stderr
    return int(program.stdout)


@pytest.mark.parametrize("large", [True, False], ids=["large", "single"])
def test_times(guest: Guest, ramfs: Process, layout: Layout, large: bool) -> None:
    """A write to a page that was only read before does not change the file's time where it has large folios, as on
    tmpfs; the first fault of a page by a write does, and so does write(2)."""
    guest.write(SWITCH, str(int(large)))
    ramfs.file_create(FILE, 2 * layout.block)
    area = ramfs.map_file(FILE, 2 * layout.block, hint="hugepage" if large else None)
    busybox(guest, "touch", "-t", ANOTHER_DAY, FILE)
    old = changed(guest)
    area.read(1, 1)
    assert changed(guest) == old
    area.write(1, 1)
    assert (changed(guest) == old) == large
    busybox(guest, "touch", "-t", ANOTHER_DAY, FILE)
    area.write(layout.cont_pages, 1)
    assert changed(guest) != old
    busybox(guest, "touch", "-t", ANOTHER_DAY, FILE)
    ramfs.file_write(FILE, 0, 8)
    assert changed(guest) != old
