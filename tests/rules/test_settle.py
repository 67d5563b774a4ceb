# SPDX-License-Identifier: GPL-2.0-only
"""Which errors count: those whose words stay from look to look. What does not come to rest bears on its own group only.

Words are written into the guest's tables from outside, for the time of a capture each, so every look shows the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folioscope import Area, Layout, Process, View

from command import folioscope

CONT = 1 << 52
# Swap types of a kernel without device entries (include/linux/swap.h): hwpoison is 27, migration 28 to 30.
POISON, MIGRATION = 27, 29
# The page that a special entry takes the place of: one that is counted would be missed.
ZERO = 3


def special(kind: int, page: int) -> int:
    """A word of this swap type, about a page frame."""
    return kind << 6 | page << 12


def places(view: View, va: int, layout: Layout) -> list[tuple[int, int]]:
    """Where the entries of a block stand, and their words."""
    entries = [view.entry(va + i * layout.page) for i in range(layout.cont_pages)]
    assert all(entries)
    return [(entry.address, entry.word) for entry in entries if entry]


def found(view: View) -> list[tuple[str, int]]:
    """Rule and VA of each error."""
    return sorted((finding.rule, finding.va) for finding in view.errors)


@pytest.fixture
def areas(process: Process) -> tuple[Area, Area]:
    """Two folded blocks, and a block of single pages of which one shows the zero page: nobody misses that one."""
    folded, paged = process.blocks(2), process.blocks(1, hint="nohugepage")
    folded.write()
    paged.write(0, ZERO)
    paged.read(ZERO, 1)
    paged.write(ZERO + 1)
    return folded, paged


@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize("kind", [POISON, MIGRATION])
def test_a_page_out_of_the_way_takes_no_error_back(areas: tuple[Area, Area], layout: Layout, kind: int) -> None:
    """A poisoned page is there for good. The error of another block stays; alone it is none, and nothing is open."""
    folded, paged = areas
    with folded.process.hold() as held:
        before = held.judge()
        poison = (places(before, paged.address, layout)[ZERO][0], special(kind, 77))
        alone = held.judge([poison])
        assert (alone.raw["verdict"]["entries"]["moving"], found(alone), alone.not_judged) == (1, [], [])
        place, word = places(before, folded.address, layout)[7]
        both = held.judge([poison, (place, word & ~CONT)])
        assert (found(both), both.not_judged, both.unsettled) == ([("A4", folded.address)], [], 0)


@pytest.mark.parametrize("granule", ["4k"])
def test_a_block_with_a_page_on_its_way_is_not_judged_and_others_are(areas: tuple[Area, Area], layout: Layout) -> None:
    """A migration entry within a folded block may be one of a moment; what is broken beside it is broken."""
    folded, _ = areas
    second = folded.address + layout.block
    with folded.process.hold() as held:
        before = held.judge()
        moving = (places(before, folded.address, layout)[9][0], special(MIGRATION, 77))
        alone = held.judge([moving])
        assert (found(alone), alone.unsettled) == ([], 1)
        [why] = alone.not_judged
        assert "1 error(s) by L1" in why and f"{folded.address:#018x}" in why and "on its way" in why
        place, word = places(before, second, layout)[7]
        both = held.judge([moving, (place, word & ~CONT)])
        assert (found(both), both.unsettled) == ([("A4", second)], 1)
        after = held.judge()
        assert (found(after), after.not_judged) == ([], [])


@pytest.mark.qemu
def test_more_cpus_than_the_kernel_knows(tmp_path: Path) -> None:
    """The kernel is built for 8 CPUs: of the others there is no order record to look for, and it is said. Our own
    monitor has no more than 8."""
    place = tmp_path / "report.json"
    words = ("--machine", "tcg", "--smp", "12", "--only", "munmap", "--out", tmp_path, "--json", place)
    ended = folioscope("run", *words, seconds=300)
    assert ended.status == 0, ended.out + ended.err
    report = json.loads(place.read_text())
    assert (report["machine"]["cpus"], report["totals"]["not_judged"]) == (12, 0)
    processes = [process for step in report["steps"] for process in step["processes"]]
    assert sum(vma["orders"].get("4", 0) for process in processes for vma in process["vmas"]) > 0
    notes = [note for process in processes for note in process["notes"]]
    assert any("4 of 12 CPUs, from CPU 8 on, never came up" in note for note in notes), notes
