# SPDX-License-Identifier: GPL-2.0-only
"""Whether a test ends alike on all machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator

import pytest

from . import dimensions


class Agreement:
    """What became of each test on each machine; a plugin of pytest, which hears of every worker's tests."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, str]] = defaultdict(dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Says in the report which machine it was; a report travels, the test does not."""
        report = yield
        if machine := dimensions.of(item).get("machine"):
            test, bracket, values = item.nodeid.rpartition("[")
            report.on_machine = [test + bracket + values.replace(machine, "*", 1), machine]  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes in one outcome; a failure in any phase counts."""
        if (case := getattr(report, "on_machine", None)) and (report.when == "call" or report.outcome != "passed"):
            test, machine = case
            self._seen[test][machine] = report.outcome

    def differences(self) -> tuple[int, list[str]]:
        """How many tests ran on several machines, and a line for each that did not end alike."""
        several = {test: by for test, by in self._seen.items() if len(by) > 1}
        lines = [
            f"{test}: {', '.join(f'{outcome} on {machine}' for machine, outcome in sorted(by.items()))}"
            for test, by in sorted(several.items())
            if len(set(by.values())) > 1
        ]
        return len(several), lines

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """A table of the tests that did not end alike on all machines; it should be empty."""
        several, lines = self.differences()
        if several:
            terminalreporter.section("machines")
            terminalreporter.write_line(f"{several} tests ran on several machines; {len(lines)} ended differently")
            for line in lines:
                terminalreporter.write_line(f"  {line}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Machines that disagree are a failure, even where each outcome alone is none."""
        if exitstatus == 0 and self.differences()[1]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
