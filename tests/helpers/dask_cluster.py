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

START_SECONDS = 60 * SLOWER


class Cluster:
    """Processes that end with the block."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._mark = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[bytes]] = []
        self.file = place / "scheduler.json"
        words = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file)]
        self.scheduler = self._start("scheduler", words, PLUGIN)
        if not wait_until(lambda: self.file.exists() and self.file.read_text().endswith("}"), START_SECONDS):
            raise AssertionError((place / "scheduler.log").read_text())

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

    def worker(self, *more: str, package: Path = PLUGIN, alone: int = 60) -> subprocess.Popen[bytes]:
        """One more, as the documents say it is started; it ends so many seconds after its scheduler."""
        name = f"worker-{len(self._processes)}"
        words = ["worker", self.address, "--nthreads", "1", "--resources", "guest=1", "--name", name]
        words += ["--local-directory", str(self._place / name), "--death-timeout", str(alone), *more]
        return self._start(name, words, package)

    def processes(self) -> list[int]:
        """All that there are, the workers' cells among them."""
        return command.marked(self._mark)

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

    def _start(self, name: str, words: list[str], package: Path) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(package),
            "FOLIOSCOPE_CACHE": str(self._place / name / "cache"),
            command.MARK: self._mark,
        }
        with (self._place / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, "--no-dashboard"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._place,
            )
        self._processes.append(process)
        return process


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
