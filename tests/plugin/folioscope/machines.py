# SPDX-License-Identifier: GPL-2.0-only
"""Which machines a guest can have on this host, and the carriers of those that are emulated.

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
from pathlib import Path

from .client import GuestLost, end_with_input
from .locate import command

# The carried machines, and how the command is told: a host that runs at EL2 itself (VHE), and one that does not.
NOT_AT_EL2 = "kvm-in-tcg-nvhe"
CARRIED = {"kvm-in-tcg": "vhe", NOT_AT_EL2: "nvhe"}
# What else makes a carrier of that kind: hosts without VHE mostly have a GICv2.
SERVED: dict[str, list[str]] = {"kvm-in-tcg": [], NOT_AT_EL2: ["--nvhe", "--gic", "2"]}
CARRIER_BOOT_SECONDS = 120.0
# The sockets of carriers that serve a whole run, with the CPU `max`, where somebody has started them.
SHARED = {"kvm-in-tcg": "FOLIOSCOPE_CARRIER_VHE", NOT_AT_EL2: "FOLIOSCOPE_CARRIER_NVHE"}


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
        found = command()
        self._child = subprocess.Popen(
            [str(found.path), *words, *SERVED[machine]],
            cwd=found.directory,
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
        if serving := shared(machine, cpu):
            self.close()
            return {"FOLIOSCOPE_CARRIER": serving}
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
