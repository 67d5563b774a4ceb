# SPDX-License-Identifier: GPL-2.0-only
"""Writes to folios that fork() had shared: with ``anon_order/reuse`` a large one that nobody else has is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Guest, Layout, Process

from order_model import PTE_OVERLAP, VMA_END, VMA_START
from test_stock_kernel import version
from write_faults import (
    AF,
    DIRTY,
    READ_ONLY,
    SALT,
    block_of,
    contents,
    enable,
    is_folio,
    look,
    no_record,
    of,
    one_record,
    outputs,
    switch,
    switched,
    words,
    writable,
)

#: The first release whose write faults reuse a page of a large folio (``__wp_can_reuse_large_anon_folio()``).
SINCE = (6, 15, 0)


@pytest.fixture(autouse=True)
def switches(guest: Guest) -> Iterator[None]:
    """All are off as a test begins, and as it ends."""
    yield from switched(guest)


@pytest.fixture
def block(guest: Guest, process: Process) -> Area:
    """A block of one folio, written and folded."""
    return block_of(process)


def test_what_a_test_has_left_on_is_off(guest: Guest) -> None:
    """A guest is many tests': each begins with the switches as they were at boot, and with records."""
    folder = "/sys/kernel/mm/transparent_hugepage"
    paths = [
        *(f"{folder}/anon_order/{name}" for name in ("reuse", "copy", "lru_batch", "contpte")),
        f"{folder}/page_cache",
    ]
    before = {path: guest.read(path) for path in paths}
    assert set(before.values()) == {"0\n"}
    for path in paths:
        guest.write(path, "1")
    assert {path: guest.read(path) for path in paths} == dict.fromkeys(paths, "1\n")
    guest.reset()
    assert {path: guest.read(path) for path in paths} == before
    assert guest.read(f"{folder}/anon_order/record") == "1\n"


def abandoned(process: Process) -> None:
    """A child has come and gone: every page is write-protected, and none exclusive."""
    process.fork().exit()


def reuses_pages(guest: Guest) -> bool:
    """Whether the kernel itself reuses a page of a large folio that only one process has; 6.12 copies it."""
    return version(guest.hello.kernel_release) >= SINCE


def changed(before: list[int | None], after: list[int | None]) -> list[int]:
    """The pages that are in other page frames than before."""
    return [page for page, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def test_off_every_page_is_treated_alone(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """A write copies its page though no other process has it, or reuses it in place on newer kernels."""
    before = outputs(block, look(process))
    abandoned(process)
    block.write(3, 1, salt=SALT)
    view = look(process)
    assert changed(before, outputs(block, view)) == ([] if reuses_pages(guest) else [3])
    assert [page for page, word in enumerate(words(block, view)) if writable(word)] == [3]
    for path in ("copy", "reuse"):
        no_record(block, view, path)
    contents(block, 3)


@pytest.mark.parametrize("page", [0, 5, -1])
def test_the_folio_is_kept(guest: Guest, process: Process, layout: Layout, block: Area, page: int) -> None:
    """One fault makes all of it writable where it is, folded and exclusive; what comes then needs no fault."""
    n, page = layout.cont_pages, page % layout.cont_pages
    before = outputs(block, look(process))
    abandoned(process)
    view = look(process)
    assert view.pages(block) == "c" * n and not any(map(writable, words(block, view)))
    assert before[0] is not None and not guest.page(before[0] // layout.page).exclusive
    switch(guest, "reuse")
    with one_record(block, "reuse", "sysfs", layout.hinted_order, {}) as views:
        block.write(page, 1, salt=SALT)
    (view,) = views
    assert outputs(block, view) == before and view.pages(block) == "c" * n
    assert all(writable(word) and word & DIRTY for word in words(block, view))
    head = is_folio(block, view, 0, layout.hinted_order)
    assert of(block, view, "reuse")[-1].pfn == head
    folio = guest.page(head)
    assert folio.refcount == n and not folio.swapcache
    block.write(salt=SALT)
    assert words(block, look(process)) == words(block, view)
    contents(block, *range(n))


def test_a_child_that_lives_keeps_its_pages(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """A folio that another has is copied; of what is left then the last owner keeps what it maps."""
    switch(guest, "reuse")
    child = process.fork()
    theirs = block.in_process(child)
    before = outputs(block, look(process))
    block.write(3, 1, salt=SALT)
    view = look(process)
    no_record(block, view, "reuse")
    assert changed(before, outputs(block, view)) == [3]
    assert theirs.verify().wrong == 0
    process.exit()
    # All of the folio is the child's now.
    with one_record(theirs, "reuse", "sysfs", layout.hinted_order, {}) as views:
        theirs.write(3, 1, salt=SALT)
    assert outputs(theirs, views[0]) == before and views[0].pages(theirs) == "c" * layout.cont_pages
    contents(theirs, 3)


def test_a_pages_own_owner_is_not_the_folios(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """Who has any page of the folio has the folio: a child that has left all but one is in the way of all."""
    switch(guest, "reuse")
    child = process.fork()
    theirs = block.in_process(child)
    theirs.munmap(1)
    before = outputs(block, look(process))
    block.write(5, 1, salt=SALT)
    view = look(process)
    no_record(block, view, "reuse")
    assert outputs(block, view)[5] != before[5] and theirs.verify(0, 1).wrong == 0
    child.exit()
    # 5 is a page of its own: what can be made writable at once are those behind it, and before.
    order = layout.hinted_order - 1
    with one_record(block, "reuse", "sysfs", order, {layout.hinted_order: PTE_OVERLAP}) as views:
        block.write(-1 % layout.cont_pages, 1, salt=SALT)
    now = words(block, views[0])
    assert [writable(word) for word in now] == [page >= 5 for page in range(layout.cont_pages)]
    contents(block, 5, layout.cont_pages - 1)


def test_what_is_mapped_of_it(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """Of a folio that was unmapped in part the rest is reused; the VMA's ends are why it is no more."""
    switch(guest, "reuse")
    n, size = layout.cont_pages, layout.hinted_order
    block.munmap(0, 2)
    abandoned(process)
    rest = block.part(2)
    before = outputs(rest, look(process))
    with one_record(rest, "reuse", "sysfs", size - 1, {size: VMA_START}) as views:
        rest.write(n - 3, 1, salt=SALT)
    assert outputs(rest, views[0]) == before and views[0].pages(rest) == "v" * (n - 2)
    assert all(map(writable, words(rest, views[0])))
    abandoned(process)
    rest.munmap(n - 4)
    rest = rest.part(0, n - 4)
    with one_record(rest, "reuse", "sysfs", 1, dict.fromkeys(range(2, size + 1), VMA_START)):
        rest.write(0, 1, salt=SALT)
    abandoned(process)
    # The upper half ends two pages too early.
    with one_record(rest, "reuse", "sysfs", size - 2, {size: VMA_START, size - 1: VMA_END}):
        rest.write(n // 2, 1, salt=SALT)
    contents(rest.part(0, 1), 0)


def test_moved_folios(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """mremap() by blocks leaves it a block, by a page it cannot be one; both are reused whole."""
    switch(guest, "reuse")
    n = layout.cont_pages
    room = process.map(6 * layout.block, prot=[])
    moved = block.mremap(room.address + layout.block)
    abandoned(process)
    with one_record(moved, "reuse", "sysfs", layout.hinted_order, {}) as views:
        moved.write(1, 1)
    assert views[0].pages(moved) == "c" * n
    askew = moved.mremap(room.address + 4 * layout.block + layout.page)
    abandoned(process)
    with one_record(askew, "reuse", "sysfs", layout.hinted_order, {}) as views:
        askew.write(1, 1)
    assert views[0].pages(askew) == "v" * n and all(map(writable, words(askew, views[0])))
    # What was written there and then is known by the address that it had.
    for page in [0, *range(2, n)]:
        assert askew.verify(page, 1, origin=block.address + page * layout.page).wrong == 0


def test_two_vmas_have_it(guest: Guest, process: Process, layout: Layout, block: Area) -> None:
    """Entries beyond the VMA hold references that cannot be told from others': then the page is treated alone."""
    switch(guest, "reuse")
    beside = block_of(process)
    abandoned(process)
    block.mprotect(["read"], 0, 2)
    before = outputs(block, look(process))
    block.write(5, 1, salt=SALT)
    view = look(process)
    no_record(block, view, "reuse")
    assert changed(before, outputs(block, view)) == ([] if reuses_pages(guest) else [5])
    assert [page for page, word in enumerate(words(block, view)) if writable(word)] == [5]
    contents(block, 5)
    # One that lies in a single VMA is kept.
    with one_record(beside, "reuse", "sysfs", layout.hinted_order, {}):
        beside.write(5, 1, salt=SALT)


def test_a_folio_of_a_batch(guest: Guest, process: Process, layout: Layout) -> None:
    """A folio that waits for its LRU list has a reference more, which the fault drains."""
    switch(guest, "reuse")
    guest.set_policy("variable")
    process.pin(1)
    guest.write("/sys/kernel/mm/transparent_hugepage/anon_order/lru_batch", "1")
    try:
        block = process.blocks(1)
        block.write()
        head = (outputs(block, look(process))[0] or 0) // layout.page
        waits = "lru" not in guest.page(head).folio_flags
        assert waits == (layout.block <= 64 << 10)
        abandoned(process)
        with one_record(block, "reuse", "sysfs", layout.hinted_order, {}) as views:
            block.write(0, 1)
        assert is_folio(block, views[0], 0, layout.hinted_order) == head
        assert "lru" in guest.page(head).folio_flags
    finally:
        guest.write("/sys/kernel/mm/transparent_hugepage/anon_order/lru_batch", "0")


def is_dirty(word: int) -> bool:
    """Written to, as software or hardware has noted it: writable and not read-only any more."""
    return bool(word & DIRTY) or (writable(word) and not word & READ_ONLY)


def two_blocks(guest: Guest, process: Process) -> Area:
    """A folio of two contiguous blocks, shared with a child that has gone, of which no page was written to since it
    was advised away (MADV_FREE): each entry is clean and old."""
    size = process.guest.layout.hinted_order + 1
    guest.set_policy("sysfs")
    enable(guest, size, "always")
    area = process.map(process.guest.layout.page << size, hint=None)
    area.write()
    is_folio(area, look(process), 0, size)
    area.madvise("free")
    abandoned(process)
    now = words(area, look(process))
    assert not any(is_dirty(word) or word & AF for word in now)
    return area


@pytest.mark.parametrize("cpu", ["max", "cortex-a72"])
@pytest.mark.parametrize("granule", ["4k", pytest.param("64k", marks=pytest.mark.long)])
def test_neighbours_stay_clean_and_old(guest: Guest, process: Process, layout: Layout) -> None:
    """All of the folio becomes writable. Dirty and young is the block that the page is of, as hardware notes both for a
    block; of the other one nobody has written to any page, and none says so."""
    n = layout.cont_pages
    area = two_blocks(guest, process)
    switch(guest, "reuse")
    with one_record(area, "reuse", "sysfs", layout.hinted_order + 1, {}) as views:
        area.write(n + 3, 1, salt=SALT)
    now = words(area, views[0])
    assert all(map(writable, now)) and views[0].pages(area) == "c" * 2 * n
    assert [is_dirty(word) for word in now] == [False] * n + [True] * n
    assert [bool(word & AF) for word in now] == [False] * n + [True] * n
    # A write to the other one is noted then.
    area.write(0, 1, salt=SALT)
    view = look(process)
    assert is_dirty(words(area, view)[0])
    assert [record.path for record in of(area, view, "reuse")] == ["reuse"]
    contents(area.part(n), 3)
    contents(area.part(0, n), 0)


@pytest.mark.parametrize("granule", ["4k", pytest.param("64k", marks=pytest.mark.long)])
def test_what_is_no_block_stays_clean(guest: Guest, process: Process, layout: Layout) -> None:
    """Of blocks that are not whole, each page has its own entry: only that of the page that was written to changes."""
    n = layout.cont_pages
    area = two_blocks(guest, process)
    area.munmap(2 * n - 1)
    area.munmap(0, 1)
    rest = area.part(1, 2 * n - 2)
    switch(guest, "reuse")
    rest.write(4, 1, salt=SALT)
    now = words(rest, look(process))
    assert all(map(writable, now))
    assert [page for page, word in enumerate(now) if is_dirty(word)] == [4]
    assert [page for page, word in enumerate(now) if word & AF] == [4]
    contents(rest, 4)
