# SPDX-License-Identifier: GPL-2.0-only
"""The loop of a campaign: cells without a result are run, each once its kernel is there."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .cell import Cell, Kernel, Work
from .engine import Engine, Line
from .errors import Refused
from .kinds import KINDS
from .store import Store

#: Seconds between two looks at what waits.
TICK = 0.2


class Progress(Protocol):
    """Is told how far a campaign is."""

    def begun(self, kept: int, wanted: int) -> None:
        """So many cells have a result already, of so many."""

    def building(self, kernel: str) -> None:
        """A kernel is being built."""

    def ended(self, cell: Cell, line: Line) -> None:
        """A cell has ended."""

    def tick(self) -> None:
        """Time passes."""


class Quiet:
    """A progress that says nothing."""

    def begun(self, kept: int, wanted: int) -> None:
        """Nothing."""

    def building(self, kernel: str) -> None:
        """Nothing."""

    def ended(self, cell: Cell, line: Line) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""


class Builder(Protocol):
    """Builds kernels, one at a time."""

    def __call__(self, kernel: Kernel) -> Mapping[str, Path] | str:
        """A kernel's files, or why it does not build. Raises ``Refused`` if that could not be tried."""

    def stop(self) -> None:
        """Ends the build that runs."""


@dataclass
class Ran:
    """What a campaign has done."""

    #: Cells that had a result before.
    kept: int = 0
    ran: int = 0
    #: Why, by the cell's key.
    lost: dict[str, str] = field(default_factory=dict)


def run(
    cells: Iterable[Cell],
    store: Store,
    engine: Engine,
    build: Builder | None = None,
    progress: Progress | None = None,
    *,
    again: bool = False,
) -> Ran:
    """Runs all cells that have no result, or all if they are wanted again: each loses its result when it begins.
    Raises ``Refused``; what has a result then keeps it."""
    said = progress or Quiet()
    named = set() if again else store.named()
    wanted: dict[str, Cell] = {cell.key: cell for cell in cells}
    waiting = deque(cell for key, cell in wanted.items() if key not in named)
    done = Ran(kept=len(wanted) - len(waiting))
    said.begun(done.kept, len(wanted))
    kernels = _Kernels(waiting, store, engine.remote, build)
    held: dict[str, Cell] = {}
    try:
        while waiting or held:
            for _ in range(min(engine.room(), len(waiting))):
                cell = waiting.popleft()
                files = kernels.of(cell)
                if again and files is not None:
                    store.forget(cell.key)
                if isinstance(files, str):
                    _lose(done, store, said, cell, Line(cell.key, "lost", files, tries=0))
                elif files is None:
                    # Its kernel is being built.
                    waiting.append(cell)
                else:
                    held[cell.key] = cell
                    engine.submit(Work.of(cell, files))
            if kernel := kernels.news():
                said.building(kernel)
            if not held and not waiting:
                break
            for line in engine.results(TICK) if held else _pause():
                cell = held.pop(line.key)
                if line.outcome == "lost":
                    _lose(done, store, said, cell, line)
                else:
                    done.ran += 1
                    said.ended(cell, line)
            said.tick()
    finally:
        engine.cancel()
        kernels.stop()
    return done


def _pause() -> tuple[Line, ...]:
    time.sleep(TICK)
    return ()


def _lose(done: Ran, store: Store, said: Progress, cell: Cell, line: Line) -> None:
    done.lost[cell.key] = line.summary
    store.lose(cell.key, line.summary)
    said.ended(cell, line)


class _Kernels:
    """The kernels of cells: those that are given are there, the others are built one after another, by one thread."""

    def __init__(self, cells: Iterable[Cell], store: Store, remote: bool, build: Builder | None) -> None:
        self._store, self._remote, self._build = store, remote, build
        self._files: dict[str, Mapping[str, tuple[str, str | None]] | str] = {}
        self._failed: BaseException | None = None
        self._news: deque[str] = deque()
        self._stopped = False
        wanted = {cell.kernel.key: cell.kernel for cell in cells if KINDS[cell.test.kind].has_kernel}
        self._thread = threading.Thread(target=self._prepare, args=(list(wanted.values()),), daemon=True)
        self._thread.start()

    def of(self, cell: Cell) -> Mapping[str, tuple[str, str | None]] | str | None:
        """The files of a cell's kernel; why there are none; or None while they are being made."""
        if not KINDS[cell.test.kind].has_kernel:
            return {}
        if self._failed:
            raise self._failed
        return self._files.get(cell.kernel.key)

    def news(self) -> str | None:
        """The kernel whose build has begun."""
        return self._news.popleft() if self._news else None

    def stop(self) -> None:
        """Begins no other build, and waits for the one that there is."""
        self._stopped = True
        if self._build:
            self._build.stop()
        self._thread.join()

    def _prepare(self, kernels: list[Kernel]) -> None:
        try:
            # What is there comes first.
            for kernel in sorted(kernels, key=lambda each: bool(each.build and not each.files)):
                if self._stopped:
                    return
                self._files[kernel.key] = self._made(kernel)
        except BaseException as error:  # noqa: BLE001
            # It is raised again by the campaign.
            self._failed = error

    def _made(self, kernel: Kernel) -> Mapping[str, tuple[str, str | None]] | str:
        files: Mapping[str, Path] | str = {name: Path(path) for name, path in kernel.files.items()}
        if not files:
            if self._build is None:
                raise Refused(f"the kernel {kernel.name} is not built, and this campaign builds none; build it first")
            self._news.append(kernel.name)
            files = self._build(kernel)
        if isinstance(files, str):
            return files
        return {name: (str(path), self._store.put(path) if self._remote else None) for name, path in files.items()}
