# SPDX-License-Identifier: GPL-2.0-only
"""The report of a cell, as the store has it: its findings in words."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from .kinds import REPORT
from .result import Result
from .store import Store


def report(result: Result | None, store: Store) -> dict[str, Any]:
    """The report of `folioscope`; empty where the cell has none."""
    if result is None or REPORT not in result.files:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / REPORT
        store.fetch(result.files[REPORT], path)
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def findings(about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Its error findings, each with the step at which it was found."""
    for step in about.get("steps", []):
        for owner in [*step["processes"], *filter(None, [step.get("kernel")])]:
            for each in owner["findings"]:
                if not str(each["rule"]).startswith("I-"):
                    yield {**each, "step": f"{step['workload']} {step['step']}"}


def steps(about: dict[str, Any]) -> dict[str, frozenset[str]]:
    """The checkpoints at which each rule has an error."""
    found: dict[str, set[str]] = {}
    for each in findings(about):
        found.setdefault(str(each["rule"]), set()).add(each["step"])
    return {rule: frozenset(names) for rule, names in found.items()}


def finding(about: dict[str, Any], rule: str, names: Collection[str]) -> dict[str, Any] | None:
    """The first finding of a rule at one of these checkpoints."""
    return next((each for each in findings(about) if each["rule"] == rule and each["step"] in names), None)
