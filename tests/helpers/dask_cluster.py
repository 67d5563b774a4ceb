# SPDX-License-Identifier: GPL-2.0-only
"""A Dask cluster of real processes: a scheduler, and workers that have a cache, a directory and a mark each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import command
from campaigns import PLUGIN
from command import SLOWER, wait_until
from hosts import Hosts

START_SECONDS = 60 * SLOWER
#: The scheduler's, on a host of its own.
PORT = 8786


class Cluster:
    """Processes that end with the block."""

    def __init__(self, place: Path, hosts: Hosts | None = None, environment: dict[str, str] | None = None) -> None:
        self._place = place
        self._hosts = hosts
        self._environment = environment or {}
        self._mark = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[bytes]] = []
        self.file = place / "scheduler.json"
        self.scheduler = self.start_scheduler()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in {*(each.pid for each in self._processes), *command.marked(self._mark)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for each in self._processes:
            each.wait()
        assert wait_until(lambda: not command.marked(self._mark), 10), "the cluster left processes behind"

    @property
    def address(self) -> str:
        """The scheduler's."""
        return str(json.loads(self.file.read_text())["address"])

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        """A scheduler: on the host 1 of a network, else at a port that is free."""
        self.file.unlink(missing_ok=True)
        host, port = (self._hosts.address(1), PORT) if self._hosts else ("127.0.0.1", 0)
        words = ["scheduler", "--host", host, "--port", str(port), "--scheduler-file", str(self.file)]
        scheduler = self._start("scheduler", words, PLUGIN, 1)
        if not wait_until(lambda: self.file.exists() and self.file.read_text().endswith("}"), START_SECONDS):
            raise AssertionError((self._place / "scheduler.log").read_text())
        return scheduler

    def worker(self, *more: str, package: Path = PLUGIN, alone: int = 60, host: int = 0) -> subprocess.Popen[bytes]:
        """One more, as the documents say it is started; it ends so many seconds after its scheduler."""
        name = f"worker-{len(self._processes)}"
        words = ["worker", self.address, "--nthreads", "1", "--resources", "guest=1", "--name", name]
        words += ["--local-directory", str(self._place / name), "--death-timeout", str(alone), *more]
        return self._start(name, words, package, host)

    def processes(self) -> list[int]:
        """All that there are, the workers' cells among them."""
        return command.marked(self._mark)

    def seconds(self) -> float:
        """CPU time of all processes and of the programs of cells that have ended."""
        ticks = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                # utime, stime, cutime and cstime.
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def logs(self) -> str:
        """What all of them have said."""
        return "".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self._place.glob("*.log")))

    def waiting(self) -> list[int]:
        """The programs of cells that run."""
        return [pid for pid in self.processes() if command.program(pid) == "sleep"]

    def owner(self, pid: int) -> int:
        """The worker's process whose cell runs this program: its keeper's parent."""
        keeper = _parent(pid)
        return _parent(keeper)

    def _start(self, name: str, words: list[str], package: Path, host: int) -> subprocess.Popen[bytes]:
        environment = {
            **self._environment,
            "PYTHONPATH": str(package),
            "FOLIOSCOPE_CACHE": str(self._place / name / "cache"),
            command.MARK: self._mark,
        }
        words = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        log = self._place / f"{name}.log"
        if self._hosts:
            process = self._hosts.start(host, words, environment, log, self._place)
        else:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    words,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._place,
                )
        self._processes.append(process)
        return process


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
