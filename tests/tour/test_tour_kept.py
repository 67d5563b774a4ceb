# SPDX-License-Identifier: GPL-2.0-only
"""The tour's verdict, checkpoint by checkpoint: which rules were asked, what was stated of memory, what was found.

``tests/kept_tour/GRANULE.json`` is what the tour said when it was kept. A change of it is a change of what the rig asks
or finds, so it is in the diff that a reviewer reads. What each entry has to be is stated elsewhere, from the kernel's
source: tests/helpers/tour_expected.py. ``KEEP=1`` writes the file anew.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from command import BOOT_SECONDS, ROOT, folioscope

KEPT = ROOT / "tests" / "kept_tour"


def counted(words: list[str]) -> str:
    """How often each comes, in the order of their names."""
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))


def not_asked(basis: dict[str, Any]) -> dict[str, str]:
    """The rules that were not in force, by the reason."""
    found: dict[str, str] = {}
    for left in basis["not_in_force"]:
        found[left["reason"]] = f"{found.get(left['reason'], '')} {left['rule']}".strip()
    return found


def found_in(verdict: dict[str, Any]) -> dict[str, Any]:
    """What was found of a process: rules and how often, by severity; and what was not judged, with the reason."""
    found = [f"{it['severity']} {it['rule']}" for it in verdict["findings"]]
    return {"process": verdict["process"]["name"], "found": counted(found), "not judged": verdict["not_judged"]}


def normalised(report: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run: addresses, process numbers, times, counts of the whole process."""
    checkpoints: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    for step in report["steps"]:
        basis = step["basis"]
        rules = {"asked": " ".join(basis["in_force"]), "not asked": not_asked(basis)}
        # One of the few lists of rules, each written once.
        name = next((name for name, known in asked.items() if known == rules), f"rules {len(asked) + 1}")
        asked[name] = rules
        checkpoints[f"{step['workload']} {step['step']}"] = {
            "rules": name,
            "stated": counted([it["what"] for it in step["expectations"]]),
            "processes": [found_in(verdict) for verdict in step["processes"]],
            "not judged": step["not_judged"],
        }
    ended = {name: report[name] for name in ("outcome", "exit_status", "not_judged")}
    return {"rules": asked, "checkpoints": checkpoints, **ended}


@pytest.mark.qemu
@pytest.mark.parametrize(
    "granule", ["4k", pytest.param("16k", marks=pytest.mark.long), pytest.param("64k", marks=pytest.mark.long)]
)
def test_the_tour_s_verdict_is_the_kept_one(granule: str, tmp_path: Path) -> None:
    """Rules, statements and findings of every checkpoint; and the tour is a good one, whatever was kept."""
    written, kept = tmp_path / "tour.json", KEPT / f"{granule}.json"
    options = ["--machine", "tcg", "--granule", granule, "--json", written]
    folioscope("run", *options, "--out", tmp_path, seconds=4 * BOOT_SECONDS).ok()
    now = normalised(json.loads(written.read_text()))
    text = json.dumps(now, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("KEEP"):
        kept.write_text(text)
    errors = [it for step in now["checkpoints"].values() for it in step["processes"] if " error " in it["found"]]
    assert (now["outcome"], now["exit_status"], errors) == ("ok", 0, [])
    assert len(now["checkpoints"]) >= 60
    assert now == json.loads(kept.read_text())
