# SPDX-License-Identifier: GPL-2.0-only
"""What may be left out is a list, `skips.toml`: any other skip fails the run, and so does an expected failure."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "skips.toml"


class Skips:
    """A plugin of pytest, which hears of every worker's tests."""

    def __init__(self, allowed: Path = LIST) -> None:
        entries = tomllib.loads(allowed.read_text())["skip"]
        self._allowed = [(re.compile(entry["test"]), re.compile(entry["reason"])) for entry in entries]
        self._others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes in one outcome."""
        if not report.skipped:
            return
        # Path, line and words of a skip; the words alone of an expected failure.
        told = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        reason = told.removeprefix("Skipped: ")
        if not any(test.fullmatch(report.nodeid) and why.fullmatch(reason) for test, why in self._allowed):
            self._others.append(f"{report.nodeid}: {reason}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names those that are not in the list."""
        if self._others:
            terminalreporter.section("skips")
            terminalreporter.write_line(f"{len(self._others)} tests were left out and are not in {LIST.name}:")
            for line in self._others:
                terminalreporter.write_line(f"  {line}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A test that should have run and did not is a failure, even where all others passed."""
        if exitstatus == 0 and self._others:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
