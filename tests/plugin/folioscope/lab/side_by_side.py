# SPDX-License-Identifier: GPL-2.0-only
"""Experiments side by side, a guest on each CPU: what is counted are instructions, which no neighbour changes."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from ..host import guests
from .bench import Bench, Result, measure
from .kinds import Experiment, Setting

_PR_SET_PDEATHSIG = 1


def _begin() -> None:
    """A Ctrl-C is for who has begun us; whose end is ours, in which the guest is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _one(bench: Bench, wanted: tuple[Experiment, Setting]) -> tuple[str, Result]:
    experiment, setting = wanted
    print(f"folioscope: {experiment.name}, {setting.name}", file=sys.stderr, flush=True)
    return experiment.name, measure(bench, experiment, setting)


def results(bench: Bench, wanted: Sequence[tuple[Experiment, Setting]]) -> Iterator[tuple[str, Result]]:
    """Each experiment's name, and what it has measured under a setting, as they come to their ends."""
    if not wanted:
        return
    memory = max(experiment.memory or bench.memory_mib for experiment, _ in wanted)
    # Not by fork: the library of statistics has threads.
    with multiprocessing.get_context("spawn").Pool(min(guests(memory), len(wanted)), _begin) as pool:
        yield from pool.imap_unordered(partial(_one, bench), wanted)
        # Without a signal: one that comes when a worker is about to wait for more work is not seen by it, ever.
        pool.close()
        pool.join()
