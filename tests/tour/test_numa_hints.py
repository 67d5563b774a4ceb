# SPDX-License-Identifier: GPL-2.0-only
"""NUMA hints on folded blocks: entries that are made inaccessible for a while, and what faults there do.

NUMA balancing is off in the guests until a test asks for hints.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Guest, Process, View

from write_faults import SALT, VALID, block_of, contents, look, switch, switched, words, writable

BALANCING = "/proc/sys/kernel/numa_balancing"
KNOBS = "/sys/kernel/debug/sched/numa_balancing"
#: All is scanned at once, new VMAs too.
SCANS = {"scan_delay_ms": "0", "scan_size_mb": "16", "scan_period_min_ms": "10"}
#: PTE_PRESENT_INVALID: present for Linux, invalid for the CPU.
MARK = 1 << 11


@pytest.fixture(autouse=True)
def balancing(guest: Guest) -> Iterator[None]:
    """It is off before, after, and once there are marks."""
    yield
    guest.write(BALANCING, "0")


@pytest.fixture(autouse=True)
def switches(guest: Guest) -> Iterator[None]:
    """All are off as a test begins, and as it ends."""
    yield from switched(guest)


@pytest.fixture
def block(process: Process) -> Area:
    """A block of one folio, written and folded."""
    return block_of(process)


def marked(area: Area, view: View) -> list[bool]:
    """Which of its pages have the mark."""
    return [bool(word & MARK) and not word & VALID for word in words(area, view)]


def places(area: Area, view: View) -> list[int]:
    """Where its pages are in memory, also of those that have the mark, which no CPU walks to."""
    page = area.process.guest.layout.page
    return [word & ((1 << 48) - page) for word in words(area, view)]


def mark(area: Area) -> View:
    """Has NUMA balancing scan the process until all of the area is marked; where its pages are stays.

    Pages that several processes share are left out.
    """
    process, guest = area.process, area.process.guest
    before = places(area, look(process))
    for knob, text in SCANS.items():
        guest.write(f"{KNOBS}/{knob}", text)
    guest.write(BALANCING, "1")
    process.op("numa_hints")
    guest.write(BALANCING, "0")
    view = look(process)
    assert all(marked(area, view)), [hex(word) for word in words(area, view)]
    assert places(area, view) == before
    return view


def hint_faults(guest: Guest) -> int:
    """Faults on marks, of all processes so far."""
    lines = dict(line.split() for line in guest.read("/proc/vmstat").splitlines())
    return int(lines["numa_hint_faults"])


@pytest.mark.parametrize("access", ["read", "write"])
def test_of_ones_own(guest: Guest, block: Area, access: str) -> None:
    """A fault takes marks away, and may take the folio to another node: whole, or in pages where there is no room."""
    mark(block)
    before = hint_faults(guest)
    if access == "read":
        block.read(5, 1)
    else:
        block.write(5, 1, salt=SALT)
    assert hint_faults(guest) > before
    view = look(block.process)
    assert words(block, view)[5] & VALID
    contents(block, *([5] if access == "write" else []))
    view = look(block.process)
    assert not any(marked(block, view))
    assert len(set(places(block, view))) == block.pages


@pytest.mark.parametrize("on", [(), ("copy",), ("copy", "reuse")], ids=lambda on: "+".join(on) or "off")
def test_of_a_shared_folio(guest: Guest, block: Area, on: tuple[str, ...]) -> None:
    """fork() copies the marks: a child's write gives it a copy, and the parent keeps what it has."""
    for name in on:
        switch(guest, name)
    mark(block)
    child = block.process.fork()
    theirs = block.in_process(child)
    assert all(marked(theirs, look(child)))
    faults = hint_faults(guest)
    theirs.write(5, 1, salt=SALT)
    assert hint_faults(guest) > faults
    view = look(child)
    assert writable(words(theirs, view)[5])
    own, shared = places(theirs, view), places(block, look(block.process))
    # The fault may have moved what both have, for both.
    assert own[5] not in shared and len({*own, *shared}) == block.pages + sum(map(writable, words(theirs, view)))
    contents(theirs, 5)
    contents(block)
    assert not any(marked(theirs, look(child)))


@pytest.mark.parametrize("on", [(), ("reuse",)], ids=lambda on: "+".join(on) or "off")
def test_of_what_a_child_has_left(guest: Guest, block: Area, on: tuple[str, ...]) -> None:
    """Write-protected, not exclusive, and marked: the mark goes first, then the write is one as without it."""
    for name in on:
        switch(guest, name)
    block.process.fork().exit()
    view = mark(block)
    before = places(block, view)
    block.read(5, 1)
    view = look(block.process)
    assert not marked(block, view)[5] and not writable(words(block, view)[5])
    here = places(block, view)
    assert len(set(here)) == len(here) and (here[5] == before[5] or here[5] not in before)
    block.write(5, 1, salt=SALT)
    view = look(block.process)
    assert writable(words(block, view)[5])
    # With the switch the page is kept, wherever it is now; without it only if it is a folio of its own now.
    assert places(block, view)[5] == here[5] or not on
    contents(block, 5)
    assert not any(marked(block, look(block.process)))
