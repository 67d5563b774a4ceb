# SPDX-License-Identifier: GPL-2.0-only
"""A look that reads again only what was written to sees what a whole look sees, on any machine."""

from __future__ import annotations

from typing import Any

import pytest
from folioscope import Area, Process, View
from folioscope.guest import Held

# Only some have a record of writes.
pytestmark = pytest.mark.every_machine

# A software bit of Linux's, of which no CPU takes notice.
DIRTY = 1 << 55
WHY_NO_FOLIOS = "a look that reads only what was written to reads no structures of the kernel"


def said(view: View, area: Area) -> dict[str, Any]:
    """The verdict, less what is measured.

    A look again reads no folios, and says so. Where boot has put the program's own pages so that their entries would
    allow the Contiguous bit, the whole look alone can tell that they are folios of one page each: that information is
    compared of the area that is under test.
    """
    under_test = range(area.address, area.address + area.length)
    findings = [found for found in view.findings if found.rule != "I-eligible" or found.va in under_test]
    not_judged = [why for why in view.not_judged if not why.endswith(f": {WHY_NO_FOLIOS}")]
    assert len(not_judged) + (view.again is not None) == len(view.not_judged)
    return {"entries": view.entries, "findings": findings, "not_judged": not_judged}


def looks(held: Held, area: Area) -> tuple[View, View]:
    """A whole look, and one again, between which nothing changed: compaction moves pages of a process that waits."""
    for _ in range(5):
        whole, again = held.judge(), held.judge(again=True)
        if said(held.judge(), area) == said(whole, area):
            return whole, again
    raise AssertionError("two whole looks never agreed")


def test_steps_of_a_process_seen_again(process: Process) -> None:
    """Maps, writes, gives back and unmaps, and looks twice after each step: whole, and again."""
    area = process.blocks(4)
    process.look(again=True)
    steps = [area.write, lambda: area.madvise("dontneed"), area.write, area.munmap]
    for step in steps:
        step()
        with process.hold() as held:
            whole, again = looks(held, area)
        assert said(again, area) == said(whole, area)
        assert whole.again is None
        assert again.again is not None
        if again.again.read is None:
            assert again.again.whole_because and "which pages were written to" in again.again.whole_because
        else:
            tables, of = again.again.read
            assert 0 < tables <= of


def test_a_word_from_outside_is_seen(process: Process) -> None:
    """No machine records what is written from outside, so the look after it is whole."""
    area = process.blocks(1)
    area.write()
    process.look(again=True)
    with process.hold() as held:
        entry = held.judge(again=True).entry(area.address)
        assert entry is not None
        word, place = entry.word, entry.address
        for now in (word ^ DIRTY, word):
            process.guest.poke([(place, now)])
            view = held.judge(again=True)
            assert view.word(area.address) == now
            assert view.again is not None
            assert view.again.read is None and view.again.whole_because
        again = held.judge([(place, word)], again=True).again
        assert again is not None and again.read is None
