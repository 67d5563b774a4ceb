# SPDX-License-Identifier: GPL-2.0-only
"""Several operations in a row: every state under one of those that leave most behind and then under each other one, and
under sequences that are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import folioscope

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.qemu, pytest.mark.long]

#: What other operations find parts of a folio, markers, entries without pages, or other owners behind.
FIRST = ("move-off", "protect-odd", "dontneed-page", "pageout-odd", "fork-write", "unmap-page", "migrate-page")
#: Seconds on a busy host.
SECONDS = 3600


#: Sequences of a draw.
DRAWN = 30


def played(*words: object, out: Path, least: float = 0.5) -> list[dict[str, object]]:
    """The rows of a crossing. Nothing is wrong, nothing is not judged, and so much of it is played at least."""
    report = out / "report.json"
    ended = folioscope("cross", *words, "--granule", "4k", "--out", out, "--json", report, seconds=SECONDS)
    assert ended.status == 0, ended.out + ended.err
    rows: list[dict[str, object]] = json.loads(report.read_text())["crossing"]["rows"]
    outcomes = [cell["outcome"] for row in rows for cell in row["cells"]]
    assert set(outcomes) <= {"green", "left_out"}
    assert outcomes.count("green") > least * len(outcomes)
    return rows


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("first", FIRST)
def test_two_operations(first: str, tmp_path: Path) -> None:
    """One of these first, and each other one behind it."""
    rows = played("--only", first, "--depth", "2", out=tmp_path)
    assert {str(row["operation"]).split("+")[0] for row in rows} == {first}


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize(("depth", "seed"), [(2, 1), (2, 2), (3, 3), (4, 4)])
def test_sequences_that_are_drawn(depth: int, seed: int, tmp_path: Path) -> None:
    """Any operations, one behind the other."""
    rows = played("--depth", depth, "--sample", DRAWN, "--seed", seed, out=tmp_path, least=0.15)
    names = {str(row["operation"]) for row in rows}
    assert len(names) == DRAWN and {name.count("+") for name in names} == {depth - 1}
