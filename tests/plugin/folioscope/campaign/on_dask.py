# SPDX-License-Identifier: GPL-2.0-only
"""Dask distributed as an engine: it schedules, and runs again what a lost worker had. Nothing but a cell's values and
a line of its result goes through the scheduler; files go through the store."""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, ClassVar

import distributed

from .. import content
from .attempt import attempt
from .cell import Work
from .engine import AGAIN, Line
from .errors import Lost, Refused
from .kept import Keeper
from .store import Store

#: A worker has one of these for each guest that it may run: one, as it has one thread.
RESOURCE = "guest"
#: Seconds that a scheduler may take to answer.
PATIENCE = 15
#: Seconds between two looks at how many workers there are.
LOOK_SECONDS = 1.0
#: Those to which Dask gives a level.
_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")
#: Answers that are kept until they are forgotten.
RELEASED = 100
#: What a client raises once it has closed itself; older ones raise an OSError.
_CLOSED: Any = getattr(distributed.client, "ClosedClientError", OSError)
#: Dask's own has no types.
_CLIENT: Any = distributed.Client
#: The key of this package as it was loaded: a worker with another has other notions of a cell.
PACKAGE = content.of_tree(Path(__file__).parent.parent, ["campaign", "content.py", "locate.py"])


class Dask:
    """The workers of a Dask scheduler, by its address or by the file that it has written."""

    remote = True

    def __init__(self, address: str, store: Store) -> None:
        self._store = store
        # A lost scheduler is one sentence of ours, and would be a traceback of Dask's beside it.
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        where = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
        try:
            self._client = _CLIENT(**where, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise Refused(
                f"expected a Dask scheduler at {address} and found none; start one with: dask scheduler"
            ) from error
        self._address = address
        self._held: set[str] = set()
        # What Dask has, and what waits here. Dask's thread of callbacks submits too.
        self._lock = threading.Lock()
        self._running: dict[str, Any] = {}
        self._waiting: deque[Work] = deque()
        self._taken: list[Any] = []
        self._threads, self._looked = 1, float("-inf")
        self._ended: queue.SimpleQueue[tuple[str, Any] | Exception] = queue.SimpleQueue()

    def room(self) -> int:
        """Two for each worker that is there now: one more than runs waits, here."""
        if time.monotonic() > self._looked + LOOK_SECONDS:
            with self._reached():
                self._threads = max(1, sum(self._client.nthreads().values()))
            self._looked = time.monotonic()
        return 2 * self._threads - len(self._held)

    def submit(self, work: Work) -> None:
        """Takes a cell. Dask runs it again where its worker or its guest is lost."""
        self._held.add(work.key)
        with self._reached():
            self._send(work)

    def _send(self, *works: Work) -> None:
        """Gives Dask a cell for each worker that has none. Dask blames a killed worker on all cells that it held, those
        that waited too: none waits there."""
        with self._lock:
            self._waiting.extend(works)
            while self._waiting and len(self._running) < self._threads:
                work = self._waiting.popleft()
                future = self._client.submit(
                    cell, work.as_json(), self._store.url, PACKAGE,
                    key=f"cell-{work.key}-{id(self)}", resources={RESOURCE: 1}, retries=AGAIN, pure=False,
                )  # fmt: skip
                self._running[work.key] = future
                future.add_done_callback(lambda done, key=work.key: self._end(key, done))

    def _end(self, key: str, future: Any) -> None:
        """A cell has ended: its worker gets the next one before the answer of this one is fetched."""
        with self._lock:
            self._running.pop(key, None)
        try:
            self._send()
        except Exception as error:  # noqa: BLE001
            # It is raised again where results are taken.
            self._ended.put(error)
        self._ended.put((key, future))

    def results(self, seconds: float) -> Iterator[Line]:
        """The cells that have ended."""
        try:
            found = self._ended.get(timeout=seconds)
            while True:
                with self._reached():
                    if isinstance(found, Exception):
                        raise found
                    line = self._line(*found)
                self._held.discard(line.key)
                self._release(found[1])
                yield line
                found = self._ended.get_nowait()
        except queue.Empty:
            if self._client.status != "running":
                self._gone()

    def _release(self, future: Any) -> None:
        """Forgets answers, many at once: Dask's client sends no two messages in ten milliseconds, and the next cell
        would wait for that."""
        self._taken.append(future)
        if len(self._taken) > RELEASED:
            self._taken.clear()

    def cancel(self) -> None:
        """Ends all that waits or runs."""
        # The scheduler may be gone.
        with contextlib.suppress(OSError, TimeoutError):
            with self._lock:
                self._waiting.clear()
                running = list(self._running.values())
            if self._client.status == "running" and running:
                self._client.cancel(running, force=True, reason="the campaign ends")
                # A worker's thread cannot be ended; its keeper can.
                self._client.run(stop)
            self._client.close()

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """A connection that breaks is a scheduler that is gone."""
        try:
            yield
        except (OSError, TimeoutError, CancelledError, _CLOSED):
            self._gone()

    def _gone(self) -> None:
        raise Refused(
            f"the Dask scheduler at {self._address} is gone; start it again, and then the campaign, which goes on"
        )

    def _line(self, key: str, future: Any) -> Line:
        if future.status == "finished":
            found = future.result()
            if "refused" in found:
                raise Refused(found["refused"])
            return Line(**found)
        if future.status != "error":
            self._gone()
        error = future.exception()
        if isinstance(error, Lost):
            return Line(key, "lost", str(error), tries=AGAIN + 1)
        if isinstance(error, distributed.KilledWorker):
            return Line(key, "lost", "its workers were killed", tries=AGAIN + 1)
        raise Refused(
            f"a worker of {self._address} could not run the cell {key}: {type(error).__name__}: {error}; "
            "install the same folioscope there"
        )


class _Worker:
    """What a worker has: a keeper, a directory for the cells' files, and the stores that it has opened."""

    lock = threading.Lock()
    stores: ClassVar[dict[str, Store]] = {}
    keeper: Keeper | None = None
    scratch: Path | None = None


def cell(work: dict[str, Any], url: str, wanted: str) -> dict[str, Any]:
    """Runs a cell on a worker. Dask runs it again after any exception but these, which come back as an answer."""
    where = distributed.get_worker().address
    if wanted != PACKAGE:
        which = f"folioscope's campaigns {PACKAGE} and the campaign has {wanted}"
        return {"refused": f"the worker {where} has {which}; install the same commit on both"}
    with _Worker.lock:
        if _Worker.keeper is None or _Worker.keeper.stopped:
            if _Worker.keeper:
                _Worker.keeper.close()
            _Worker.keeper = Keeper()
            _Worker.scratch = _Worker.scratch or _scratch()
        keeper, scratch = _Worker.keeper, _Worker.scratch
    assert scratch
    try:
        store = _Worker.stores.get(url) or _Worker.stores.setdefault(url, Store(url))
        # A worker that was killed behind the end of a cell took the answer with it, not the result.
        result = store.result(work["key"]) or attempt(Work(**work), store, keeper, scratch)
    except Refused as error:
        return {"refused": str(error)}
    return {
        "key": result.key,
        "outcome": result.outcome,
        "summary": result.summary,
        "seconds": result.seconds,
    }


def stop() -> None:
    """Ends the cell that runs on this worker."""
    if _Worker.keeper:
        _Worker.keeper.stop()


def _scratch() -> Path:
    """The directory of this worker's cells, beside what Dask spills."""
    place = Path(tempfile.mkdtemp(prefix="folioscope-cells-", dir=distributed.get_worker().local_directory))
    atexit.register(stop)
    return place
