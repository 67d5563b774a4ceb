# SPDX-License-Identifier: GPL-2.0-only
"""What runs cells: three calls. This machine, here, and Dask distributed beside."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .attempt import attempt
from .cell import Work
from .errors import Lost, Refused
from .kept import Keeper
from .store import Store

#: A cell that was lost is run again so many times.
AGAIN = 3


@dataclass(frozen=True)
class Line:
    """What an engine returns of a cell; all else is in the store."""

    key: str
    #: As a result has it, or ``lost``.
    outcome: str
    summary: str
    seconds: float = 0.0
    #: How often it was run.
    tries: int = 1


class Engine(Protocol):
    """Runs cells. An engine whose workers have other disks wants kernels in the store."""

    remote: bool

    def room(self) -> int:
        """How many more cells are useful to submit now."""

    def submit(self, work: Work) -> None:
        """Takes a cell."""

    def results(self, seconds: float) -> Iterator[Line]:
        """The cells that have ended, waiting at most so long for the first. Raises ``Refused``."""

    def cancel(self) -> None:
        """Ends all that runs. What is in the store stays."""


class Local:
    """This machine: each slot runs one cell at a time, as processes that end with this one."""

    remote = False

    def __init__(self, store: Store, slots: int, scratch: Path | None = None) -> None:
        self._store = store
        self._slots = slots
        self._scratch = Path(tempfile.mkdtemp(prefix="folioscope-cells-", dir=scratch))
        self._waiting: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Line | BaseException] = queue.SimpleQueue()
        self._held = 0
        self._keepers = [Keeper() for _ in range(slots)]
        self._threads = [threading.Thread(target=self._serve, args=(each,), daemon=True) for each in self._keepers]
        for thread in self._threads:
            thread.start()

    def room(self) -> int:
        """One more than runs waits in each slot, so that none is idle."""
        return 2 * self._slots - self._held

    def submit(self, work: Work) -> None:
        """Takes a cell."""
        self._held += 1
        self._waiting.put(work)

    def results(self, seconds: float) -> Iterator[Line]:
        """The cells that have ended."""
        try:
            found = self._ended.get(timeout=seconds)
            while True:
                if isinstance(found, BaseException):
                    raise found
                self._held -= 1
                yield found
                found = self._ended.get_nowait()
        except queue.Empty:
            return

    def cancel(self) -> None:
        """Ends all that runs, and waits for it."""
        for keeper in self._keepers:
            keeper.stop()
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _serve(self, keeper: Keeper) -> None:
        """A slot's thread."""
        try:
            while work := self._waiting.get():
                if keeper.stopped:
                    break
                self._ended.put(tried(work, self._store, keeper, self._scratch))
        except BaseException as error:  # noqa: BLE001
            # It is raised again where results are taken.
            self._ended.put(error)
        finally:
            keeper.close()


def tried(work: Work, store: Store, keeper: Keeper, scratch: Path) -> Line:
    """Runs a cell, and again where it is lost."""
    why, tries = "", 0
    while tries <= AGAIN and not keeper.stopped:
        tries += 1
        try:
            result = attempt(work, store, keeper, scratch)
        except Lost as error:
            why = str(error)
        except OSError as error:
            raise Refused(
                f"the cells' files in {scratch} could not be written: {error.strerror}; make room, or set TMPDIR"
            ) from error
        else:
            return Line(work.key, result.outcome, result.summary, result.seconds, tries)
    return Line(work.key, "lost", why, tries=tries)
