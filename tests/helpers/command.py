# SPDX-License-Identifier: GPL-2.0-only
"""The command as its user runs it: a child process, its words, its exit status, what it leaves behind.

Every process gets a mark in its environment, which its children inherit: a QEMU that outlives the
command is found by it, whoever its parent is by then.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from folioscope import locate

# The checkout, its own build of the command, and where logs and bundles of the tests go.
ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("FOLIOSCOPE") or ROOT / "out" / "folioscope")
OUT = locate.output(ROOT)
# The cache of builds, as vmm/setup/lib.sh finds it.
CACHE = Path(
    os.environ.get("FOLIOSCOPE_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "folioscope"
)

# How many times slower than a real one this host is: an emulated one says so.
SLOWER = float(os.environ.get("FOLIOSCOPE_TEST_SLOWER") or 1)
# What a guest needs at most until it is up, on a host that has other things to do.
BOOT_SECONDS = 90.0
# How long a QEMU may be there after the command has gone.
GONE_SECONDS = 2.0
MARK = "FOLIOSCOPE_TEST_MARK"


def module(name: str) -> str:
    """The path in the checkout of a module of tests. Its name is unique, so no folder has to be said."""
    (found,) = (ROOT / "tests").glob(f"*/{name}")
    return str(found.relative_to(ROOT))


def marked(mark: str) -> list[int]:
    """The processes with this mark; one that has ended and waits to be reaped has no environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def children(pid: int) -> list[int]:
    """The processes that a process has started and that live. Not every kernel lists them (CONFIG_PROC_CHILDREN)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # Behind the name, which may have anything in it: the state, and whose child it is.
            state, parent, *_ = stat.read_text().rpartition(")")[2].split()
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


def program(pid: int) -> str:
    """What a process runs; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def wait_until(what: Any, seconds: float) -> bool:
    """Whether ``what()`` comes true in time."""
    end = time.monotonic() + seconds * SLOWER
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@dataclass
class Ended:
    """A command that has ended."""

    arguments: list[str]
    status: int
    out: str
    err: str
    seconds: float

    def sentence(self) -> str:
        """The one line on standard error that a user gets where the command could not do it. Below it can be where
        each CPU of a lost guest stands, and nothing else."""
        assert self.status == 2, f"{self.arguments}: status {self.status}\n{self.out}\n{self.err}"
        lines = self.err.strip().splitlines()
        more = [line for line in lines[1:] if not re.match(r"CPU \d+ at EL[01]: PC 0x[0-9a-f]{16} ", line)]
        assert lines and not more, f"expected one line and found:\n{self.err}"
        assert lines[0].startswith("folioscope: "), lines[0]
        assert "panicked at" not in lines[0], lines[0]
        return lines[0]

    def ok(self) -> str:
        """Standard output of one that succeeded."""
        assert self.status == 0, f"{self.arguments}: status {self.status}\n{self.out}\n{self.err}"
        assert not self.err, self.err
        return self.out


@dataclass
class Running:
    """A command that runs, until the block that it is made for ends."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    output: Any = subprocess.PIPE
    input: Any = subprocess.DEVNULL
    # What starts it, and becomes it.
    prefix: tuple[str, ...] = ()

    def __enter__(self) -> Running:
        self.mark = uuid.uuid4().hex
        self.started = time.monotonic()
        self.child = subprocess.Popen(
            [*self.prefix, str(COMMAND), *self.arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment, MARK: self.mark},
            stdin=self.input,
            stdout=self.output,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        return self

    def __exit__(self, *_: object) -> None:
        for pid in {self.child.pid, *marked(self.mark)}:
            if self.child.pid != pid or self.child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.child.wait()
        for stream in (self.child.stdout, self.child.stderr):
            if stream:
                stream.close()

    def qemus(self) -> list[int]:
        """The QEMUs that it started and that still live."""
        return [pid for pid in marked(self.mark) if program(pid).startswith("qemu-system")]

    def nothing_left(self) -> None:
        """The command has ended: nothing that it started may be there any more."""
        gone = wait_until(lambda: not marked(self.mark), GONE_SECONDS)
        assert gone, f"{self.arguments} left {[(pid, program(pid)) for pid in marked(self.mark)]}"

    def end(self, seconds: float) -> Ended:
        """Waits for its end and takes its words."""
        out, err = self.child.communicate(timeout=seconds * SLOWER)
        took = time.monotonic() - self.started
        self.nothing_left()
        return Ended(self.arguments, self.child.returncode, out or "", err, took)


def folioscope(*arguments: Any, seconds: float = BOOT_SECONDS, **environment: str) -> Ended:
    """Runs the command to its end, which has to come in time and leave no process."""
    with Running([str(argument) for argument in arguments], environment) as running:
        return running.end(seconds)
