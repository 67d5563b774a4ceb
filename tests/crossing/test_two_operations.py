# SPDX-License-Identifier: GPL-2.0-only
"""Two operations in a row: every state under one of those that leave most behind, and then under each other one."""

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


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("first", FIRST)
def test_two_operations(first: str, tmp_path: Path) -> None:
    """Nothing is wrong, nothing is not judged, and most is played."""
    report = tmp_path / "report.json"
    words = ("--only", first, "--depth", "2", "--granule", "4k", "--out", tmp_path, "--json", report)
    ended = folioscope("cross", *words, seconds=SECONDS)
    assert ended.status == 0, ended.out + ended.err
    table = json.loads(report.read_text())["crossing"]
    assert {row["operation"].split("+")[0] for row in table["rows"]} == {first}
    outcomes = [cell["outcome"] for row in table["rows"] for cell in row["cells"]]
    assert set(outcomes) <= {"green", "left_out"}
    assert outcomes.count("green") > len(outcomes) // 2
