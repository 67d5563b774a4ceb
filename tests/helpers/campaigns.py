# SPDX-License-Identifier: GPL-2.0-only
"""Cells and campaigns for tests; as a program, a campaign of cells that wait.

Usage: campaigns.py STORE COUNT SECONDS [ENGINE]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from folioscope.campaign.campaign import Ran, run
from folioscope.campaign.cell import Cell, Kernel, Test
from folioscope.campaign.commands import engine_of
from folioscope.campaign.engine import Local
from folioscope.campaign.errors import Refused
from folioscope.campaign.store import Store

PLUGIN = Path(__file__).resolve().parents[1] / "plugin"
NONE = Kernel("none", "none")
#: Prints the table of a store's cells that wait, for where only a host of a network reaches it: STORE COUNT SECONDS.
TABLE = """import json, sys
from campaigns import *
print(json.dumps(table(waiting(int(sys.argv[2]), float(sys.argv[3])), Store(sys.argv[1]))))
"""


def waiting(count: int, seconds: float, limit: float | None = None) -> list[Cell]:
    """Cells that wait."""
    return [
        Cell(NONE, Test(f"wait-{number}", "wait", {"seconds": seconds, "number": number}), limit=limit)
        for number in range(count)
    ]


def ran_here(cells: list[Cell], store: Store, slots: int = 2, scratch: Path | None = None) -> Ran:
    """Runs them on this machine."""
    return run(cells, store, Local(store, slots, scratch))


def table(cells: list[Cell], store: Store) -> dict[str, str | None]:
    """The outcome of each cell."""
    found = {cell.name(): store.result(cell.key) for cell in cells}
    return {name: result and result.outcome for name, result in found.items()}


def started(*words: object, **environment: str) -> subprocess.Popen[str]:
    """This file as a program, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, __file__, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(PLUGIN), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def main(place: str, count: str, seconds: str, engine: str = "local") -> int:
    """Run a campaign of cells that wait, and say what it took."""
    began = time.monotonic()
    try:
        store, cells = Store(place).open(), waiting(int(count), float(seconds))
        ran = run(cells, store, engine_of(engine, store, cells, 2))
    except Refused as error:
        print(f"folioscope: {error}", file=sys.stderr)
        return 2
    print(f"{ran.kept} kept, {ran.ran} ran, {len(ran.lost)} lost in {time.monotonic() - began:.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
