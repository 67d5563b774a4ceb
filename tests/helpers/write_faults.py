# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of write faults share: the switches in ``anon_order/``, and what was mapped before and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from folioscope import Area, Decision, Guest, Layout, Process, View
from folioscope.model import Record

from order_model import CHOSEN, NOT_CONSIDERED

THP = "/sys/kernel/mm/transparent_hugepage"
#: Off at boot, all of them.
SWITCHES = ("zero_page", "copy", "reuse")
#: AP[2] and DBM of a level-3 descriptor: read-only, and writable if the first were not set (arm64's PTE_WRITE).
READ_ONLY, WRITABLE = 1 << 7, 1 << 51
AF, VALID, DIRTY = 1 << 10, 1, 1 << 55
#: What a second write stores, to be told from the first.
SALT = 7


def switch(guest: Guest, name: str, on: bool = True) -> None:
    """Sets one of the switches."""
    guest.write(f"{THP}/anon_order/{name}", str(int(on)))


def switched(guest: Guest, *on: str) -> Iterator[None]:
    """Every switch is off, as at boot; these are on until the end of the test. A fixture of a file is made of it."""
    names = guest.run("/bin/busybox", "ls", f"{THP}/anon_order").stdout.split()
    if not set(SWITCHES) <= set(names):
        pytest.skip("this kernel handles writes to zero pages and shared folios as 6.12 does")
    left_on = [name for name in SWITCHES if guest.read(f"{THP}/anon_order/{name}").strip() != "0"]
    assert not left_on, f"a test before this one has left {left_on} on"
    for name in on:
        switch(guest, name)
    yield
    for name in SWITCHES:
        switch(guest, name, False)


def enable(guest: Guest, order: int, mode: str) -> None:
    """What policy ``sysfs`` may give: the control of one size."""
    guest.write(f"{THP}/hugepages-{(guest.layout.page << order) >> 10}kB/enabled", mode)


def look(process: Process) -> View:
    """A look at which nothing is wrong, and of which everything was judged."""
    view = process.look()
    assert not view.errors and not view.not_judged, (view.errors, view.not_judged)
    return view


def outputs(area: Area, view: View) -> list[int | None]:
    """The physical address behind each page of an area."""
    page = area.process.guest.layout.page
    found = {entry.va: entry.output_address for entry in view.entries if entry.level == 3}
    return [found.get(va) for va in range(area.address, area.address + area.length, page)]


def words(area: Area, view: View) -> list[int]:
    """The raw descriptor of each page of an area."""
    page = area.process.guest.layout.page
    return [view.word(va) for va in range(area.address, area.address + area.length, page)]


def writable(word: int) -> bool:
    """A write there faults for no more than the dirty state."""
    return bool(word & VALID) and bool(word & WRITABLE)


def of(area: Area, view: View, path: str) -> list[Record]:
    """The records of a path in an area, oldest first."""
    return [
        record
        for record in view.records
        if record.path == path and area.address <= record.address < area.address + area.length
    ]


def why(record: Record) -> dict[int, str]:
    """What a record says of each order."""
    return {order: reason for order, reason in enumerate(record.reasons) if reason != NOT_CONSIDERED}


@contextmanager
def one_record(area: Area, path: str, policy: str, order: int, reasons: dict[int, str]) -> Iterator[list[View]]:
    """What is done inside is one fault of this path, as record and counters say; the list gets the look after it."""
    guest = area.process.guest
    before = len(of(area, look(area.process), path))
    counts = guest.counts()
    views: list[View] = []
    yield views
    view = look(area.process)
    found = of(area, view, path)[before:]
    assert len(found) == 1, found
    record = found[0]
    wanted = (order, policy, reasons | {order: CHOSEN})
    assert (record.chosen, record.policy, why(record)) == wanted, record
    assert record.preferred is not None and record.pfn is not None
    counted = guest.counts().since(counts).orders
    assert counted is not None
    decisions = {decision: times for decision, times in counted.items() if decision.path == path}
    assert decisions.pop(Decision(policy, path, order, record.reasons[record.preferred]), 0) == 1, decisions
    # Counts are of all processes: on 7.x the agent's heap has a large folio from before it switches them off.
    assert not decisions or (guest.hello.release >= (7,) and all(other.chosen == 0 for other in decisions)), decisions
    views.append(view)


def no_record(area: Area, view: View, path: str) -> None:
    """Nobody chose an order on this path there."""
    assert not of(area, view, path)


def is_folio(area: Area, view: View, first: int, order: int) -> int:
    """A folio of this order, naturally aligned, is behind these pages of an area, mapped by nobody else; its frame."""
    guest, page = area.process.guest, area.process.guest.layout.page
    found = outputs(area, view)[first : first + (1 << order)]
    assert found[0] is not None
    head = found[0] // page
    assert found == [(head + i) * page for i in range(1 << order)]
    folio = guest.page(head)
    assert (folio.head, folio.order) == (head, order)
    if order:
        assert folio.large == 1 << order
    else:
        assert folio.mapcount == 1
    assert all(guest.page(head + i).exclusive for i in {0, (1 << order) - 1})
    return head


def block_of(process: Process) -> Area:
    """A block of one folio, written and folded, in the middle of three that nobody has touched."""
    layout: Layout = process.guest.layout
    process.guest.set_policy("variable")
    area = process.map(3 * layout.block).part(layout.cont_pages, layout.cont_pages)
    area.write()
    assert look(process).pages(area) == "c" * layout.cont_pages
    return area


def contents(area: Area, *written: int) -> None:
    """Each page holds what it held, or what was written later."""
    for page in range(area.pages):
        found = area.verify(page, 1, salt=SALT if page in written else 0)
        assert found.wrong == 0, page
