# SPDX-License-Identifier: GPL-2.0-only
"""The experiments: which load runs, and under which settings of the kernel. What they answer is in :mod:`.figures`."""

from __future__ import annotations

from .crowds import CROWDS
from .kinds import (
    ADAPTIVE_RFC,
    CACHE,
    CALLS,
    MIB,
    POLICIES,
    SHMEM,
    TEXTS,
    THP,
    Crowd,
    Experiment,
    Setting,
    crowds,
    policies,
)
from .orders import ORDERS
from .programs import PROGRAMS

__all__ = ["EXPERIMENTS", "MIB", "THP", "Crowd", "Experiment", "Setting", "crowds", "policies"]

_ALL = policies(*POLICIES, "rfc")


def _after(name: str, does: str, mib: int = 32, times: int = 1, settings: tuple[Setting, ...] = _ALL) -> Experiment:
    """A program of ours that does what one of will-it-scale's tests does."""
    unit = "page" if times == 1 else "operation"
    return Experiment(name, f"after will-it-scale's {name}: {does}", name, mib, settings, unit=unit, times=times)


EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        _after("page_fault1", "map anonymous memory, write each page, unmap"),
        _after("page_fault2", "map a file privately, write each page, unmap"),
        _after("page_fault3", "map a file shared, write each page, unmap"),
        _after(
            "malloc1",
            "malloc, one page written by its header, free",
            128,
            256,
            (*_ALL, ADAPTIVE_RFC),
        ),
        Experiment(
            "anon_shmem",
            "shared anonymous memory, each page written, its mTHP size of 64K off and on",
            "anon_shmem",
            64,
            SHMEM,
        ),
        _after("mmap1", "map and unmap, touch nothing", 128, 256),
        _after("read1", "read a file by records of 4K"),
        _after("context_switch1", "a byte to another process and back", 16, 256),
        _after("tlb_flush1", "each page of a private file mapping written, given back, read"),
        _after("tlb_flush2", "each page of anonymous memory written, given back, read"),
        Experiment(
            "file_map",
            "after iozone -B: its patterns on a ramfs file through a mapping, the knob page_cache off and on",
            "file_map",
            32,
            CACHE,
        ),
        Experiment(
            "file_calls",
            "after iozone: its patterns on a ramfs file by pread(2) and pwrite(2), by the knob page_cache",
            "file_calls",
            32,
            CALLS,
        ),
        Experiment(
            "fold",
            "our own: a page of each block loses the right to be written, which unfolds it, and gets it back",
            "fold",
            16,
            policies("baseline", "variable"),
            unit="block",
        ),
        Experiment(
            "zap",
            "our own: unmapping anonymous memory entry by entry and in batches (zap_batch)",
            "page_fault1",
            32,
            tuple(
                Setting(name, knobs={f"{THP}/anon_order/zap_batch": value})
                for name, value in (("off", "0"), ("on", "1"))
            ),
        ),
        Experiment(
            "locks",
            "our own: locks that writing each page of anonymous memory and unmapping it takes",
            "page_fault1",
            32,
            (
                *policies("baseline", "simple", "v2", "v1", "rfc", "adaptive"),
                Setting("rfc, lru_batch", "retry", {**TEXTS["rfc"].knobs, f"{THP}/anon_order/lru_batch": "1"}),
            ),
            locks=True,
        ),
        Experiment(
            "forks",
            "our own: a child writes all that it shares with its parent, and ends; then the parent writes it",
            "forks",
            16,
            policies("baseline", "v2", "v1", "rfc"),
        ),
        Experiment(
            "sparse",
            "our own, after the RFC's words: one page written in each 64K of 64 MiB, in order",
            "sparse",
            64,
            (*_ALL, ADAPTIVE_RFC),
            unit="block",
        ),
        Experiment(
            "sparse_behind",
            "our own: the same behind four blocks that were written page by page",
            "sparse_behind",
            64,
            (*_ALL, ADAPTIVE_RFC),
            unit="block",
        ),
        Experiment(
            "sparse_random",
            "our own: as many pages of 64 MiB written as it has blocks of 64K, each by chance",
            "sparse_random",
            64,
            (*_ALL, ADAPTIVE_RFC),
            unit="block",
        ),
        Experiment(
            "stacks",
            "our own: 64 stacks of 1 MiB with guard pages, the four pages at the top of each written downwards",
            "stacks",
            1,
            (*_ALL, ADAPTIVE_RFC),
            unit="operation",
            times=64,
        ),
        Experiment(
            "aged",
            "our own: anonymous memory faulted where areas of many sizes have come and gone for 12,000 turns",
            "aged",
            16,
            policies(*POLICIES),
            times=12000,
            memory=256,
            aged=True,
        ),
        Experiment(
            "aged_long",
            "our own: the same where areas have come and gone for 17,000,000 turns, some hour of a run",
            "aged",
            16,
            policies(*POLICIES),
            times=17_000_000,
            memory=256,
            aged=True,
            long=True,
            seconds=4 * 3600.0,
        ),
        *ORDERS,
        *CROWDS,
        *PROGRAMS,
    )
}
