# SPDX-License-Identifier: GPL-2.0-only
"""A saved core is judged as it was when it was kept: the whole JSON of its verdict.

``tests/kept_cores/several.core.xz`` is a process on the pinned kernel, 4K pages, saved while a test had broken its
tables on purpose in four places. What is wrong in it is stated here; ``several.json`` is all that was said of it
besides, without the rows of blocks. Where a rule, a sentence or a field is changed on purpose, ``KEEP=1`` writes it
anew, and its diff is the change.
"""

from __future__ import annotations

import json
import lzma
import os
import re
from pathlib import Path
from typing import Any

from command import ROOT, folioscope

KEPT = ROOT / "tests" / "kept_cores"
BLOCK = 0x10000
AREA, PLAIN = 0xFFFFF7C00000, 0xFFFFF7800000


def without_rows(report: dict[str, Any]) -> dict[str, Any]:
    """The report without what pictures are made of: the rows of each VMA, which are many."""
    for step in report["steps"]:
        for verdict in step["processes"]:
            for vma in verdict["vmas"]:
                del vma["rows"]
    return report


def test_verdict_of_a_kept_core(tmp_path: Path) -> None:
    """Each of the four places is named by its rule, and nothing else of the report has changed."""
    core, written = tmp_path / "several.core", tmp_path / "several.json"
    core.write_bytes(lzma.decompress((KEPT / "several.core.xz").read_bytes()))
    ended = folioscope("check", core, "--json", written)
    assert ended.status == 1, ended.out + ended.err
    report = without_rows(json.loads(written.read_text()))
    assert re.fullmatch(r"\d+\.\d+\.\d+", report.pop("version"))
    (verdict,) = report["steps"][0]["processes"]
    found = {(it["rule"], int(it["va"], 16)) for it in verdict["findings"] if it["severity"] == "error"}
    assert found == {
        # The bit cleared in one entry of the first block.
        ("A4", AREA),
        # An entry of the fifth taken away.
        ("L1", AREA + 4 * BLOCK),
        # One of the sixth made special: such a page is of no folio, and differs from its group.
        ("L3", AREA + 5 * BLOCK),
        ("L5", AREA + 5 * BLOCK),
        # A page by itself: WRITE and DIRTY, and RDONLY.
        ("L6", PLAIN),
    }
    # The second block has a hole; four pages of the third have a VMA of their own; the fourth alone is folded.
    states = {int(vma["start"], 16) - AREA: vma["blocks"] for vma in verdict["vmas"]}
    assert states[0] == {"broken": 1, "partial": 1, "not-eligible": 1}
    assert states[2 * BLOCK + 0x8000] == {"not-eligible": 1}
    assert states[2 * BLOCK + 0xC000] == {"not-eligible": 1, "folded": 1, "broken": 2}
    kept = KEPT / "several.json"
    if os.environ.get("KEEP"):
        kept.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    assert report == json.loads(kept.read_text())
