# SPDX-License-Identifier: GPL-2.0-only
"""What a cell costs of ours: as a program, a table for this machine. Asserted by no test.

Usage: measure_campaign.py [--cells N] [--planned N] [--dask WORKERS]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from folioscope.campaign import table
from folioscope.campaign.campaign import run
from folioscope.campaign.cell import Cell, Work
from folioscope.campaign.engine import Engine, Line, Local
from folioscope.campaign.result import Result
from folioscope.campaign.store import Store

from campaigns import waiting
from dask_cluster import Cluster


class Simulated:
    """An engine whose cells have a result at once, named in the store: the loop, the store and the table are real."""

    remote = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._works: list[Work] = []

    def room(self) -> int:
        """As many as a thousand workers would hold."""
        return 3000 - len(self._works)

    def submit(self, work: Work) -> None:
        """Takes a cell."""
        self._works.append(work)

    def results(self, _: float) -> Iterator[Line]:
        """All of them."""
        works, self._works = self._works, []
        for work in works:
            self._store.name(Result(work.key, {**work.axes, "content": work.content}, "pass", 0, 0.0, "simulated"))
            yield Line(work.key, "pass", "simulated")

    def cancel(self) -> None:
        """Nothing runs."""


def timed(cells: list[Cell], store: Store, engine: Engine) -> float:
    """Seconds of a campaign."""
    began = time.monotonic()
    ran = run(cells, store, engine)
    assert ran.ran == len(cells) and not ran.lost
    return time.monotonic() - began


def each(cells: list[Cell], store: Store, engine: Engine) -> str:
    """What one of them costs: by the clock, and by the CPU in this process alone, which a busy host does not change."""
    cpu = time.process_time()
    took = timed(cells, store, engine)
    cpu = time.process_time() - cpu
    return f"{1000 * took / len(cells):.1f} ms a cell that does nothing, {1000 * cpu / len(cells):.1f} ms of CPU here"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--planned", type=int, default=100_000)
    parser.add_argument("--dask", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        cells = waiting(options.cells, 0)
        store = Store(str(place / "local")).open()
        print(f"local, 2 slots: {each(cells, store, Local(store, 2))} ({len(cells)} cells)")
        for slots in (1, 2, 4):
            sleepy = waiting(40, 0.5)
            store = Store(str(place / f"sleep-{slots}")).open()
            took = timed(sleepy, store, Local(store, slots))
            print(f"local, {slots} slots: {took:.1f} s for 40 cells of 0.5 s, {20 / slots:.1f} s at best")
        if options.dask:
            from folioscope.campaign.on_dask import Dask  # noqa: PLC0415

            (place / "cluster").mkdir()
            with Cluster(place / "cluster") as cluster:
                for _ in range(options.dask):
                    cluster.worker("--no-nanny")
                store = Store(str(place / "dask")).open()
                # Workers have loaded all that they need by then.
                timed(waiting(4 * options.dask, 0.1), store, Dask(cluster.address, store))
                before = cluster.seconds()
                print(f"Dask, {options.dask} workers: {each(cells, store, Dask(cluster.address, store))}")
                rest = (cluster.seconds() - before) / len(cells)
                print(f"and {1000 * rest:.1f} ms of CPU in scheduler, workers, keepers and the programs of the cells")
        store = Store(str(place / "planned")).open()
        cells = waiting(options.planned, 0)
        took = timed(cells, store, Simulated(store))
        began = time.monotonic()
        count = table.totals(table.rows(cells, store))
        tabulated = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"simulated: {count['pass']} cells planned, dispatched and named in {took:.0f} s, "
            f"tabulated in {tabulated:.0f} s; {peak} MiB at most"
        )


if __name__ == "__main__":
    main()
