# SPDX-License-Identifier: GPL-2.0-only
"""A machine to try the set-up scripts on: this one, with other programs in PATH and nothing built yet."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from command import MARK, ROOT, SLOWER, children, marked, program, wait_until


class Host:
    """This machine with some of its programs replaced, an empty cache and an out/ of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.bin = place / "bin"
        self.bin.mkdir()
        self.said = place / "said"
        self.said.touch()
        self.mark = uuid.uuid4().hex
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "FOLIOSCOPE_CACHE": str(place / "cache"),
            "FOLIOSCOPE_OUT": str(place / "out"),
            MARK: self.mark,
        }
        for name in ("KERNEL", "VMLINUX", "MACHINE", "GRANULE", "BUILDROOT"):
            self.environment.pop(name, None)
        # How much room this machine has is asked by none of these tests.
        room = self.bin / "df"
        room.write_text("#!/bin/sh\necho Filesystem; echo /dev/x 1000000000 0 1000000000 0% /\n")
        room.chmod(0o755)

    def program(self, name: str, script: str) -> None:
        """A program that says that it was called, and does what the script says."""
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.said}\n{script}\n')
        path.chmod(0o755)

    def run(self, *words: str | Path, seconds: float = 120.0, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, without a terminal."""
        return subprocess.run(
            [str(word) for word in words],
            cwd=ROOT,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds * SLOWER,
            check=False,
        )

    @contextlib.contextmanager
    def terminal(self, *words: str | Path) -> Iterator[tuple[int, int]]:
        """Runs a command as its user does, from a shell in the foreground of a terminal. Gives its PID, and the
        terminal's other end."""
        ours, theirs = pty.openpty()
        environment = {name: value for name, value in self.environment.items() if name != MARK}
        # The shell outlives it: the end of a session's leader is a hangup for all, which would hide what we leave.
        shell = 'set -m; "$@"; read -r _'
        with subprocess.Popen(
            ["setsid", "--ctty", "bash", "-c", shell, "bash", "env", f"{MARK}={self.mark}", *map(str, words)],
            cwd=ROOT,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as child:
            os.close(theirs)
            try:
                assert wait_until(lambda: marked(self.mark), 10)
                (leader,) = children(child.pid)
                yield leader, ours
            finally:
                child.kill()
                self.kill()
                os.close(ours)

    def long_step(self, terminal: int) -> None:
        """Waits for the step whose stand-in sleeps twice. Where it does not come, what the terminal shows says why."""
        if not wait_until(lambda: self.programs().count("sleep") == 2, 60):
            raise AssertionError(f"expected two of sleep and found {self.programs()} after {shown(terminal)!r}")

    def kill(self) -> None:
        """Ends all that was started, as no program can refuse."""
        for pid in marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def programs(self) -> list[str]:
        """What runs that was started from here."""
        return [program(pid) for pid in marked(self.mark)]


def shown(terminal: int) -> str:
    """What a terminal has shown and nobody has read."""
    text = b""
    while select.select([terminal], [], [], 0)[0]:
        with contextlib.suppress(OSError):
            if more := os.read(terminal, 1 << 16):
                text += more
                continue
        break
    return text.decode(errors="replace")


def read(terminal: int, until: str, seconds: float = 30.0) -> str:
    """What is shown on a terminal, up to some words."""
    text = b""
    end = time.monotonic() + seconds * SLOWER
    while until.encode() not in text:
        assert time.monotonic() < end, f"expected {until!r} on the terminal and found {text.decode(errors='replace')!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                text += os.read(terminal, 1 << 16)
    return text.decode(errors="replace")
