# SPDX-License-Identifier: GPL-2.0-only
"""What `folioscope run` reports: JSON, JUnit, KTAP and the text, each by the schema or the format's own rules."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from command import folioscope

COLUMNS = 100


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for --out; its path is short, as a Unix socket's has to be."""
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def reports(place: Path) -> dict[str, Any]:
    """Two workloads of the tour, in each form of the report."""
    files = {name: place / f"tour.{name}" for name in ("json", "junit", "ktap")}
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    text = folioscope("run", "--only", "anon,fork", "--out", place, *options).ok()
    return {"text": text, **{name: path.read_text() for name, path in files.items()}}


def checkpoints(reports: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of the JSON report."""
    return json.loads(reports["json"])["steps"]


def test_json_is_valid(reports: dict[str, Any]) -> None:
    """The report is what the schema says, and what the tour did is in it."""
    schema = json.loads(folioscope("schema").ok())
    jsonschema.Draft202012Validator.check_schema(schema)
    report = json.loads(reports["json"])
    jsonschema.Draft202012Validator(schema).validate(report)
    assert (report["outcome"], report["exit_status"], report["totals"]["errors"]) == ("ok", 0, 0)
    names = [(step["workload"], step["step"]) for step in report["steps"]]
    assert names == [
        *(("anon", step) for step in ("forward", "backward", "sparse", "ends")),
        *(("fork", step) for step in ("parent", "child", "child-wrote", "parent-after")),
        ("kernel", "upper-half"),
    ]
    # How the kernel of the guest was set; the agent has it record orders.
    kernel = report["kernel"]
    off = ("align", "contpte", "copy", "lru_batch", "madvise_split", "page_cache", "reuse", "zero_page")
    assert kernel["policy"] == "variable"
    assert kernel["switches"] == {"record": "1", "zap_batch": "1"} | dict.fromkeys(off, "0")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({**report, "outcome": "splendid"})


def test_junit_has_a_case_per_checkpoint(reports: dict[str, Any]) -> None:
    """And none of them failed."""
    root = ElementTree.fromstring(reports["junit"])
    cases = [(suite.get("name"), case.get("name")) for suite in root.iter("testsuite") for case in suite]
    assert cases == [(step["workload"], step["step"]) for step in checkpoints(reports)]
    assert not list(root.iter("failure")) and not list(root.iter("error"))


def test_ktap_counts_as_it_plans(reports: dict[str, Any]) -> None:
    """A version line, a plan per level, and as many results as planned, numbered from 1."""
    lines = reports["ktap"].splitlines()
    assert lines[0] == "KTAP version 1"
    steps = checkpoints(reports)
    by_workload = {key: list(group) for key, group in itertools.groupby(steps, lambda step: step["workload"])}

    def results(indent: str) -> list[tuple[int, str]]:
        found = (re.fullmatch(rf"{indent}ok (\d+) (\S+)", line) for line in lines)
        return [(int(match[1]), match[2]) for match in found if match]

    assert not [line for line in lines if "not ok" in line]
    assert re.fullmatch(r"1\.\.(\d+)", lines[1])[1] == str(len(by_workload))
    assert results("") == list(enumerate(by_workload, 1))
    plans = [int(line.strip()[3:]) for line in lines if line.startswith("  1..")]
    assert plans == [len(steps) for steps in by_workload.values()]
    numbered = [(at, step["step"]) for group in by_workload.values() for at, step in enumerate(group, 1)]
    assert results("  ") == numbered
    for line in lines:
        assert re.fullmatch(r" *(KTAP version 1|1\.\.\d+|(not )?ok \d+ .*|# .*)", line), line


def test_text_is_for_people(reports: dict[str, Any]) -> None:
    """No colour where nobody sees it, nothing wider than a terminal but sentences and VMA names."""
    text = reports["text"]
    assert "\x1b" not in text and "\r" not in text
    wide = [line for line in text.splitlines()[1:] if len(line) > COLUMNS]
    assert not wide, wide
    assert re.search(r"fffff\w+ \[=+\]", text)
    assert text.rstrip().endswith("no error found (exit status 0)")
