# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's rules broken on a running guest, the reserved Contiguous bit, and a page that two processes write.

As in test_rules_live.py a break is in guest memory for the time of one capture, and what it must give is written
down from the rule's text.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from folioscope import Area, Entry, Layout, Process
from folioscope.guest import number

from test_rules_live import AF, CONT, DIRTY, RDONLY, USER, VALID, WRITE, Errors, broken, errors, words_of
from test_rules_live_tables import way

pytestmark = pytest.mark.every_granule

ADDRESS = (1 << 48) - (1 << 12)


class Half:
    """The kernel half of a guest whose process waits, by all rules or by one."""

    def __init__(self, process: Process, rule: str | None = None) -> None:
        self.process, self.rule = process, rule
        self.layout: Layout = process.guest.layout
        raw = self.call([])
        assert self.errors(raw) == []
        self.first = number(raw["first"])
        entries = [Entry.read(entry) for entry in raw["entries"]]
        self.groups: dict[tuple[int, int], list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.output_address is not None:
                self.groups[entry.level, entry.va // self.bytes(entry.level)].append(entry)

    def call(self, pokes: list[tuple[int, int]]) -> dict:
        """The half with these words in it."""
        words = [{"address": hex(address), "word": hex(word)} for address, word in pokes]
        return self.process.guest.call("kernel_half", process=self.process.id, pokes=words)

    def errors(self, raw: dict) -> Errors:
        """Rule and VA of each finding."""
        verdict = raw["verdict"]
        assert not verdict["not_judged"], verdict["not_judged"]
        found = sorted((finding["rule"], number(finding["va"])) for finding in verdict["findings"])
        return [(rule, va) for rule, va in found if self.rule in (None, rule)]

    def broken(self, pokes: list[tuple[int, int]]) -> Errors:
        """What a break gives; nothing is broken after it."""
        found = self.errors(self.call(pokes))
        assert self.errors(self.call([])) == []
        return found

    def step(self, level: int) -> int:
        """Bytes that an entry maps."""
        bits = self.layout.page.bit_length() - 1
        return 1 << (bits + (3 - level) * (bits - 3))

    def members(self, level: int) -> int:
        """Entries of a group: at 16K 128 pages and 32 blocks, at 64K 32 of both."""
        return {"4k": 16, "16k": 128 if level == 3 else 32, "64k": 32}[self.layout.granule]

    def bytes(self, level: int) -> int:
        """Bytes that a group maps."""
        return self.members(level) * self.step(level)

    def linear(self, entry: Entry) -> bool:
        """Whether an entry is of the linear map, the lower half of this half; at 16K with 52 bits a quarter more."""
        return entry.va < (0xFFFF_C000 if self.layout.granule == "16k" else 0xFFFF_8000) << 32

    def in_step(self, group: list[Entry]) -> bool:
        """Whether the entries would be one aligned run with the bit: by output address and by attributes."""
        level = group[0].level
        bases = {entry.output_address - entry.va % self.bytes(level) for entry in group if entry.output_address}
        alike = {entry.word & ~(ADDRESS | AF | 0x300) for entry in group}
        return len(bases) == 1 and bases.pop() % self.bytes(level) == 0 and len(alike) == 1


@pytest.fixture
def half(process: Process) -> Half:
    """The kernel half, from a look at which nothing is broken."""
    return Half(process)


@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_k1_linear_map_run_without_the_bit(process: Process) -> None:
    """A folded run of the linear map loses the bit everywhere: legal for the CPU, and not what Linux must do.

    Without rodata=full, that is.
    """
    with process.hold():
        half = Half(process)
        # Nothing is said of runs that touch the image's alias: it lies low, and at 4K all runs of pages are about it.
        wanted = 2 if half.layout.granule == "4k" else 3
        for (level, index), group in reversed(half.groups.items()):
            whole = len(group) == half.members(level) and half.linear(group[0])
            if level == wanted and whole and all(entry.word & CONT for entry in group):
                pokes = [(entry.address, entry.word & ~CONT) for entry in group]
                assert half.broken(pokes) == [("K1", index * half.bytes(level))]
                return
    pytest.fail("the linear map has no whole run with the bit")


@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("granule", ["4k"])
def test_k1_vmalloc_with_the_bit(process: Process) -> None:
    """What is neither linear map nor image has no Contiguous bit in 6.12: set where the CPU would not mind."""
    with process.hold():
        half = Half(process)
        for (level, index), group in half.groups.items():
            plain = level == 3 and not half.linear(group[0]) and not any(entry.word & CONT for entry in group)
            # The image has entries with the bit within 4 MiB of any other; vmemmap and the fixmap are far above it.
            if plain and group[0].va > 0xFFFF_FC00 << 32 and half.in_step(group):
                pokes = [(entry.address, entry.word | CONT) for entry in group]
                assert half.broken(pokes) == [("K1", index * half.bytes(level))]
                return
    pytest.fail("no entry of vmemmap or the fixmap is where a group could be")


@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_k2_clean_linear_map(process: Process) -> None:
    """A writable entry of the linear map without the software dirty bit; its neighbours keep theirs."""
    with process.hold():
        half = Half(process)
        for group in half.groups.values():
            entry = group[0]
            writable = entry.word & WRITE and not entry.word & RDONLY
            if half.linear(entry) and writable:
                assert entry.word & DIRTY
                start = entry.va // half.bytes(entry.level) * half.bytes(entry.level)
                assert half.broken([(entry.address, entry.word & ~DIRTY)]) == [("K2", start)]
                return
    pytest.fail("the linear map has no writable entry")


@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_a6_reserved_contiguous_bit(process: Process, layout: Layout) -> None:
    """The bit in a block of the highest level that has blocks with 52 bits of address: no group is that large.

    Linux holds the block to be present, outside any VMA, and looks no further than 16 entries around it.
    """
    area = process.map(layout.page)
    area.write()
    level = {"4k": 0, "16k": 1, "64k": 1}[layout.granule]
    first = {"4k": -1, "16k": 0, "64k": 1}[layout.granule]
    with process.hold() as held:
        slots = way(process.guest, held.judge(), area.address, range(first, 4))
        slot = next(slot for slot in slots if slot.level == level)
        bits = layout.page.bit_length() - 1
        step = 1 << (bits + (3 - level) * (bits - 3))
        # The neighbour below: processes map the top of what they have.
        place, va = slot.address - 8, slot.va - step
        assert number(process.guest.call("words", address=hex(place), count=1)["words"][0]) == 0
        block = AF | VALID
        assert broken(held, [(place, block)]) == [("L8", va)]
        assert broken(held, [(place, block | CONT)]) == [("A6", va), ("L8", va)]


@pytest.mark.parametrize("granule", ["4k"])
def test_l8_page_written_by_two(process: Process, layout: Layout) -> None:
    """A page of a parent's own, writable in its child's private memory too."""
    area = process.blocks(1, hint="nohugepage")
    area.write()
    child = process.fork()
    # Both write: each has a page of its own, and may write to it.
    area.write(0, 1)
    Area(child, area.address, area.length).write(0, 1)
    (theirs, *_), (place, *_) = words_of(child.look(), area.address, layout)
    with process.hold() as held:
        (mine, *_), _ = words_of(held.judge(), area.address, layout)
        assert mine & ADDRESS != theirs & ADDRESS
        assert all(word & (USER | WRITE) == USER | WRITE and not word & RDONLY for word in (mine, theirs))
        assert broken(held, [(place, mine)]) == [("L8", area.address)]
        # Read-only in one of them it is a page before copy-on-write.
        # The child's own page is mapped by nobody then.
        assert errors(held.judge([(place, (mine | RDONLY) & ~WRITE)])) == [("L8", area.address), ("L9", area.address)]
