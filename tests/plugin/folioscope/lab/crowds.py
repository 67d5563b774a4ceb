"""The experiments of several tasks: processes or threads, which do a load together on several CPUs."""

from __future__ import annotations

from .kinds import CACHE, PATTERNS, SHMEM, Experiment, Setting, Theirs, crowds, policies

#: One, and then up to eight of each kind.
_TASKS = (*crowds("processes", 1, 2, 4, 8), *crowds("threads", 2, 4, 8))
#: Of a quick lab: the ends. One of its experiments has all of them.
_ENDS = (*crowds("processes", 1, 8), *crowds("threads", 8))
_WHOLE = "page_fault1"


def _will_it_scale(name: str, mib: int, load: str = "", times: int = 1, theirs: tuple[Theirs, ...] = ()) -> Experiment:
    """One of its tests by several tasks, under the two policies that it was printed for."""
    unit = "page" if times == 1 else "operation"
    return Experiment(
        f"{name}_tasks",
        f"will-it-scale's {name} by processes and threads, 1 to 8",
        load or name,
        mib,
        policies("baseline", "variable"),
        theirs,
        unit=unit,
        times=times,
        crowds=_TASKS,
        quick={} if name == _WHOLE else {"crowds": _ENDS},
    )


_READ2 = Theirs(
    "variable",
    ("pass, 1 task",),
    1942062 / 587722,
    "587722 to 1942062 ops/s, 230.4%",
    "anon-folios RFC v2, read2",
    "no anonymous memory is faulted between the markers",
)

#: Of a cover letter's tables, by 2, 4 and 8 threads: how many times as fast.
_SPEEDUPS = {
    "file_map": {
        "pass": (1.56, 1.59, 1.56),
        "again": (1.48, 1.62, 1.31),
        "read": (1.08, 1.43, 1.24),
        "reread": (1.41, 1.25, 1.24),
        "reverse": (0.98, 1.10, 1.10),
        "random read": (1.58, 1.78, 1.63),
        "random write": (2.13, 2.08, 1.98),
    },
    "file_calls": {
        "pass": (1.01, 1.00, 1.00),
        "again": (1.06, 1.03, 1.07),
        "read": (0.82, 1.06, 0.90),
        "reread": (0.92, 0.97, 0.94),
        "reverse": (1.05, 0.87, 0.93),
        "random read": (0.89, 0.71, 0.89),
        "random write": (1.13, 1.07, 1.02),
    },
}


def _iozone(load: str, how: str) -> Experiment:
    """Its patterns, each thread with a file of its own, and all files together of one size."""
    threads = crowds("threads", 1, 2, 4, 8)
    theirs = tuple(
        Theirs(
            "on",
            (crowd.of(interval),),
            times,
            f"{PATTERNS[interval]} {times:.2f} times, {crowd.count} threads",
            "THP page cache v4",
        )
        for interval, row in _SPEEDUPS[load].items()
        for crowd, times in zip(threads[1:], row, strict=True)
    )
    title = f"iozone's patterns on ramfs files {how} by 1 to 8 threads, the knob page_cache off and on"
    return Experiment(f"{load}_threads", title, load, 32, CACHE, theirs, crowds=threads)


#: What the frame most often used was used, on 5.17-rc3, where orders 1 to 3 were kept without a limit.
_MOST = 13128


def _reused(setting: str, most: int, kernel: str) -> Theirs:
    printed = f"the most used page frame {_MOST} to {most} times, {kernel}"
    return Theirs(setting, (), most / _MOST, printed, "pcp-high-order-limit", counted="frames")


#: Setting, bytes of a message, MBit/s of 5.17-rc3 and under the setting, on the machine with the smaller cache.
_NETPERF = (
    ("none", 64, 938.95, 941.50),
    ("none", 4096, 35364.59, 36490.96),
    ("none", 16384, 58410.86, 60839.80),
    ("limit", 64, 938.95, 943.61),
    ("limit", 4096, 35364.59, 36112.54),
    ("limit", 16384, 58410.86, 62282.96),
)


def _netperf(setting: str, size: int, before: float, after: float) -> Theirs:
    printed = f"{size} bytes, {setting}: {before} to {after}, {after / before - 1:.2%}"
    return Theirs(setting, (f"send {size}",), after / before, printed, "pcp-high-order-limit, 1-socket skylake")


CROWDS = (
    _will_it_scale("page_fault1", 32),
    _will_it_scale("page_fault2", 32),
    _will_it_scale("page_fault3", 32),
    _will_it_scale("malloc1", 128, "malloc1_turns", 256),
    _will_it_scale("mmap1", 128, times=256),
    _will_it_scale("read1", 32),
    _will_it_scale("read2", 32, theirs=(_READ2,)),
    _will_it_scale("context_switch1", 16, times=256),
    _will_it_scale("tlb_flush1", 32),
    _will_it_scale("tlb_flush2", 32),
    Experiment(
        "anon_shmem_threads",
        "shared anonymous memory, each page written by one of 32 threads, its mTHP size of 64K off and on",
        "anon_shmem_parts",
        1024,
        SHMEM,
        (
            Theirs(
                "64K",
                ("fault, 32 threads",),
                17082522.495 / 2630746.027,
                "2630746 to 17082522 faults/s, 1 GiB, 32 threads",
                "anon-shmem mTHP v4",
            ),
        ),
        crowds=crowds("threads", 32),
        memory=1536,
    ),
    Experiment(
        "tcp",
        "TCP over loopback from one CPU to another, by what the CPUs keep of high orders",
        "tcp",
        16,
        tuple(
            Setting(name, knobs={"/proc/sys/vm/percpu_pagelist_high_order": value})
            for name, value in (("all", "2"), ("none", "1"), ("limit", "3"), ("default", "0"))
        ),
        (
            *(
                _reused(*each)
                for each in (("none", 402523, "5.17-revert-highpcp"), ("limit", 166950, "5.17-full-series"))
            ),
            *(_netperf(*each) for each in _NETPERF),
        ),
        unit="operation",
        times=4000,
        cpus=2,
        kernel="kernel-net",
        frames=True,
    ),
    _iozone("file_map", "through mappings"),
    _iozone("file_calls", "by pread(2) and pwrite(2)"),
)
