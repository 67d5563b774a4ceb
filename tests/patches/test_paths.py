# SPDX-License-Identifier: GPL-2.0-only
"""Order records of what no policy has a say in: shmem, swap-in, and folios of a PMD's size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Decision, Guest, Layout, Process, View
from folioscope.model import Record

from order_model import NOT_CONSIDERED

THP = "/sys/kernel/mm/transparent_hugepage"
SWAP = "/dev/ram0"
# The reason per order, from the highest that has a control down to the folio's.
Reasons = dict[int, str]


def knob(layout: Layout, order: int, name: str) -> str:
    """The control of a size."""
    return f"{THP}/hugepages-{(layout.page << order) >> 10}kB/{name}"


def orders(guest: Guest, name: str) -> list[int]:
    """Those that have a control of this name."""
    sizes = [size.size_kib for size in guest.hello.mthp if getattr(size, name) is not None]
    return sorted((kib * 1024 // guest.layout.page).bit_length() - 1 for kib in sizes)


@pytest.fixture(autouse=True)
def paths(guest: Guest) -> None:
    """A kernel whose records have these paths, with every size off."""
    if "adaptive" not in guest.policies:
        pytest.skip("this kernel records first writes alone")
    for name in ("enabled", "shmem_enabled"):
        for order in orders(guest, name):
            guest.write(knob(guest.layout, order, name), "never")


def why(record: Record) -> Reasons:
    """What a record says of each order."""
    return {order: reason for order, reason in enumerate(record.reasons) if reason != NOT_CONSIDERED}


def of(area: Area, view: View, path: str) -> list[Record]:
    """The records of a path in an area, oldest first; none may be judged wrong."""
    assert not view.errors and not view.not_judged, (view.errors, view.not_judged)
    return [
        record
        for record in view.records
        if record.path == path and area.address <= record.address < area.address + area.length
    ]


def check(guest: Guest, view: View, record: Record, order: int, reasons: Reasons) -> None:
    """A record against what was expected, and against what the tables map and which folio that is."""
    layout = guest.layout
    assert (record.chosen, record.policy, why(record)) == (order, "sysfs", reasons)
    assert record.preferred == max(record.allowed or [0])
    assert record.pfn is not None
    size = layout.page << order
    first = record.address & -size
    assert record.vm_start <= first and first + size <= record.vm_end
    # One descriptor maps all of a folio of a PMD's size.
    page = 0 if size == layout.pmd else record.address - first
    assert view.output(first + page) == record.pfn * layout.page + page
    folio = guest.page(record.pfn)
    assert (folio.order, folio.head) == (order, record.pfn)


def highest(guest: Guest) -> int:
    """The highest order of shmem: a PMD's, or what the page cache can hold (MAX_XAS_ORDER)."""
    return min((guest.layout.page // 8).bit_length() - 1, 11)


def above(reason: str, order: int, top: int, mid: dict[int, str] | None = None) -> Reasons:
    """The reason of each order above one that was chosen."""
    return {each: reason for each in range(order + 1, top + 1)} | (mid or {}) | {order: "chosen"}


def shared(process: Process, length: int, **more: object) -> Area:
    """Anonymous shared memory."""
    return process.map(length, flags=["shared"], **({"hint": None} | more))  # type: ignore[arg-type]


def only(guest: Guest, process: Process, area: Area, page: int) -> tuple[View, Record]:
    """Writes to one page that nothing was in; the one record of that."""
    before = len(of(area, process.look(), "shmem"))
    counts = guest.counts()
    area.write(page, 1)
    view = process.look()
    records = of(area, view, "shmem")
    assert len(records) == before + 1
    record = records[-1]
    counted = guest.counts().since(counts).orders
    assert counted is not None and record.preferred is not None
    assert counted.get(Decision("sysfs", "shmem", record.chosen, record.reasons[record.preferred])) == 1
    return view, record


@pytest.mark.parametrize("hint", ["hugepage", None, "nohugepage"])
@pytest.mark.parametrize("mode", ["always", "never", "advise", "inherit", "within_size"])
def test_shmem_controls(guest: Guest, process: Process, layout: Layout, mode: str, hint: str | None) -> None:
    """One size in each mode, the others off: what it allows, and why not."""
    size, top = layout.cont_order, highest(guest)
    guest.write(knob(layout, size, "shmem_enabled"), mode)
    area = shared(process, 2 * layout.block, hint=hint)
    view, record = only(guest, process, area, 3)
    got = mode in ("always", "within_size") or (mode == "advise" and hint == "hugepage")
    if hint == "nohugepage":
        check(guest, view, record, 0, above("nohugepage", 0, top))
        assert record.allowed == ()
    elif got:
        check(guest, view, record, size, above("size-never", size, top))
        assert record.allowed == (size,)
        assert view.pages(area.address, layout.block) == "c" * layout.cont_pages
    else:
        reason = {"never": "size-never", "advise": "size-madvise", "inherit": "top-never"}[mode]
        check(guest, view, record, 0, above("size-never", 0, top, {size: reason}))
        assert record.allowed == ()


def test_shmem_inherits(guest: Guest, process: Process, layout: Layout) -> None:
    """What the top-level control says where the size inherits it.

    Where the page cache can have no folio of a PMD's size 6.12 takes the top-level control for off, and 7.x does not
    (shmem_huge_global_enabled()).
    """
    size, top = layout.cont_order, highest(guest)
    later = guest.hello.release >= (7,)
    global_off = layout.page << top < layout.pmd and not later
    guest.write(knob(layout, size, "shmem_enabled"), "inherit")
    was = guest.knobs(f"{THP}/shmem_enabled")[f"{THP}/shmem_enabled"]
    try:
        for mode, hint, reason in [
            ("always", None, None),
            ("advise", None, "top-madvise"),
            ("advise", "hugepage", None),
            ("never", "hugepage", "top-never"),
            ("deny", "hugepage", "top-never"),
        ]:
            guest.write(f"{THP}/shmem_enabled", mode)
            area = shared(process, layout.block, hint=hint)
            view, record = only(guest, process, area, 1)
            if reason is None and global_off:
                check(guest, view, record, 0, above("size-never", 0, top, {size: "not-allowed"}))
            elif reason is None:
                check(guest, view, record, size, above("size-never", size, top))
            else:
                # "deny" is asked before any size.
                others = reason if mode == "deny" else "size-never"
                check(guest, view, record, 0, above(others, 0, top, {size: reason}))
    finally:
        guest.write(f"{THP}/shmem_enabled", was)


def test_shmem_places(guest: Guest, process: Process, layout: Layout) -> None:
    """VMA bounds, alignment, the file's end, pages that the file has, failing allocation: each has its reason."""
    n, size, top = layout.cont_pages, layout.cont_order, highest(guest)
    guest.write(knob(layout, size, "shmem_enabled"), "always")
    guest.write(knob(layout, 2, "shmem_enabled"), "always")
    smaller = {order: "size-never" for order in range(3, size)}

    def second(reason: str) -> Reasons:
        return above("size-never", 2, top, smaller | {size: reason})

    whole = shared(process, 2 * layout.block)
    whole.munmap(0, 1)
    check(guest, *only(guest, process, whole, n - 1), 2, second("crosses-start"))
    whole.munmap(2 * n - 1, 1)
    check(guest, *only(guest, process, whole, n), 2, second("crosses-end"))
    check(guest, *only(guest, process, whole, n + 5), 2, second("crosses-end"))

    beside = shared(process, 2 * layout.block)
    guest.write(knob(layout, size, "shmem_enabled"), "never")
    check(guest, *only(guest, process, beside, 1), 2, above("size-never", 2, top))
    guest.write(knob(layout, size, "shmem_enabled"), "always")
    check(guest, *only(guest, process, beside, n - 1), 2, second("overlap"))

    askew = shared(process, 2 * layout.block, offset=4 * layout.page)
    check(guest, *only(guest, process, askew, 0), 2, second("misaligned"))
    single = shared(process, 2 * layout.block, offset=layout.page)
    everything = above("size-never", 0, top, {size: "misaligned", 2: "misaligned"})
    check(guest, *only(guest, process, single, n), 0, everything)

    failing = shared(process, 2 * layout.block)
    process.fail_allocations(size)
    check(guest, *only(guest, process, failing, 0), 2, second("allocation-failed"))
    process.allow_allocations()

    guest.write(knob(layout, size, "shmem_enabled"), "within_size")
    end = shared(process, 3 * layout.block // 2)
    check(guest, *only(guest, process, end, 0), size, above("size-never", size, top))
    check(guest, *only(guest, process, end, n), 2, second("within-size"))


def test_shmem_that_is_there_has_no_record(guest: Guest, process: Process, layout: Layout) -> None:
    """A second process maps what the first has put there: no order is chosen for that."""
    guest.write(knob(layout, layout.cont_order, "shmem_enabled"), "always")
    area = shared(process, layout.block)
    child = process.fork()
    view, record = only(guest, process, area, 2)
    check(guest, view, record, layout.cont_order, above("size-never", layout.cont_order, highest(guest)))
    inherited = area.in_process(child)
    inherited.write()
    theirs = child.look()
    assert not [record for record in of(inherited, theirs, "shmem") if record.tgid == child.pid]
    assert theirs.output(area.address) == view.output(area.address)


@pytest.fixture
def swap(guest: Guest, process: Process) -> Iterator[Process]:
    """A process of a guest that swaps to a RAM disk, which is read at once, past the swap cache."""
    guest.swap_on(SWAP)
    yield process
    process.kill()
    guest.swap_off(SWAP)


def swapped_in(guest: Guest, area: Area, page: int) -> tuple[View, Record]:
    """Reads a page that is swapped out; the last record of that path."""
    before = len(of(area, area.process.look(), "swap-in"))
    area.read(page, 1)
    view = area.process.look()
    records = of(area, view, "swap-in")
    assert len(records) == before + 1
    assert records[-1].address == area.address + page * guest.layout.page
    return view, records[-1]


def test_swap_in(guest: Guest, swap: Process, layout: Layout) -> None:
    """Single pages where no size is enabled; on 4K, where folios go out in one piece, what is enabled and why not."""
    n, size, pmd = layout.cont_pages, layout.cont_order, (layout.page // 8).bit_length() - 1
    top = pmd - 1
    off = {order: "not-allowed" if order == 1 else "size-never" for order in range(1, top + 1)}

    def off_but(order: int, more: Reasons | None = None) -> Reasons:
        return {each: reason for each, reason in off.items() if each > order} | (more or {}) | {order: "chosen"}

    area = swap.map(4 * layout.block)
    area.write(salt=3)
    area.swap_out()
    assert swap.look().pages(area) == "." * area.pages
    check(guest, *swapped_in(guest, area, 3), 0, off_but(0))
    if layout.granule == "4k":
        guest.write(knob(layout, size, "enabled"), "always")
        guest.write(knob(layout, 2, "enabled"), "always")
        # One page of the block is in memory, and its slot is free.
        check(guest, *swapped_in(guest, area, 4), 2, off_but(2, {size: "swap-entries"}))
        view, record = swapped_in(guest, area, n + 1)
        check(guest, view, record, size, off_but(size))
        assert view.pages(area)[n : 2 * n] == "c" * n
        swap.fail_allocations(size)
        check(guest, *swapped_in(guest, area, 2 * n), 2, off_but(2, {size: "allocation-failed"}))
        swap.allow_allocations()
        area.munmap(4 * n - 1, 1)
        check(guest, *swapped_in(guest, area, 3 * n), 2, off_but(2, {size: "crosses-end"}))
        # Slots stay where they are, and the memory moves by a page.
        moved = area.part(3 * n + 4, n - 5).mremap(to=area.address + (6 * n + 1) * layout.page)
        check(guest, *swapped_in(guest, moved, 4), 0, off_but(0, {size: "crosses-start", 2: "misaligned"}))
        assert moved.verify(4, 2, salt=3, origin=area.address + (3 * n + 8) * layout.page).wrong == 0
    assert area.verify(0, 2 * n, salt=3).wrong == 0


# A 64K granule's is 512 MiB, more than the guest has in one piece.
@pytest.mark.parametrize("granule", ["4k", "16k"])
def test_folio_of_a_pmd(guest: Guest, process: Process, layout: Layout) -> None:
    """A first write that fills a level-2 descriptor; what cannot be had so is recorded below, once."""
    pmd = (layout.page // 8).bit_length() - 1
    guest.write(knob(layout, pmd, "enabled"), "madvise")
    area = process.map(2 * layout.pmd)
    area.write(7, 1)
    area.fresh(0, 1 << pmd)
    view = process.look()
    (record,) = of(area, view, "anonymous")
    check(guest, view, record, pmd, {pmd: "chosen"})
    assert record.allowed == (pmd,)
    assert [entry.level for entry in view.entries if entry.va == area.address] == [2]
    process.fail_allocations(pmd)
    area.write(1 << pmd, 1)
    process.allow_allocations()
    records = of(area, process.look(), "anonymous")
    assert [(record.policy, record.chosen) for record in records] == [("sysfs", pmd), ("variable", layout.hinted_order)]
