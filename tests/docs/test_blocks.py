# SPDX-License-Identifier: GPL-2.0-only
"""Blocks of documents are what the programs read that they are for, and a finding is the same wherever it is shown."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from folioscope.campaign.errors import Refused
from folioscope.campaign.matrix import SCHEMA, load

from command import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CAMPAIGNS = ROOT / "docs" / "how-to" / "campaigns.md"


def blocks(document: Path, language: str) -> list[str]:
    """The blocks of a document in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.M | re.S)


MATRICES = [(path.name, text) for path in DOCUMENTS for text in blocks(path, "toml")]


@pytest.mark.parametrize("text", [text for _, text in MATRICES], ids=[name for name, _ in MATRICES])
def test_a_matrix_has_cells(text: str, tmp_path: Path) -> None:
    """The command reads it, and its schema takes it."""
    (tmp_path / "matrix.toml").write_text(text)
    assert load(tmp_path / "matrix.toml").cells
    jsonschema.validate(tomllib.loads(text), SCHEMA)


def test_the_error_of_a_matrix_is_of_the_one_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the word wrong that the sentence names, it names the line of the file above it."""
    (text,) = blocks(CAMPAIGNS, "toml")
    shown = re.search(r"^folioscope: (matrix\.toml:.* '(\w+)' .*'(\w+)'\?)$", CAMPAIGNS.read_text(), re.M)
    assert shown
    sentence, wrong, right = shown.groups()
    monkeypatch.chdir(tmp_path)
    Path("matrix.toml").write_text(text.replace(f"\n{right} = ", f"\n{wrong} = ", 1))
    with pytest.raises(Refused) as refused:
        load(Path("matrix.toml"))
    assert str(refused.value) == sentence


def lines_of(job: dict[str, Any]) -> list[str]:
    """The commands of a job, of GitHub's form or of GitLab's."""
    return list(job.get("script", [])) or [step["run"] for step in job["steps"] if "run" in step]


def test_ci_files_are_yaml_whose_commands_are_there() -> None:
    """One of each form; a status of 2 is no failure of the kernel."""
    github, gitlab = (yaml.safe_load(text) for text in blocks(ROOT / "docs" / "how-to" / "ci.md", "yaml"))
    # YAML 1.1 reads `on` as a truth.
    assert set(github) == {True, "jobs"} and set(gitlab) == {"folioscope"}
    jobs = [*github["jobs"].values(), *gitlab.values()]
    assert len(jobs) == 2
    for job in jobs:
        lines = lines_of(job)
        for line in lines:
            subprocess.run(["bash", "-n", "-c", line], check=True)
        (judge,) = (line for line in lines if "judge" in line)
        script, _, reports = judge.split()
        assert (ROOT / script.removeprefix("folioscope/")).is_file()
        kept = job.get("artifacts", {}).get("paths") or [
            step["with"]["path"] for step in job["steps"] if step.get("uses", "").startswith("actions/upload-artifact@")
        ]
        assert kept == [reports]
    assert all(step.keys() & {"run", "uses"} for step in github["jobs"]["folioscope"]["steps"])
    assert gitlab["folioscope"]["allow_failure"] == {"exit_codes": [2]}


def test_the_finding_is_the_same_in_each_document() -> None:
    """README, tutorial and the recorder's page show one; test_tutorial.py compares its functions with a recording."""
    documents = ("README.md", "docs/tutorial.md", "docs/recorder.md")
    shown = [re.findall(r"^S2 .*\n(?:  .*\n)+", (ROOT / name).read_text(), re.M) for name in documents]
    assert shown[0] == shown[1] == shown[2] and len(shown[0]) == 1
    event = re.search(r"made .*\(event (\d+)\)", shown[0][0])
    assert event and f"(event {event[1]})\n" in (ROOT / "docs" / "tutorial.md").read_text().partition("explain")[2]


def test_the_crossing_s_figures_are_those_of_faults() -> None:
    """Of the README's sentence: cells with an error and cells judged, by kernel."""
    readme, faults = ((ROOT / name).read_text() for name in ("README.md", "docs/faults.md"))
    found = re.findall(r"([\d,]+) of ([\d,]+)(?: cells)? on ([\d.]+\d)", readme)
    rows = re.findall(r"^\| ([\d.]+)-cloud, 4K \| ([\d,]+) \| ([\d,]+) \|", faults, re.M)
    assert found and set(found) <= {(wrong, judged, kernel) for kernel, judged, wrong in rows}
