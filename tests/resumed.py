"""What takes hours goes on where it stopped: ``--resume`` leaves out what has passed on this content before.

A test has passed when its setup, its call and its teardown have. What failed or was skipped runs again. The content is
that of every file of the checkout that is not ignored, of QEMU and Python, and what the options say of the guest: a
change of any of them, and all begins anew. Names of what has passed are in the cache, so another checkout goes on, too.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command import CACHE

PLACE = "passed"
#: What the controller tells its workers, and what a worker tells it when it ends.
BEFORE, LEFT_OUT = "folioscope_passed_before", "folioscope_left_out"


def content(root: Path, *more: str) -> str:
    """A hash over names and bytes of a checkout's files, without those that git ignores, and over more words."""
    listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, timeout=60).stdout.split(b"\0")
    found = hashlib.sha256("\0".join(more).encode())
    for name in sorted(set(names) - {b""}):
        path = root / os.fsdecode(name)
        if path.is_file():
            found.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:20]


def tools() -> list[str]:
    """Versions of what the tests run by."""
    qemu = subprocess.run(["qemu-system-aarch64", "--version"], check=True, capture_output=True, text=True, timeout=60)
    return [sys.version, qemu.stdout]


class Resumed:
    """A plugin of pytest: the one that started the workers has the ledger, each worker leaves out what is in it."""

    def __init__(self, config: pytest.Config, ledger: Path | None) -> None:
        #: Where names of passed tests are added; a worker has none, its controller hears of all.
        self._ledger = ledger
        if ledger is None:
            self._before = set(config.workerinput[BEFORE])  # type: ignore[attr-defined] # xdist's
        else:
            ledger.parent.mkdir(parents=True, exist_ok=True)
            self._before = set(ledger.read_text().splitlines()) if ledger.exists() else set()
        self._failed: set[str] = set()
        self._called: set[str] = set()
        self._left_out = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """What is known now: a worker that takes the place of one that crashed has to collect the same tests."""
        node.workerinput[BEFORE] = sorted(self._before)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out what has passed."""
        passed = [item for item in items if item.nodeid in self._before]
        if passed:
            items[:] = [item for item in items if item.nodeid not in self._before]
            config.hook.pytest_deselected(items=passed)
        self._left_out = len(passed)
        if self._ledger is None:
            config.workeroutput[LEFT_OUT] = len(passed)  # type: ignore[attr-defined] # xdist's

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker has left out the same."""
        self._left_out = max(self._left_out, getattr(node, "workeroutput", {}).get(LEFT_OUT, 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a test that has passed, at once: nobody knows when the run is stopped."""
        if self._ledger is None:
            return
        if not report.passed:
            self._failed.add(report.nodeid)
        if report.when == "call":
            self._called.add(report.nodeid)
        if report.when == "teardown" and report.nodeid in self._called - self._failed:
            with self._ledger.open("a") as ledger:
                ledger.write(f"{report.nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says what was left out: it belongs to the result."""
        if self._left_out:
            terminalreporter.section("resumed")
            terminalreporter.write_line(
                f"{self._left_out} tests have passed on this content before and were left out; --afresh runs all"
            )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Nothing to do is good where all has passed."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._left_out:
            session.exitstatus = pytest.ExitCode.OK


def add_options(parser: pytest.Parser) -> None:
    """The two of them."""
    group = parser.getgroup("resume")
    group.addoption("--resume", action="store_true", help="leave out what has passed on this content before")
    group.addoption("--afresh", action="store_true", help="with --resume: forget what has passed on this content")


def register(config: pytest.Config, root: Path) -> None:
    """Where it is asked for."""
    if not config.getoption("--resume"):
        return
    ledger = None
    if not hasattr(config, "workerinput"):
        guest = [f"{name}={value}" for name, value in sorted(vars(config.option).items()) if name.startswith("guest_")]
        ledger = CACHE / PLACE / content(root, *tools(), *guest)
        if config.getoption("--afresh"):
            ledger.unlink(missing_ok=True)
    config.pluginmanager.register(Resumed(config, ledger))
