# SPDX-License-Identifier: GPL-2.0-only
"""Writes to folios that fork() has shared: with ``anon_order/copy`` as much of a large one as can be is copied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Guest, Layout, Process

from order_model import ALLOCATION, NOHUGEPAGE, NOT_ALLOWED, PTE_OVERLAP, VMA_START
from write_faults import (
    SALT,
    block_of,
    contents,
    enable,
    is_folio,
    look,
    of,
    one_record,
    outputs,
    switch,
    switched,
    words,
    writable,
)

MISALIGNED = "misaligned"


@pytest.fixture(autouse=True)
def switches(guest: Guest) -> Iterator[None]:
    """All are off as a test begins, and as it ends."""
    yield from switched(guest)


@pytest.fixture
def block(guest: Guest, process: Process) -> Area:
    """A block of one folio, written and folded."""
    return block_of(process)


def test_as_large_as_the_source(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """A child's first write gives it a folio of its own, folded; the parent's stays, and is kept when it writes."""
    for name in ("copy", "reuse"):
        switch(guest, name)
    n, size = layout.cont_pages, layout.hinted_order
    child = process.fork()
    theirs = block.in_process(child)
    before = outputs(block, look(process))
    with one_record(theirs, "copy", "variable", size, {}) as views:
        theirs.write(5, 1, salt=SALT)
    (view,) = views
    head = is_folio(theirs, view, 0, size)
    assert view.pages(theirs) == "c" * n and all(map(writable, words(theirs, view)))
    assert not set(outputs(theirs, view)) & set(before)
    assert of(theirs, view, "copy")[-1].pfn == head and guest.page(head).refcount == n
    contents(theirs, 5)
    view = look(process)
    assert outputs(block, view) == before and view.pages(block) == "c" * n
    assert not any(map(writable, words(block, view)))
    theirs.write(salt=SALT)
    assert outputs(theirs, look(child))[0] == head * layout.page
    with one_record(block, "reuse", "sysfs", size, {}) as views:
        block.write(0, 1, salt=SALT)
    assert outputs(block, views[0]) == before
    contents(block, 0)
    contents(theirs, *range(n))


@pytest.mark.parametrize("policy", ["baseline", "simple", "variable", "retry", "adaptive", "sysfs"])
def test_policies(guest: Guest, process: Process, layout: Layout, block: Area, policy: str) -> None:
    """The source's order under all but ``baseline``, and ``sysfs`` where the size is not enabled."""
    switch(guest, "copy")
    size = layout.hinted_order
    theirs = block.in_process(process.fork())
    guest.set_policy(policy)
    if policy == "baseline":
        with one_record(theirs, "copy", policy, 0, {}) as views:
            theirs.write(5, 1, salt=SALT)
        is_folio(theirs, views[0], 5, 0)
    elif policy == "sysfs":
        never = {order: "size-never" for order in range(2, size + 1)} | {1: NOT_ALLOWED}
        with one_record(theirs, "copy", policy, 0, never) as views:
            theirs.write(5, 1, salt=SALT)
        is_folio(theirs, views[0], 5, 0)
        enable(guest, 2, "madvise")
        with one_record(theirs, "copy", policy, 2, {order: "size-never" for order in range(3, size + 1)}) as views:
            theirs.write(9, 1, salt=SALT)
        is_folio(theirs, views[0], 8, 2)
        contents(theirs, 5, 9)
        return
    else:
        with one_record(theirs, "copy", policy, size, {}) as views:
            theirs.write(5, 1, salt=SALT)
        is_folio(theirs, views[0], 0, size)
    contents(theirs, 5)
    contents(block)


@pytest.mark.parametrize("policy", ["simple", "variable", "retry"])
def test_allocation_fails(guest: Guest, process: Process, layout: Layout, block: Area, policy: str) -> None:
    """What is tried next is the policy's."""
    switch(guest, "copy")
    size = layout.hinted_order
    child = process.fork()
    theirs = block.in_process(child)
    guest.set_policy(policy)
    child.fail_allocations(size)
    order = size - 1 if policy == "retry" else 0
    reasons = {size: ALLOCATION}
    if policy != "retry":
        # None of them is tried once the first has failed.
        reasons |= dict.fromkeys(range(2, size), "policy") | {1: NOT_ALLOWED}
    with one_record(theirs, "copy", policy, order, reasons) as views:
        theirs.write(5, 1, salt=SALT)
    child.allow_allocations()
    is_folio(theirs, views[0], 5 >> order << order, order)
    contents(theirs, 5)


def test_what_is_there_of_it(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """The VMA's ends, pages of its own, holes, and another alignment: the largest that fits, and why."""
    switch(guest, "copy")
    n, size = layout.cont_pages, layout.hinted_order
    child = process.fork()
    theirs = block.in_process(child)
    theirs.munmap(0, 1)
    rest = theirs.part(1)
    with one_record(rest, "copy", "variable", size - 1, {size: VMA_START}) as views:
        rest.write(n - 2, 1, salt=SALT)
    is_folio(rest, views[0], n // 2 - 1, size - 1)
    # Pages 4 to 7 are the largest that neither the VMA's start nor the copy is in.
    orders = {order: VMA_START for order in range(3, size + 1)}
    with one_record(rest, "copy", "variable", 2, orders) as views:
        rest.write(4, 1, salt=SALT)
    is_folio(rest, views[0], 3, 2)
    contents(block)

    second = block.in_process(process.fork())
    second.madvise("dontneed", 0, 1)
    with one_record(second, "copy", "variable", size - 1, {size: PTE_OVERLAP}) as views:
        second.write(n - 1, 1, salt=SALT)
    is_folio(second, views[0], n // 2, size - 1)
    assert second.verify(0, 1, zero=True).wrong == 0

    contents(block)


def test_moved_to_another_alignment(guest: Guest, process: Process, layout: Layout) -> None:
    """Two pages further on only what is aligned there, and of one folio, can be a folio."""
    switch(guest, "copy")
    guest.set_policy("variable")
    n, size = layout.cont_pages, layout.hinted_order
    both = process.blocks(2)
    both.write()
    child = process.fork()
    room = child.map(6 * layout.block, prot=[])
    moved = both.in_process(child).mremap(room.address + layout.block + 2 * layout.page)
    # The second block of addresses has the first folio's last two pages, and then the second's.
    page = n - 2 + 4
    with one_record(moved, "copy", "variable", 2, {order: MISALIGNED for order in range(3, size + 1)}) as views:
        moved.write(page, 1, salt=SALT)
    is_folio(moved, views[0], page, 2)
    with one_record(moved, "copy", "variable", 2, {order: VMA_START for order in range(3, size + 1)}) as views:
        moved.write(2, 1, salt=SALT)
    is_folio(moved, views[0], 2, 2)
    for written in range(2 * n):
        if written not in (page, 2):
            origin = both.address + written * layout.page
            assert moved.verify(written, 1, origin=origin).wrong == 0
    assert both.verify().wrong == 0


def test_a_parent_of_many(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """Each child has its folio; the source has one user less each time, and what it holds stays."""
    switch(guest, "copy")
    n = layout.cont_pages
    head = is_folio(block, look(process), 0, layout.hinted_order)
    children = [process.fork() for _ in range(3)]
    for left, child in zip((3, 2, 1), children, strict=True):
        theirs = block.in_process(child)
        with one_record(theirs, "copy", "variable", layout.hinted_order, {}):
            theirs.write(left, 1, salt=SALT)
        folio = guest.page(head)
        assert (folio.large, folio.refcount) == (left * n, left * n)
        contents(theirs, left)
    contents(block)
    folios = {outputs(block.in_process(each), look(each))[0] for each in [process, *children]}
    assert len(folios) == 4


def test_nohugepage_and_userfaultfd(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """Who wants single pages gets a copy of one."""
    switch(guest, "copy")
    size = layout.hinted_order
    theirs = block.in_process(process.fork())
    theirs.madvise("nohugepage")
    reasons = {order: NOHUGEPAGE for order in range(2, size + 1)} | {1: NOT_ALLOWED}
    with one_record(theirs, "copy", "variable", 0, reasons):
        theirs.write(5, 1, salt=SALT)
    theirs.madvise("hugepage")
    theirs.uffd_register("missing")
    reasons = {order: "userfaultfd" for order in range(2, size + 1)} | {1: NOT_ALLOWED}
    with one_record(theirs, "copy", "variable", 0, reasons):
        theirs.write(7, 1, salt=SALT)
    theirs.uffd_unregister()
    contents(theirs, 5, 7)


def test_a_pmds_folio(guest: Guest, process: Process, layout: Layout) -> None:
    """Of a folio that a PMD maps the largest below it is copied, once it is mapped by entries."""
    if layout.pmd > 32 << 20:
        pytest.skip("a 64K granule's PMD page is 512 MiB, more than a guest of this size has in one piece")
    switch(guest, "copy")
    guest.set_policy("variable")
    top = (layout.pmd // layout.page).bit_length() - 1
    guest.write("/sys/kernel/mm/transparent_hugepage/enabled", "madvise")
    area = process.map(layout.pmd)
    area.write(0, 1)
    assert look(process).pattern(area)[0] == "B"
    theirs = area.in_process(process.fork())
    with one_record(theirs, "copy", "variable", top - 1, {top: "crosses-pmd"}) as views:
        theirs.write(1, 1, salt=SALT)
    is_folio(theirs, views[0], 0, top - 1)
    assert theirs.verify(0, 1).wrong == 0 and theirs.verify(1, 1, salt=SALT).wrong == 0
