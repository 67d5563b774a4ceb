# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's half against the kernel's own dump of it, /sys/kernel/debug/kernel_page_tables, range by range."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from folioscope import Entry, Guest, Layout, Process

pytestmark = pytest.mark.every_granule

DUMP = "/sys/kernel/debug/kernel_page_tables"
LEVELS = {"PTE": 3, "PMD": 2, "PUD": 1}
# The order of AttrIndx: MT_* of asm/memory.h, named as in arch/arm64/mm/ptdump.c.
MEMORY = ["MEM/NORMAL", "MEM/NORMAL-TAGGED", "MEM/NORMAL-NC", "DEVICE/nGnRnE", "DEVICE/nGnRE"]
FLAGS = {"USR": 6, "AF": 10, "NG": 11, "GP": 50, "CON": 52, "UXN": 54}

# First address, first address behind it, level and flags of what is mapped alike.
Range = tuple[int, int, tuple[int, frozenset[str]]]


def merged(ranges: list[Range]) -> list[Range]:
    """Neighbours that are alike become one; the dump also cuts where a region of the kernel ends."""
    out: list[Range] = []
    for start, end, what in sorted(ranges):
        if out and out[-1][1] == start and out[-1][2] == what:
            out[-1] = (out[-1][0], end, what)
        else:
            out.append((start, end, what))
    return out


def dumped(guest: Guest) -> list[Range]:
    """What the kernel says is mapped."""
    text, end = "", False
    while not end:
        piece = guest.command("read_file", path=DUMP, offset=len(text), seconds=60)["file"]
        text, end = text + piece["content"]["text"], piece["end"]
    ranges = []
    for line in text.splitlines():
        found = re.match(r"0x([0-9a-f]+)-0x([0-9a-f]+)\s+\d+[KMGTPE] (\w+)(.*)", line)
        if not found:
            assert line.startswith("---["), line
            continue
        flags = frozenset(found[4].split())
        if flags:
            last = int(found[2], 16)
            what = (LEVELS[found[3]], flags)
            ranges.append((int(found[1], 16), last or 1 << 64, what))
    assert len(ranges) > 20, text
    return merged(ranges)


def flags_of(word: int, level: int, shareable: bool) -> frozenset[str]:
    """The flags of a leaf as ptdump.c names them."""
    flags = {name for name, bit in FLAGS.items() if word >> bit & 1}
    flags.add("ro" if word >> 7 & 1 else "RW")
    flags.add("NX" if word >> 53 & 1 else "x")
    flags.add(MEMORY[word >> 2 & 7])
    if level < 3:
        flags.add("BLK")
    if shareable and word >> 8 & 3 == 3:
        flags.add("SHD")
    return frozenset(flags)


def seen(entries: list[Entry], layout: Layout, shareable: bool) -> list[Range]:
    """The same from the rig's own rows."""
    bits = layout.page.bit_length() - 1
    ranges = []
    for entry in entries:
        if entry.output_address is None:
            continue
        va, word, level = entry.va, entry.word, entry.level
        assert entry.contiguous == bool(word >> 52 & 1)
        size = 1 << (bits + (3 - level) * (bits - 3))
        ranges.append((va, va + size, (level, flags_of(word, level, shareable))))
    return merged(ranges)


def at(ranges: list[Range], points: list[int]) -> list[tuple[int, frozenset[str]] | None]:
    """What each of these addresses, in order, is mapped by."""
    out, index = [], 0
    for point in points:
        while index < len(ranges) and ranges[index][1] <= point:
            index += 1
        inside = index < len(ranges) and ranges[index][0] <= point
        out.append(ranges[index][2] if inside else None)
    return out


@pytest.mark.parametrize(
    "cpu,granule", [("max", "4k"), ("max", "16k"), ("max", "64k"), ("cortex-a72", "4k"), ("cortex-a72", "64k")]
)
def test_kernel_page_tables(guest: Guest, process: Process, layout: Layout, cpu: str) -> None:
    """Every byte of the half is mapped at the level and with the flags that the kernel's dump says.

    What two dumps, before and after, do not agree on has changed in between and is left out: a few pages at most.
    """
    with process.hold():
        before = dumped(guest)
        entries = process.kernel_half()
        after = dumped(guest)
    # With TCR_EL1.DS (4K and 16K on `max`) bits 9:8 are address.
    ours = seen(entries, layout, shareable=cpu != "max" or layout.granule == "64k")
    edges = sorted({edge for ranges in (before, ours, after) for start, end, _ in ranges for edge in (start, end)})
    points = edges[:-1]
    changed = compared = 0
    for (start, end), one, mine, two in zip(
        pairwise(edges), at(before, points), at(ours, points), at(after, points), strict=True
    ):
        if one != two:
            changed += end - start
            continue
        assert mine == one, f"{start:#x}-{end:#x}: the kernel says {one}, the rig {mine}"
        compared += end - start if one else 0
    assert changed <= 64 * layout.page
    # All RAM is in the linear map.
    assert compared >= guest.hello["memory_bytes"]
    kinds = {(level, "CON" in flags) for _, _, (level, flags) in ours}
    assert {(3, False), (3, True), (2, False)} <= kinds
