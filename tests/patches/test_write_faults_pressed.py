# SPDX-License-Identifier: GPL-2.0-only
"""Write faults that get no more memory, or meet what others have made of the pages: limits, poison, locks, stacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, CommandFailed, Guest, Layout, Process

from write_faults import SALT, block_of, contents, is_folio, look, one_record, outputs, switch, switched

GROUP = "/sys/fs/cgroup/pressed"
CHARGE = "charge-failed"
PATHS = pytest.mark.parametrize("path", ["zero-page", "copy"])


@pytest.fixture(autouse=True)
def switches(guest: Guest) -> Iterator[None]:
    """All are off as a test begins, and as it ends."""
    yield from switched(guest)


def shell(guest: Guest, line: str) -> None:
    """A line that has to succeed."""
    ran = guest.run("/bin/busybox", "sh", "-c", line)
    assert ran.status == 0, ran


def of_a_group(guest: Guest) -> Iterator[None]:
    """A memory cgroup without a limit and, as yet, without a process. A fixture is made of it.

    It is a new one each time: of an old one each CPU keeps charges in stock, by which a limit is exceeded unnoticed."""
    shell(guest, f"echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir {GROUP}")
    yield
    moved = f"while read p; do echo $p >{GROUP}/../cgroup.procs; done <{GROUP}/cgroup.procs"
    shell(guest, f"echo max >{GROUP}/memory.max; {moved}; rmdir {GROUP}")


@pytest.fixture
def group(guest: Guest) -> Iterator[None]:
    """A memory cgroup without a limit and, as yet, without a process."""
    yield from of_a_group(guest)


def may_have(process: Process, pages: int) -> None:
    """So many pages more from now on."""
    guest = process.guest
    shell(guest, f"echo {process.pid} >{GROUP}/cgroup.procs")
    charged = int(guest.read(f"{GROUP}/memory.current"))
    guest.write(f"{GROUP}/memory.max", str(charged + pages * guest.layout.page))


def about_to(process: Process, path: str) -> Area:
    """A block of which the next write takes this path: one that was read, or what a child has of its parent."""
    if path == "copy":
        return block_of(process).in_process(process.fork())
    area = process.map(process.guest.layout.block)
    area.read()
    return area


def holds(area: Area, path: str, *written: int) -> None:
    """Nothing but these pages has changed."""
    if path == "copy":
        contents(area, *written)
        return
    for page in range(area.pages):
        found = area.verify(page, 1, salt=SALT) if page in written else area.verify(page, 1, zero=True)
        assert found.wrong == 0, page


# Without a hint: a charge for up to 8 pages of an area that has it kills rather than fails, as 6.12 has it. Larger
# granules have no large folios there, or just one size.
@PATHS
@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.usefixtures("group")
def test_a_group_that_may_not_have_a_block(guest: Guest, process: Process, layout: Layout, path: str) -> None:
    """What it cannot be charged for has that for its reason, and the first order that it can be is taken."""
    switch(guest, path.replace("-", "_"))
    guest.set_policy("retry")
    area = process.map(layout.block, hint=None)
    if path == "copy":
        area.write()
        area = area.in_process(process.fork())
    else:
        area.read()
    size = layout.unhinted_order
    # What the kernel needs for itself to serve the process is charged to it too: some pages more or less do not matter.
    may_have(area.process, (1 << size) - 1)
    with one_record(area, path, "retry", size - 1, {size: CHARGE}) as views:
        area.write(5, 1, salt=SALT)
    is_folio(area, views[0], 0, size - 1)
    holds(area, path, 5)
    if path == "copy":
        contents(area.in_process(process))


@PATHS
@pytest.mark.usefixtures("group")
def test_a_group_that_may_have_nothing(guest: Guest, process: Process, layout: Layout, path: str) -> None:
    """Who writes is killed, and takes nothing of the parent's with it."""
    parent = block_of(process)
    switch(guest, path.replace("-", "_"))
    child = process.fork()
    area = parent.in_process(child)
    if path == "zero-page":
        whole = child.map(2 * layout.block)
        # What the kernel needs for the first write to a VMA is charged too.
        whole.write(layout.cont_pages, 1)
        area = whole.part(0, layout.cont_pages)
        area.read()
    guest.set_policy("retry")
    # Its own stack and data are the parent's too until it has written to them, for which it would be killed already.
    warm = child.map(layout.page, hint="nohugepage")
    warm.read()
    warm.write(salt=SALT)
    before = outputs(parent, look(process))
    may_have(child, 0)
    counts = guest.counts()
    with pytest.raises(CommandFailed, match="SIGKILL|killed"):
        area.write(5, 1, salt=SALT)
    view = look(process)
    assert outputs(parent, view) == before and view.pages(parent) == "c" * layout.cont_pages
    assert guest.page((before[0] or 0) // layout.page).refcount == layout.cont_pages
    contents(parent)
    # The process has gone, and its records with it; the counts stay. The order of a block had no charge.
    counted = guest.counts().since(counts).orders
    assert counted is not None
    tried = {decision: times for decision, times in counted.items() if decision.path == path}
    assert sum(tried.values()) == 1 and {(it.policy, it.why) for it in tried} == {("retry", CHARGE)}, tried


@PATHS
def test_a_page_that_is_poisoned(guest: Guest, process: Process, layout: Layout, path: str) -> None:
    """It is gone for all who had it, and the pages beside it can be written to; no folio grows over it."""
    switch(guest, path.replace("-", "_"))
    area = about_to(process, path)
    beside = about_to(process, path)
    if path == "zero-page":
        area.write(3, 1)
    before = outputs(area, look(area.process))
    area.madvise("hwpoison", 3, 1)
    view = look(area.process)
    assert outputs(area, view)[3] is None
    area.write(5, 1, salt=SALT)
    view = look(area.process)
    after = outputs(area, view)
    assert after[3] is None and after[5] != before[5]
    order = guest.page((after[5] or 0) // layout.page).order
    # Pages 4 to 7 are the largest that it is not in; a folio of shared pages was split.
    assert order == (2 if path == "zero-page" else 0)
    for page in {*range(area.pages)} - {3}:
        assert area.verify(page, 1, salt=SALT if page == 5 else 0, zero=path == "zero-page" and page != 5).wrong == 0
    with one_record(beside, path, "variable", layout.hinted_order, {}) as views:
        beside.write(5, 1, salt=SALT)
    is_folio(beside, views[0], 0, layout.hinted_order)
    if path == "copy":
        assert outputs(area.in_process(process), look(process))[3] is None
    # The guest is not this test's alone.
    guest.write("/sys/kernel/debug/hwpoison/unpoison-pfn", str((before[3] or 0) // layout.page))
    assert "hwpoison" not in guest.page((before[3] or 0) // layout.page).flags


def test_memory_that_is_locked(guest: Guest, process: Process, layout: Layout) -> None:
    """What a write puts in place of shared pages is locked as they were."""
    switch(guest, "copy")
    area = block_of(process)
    area.mlock()
    child = process.fork()
    with one_record(area, "copy", "variable", layout.hinted_order, {}) as views:
        area.write(5, 1, salt=SALT)
    head = is_folio(area, views[0], 0, layout.hinted_order)
    page = guest.page(head)
    assert {"mlocked", "unevictable"} <= set(page.folio_flags)
    left = guest.page((outputs(area.in_process(child), look(child))[0] or 0) // layout.page)
    assert "mlocked" not in left.folio_flags
    contents(area, 5)


@PATHS
def test_an_area_that_grows_downwards(guest: Guest, process: Process, layout: Layout, path: str) -> None:
    """It is a mapping like others for what is mapped of it."""
    switch(guest, path.replace("-", "_"))
    guest.set_policy("variable")
    area = process.map(layout.block, flags=["private", "growsdown"])
    if path == "copy":
        area.write()
        area = area.in_process(process.fork())
    else:
        area.read()
    with one_record(area, path, "variable", layout.hinted_order, {}) as views:
        area.write(5, 1, salt=SALT)
    is_folio(area, views[0], 0, layout.hinted_order)
    holds(area, path, 5)
