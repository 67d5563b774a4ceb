# SPDX-License-Identifier: GPL-2.0-only
"""Progress of a campaign: one line that is overwritten on a terminal, else a line for each cell."""

from __future__ import annotations

import sys
import time
from collections import Counter

from .cell import Cell
from .engine import Line


def span(seconds: float) -> str:
    """A time in two units."""
    whole = int(seconds + 0.5)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


class Lines:
    """Writes to standard error."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown = 0.0
        self._left = self._ran = 0
        self._count: Counter[str] = Counter()
        self._terminal = sys.stderr.isatty()

    def begun(self, kept: int, wanted: int) -> None:
        """What there is to do."""
        self._left = wanted - kept
        self._say(f"{wanted} cells, {kept} of them with a result")

    def building(self, kernel: str) -> None:
        """A kernel is being built."""
        self._say(f"building the kernel {kernel}")

    def ended(self, cell: Cell, line: Line) -> None:
        """A cell has ended."""
        self._left -= 1
        self._ran += 1
        self._count[line.outcome] += 1
        if line.outcome != "pass" or not self._terminal:
            more = f", at try {line.tries}" if line.tries > 1 else ""
            self._say(f"{line.outcome}: {cell.name()}: {line.summary} ({line.seconds:.1f} s{more})")

    def tick(self) -> None:
        """Refreshes the line of a terminal twice a second."""
        now = time.monotonic()
        if self._terminal and self._left and now - self._shown > 0.5:
            self._shown = now
            count = ", ".join(f"{number} {outcome}" for outcome, number in self._count.items())
            eta = f", about {span((now - self._began) / self._ran * self._left)} left" if self._ran else ""
            print(f"\r\033[K{self._left} cells to go{eta}  {count}", end="", file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        clear = "\r\033[K" if self._terminal else ""
        print(f"{clear}folioscope: {text}", file=sys.stderr, flush=True)
