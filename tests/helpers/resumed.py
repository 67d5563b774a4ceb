# SPDX-License-Identifier: GPL-2.0-only
"""What takes hours goes on where it stopped: ``--resume`` leaves out what has passed on this content before.

A test has passed when its setup, its call and its teardown have. What failed or was skipped runs again. The content is
that of every file of the checkout that is not ignored, of what was built, of QEMU and Python, and what the options say
of the guest. Of modules of tests it is only the test's own and those that this one imports or runs, so that a test that
was wrong can be mended without running all others again. Names of what has passed are in the cache, so another checkout
goes on, too. What a failed test said is written down at once: pytest tells it when all have ended, and nobody may wait.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from folioscope import dimensions
from folioscope.layout import LAYOUTS

from command import CACHE, COMMAND, OUT

PLACE = "passed"
#: In a checkout: what failed tests said, the newest last.
FAILED = "out/logs/failed.log"
#: How the options begin that change the guest of a test, and not which tests there are.
GUEST = tuple(f"folioscope_{name}" for name in ("kernel", "vmlinux", "initrd", "append", "memory", "smp", "tcg_thread"))
#: What the controller tells its workers, and what a worker tells it when it ends.
BEFORE, LEFT_OUT = "folioscope_passed_before", "folioscope_left_out"


class Content:
    """Hashes over names and bytes of a checkout's files, without those that git ignores, and over more words."""

    def __init__(self, root: Path, *more: str) -> None:
        listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, check=True, capture_output=True, timeout=60).stdout.split(b"\0")
        common = hashlib.sha256("\0".join(more).encode())
        #: By stem: where it is, what it says, and which other modules of tests it hangs on.
        self._modules: dict[str, tuple[str, bytes]] = {}
        helpers = b""
        for name in sorted({os.fsdecode(name) for name in names} - {""}):
            path = root / name
            if not path.is_file():
                continue
            held = path.read_bytes()
            if path.match("test_*.py"):
                self._modules[path.stem] = (name, held)
                continue
            common.update(name.encode() + b"\0" + hashlib.sha256(held).digest())
            helpers += held + b"\n" if path.suffix == ".py" else b""
        self._needs = {stem: self._named(held) for stem, (_, held) in self._modules.items()}
        self._common, self._always = common, self._named(helpers, runs=False)

    def _named(self, text: bytes, *, runs: bool = True) -> set[str]:
        """The modules that a text imports; and where it starts pytest, each whose name is a word of it."""
        names = set(re.findall(rb"^\s*(?:from|import) (test_\w+)", text, re.MULTILINE))
        if runs and (b'"pytest"' in text or b"pytest.sh" in text):
            words = set(re.findall(rb"\w+", text))
            names |= {stem.encode() for stem in self._modules if {stem.encode(), stem.encode()[5:]} & words}
        return {name.decode() for name in names} & set(self._modules)

    def of(self, stem: str) -> str:
        """What a module of tests hangs on, by its name without the suffix."""
        reached, todo = set[str](), {stem, *self._always}
        while todo:
            reached |= todo
            todo = {needed for module in todo for needed in self._needs[module]} - reached
        found = self._common.copy()
        for module in sorted(reached):
            name, held = self._modules[module]
            found.update(name.encode() + b"\0" + hashlib.sha256(held).digest())
        return found.hexdigest()[:20]

    def stems(self) -> list[str]:
        """Of all modules of tests."""
        return list(self._modules)


def tools() -> list[str]:
    """What the tests run by: versions, and what was built, which may be of another content than the checkout."""
    program = shutil.which("qemu-system-aarch64")
    # A host with KVM needs none.
    qemu = "none"
    if program:
        qemu = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    built = [COMMAND, OUT / "initramfs.cpio", *(OUT / f"kernel-{granule}" / "Image" for granule in LAYOUTS)]
    hashes = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in built if path.is_file()]
    return [sys.version, qemu, *hashes]


def stem_of(nodeid: str) -> str:
    """Of a test's module."""
    return Path(nodeid.partition("::")[0]).stem


class Resumed:
    """A plugin of pytest: the one that started the workers has the ledgers, each worker leaves out what is in them."""

    def __init__(self, config: pytest.Config, root: Path, ledgers: dict[str, Path] | None) -> None:
        #: By module: where names of passed tests are added. A worker has none, its controller hears of all.
        self._ledgers = ledgers
        if ledgers is None:
            self._before = set(config.workerinput[BEFORE])  # type: ignore[attr-defined] # xdist's
        else:
            there = [ledger.read_text() for ledger in ledgers.values() if ledger.exists()]
            self._before = {name for names in there for name in names.splitlines()}
        self._root = root
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
        passed = [item for item in items if dimensions.nodeid(item) in self._before]
        if passed:
            items[:] = [item for item in items if dimensions.nodeid(item) not in self._before]
            config.hook.pytest_deselected(items=passed)
        self._left_out = len(passed)
        if self._ledgers is None:
            config.workeroutput[LEFT_OUT] = len(passed)  # type: ignore[attr-defined] # xdist's

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker has left out the same."""
        self._left_out = max(self._left_out, getattr(node, "workeroutput", {}).get(LEFT_OUT, 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds what has passed, and what was said by what has not, at once: nobody knows when the run is stopped."""
        if self._ledgers is None:
            return
        if report.failed:
            told = self._root / FAILED
            told.parent.mkdir(parents=True, exist_ok=True)
            parts = [f"==== {time.strftime('%F %T')} {report.nodeid}, {report.when}", report.longreprtext]
            parts += [f"---- {title}\n{text}" for title, text in report.sections]
            with told.open("a") as words:
                words.write("\n".join(parts) + "\n")
        if not report.passed:
            self._failed.add(report.nodeid)
        if report.when == "call":
            self._called.add(report.nodeid)
        if report.when == "teardown" and self._ledgers and report.nodeid in self._called - self._failed:
            ledger = self._ledgers[stem_of(report.nodeid)]
            ledger.parent.mkdir(parents=True, exist_ok=True)
            with ledger.open("a") as names:
                names.write(f"{report.nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says what was left out: it belongs to the result."""
        if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
            terminalreporter.write_line(f"what failed is in {FAILED} too, as it was told at that instant")
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
    ledgers = None
    if not hasattr(config, "workerinput"):
        guest = [f"{name}={value}" for name, value in sorted(vars(config.option).items()) if name.startswith(GUEST)]
        try:
            known = Content(root, *tools(), *guest)
        except (OSError, subprocess.CalledProcessError) as error:
            # Sources without git can be tested too.
            said = f"all tests run, as what has passed is known by what git lists in {root}, and there is none: {error}"
            config.issue_config_time_warning(pytest.PytestWarning(said), stacklevel=2)
            known = None
        ledgers = {stem: CACHE / PLACE / known.of(stem) for stem in known.stems()} if known else {}
        if config.getoption("--afresh"):
            for ledger in ledgers.values():
                ledger.unlink(missing_ok=True)
    config.pluginmanager.register(Resumed(config, root, ledgers))
