# SPDX-License-Identifier: GPL-2.0-only
"""Every address as QEMU and the guest's own kernel translate it: two oracles that share no code with the rig.

QEMU's gva2gpa translates for a *load* with the privileges of the exception level that the CPU is at. So the
lower half is asked of the CPU that waits at EL0, the upper half of one at EL1; and an address that maps
but may not be read there is "Unmapped" to it. Such addresses are counted as "no-read"; nothing else differs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from folioscope import Area, Guest, Layout, Process, View
from folioscope.guest import Held

VALID = 1 << 0
NG = 1 << 11
AF = 1 << 10
# Look-ups per pause: some 2000 a second, so a pause is a quarter of a second.
BATCH = 500
MACHINES = [
    ("max", "4k"),
    ("max", "16k"),
    ("max", "64k"),
    ("cortex-a72", "4k"),
    ("cortex-a72", "64k"),
    ("neoverse-n1", "4k"),
    ("neoverse-n1", "16k"),
    ("neoverse-n1", "64k"),
]

# Its translation is QEMU's.
pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.every_granule]

Pair = dict[str, Any]


def vmas(guest: Guest, process: Process) -> list[tuple[int, int, str, str]]:
    """Start, end, permissions and name of each VMA, from /proc/PID/maps."""
    found = []
    for line in guest.command("maps", process=process.id)["maps"]["maps"].splitlines():
        fields = line.split()
        start, end = (int(part, 16) for part in fields[0].split("-"))
        found.append((start, end, fields[1], fields[5] if len(fields) > 5 else ""))
    assert found
    return found


def translated(held: Held, addresses: list[int]) -> list[Pair]:
    """What both say of each address; a batch is of one instant."""
    guest, pairs = held.process.guest, []
    for at in range(0, len(addresses), BATCH):
        batch = addresses[at : at + BATCH]
        answer = guest.call("translate", process=held.process.id, addresses=batch, seconds=60)
        assert answer["lower_cpu"] != answer["upper_cpu"]
        pairs += answer["pairs"]
    assert [pair["va"] for pair in pairs] == addresses
    return pairs


def judge(pairs: list[Pair]) -> Counter[str]:
    """Both must agree on every address; gives how many of each kind there were."""
    kinds: Counter[str] = Counter()
    for pair in pairs:
        upper = pair["va"] >> 55 & 1
        readable = pair.get("el1_read" if upper else "el0_read")
        half = "upper" if upper else "lower"
        if pair["ours"] is None:
            kind, expected = "unmapped", None
        elif not readable:
            kind, expected = "no-read", None
        else:
            # An old entry, which a load would make young or fault on, maps for gva2gpa on every CPU.
            kind, expected = "old" if not pair["word"] & AF else "mapped", pair["ours"]
        kinds[f"{half} {kind}"] += 1
        assert pair["machine"] == expected, f"{kind}: { ({k: hex(v) if v else v for k, v in pair.items()}) }"
    return kinds


@pytest.fixture
def populated(process: Process, layout: Layout) -> list[Area]:
    """Areas of every kind: folded, in pages, with holes, not accessible, for execution alone, read-only, huge."""
    whole = process.blocks(4)
    whole.write()
    paged = process.blocks(1, hint="nohugepage")
    paged.write()
    holes = process.blocks(4)
    for page in range(0, holes.pages, layout.cont_pages + 3):
        holes.write(page, 1)
    holes.madvise("dontneed", 1, 1)
    none = process.blocks(2)
    none.write()
    none.mprotect([])
    code = process.blocks(1)
    code.write()
    code.mprotect(["exec"])
    zero = process.blocks(2)
    zero.read()
    areas = [whole, paged, holes, none, code, zero]
    if layout.granule == "4k":
        huge = process.map(layout.pmd)
        huge.write(0, 1)
        areas.append(huge)
    return areas


@pytest.fixture
def held(process: Process, populated: list[Area]) -> Iterator[Held]:
    """The process with all these areas, at a checkpoint."""
    with process.hold() as held:
        yield held


def lower_addresses(guest: Guest, process: Process, draw: random.Random) -> list[int]:
    """Of the process's half: every VMA's edges and inside, holes, tags, and what no half holds."""
    page = guest.layout.page
    addresses = [0, 8, page - 1, (1 << 47) - 1, 1 << 47, (1 << 48) - 8, 1 << 48, (1 << 51) + 8, (1 << 52) - 1, 1 << 52]
    for start, end, _, _ in vmas(guest, process):
        addresses += [start - 1, start, start + 1, end - page, end - 1, end, end + page]
        addresses += [draw.randrange(start, end) for _ in range(60)]
        inside = draw.randrange(start, end)
        # A tag in the top byte is ignored (TBI0); what is between it and the VA's size is not.
        addresses += [inside | draw.randrange(1, 256) << 56, inside | draw.randrange(1, 8) << 52]
    addresses += [draw.randrange(1 << bits) for bits in (32, 40, 47, 48, 49, 52, 55) for _ in range(20)]
    return [va for va in addresses if va >= 0 and not va >> 55 & 1]


def upper_addresses(guest: Guest, process: Process, draw: random.Random) -> list[int]:
    """Of the kernel's half: what is mapped at each level, its edges, and holes."""
    layout = guest.layout
    bits = layout.page.bit_length() - 1
    entries = [e for e in process.kernel_half() if e.output_address]
    by_level = {level: [e for e in entries if e.level == level] for level in range(4)}
    addresses = [
        (1 << 64) - 1,
        (1 << 64) - 8,
        0xFFF0 << 48,
        0xFFFF << 48,
        0xFF7F << 48,
        0xFF80 << 48,
        (0xFFF0 << 48) - 1,
    ]
    for level, found in by_level.items():
        size = 1 << (bits + (3 - level) * (bits - 3))
        for entry in draw.sample(found, min(len(found), 300)):
            va = entry.va
            addresses += [va, va + draw.randrange(size), va + size - 1, va - 1, va + size]
    addresses += [draw.randrange(0xFF80 << 48, 1 << 64) for _ in range(100)]
    addresses += [draw.randrange(0xFFFF << 48, 1 << 64) for _ in range(100)]
    return [va for va in addresses if va >> 55 & 1 and va < 1 << 64]


@pytest.mark.parametrize("cpu,granule", MACHINES)
def test_gva2gpa(guest: Guest, held: Held, cpu: str) -> None:
    """At least 2000 addresses of both halves, at the instant at which QEMU is asked."""
    draw = random.Random(64)
    lower = lower_addresses(guest, held.process, draw)
    upper = upper_addresses(guest, held.process, draw)
    draw.shuffle(upper)
    addresses = lower + upper[:1200]
    kinds = judge(translated(held, addresses))
    assert sum(kinds.values()) >= 2000, kinds
    for kind in ("lower mapped", "lower unmapped", "upper mapped", "upper unmapped"):
        assert kinds[kind] >= 20, kinds
    # Execution alone is to be had with FEAT_PAN3 only; without it PROT_EXEC may be read (arch/arm64/mm/mmap.c).
    assert (kinds["lower no-read"] > 0) == (cpu == "max"), kinds


@pytest.mark.parametrize("cpu,granule", MACHINES)
def test_gva2gpa_of_broken_tables(guest: Guest, held: Held, populated: list[Area], layout: Layout) -> None:
    """Entries that Linux never makes, each in guest memory while both are asked: types, addresses, old ones."""
    area = populated[1]
    view = held.judge()
    entry = view.entry(area.address)
    assert entry
    word, place = entry.word, entry.address
    # cortex-a72 has 44 bits of physical address, neoverse-n1 48; bits 9:8 are SH or, with DS, address.
    changed = [word & ~VALID, word & ~2, word & ~AF, word | 1 << 44, word | 1 << 47, word ^ 1 << 9, word | 1 << 12]
    changed += [word & ~(1 << 6), word | 1 << 7, word ^ 0b111 << 2, word | 1 << 63]
    seen = []
    for other in changed:
        poke = [{"address": hex(place), "word": hex(other)}]
        addresses = [area.address + 8, area.address + layout.page - 1]
        answer = guest.call("translate", process=held.process.id, addresses=addresses, pokes=poke)
        seen += answer["pairs"]
    kinds = judge(seen)
    assert kinds["lower unmapped"] >= 4, kinds
    assert kinds["lower old"] == kinds["lower no-read"] == 2, kinds
    assert kinds["lower mapped"] > 4, kinds
    assert not held.judge().errors


@pytest.mark.parametrize("cpu,granule", MACHINES)
def test_pagemap(guest: Guest, held: Held, layout: Layout) -> None:
    """Present and page frame of every page of every VMA, as the guest's kernel tells them."""
    view = held.judge()
    compared = 0
    for start, end, _, name in vmas(guest, held.process):
        if name == "[vvar]":
            # VM_PFNMAP: pagemap shows a hole (walk_page_test(), mm/pagewalk.c).
            continue
        pages = (end - start) // layout.page
        found = guest.command("pagemap", process=held.process.id, address=start, pages=pages)["pagemap"]["entries"]
        assert len(found) == pages
        for va, entry in zip(range(start, end, layout.page), found, strict=True):
            present, frame = entry >> 63 & 1, entry & ((1 << 55) - 1)
            where = f"{name} {va:#x}: pagemap {entry:#x}, ours {view.entry(va)}"
            assert present == (ours(view, va) is not None), where
            if present:
                assert frame * layout.page == ours(view, va), where
                compared += 1
    assert compared > 10 * layout.cont_pages


def ours(view: View, va: int) -> int | None:
    """The output address of a page as the rig decodes it; None where it is not present for Linux."""
    entry = view.entry(va)
    if entry is None:
        return None
    size = view.layout.pmd if entry.level == 2 else view.layout.page
    offset = va & (size - 1)
    if entry.output_address:
        return entry.output_address + offset
    word = entry.word
    # PROT_NONE: not valid, PTE_PRESENT_INVALID (nG) set, the address where it always is.
    return word & ((1 << 48) - view.layout.page) if word & (VALID | NG) == NG else None
