# SPDX-License-Identifier: GPL-2.0-only
"""`.ci/judge`, which CI recipes call: its statuses, its reports, and a job definition of KernelCI's pull labs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from command import BOOT_SECONDS, COMMAND, ROOT
from test_stock_kernel import Kernel, stock

JUDGE = ROOT / ".ci" / "judge"
IMAGE = ROOT / "out" / "kernel-4k" / "Image"
ONLY = ("--machine", "tcg", "--only", "anon,mprotect")
REPORTS = {"junit.xml", "report.json", "report.html", "log.txt"}

pytestmark = pytest.mark.only_machine("tcg")


def judge(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The script, with the command that is built."""
    environment = os.environ | {"FOLIOSCOPE": str(COMMAND)}
    told = [str(word) for word in (JUDGE, *words)]
    return subprocess.run(
        told, env=environment, capture_output=True, text=True, timeout=3 * BOOT_SECONDS, check=False, cwd=ROOT
    )


def job(place: Path, kernel: Path) -> Path:
    """A definition as KernelCI makes it, with a URL of this host."""
    made = place / "job.json"
    tests = [{"id": "folioscope", "type": "folioscope", "depends": [], "timeout_s": 600}]
    made.write_text(json.dumps({"artifacts": {"kernel": kernel.as_uri()}, "tests": tests}))
    return made


def test_a_kernel_without_errors(tmp_path: Path) -> None:
    """By a job of a pull lab: status 0, and all reports."""
    ended = judge(job(tmp_path, IMAGE), tmp_path / "reports", *ONLY)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {*REPORTS, "kernel"}
    assert "status 0: no error was found" in ended.stderr
    suites = ElementTree.parse(tmp_path / "reports" / "junit.xml").getroot()
    assert len(list(suites.iter("testcase"))) >= 2 and not list(suites.iter("failure"))
    assert "0 errors" in (tmp_path / "reports" / "log.txt").read_text()


@pytest.mark.network
def test_a_kernel_with_a_fault(tmp_path: Path) -> None:
    """Debian's 6.18.15 leaves bit 52 in PROT_NONE blocks: status 1, and a failure by its rule."""
    ended = judge(stock(Kernel("4k", "6.18")), tmp_path / "reports", *ONLY)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "status 1: errors were found" in ended.stderr
    suites = ElementTree.parse(tmp_path / "reports" / "junit.xml").getroot()
    assert any("L4" in ElementTree.tostring(failure, "unicode") for failure in suites.iter("failure"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "expected a job definition of JSON at"),
        ("{}", "names no artifacts.kernel"),
        ('{"artifacts": {"kernel": "file:///nonexistent/Image"}}', "cannot be had"),
    ],
)
def test_jobs_that_cannot_be_done(tmp_path: Path, content: str, said: str) -> None:
    """Status 2 and one sentence, before anything boots."""
    (tmp_path / "job.json").write_text(content)
    ended = judge(tmp_path / "job.json", tmp_path / "reports")
    assert ended.returncode == 2 and said in ended.stderr.splitlines()[-1]


def test_a_kernel_that_is_none(tmp_path: Path) -> None:
    """The command's own words, and its status."""
    ended = judge(ROOT / "Makefile", tmp_path / "reports", *ONLY)
    assert ended.returncode == 2
    assert re.search(r"not an arm64 kernel image|no arm64", ended.stderr), ended.stderr
    assert "status 2: something could not be judged" in ended.stderr
