# SPDX-License-Identifier: GPL-2.0-only
"""Writes where the zero page is mapped: with ``anon_order/zero_page`` a large folio takes its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, CommandFailed, Guest, Layout, Process

from order_model import NOHUGEPAGE, NOT_ALLOWED, Model
from write_faults import enable, is_folio, look, no_record, one_record, outputs, switch, switched, words, writable

KSM = "/sys/kernel/mm/ksm"
POLICIES = ["baseline", "simple", "variable", "retry", "adaptive", "sysfs"]


@pytest.fixture(autouse=True)
def switches(guest: Guest) -> Iterator[None]:
    """Zero pages give way."""
    yield from switched(guest, "zero_page")


def zeroes(area: Area, *pages: int) -> None:
    """Reads these pages of an area that nobody has written to; all of them show the zero page."""
    for page in pages:
        area.read(page, 1)
    view = look(area.process)
    shown = {outputs(area, view)[page] for page in pages}
    assert len(shown) == 1 and None not in shown
    assert not any(writable(words(area, view)[page]) for page in pages)


def written_once(area: Area, page: int) -> None:
    """The page that was written to holds what was written, and every other nothing."""
    assert area.verify(page, 1).wrong == 0
    rest = [area.part(0, page)] * (page > 0) + [area.part(page + 1)] * (page + 1 < area.pages)
    for part in rest:
        assert part.verify(zero=True).wrong == 0


@pytest.mark.parametrize("path", ["zero-page", "anonymous"])
@pytest.mark.parametrize("policy", POLICIES)
def test_policies(guest: Guest, process: Process, layout: Layout, policy: str, path: str) -> None:
    """The policy has its way as if nothing had been read: for a write to what was read, and for one beside it."""
    guest.set_policy(policy)
    n, size = layout.cont_pages, layout.hinted_order
    if policy == "sysfs":
        enable(guest, size, "madvise")
    area = process.map(2 * layout.block)
    read = n + 3
    page = read if path == "zero-page" else n + 5
    zeroes(area, 1, n, read, 2 * n - 1)
    wanted = 0 if policy == "baseline" else size
    reasons = {1: NOT_ALLOWED} if policy != "baseline" and wanted == 0 else {}
    if policy == "sysfs":
        # A size above has its control, which is off.
        top = (layout.pmd // layout.page).bit_length() - 2
        reasons = {order: "size-never" for order in range(size + 1, top + 1)}
    with one_record(area, path, policy, wanted, reasons) as views:
        area.write(page, 1)
    (view,) = views
    is_folio(area, view, n if wanted else page, wanted)
    assert view.pages(area) == ".v" + "." * (n - 2) + ("c" * n if wanted else pattern_of(n, 0, 3, n - 1, page - n))
    written_once(area, page)


def pattern_of(n: int, *valid: int) -> str:
    """What a block shows of which these pages are mapped one by one."""
    return "".join("v" if page in valid else "." for page in range(n))


@pytest.mark.parametrize("policy", ["variable", "sysfs"])
def test_off_as_it_was(guest: Guest, process: Process, layout: Layout, policy: str) -> None:
    """Switched off, the write gets a page, and so does the one beside it."""
    switch(guest, "zero_page", False)
    guest.set_policy(policy)
    enable(guest, layout.hinted_order, "madvise")
    area = process.map(layout.block)
    zeroes(area, 3)
    area.write(3, 1)
    view = look(process)
    no_record(area, view, "zero-page")
    is_folio(area, view, 3, 0)
    zero = process.map(layout.block)
    zeroes(zero, 3)
    zero.write(2, 1)
    # Orders 2 and above meet the zero page.
    is_folio(zero, look(process), 2, 0)
    assert look(process).record(zero.address + 2 * layout.page).chosen == 0


def test_all_of_it_was_read(guest: Guest, process: Process, layout: Layout) -> None:
    """A block of nothing but zero pages becomes one folio by one write."""
    guest.set_policy("variable")
    n = layout.cont_pages
    area = process.map(layout.block)
    zeroes(area, *range(n))
    space = guest.space(process.pid).rss
    with one_record(area, "zero-page", "variable", layout.hinted_order, {}) as views:
        area.write(n - 1, 1)
    assert views[0].pages(area) == "c" * n
    is_folio(area, views[0], 0, layout.hinted_order)
    written_once(area, n - 1)
    # The zero page is nobody's resident memory, the folio is.
    after = guest.space(process.pid).rss
    assert space is not None and after is not None and after["anonymous"] - space["anonymous"] == n


def test_what_is_there_stays(guest: Guest, process: Process, layout: Layout) -> None:
    """A page among the zero pages, the VMA's ends, MADV_NOHUGEPAGE and failing allocation have their reasons still."""
    n, size = layout.cont_pages, layout.hinted_order
    guest.set_policy("retry")
    beside = process.map(layout.block, hint="nohugepage")
    beside.write(0, 1)
    beside.madvise("hugepage")
    zeroes(beside, 2, n - 1)
    model = Model("retry", size, 0, n, populated={0})
    order, reasons = model.fault(n - 1)
    assert order == size - 1
    with one_record(beside, "zero-page", "retry", order, reasons):
        beside.write(n - 1, 1)
    # Page 2 was read, and page 0 is in the way of any folio there.
    order, reasons = model.fault(2)
    with one_record(beside, "zero-page", "retry", order, reasons) as views:
        beside.write(2, 1)
    is_folio(beside, views[0], 2 >> order << order, order)

    whole = process.map(2 * layout.block)
    zeroes(whole, 0, n - 2, n + 1)
    whole.munmap(0, 1)
    part = whole.part(1)
    order, reasons = Model("retry", size, 1, 2 * n).fault(n - 2)
    with one_record(part, "zero-page", "retry", order, reasons):
        part.write(n - 3, 1)
    whole.munmap(2 * n - 1, 1)
    order, reasons = Model("retry", size, 1, 2 * n - 1).fault(n + 1)
    with one_record(part, "zero-page", "retry", order, reasons):
        part.write(n, 1)

    plain = process.map(layout.block, hint="nohugepage")
    zeroes(plain, 1)
    reasons = dict.fromkeys(range(2, layout.unhinted_order + 1), NOHUGEPAGE)
    if reasons:
        reasons[1] = NOT_ALLOWED
    with one_record(plain, "zero-page", "retry", 0, reasons):
        plain.write(1, 1)

    failing = process.map(layout.block)
    zeroes(failing, *range(n))
    process.fail_allocations(size)
    order, reasons = Model("retry", size, 0, n, fails=lambda order: order >= size).fault(3)
    with one_record(failing, "zero-page", "retry", order, reasons) as views:
        failing.write(3, 1)
    process.allow_allocations()
    is_folio(failing, views[0], 0, order)
    # What the folio did not take is the zero page still.
    assert len(set(outputs(failing, views[0])[1 << order :])) == 1
    written_once(failing, 3)


def test_parent_and_child(guest: Guest, process: Process, layout: Layout) -> None:
    """Both show the zero page; what one writes the other does not see."""
    guest.set_policy("variable")
    n = layout.cont_pages
    whole = process.map(2 * layout.block)
    area = whole.part(0, n)
    zeroes(area, 0, 3)
    # fork() copies entries only where there are pages of the process's own.
    whole.write(n, 1)
    child = process.fork()
    theirs = area.in_process(child)
    with one_record(theirs, "zero-page", "variable", layout.hinted_order, {}):
        theirs.write(3, 1)
    view = look(process)
    assert view.pages(area) == pattern_of(n, 0, 3) and area.verify(zero=True).wrong == 0
    with one_record(area, "zero-page", "variable", layout.hinted_order, {}):
        area.write(0, 1)
    written_once(theirs, 3)
    written_once(area, 0)
    assert outputs(area, look(process))[0] != outputs(theirs, look(child))[0]


def test_moved(guest: Guest, process: Process, layout: Layout) -> None:
    """Zero pages that mremap() took along give way where they are now, as aligned there."""
    guest.set_policy("variable")
    n, size = layout.cont_pages, layout.hinted_order
    area = process.map(layout.block)
    zeroes(area, 0, 5)
    room = process.map(4 * layout.block, prot=[])
    moved = area.mremap(room.address + layout.block + layout.page)
    first = moved.address // layout.page % n
    model = Model("variable", size, first, first + n)
    for page in (0, 5):
        order, reasons = model.fault(first + page)
        with one_record(moved, "zero-page", "variable", order, reasons):
            moved.write(page, 1)


def test_userfaultfd_sees_each_page(guest: Guest, process: Process, layout: Layout) -> None:
    """Where it is armed a page is written alone; one that is there, zero or not, is not missing."""
    guest.set_policy("variable")
    area = process.map(layout.block)
    zeroes(area, 3)
    area.uffd_register("missing")
    reasons = {order: "userfaultfd" for order in range(2, layout.hinted_order + 1)}
    with one_record(area, "zero-page", "variable", 0, reasons | {1: NOT_ALLOWED}) as views:
        area.write(3, 1)
    is_folio(area, views[0], 3, 0)
    area.uffd_unregister()

    other = process.map(layout.block)
    zeroes(other, 3)
    other.uffd_register("write_protect")
    other.uffd_writeprotect()
    with pytest.raises(CommandFailed):
        other.write(3, 1, seconds=1.0)


def test_pages_of_ksm(guest: Guest, process: Process, layout: Layout) -> None:
    """KSM has put the zero page where zeroes had been written: it gives way as well, and is not counted any more."""
    guest.set_policy("variable")
    n = layout.cont_pages
    area = process.map(layout.block, hint="nohugepage")
    for page in range(n):
        area.poke(page, [0])
    counted = f"/proc/{process.pid}/ksm_stat"

    def zero_pages() -> int:
        (line,) = [line for line in guest.read(counted).splitlines() if line.startswith("ksm_zero_pages")]
        return int(line.split()[1])

    try:
        guest.write(f"{KSM}/use_zero_pages", "1")
        area.madvise("mergeable")
        for name, value in (("sleep_millisecs", "1"), ("pages_to_scan", "1000"), ("run", "1")):
            guest.write(f"{KSM}/{name}", value)
        for _ in range(600):
            if zero_pages() == n:
                break
        assert zero_pages() == n
        guest.write(f"{KSM}/run", "0")
        area.madvise("hugepage")
        assert len(set(outputs(area, look(process)))) == 1
        with one_record(area, "zero-page", "variable", layout.hinted_order, {}) as views:
            area.write(n // 2, 1)
        assert zero_pages() == 0
        is_folio(area, views[0], 0, layout.hinted_order)
        written_once(area, n // 2)
    finally:
        guest.write(f"{KSM}/run", "2")
        guest.write(f"{KSM}/run", "0")
        guest.write(f"{KSM}/use_zero_pages", "0")
