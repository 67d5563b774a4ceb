"""Which machines a guest can have on this host, the carriers of those that are emulated, and whether all agree.

``kvm`` is the rig's own monitor; on a host that is no arm64 machine it runs for real in a *carrier*, a Linux host
with KVM under QEMU's emulated EL2. A carrier boots once and serves many guests.
"""

from __future__ import annotations

import json
import os
import platform
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from .client import COMMAND, ROOT, GuestLost, end_with_input

# The carried machines, and how the command is told: a host that runs at EL2 itself (VHE), and one that does not.
CARRIED = {"kvm-in-tcg": "vhe", "kvm-in-tcg-nvhe": "nvhe"}
CARRIER_BOOT_SECONDS = 120.0
# The sockets of carriers that serve a whole run, with the CPU `max`, where somebody has started them.
SHARED = {"kvm-in-tcg": "FOLIOSCOPE_CARRIER_VHE", "kvm-in-tcg-nvhe": "FOLIOSCOPE_CARRIER_NVHE"}


def native() -> str:
    """The best machine that needs no carrier."""
    usable = platform.machine() == "aarch64" and os.access("/dev/kvm", os.R_OK | os.W_OK)
    return "kvm" if usable else "tcg"


def chosen(option: str, every: bool) -> list[str]:
    """The values of ``--machine``; ``auto`` takes the carried ones too for tests of every machine."""
    if option != "auto":
        return option.split(",")
    return [native(), *CARRIED] if every and native() == "tcg" else [native()]


def arguments(machine: str) -> list[str]:
    """As ``folioscope session`` takes a machine."""
    if mode := CARRIED.get(machine):
        return ["--machine", "kvm-in-tcg", "--carrier-mode", mode]
    return ["--machine", machine]


class Carrier:
    """A carrier host that runs; it ends with its standard input, so with this interpreter."""

    def __init__(self, machine: str, cpu: str, log: Path) -> None:
        # A Unix socket's path may have 107 bytes: not below a deep checkout.
        self._place = Path(tempfile.mkdtemp(prefix="folioscope-"))
        self.socket = self._place / "carrier.sock"
        log.mkdir(parents=True, exist_ok=True)
        self._log = (log / "carrier.log").open("ab")
        words = ["carrier", "serve", "--socket", str(self.socket), "--cpu", cpu, "--out", str(log)]
        self._child = subprocess.Popen(
            [str(COMMAND), *words, *(["--nvhe"] if CARRIED[machine] == "nvhe" else [])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self._child.stdout is not None
        ready = select.select([self._child.stdout], [], [], CARRIER_BOOT_SECONDS)[0]
        line = self._child.stdout.readline() if ready else b""
        if not line:
            self.close()
            raise GuestLost(f"the carrier of {machine} did not come up; its words are in {self._log.name}")
        self.ready = json.loads(line)["ready"]
        mode = self.ready["hello"]["kvm"]
        if mode != CARRIED[machine]:
            # Or one kind of host would be tested twice, and the other not at all.
            self.close()
            raise GuestLost(f"expected a carrier of kind {CARRIED[machine]} for {machine} on {cpu} and found {mode}")

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child.poll() is None

    def close(self) -> None:
        """Ends it, and every guest in it."""
        end_with_input(self._child)
        self._log.close()
        shutil.rmtree(self._place, ignore_errors=True)


def shared(machine: str, cpu: str) -> str | None:
    """The socket of a carrier that serves the whole run, if there is one and it lives."""
    place = os.environ.get(SHARED[machine])
    if not place or cpu != "max":
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        return place if connection.connect_ex(place) == 0 else None


class Carriers:
    """The carrier of the machine that is under test now: tests are sorted by machine, so one at a time is enough."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._current: tuple[tuple[str, str], Carrier] | None = None

    def environment(self, machine: str, cpu: str) -> dict[str, str]:
        """What a command needs in its environment for a guest on that machine."""
        if machine not in CARRIED:
            # Tests are sorted by machine: none will ask for it again.
            self.close()
            return {}
        if place := shared(machine, cpu):
            self.close()
            return {"FOLIOSCOPE_CARRIER": place}
        if self._current is None or self._current[0] != (machine, cpu) or not self._current[1].alive:
            self.close()
            place = self._out / f"carrier-{machine}-{cpu}-{int(time.time())}"
            self._current = ((machine, cpu), Carrier(machine, cpu, place))
        return {"FOLIOSCOPE_CARRIER": str(self._current[1].socket)}

    def close(self) -> None:
        """Ends the carrier, if there is one."""
        if self._current:
            self._current[1].close()
            self._current = None


class Agreement:
    """What became of each test on each machine; a plugin of pytest, which hears of every worker's tests."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, str]] = defaultdict(dict)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Says in the report which machine it was; a report travels, the test does not."""
        outcome = yield
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if machine := params.get("machine"):
            test, bracket, values = item.nodeid.rpartition("[")
            outcome.get_result().on_machine = [test + bracket + values.replace(machine, "*", 1), machine]

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
