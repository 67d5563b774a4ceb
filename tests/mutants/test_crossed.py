# SPDX-License-Identifier: GPL-2.0-only
"""Wrong edits that the tour does not meet: a state of memory under an operation, and the rules that name each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from table import CROSSED, Crossed

from command import ROOT, folioscope
from recorder import plugin
from without import THP

__all__ = ["plugin"]
KERNEL = ROOT / "out" / "kernel-mutants"
#: Seconds for the cells of one edit on a busy host: some hang the guest, which is waited for.
SECONDS = 240
#: What the agent itself does, without which no guest goes on, is spared; of these operations it does the work itself.
SPARED = " mutant.spared=init"
AGENTS = {"swapoff", "reclaim", "busy-reclaim", "reclaim-read", "free-reclaim-all", "split", "clear-refs"}


def rules_of(only: str, number: int, place: Path, switch: str = "") -> set[str]:
    """The rules that speak when these cells are played on a kernel with an edit; 0 is none."""
    spared = "" if AGENTS & set(only.split(",")) else SPARED
    kernel = ("--kernel", KERNEL / "Image", "--vmlinux", KERNEL / "vmlinux", f"--append=mutant.number={number}{spared}")
    report = place / "report.json"
    words = ("--record", "--only", only, "--out", place, "--json", report)
    if switch:
        words = (*words, "--knob", f"{THP}/{switch}=1")
    folioscope("cross", "--granule", "4k", *kernel, *words, seconds=SECONDS)
    found: dict[str, Any] = json.loads(report.read_text())
    # What is left of a batch is the kernel's; so is what it reports itself (V1), late and of any edit.
    verdicts = (verdict for step in found["steps"] for verdict in [*step["processes"], step.get("kernel")] if verdict)
    findings = (it for verdict in verdicts for it in verdict["findings"] if it["severity"] == "error")
    return {it["rule"] for it in findings} - {"V1"}


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.usefixtures("plugin")
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("crossed", CROSSED, ids=lambda crossed: f"{crossed.number}-{crossed.only}")
def test_crossed(crossed: Crossed, tmp_path: Path) -> None:
    """All rules of the table speak. What is lost with the damage (a count, a process) others may tell of as well."""
    found = rules_of(crossed.only, crossed.number, tmp_path, crossed.switch)
    assert crossed.rules <= found, found
    assert crossed.rules or not found, found


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS)
def test_states_that_do_not_come_about(tmp_path: Path) -> None:
    """Where nothing is paged out, what is to be swapped out is not judged, and the rest is."""
    kernel = ("--kernel", KERNEL / "Image", "--vmlinux", KERNEL / "vmlinux", "--append=mutant.number=202")
    report = tmp_path / "report.json"
    words = ("--only", "swapped,swapped-part,folded,nothing", "--out", tmp_path, "--json", report)
    ended = folioscope("cross", "--granule", "4k", *kernel, *words, seconds=SECONDS)
    assert ended.status == 2, ended.out
    rows = json.loads(report.read_text())["crossing"]["rows"]
    for row in rows:
        folded, swapped, part = row["cells"]
        assert folded["outcome"] == "green"
        assert {swapped["outcome"], part["outcome"]} == {"not_judged"}
        assert "expected all pages 0..32 of the area to be swapped out, and 32 are not: ====" in swapped["reason"]


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.usefixtures("plugin")
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize(("only", "switch"), sorted({(crossed.only, crossed.switch) for crossed in CROSSED}))
def test_none(only: str, switch: str, tmp_path: Path) -> None:
    """The same kernel without an edit: not one rule may speak."""
    assert rules_of(only, 0, tmp_path, switch) == set()
