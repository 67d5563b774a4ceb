# SPDX-License-Identifier: GPL-2.0-only
"""What the recorder counts by folio order: a few figures that the kernel's source gives beforehand."""

from __future__ import annotations

import re

import pytest
from folioscope.layout import LAYOUTS

from recorder import plugin, record

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin")]
__all__ = ["plugin"]

Cell = tuple[int, int, int]


def costs(said: str) -> dict[int, dict[str, Cell]]:
    """By order and step: stores to the area's descriptors, TLBIs, DSBs."""
    lines = said.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("order"))
    names = lines[at].split()[2:]
    rows: dict[int, dict[str, Cell]] = {}
    for line in lines[at + 1 :]:
        row = re.match(r" +(\d+) +\d+K +(.*)$", line)
        if row is None:
            break
        assert "left out" not in line, line
        cells = zip(names, row[2].split(), strict=True)
        rows[int(row[1])] = {name: number(cell) for name, cell in cells if cell != "-"}
    return rows


def number(cell: str) -> Cell:
    """Its three."""
    stores, tlbis, dsbs = map(int, cell.split("/"))
    return stores, tlbis, dsbs


def test_by_order(granule: str) -> None:
    """With FEAT_TLBIRANGE (max) one TLBI for each folio, between DSB ISHST and DSB ISH (__flush_tlb_range()).

    A fault writes each entry once and has nothing to flush; fork() takes the right to write from each of the
    parent's, and flushes its ASID (flush_tlb_mm()); to fold and to unfold is to clear each of a block, to flush, and
    to write each again (contpte_convert()); munmap() clears each and flushes at its end (mmu_gather).
    """
    rows = costs(record("--granule", granule, "--only", "costs").ok())
    layout = LAYOUTS[granule]
    assert {0, layout.cont_order} <= set(rows)
    for order, row in rows.items():
        # A PMD's folio is one descriptor.
        entries = 1 if layout.page << order == layout.pmd else 1 << order
        assert row["fault"][:2] == (entries, 0), order
        # To get a large folio the kernel may have to move others' pages, with their DSBs.
        assert row["fault"][2] == 0 or order > layout.cont_order, order
        assert row["fork"][:2] == (entries, 1), order
        assert row["munmap"] == (entries, 1, 2), order
        assert ("fold" in row) == ("unfold" in row) == (order == layout.cont_order)
        if order == layout.cont_order:
            assert row["fold"] == row["unfold"] == (2 * entries, 1, 2)
