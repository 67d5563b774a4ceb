# SPDX-License-Identifier: GPL-2.0-only
"""Programs run by a keeper: whatever they start ends with them, with the keeper, and with this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import Lost

#: In the environment of each process of a cell: those of a keeper that was killed are found by it.
MARK = "FOLIOSCOPE_CELL"
_KEEPER = Path(__file__).with_name("keeper.py")


def marked(mark: str) -> list[int]:
    """The processes with this mark; a process that waits to be reaped has none."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


def end_marked(mark: str) -> None:
    """Kills all processes with this mark."""
    while pids := marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@dataclass(frozen=True)
class Ended:
    """How a program ended: by itself, by its limit, or stopped by the campaign."""

    how: str
    status: int
    seconds: float
    # Processes that it had left behind.
    killed: int


class Keeper:
    """Runs one program at a time. Made by one thread; ``stop`` may come from any."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(
        self,
        words: Sequence[str],
        directory: Path,
        console: Path,
        limit: float | None,
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Runs a program to its end. Raises ``Lost`` if the keeper itself was lost."""
        wanted = {
            "words": list(words),
            "directory": str(directory),
            "console": str(console),
            "limit": limit,
            "environment": {**os.environ, **(environment or {}), MARK: self._mark},
        }
        with self._lock:
            if self._stopped:
                return Ended("stopped", 0, 0.0, 0)
            child = self._started()
            assert child.stdin and child.stdout
            with contextlib.suppress(OSError):
                child.stdin.write(json.dumps(wanted).encode() + b"\n")
                child.stdin.flush()
        answer = child.stdout.readline()
        if not answer.endswith(b"\n"):
            self._ended()
            raise Lost("the process that kept the cell was killed")
        return Ended(**json.loads(answer))

    def stop(self) -> None:
        """Ends the program that runs, and begins no other."""
        with self._lock:
            self._stopped = True
            if self._child and self._child.stdin:
                with contextlib.suppress(OSError, ValueError):
                    self._child.stdin.write(b"stop\n")
                    self._child.stdin.flush()

    @property
    def stopped(self) -> bool:
        """Whether it was told to begin no other program."""
        return self._stopped

    def close(self) -> None:
        """Ends the keeper and what it runs."""
        self._ended()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._child

    def _ended(self) -> None:
        if self._child is None:
            return
        for stream in (self._child.stdin, self._child.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        self._child.wait()
        # A keeper that ended by itself has left none.
        if self._child.returncode:
            end_marked(self._mark)
        self._child = None
