# SPDX-License-Identifier: GPL-2.0-only
"""The tracepoint of an order decision carries what the record carries, so a reader in the guest needs no layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from folioscope import Area, Guest, Layout, Process
from folioscope.model import Record

from command import ROOT
from order_model import ALLOCATION, CHOSEN, NOT_ALLOWED, NOT_CONSIDERED, POLICY, PTE_OVERLAP, VMA_END, VMA_START

TRACING = "/sys/kernel/tracing"
EVENT = f"{TRACING}/events/anon_order/anon_order"
#: What the event and the record call what becomes of an order, and its number (kernel-patches/README.md, Reasons).
REASONS = {
    "not_considered": (0, NOT_CONSIDERED),
    "chosen": (1, CHOSEN),
    "not_allowed": (2, NOT_ALLOWED),
    "vma_start": (3, VMA_START),
    "vma_end": (4, VMA_END),
    "pte_overlap": (6, PTE_OVERLAP),
    "alloc_failed": (7, ALLOCATION),
    "policy": (17, POLICY),
}
PATHS = {"anon": "anonymous"}
#: No address, and no page frame.
NONE = (1 << 64) - 1


@pytest.fixture(autouse=True)
def event(guest: Guest, layout: Layout) -> Iterator[None]:
    """It is on, of an empty trace; no folio has a PMD's size."""
    guest.write(f"/sys/kernel/mm/transparent_hugepage/hugepages-{layout.pmd >> 10}kB/enabled", "never")
    guest.write(f"{TRACING}/trace", "")
    guest.write(f"{EVENT}/enable", "1")
    yield
    guest.write(f"{EVENT}/enable", "0")
    guest.write(f"{TRACING}/trace", "")


def events(process: Process) -> list[dict[str, str]]:
    """The fields of each event of a process, oldest first."""
    lines = [line for line in process.guest.read(f"{TRACING}/trace").splitlines() if " anon_order: mm=" in line]
    found = [dict(re.findall(r"(\w+)=(\{[^}]*\}|\S+)", line)) for line in lines]
    return [each for each in found if int(each["tgid"]) == process.pid]


def numbers(field: str) -> list[int]:
    """The bytes of an array."""
    return [int(byte, 16) for byte in field.strip("{}").split(",")]


def agree(event: dict[str, str], record: Record) -> None:
    """Each field of the record is in the event, with the same value."""
    low, high = (int(end, 16) for end in event["vma"].split("-"))
    assert (int(event["address"], 16), low, high) == (record.address, record.vm_start, record.vm_end)
    assert (int(event["tgid"]), int(event["pid"])) == (record.tgid, record.tid)
    assert (event["policy"], PATHS[event["path"]]) == (record.policy, record.path)
    assert (int(event["hinted"]), int(event["uffd"])) == (record.hinted, record.userfaultfd)
    assert (int(event["preferred"]), int(event["chosen"])) == (record.preferred, record.chosen)
    assert int(event["pfn"], 16) == record.pfn
    assert [order for order in range(16) if int(event["allowed"], 16) >> order & 1] == list(record.allowed or ())
    names = {number: name for number, name in REASONS.values()}
    assert [names[number] for number in numbers(event["reasons"])] == list(record.reasons)
    assert record.preferred is not None and REASONS[event["why"]][1] == record.reasons[record.preferred]
    assert int(event["overlap"], 16) == (NONE if record.overlap is None else record.overlap)
    adapted = record.adapted
    run, trust, probe = int(event["run"]), int(event["trust"], 16), int(event["probe"])
    state = (adapted.run, adapted.trust | adapted.spent << 3, adapted.probe) if adapted else (0, 0, 0)
    assert (run, trust, probe) == state
    assert numbers(event["free"]) == list(record.free or [0] * 16)


def faults(guest: Guest, process: Process, layout: Layout) -> list[Area]:
    """Faults of several policies that get their order for different reasons."""
    n, order = layout.cont_pages, layout.hinted_order
    guest.set_policy("variable")
    across = process.map(2 * layout.block, offset=layout.page)
    across.touch(order=[0, 2 * n - 1, n // 2])
    guest.set_policy("retry")
    failing = process.map(layout.block)
    process.fail_allocations(order)
    failing.write(3, 1)
    process.allow_allocations()
    failing.write(n - 1, 1)
    guest.set_policy("adaptive")
    walked = process.map(10 * layout.block)
    walked.touch(order=[*range(4 * n), 5 * n + 7, 6 * n + 7, 7 * n + 7, 8 * n + 7, 9 * n + 7])
    return [across, failing, walked]


def test_an_event_has_what_the_record_has(guest: Guest, process: Process, layout: Layout) -> None:
    """Fault by fault, for records of each kind: in the way, at an end, without memory, by what is beside."""
    areas = faults(guest, process, layout)
    records = {
        record.address: record
        for record in process.look().records
        if any(area.address <= record.address < area.address + area.length for area in areas)
    }
    found = {int(each["address"], 16): each for each in events(process)}
    assert len(records) > 12 and records.keys() <= found.keys()
    for address, record in records.items():
        agree(found[address], record)
    seen = {reason for record in records.values() for reason in record.reasons}
    assert seen >= {CHOSEN, NOT_ALLOWED, VMA_START, VMA_END, PTE_OVERLAP, ALLOCATION}
    assert any(record.free for record in records.values()) and any(record.overlap for record in records.values())
    adapted = [record.adapted for record in records.values() if record.adapted]
    assert {each.probe for each in adapted} == {True, False} and any(each.run for each in adapted)


def test_the_numbers_are_those_of_the_document() -> None:
    """Of the reasons that are met here."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| ", (ROOT / "kernel-patches" / "README.md").read_text(), re.MULTILINE)
    told = {name: int(number) for number, name in rows}
    assert {name: number for name, (number, _) in REASONS.items() if number} == {
        name: told[name] for name, (number, _) in REASONS.items() if number
    }
