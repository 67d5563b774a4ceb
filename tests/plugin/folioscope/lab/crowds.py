# SPDX-License-Identifier: GPL-2.0-only
"""The experiments of several tasks: processes or threads, which do a load together on several CPUs."""

from __future__ import annotations

from .kinds import CACHE, CALLS, SHMEM, Experiment, Setting, crowds, policies

#: One, and then up to eight of each kind.
_TASKS = (*crowds("processes", 1, 2, 4, 8), *crowds("threads", 2, 4, 8))
#: Of a quick lab: the ends. One of its experiments has all of them.
_ENDS = (*crowds("processes", 1, 8), *crowds("threads", 8))
_WHOLE = "page_fault1"
#: By which numbers iozone was run: those that four CPUs can be asked about soon, and the many.
_FEW, _MANY = (1, 2, 4, 8), (10, 20, 30, 40, 50, 60, 70, 80, 120, 160, 200)
#: MiB of each file where there are many: one folio of a PMD's size.
_FILE = 2


def _after(name: str, mib: int, load: str = "", times: int = 1) -> Experiment:
    """What one of will-it-scale's tests does by several tasks, with single pages and under the RFC's kernel."""
    unit = "page" if times == 1 else "operation"
    return Experiment(
        f"{name}_tasks",
        f"after will-it-scale's {name}: by processes and threads, 1 to 8",
        load or name,
        mib,
        policies("baseline", "rfc"),
        unit=unit,
        times=times,
        crowds=_TASKS,
        quick={} if name == _WHOLE else {"crowds": _ENDS},
    )


def _iozone(load: str, how: str, settings: tuple[Setting, ...] = CACHE) -> tuple[Experiment, Experiment]:
    """Its patterns, each thread with a file of its own: of all files together of one size, and of one size each."""
    title = f"after iozone: its patterns on ramfs files {how} by {{}} threads, by the knob page_cache"
    return (
        Experiment(f"{load}_threads", title.format("1 to 8"), load, 32, settings, crowds=crowds("threads", *_FEW)),
        Experiment(
            f"{load}_many",
            title.format("10 to 200"),
            load,
            _FILE * _MANY[-1],
            (settings[0], settings[-1]),
            crowds=crowds("threads", *_MANY),
            each=_FILE,
            long=True,
            seconds=1800.0,
        ),
    )


CROWDS = (
    _after("page_fault1", 32),
    _after("page_fault2", 32),
    _after("page_fault3", 32),
    _after("malloc1", 128, "malloc1_turns", 256),
    _after("mmap1", 128, times=256),
    _after("read1", 32),
    _after("read2", 32),
    _after("context_switch1", 16, times=256),
    _after("tlb_flush1", 32),
    _after("tlb_flush2", 32),
    Experiment(
        "anon_shmem_threads",
        "shared anonymous memory, each page written by one of 32 threads, its mTHP size of 64K off and on",
        "anon_shmem_parts",
        1024,
        SHMEM,
        crowds=crowds("threads", 32),
        memory=1536,
    ),
    Experiment(
        "tcp",
        "after netperf: TCP over loopback from one CPU to another, by what the CPUs keep of high orders",
        "tcp",
        16,
        tuple(
            Setting(name, knobs={"/proc/sys/vm/percpu_pagelist_high_order": value})
            for name, value in (("all", "2"), ("none", "1"), ("limit", "3"), ("default", "0"))
        ),
        unit="operation",
        times=4000,
        cpus=2,
        kernel="kernel-net",
        frames=True,
        locks=True,
    ),
    *_iozone("file_map", "through mappings"),
    *_iozone("file_calls", "by pread(2) and pwrite(2)", CALLS),
)
