"""The experiments: which load runs, under which settings of the kernel, and what others have measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

THP = "/sys/kernel/mm/transparent_hugepage"
#: The policies by which an anonymous folio's order is chosen.
POLICIES = ("baseline", "simple", "variable", "retry", "adaptive", "sysfs")
MIB = 1 << 20
RFC = "anon-folios RFC v2"


@dataclass(frozen=True)
class Setting:
    """What an experiment is run under: an order policy, or other knobs beside ``variable``."""

    name: str
    policy: str = "variable"
    #: Files of the guest, and what is written there.
    knobs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Theirs:
    """What others have measured: how many times as many operations a second ``setting`` has as the first."""

    setting: str
    #: The intervals of the load that one such operation goes through.
    intervals: tuple[str, ...]
    times: float
    #: As they print it, and where.
    printed: str
    source: str
    #: Why it is not to be expected here, where that is known.
    why_not: str = ""


@dataclass(frozen=True)
class Experiment:
    """One load under several settings, of which the first is what the others are compared with."""

    name: str
    title: str
    load: str
    mib: int
    settings: tuple[Setting, ...]
    theirs: tuple[Theirs, ...] = ()
    #: What an instruction count is given for: a page of 4K, a block of 16 pages, or an operation of the load.
    unit: str = "page"
    #: How often the load does it in one run, where once would be little beside a tick of the clock.
    times: int = 1


def policies(*names: str) -> tuple[Setting, ...]:
    """A setting for each policy. ``sysfs`` has the size of a contiguous block enabled, as the others choose it."""
    return tuple(
        Setting(name, name, {f"{THP}/hugepages-64kB/enabled": "always"} if name == "sysfs" else {}) for name in names
    )


def rates(name: str, before: int, after: int, percent: str, *intervals: str, why_not: str = "") -> Theirs:
    """A row of the RFC's table of will-it-scale, whose kernel chooses as ``variable`` does."""
    printed = f"{before} to {after} ops/s, {percent}"
    return Theirs("variable", intervals, after / before, printed, f"{RFC}, {name}", why_not)


SHMEM = f"{THP}/hugepages-64kB/shmem_enabled"
FILES = f"{THP}/page_cache"
CACHE = (Setting("off", knobs={FILES: "0"}), Setting("on", knobs={FILES: "1"}))

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        Experiment(
            "page_fault1",
            "will-it-scale's page_fault1: map anonymous memory, write each page, unmap",
            "page_fault1",
            32,
            policies(*POLICIES),
            (rates("page_fault1", 624061, 3185678, "410.5%", "fault", "release"),),
        ),
        Experiment(
            "page_fault2",
            "will-it-scale's page_fault2: map a file privately, write each page, unmap",
            "page_fault2",
            32,
            policies(*POLICIES),
            (
                rates(
                    "page_fault2",
                    416483,
                    557448,
                    "33.8%",
                    "fault",
                    "release",
                    why_not="this kernel copies a file's pages one at a time, whatever the policy",
                ),
            ),
        ),
        Experiment(
            "page_fault3",
            "will-it-scale's page_fault3: map a file shared, write each page, unmap",
            "page_fault3",
            32,
            policies(*POLICIES),
            (
                rates(
                    "page_fault3",
                    724566,
                    1152726,
                    "59.1%",
                    "fault",
                    "release",
                    why_not="the pages are the file's, and no policy of anonymous memory is asked about them",
                ),
            ),
        ),
        Experiment(
            "malloc1",
            "will-it-scale's malloc1: malloc, one page written by its header, free",
            "malloc1",
            128,
            policies(*POLICIES),
            (
                rates(
                    "malloc1",
                    96214,
                    50890,
                    "-47.1%",
                    "fault",
                    "release",
                ),
            ),
            unit="operation",
            times=256,
        ),
        Experiment(
            "anon_shmem",
            "shared anonymous memory, each page written, its mTHP size of 64K off and on",
            "anon_shmem",
            64,
            (Setting("off", knobs={SHMEM: "never"}), Setting("64K", knobs={SHMEM: "always"})),
            (
                Theirs(
                    "64K",
                    ("fault",),
                    17082522.495 / 2630746.027,
                    "2630746 to 17082522 faults/s",
                    "anon-shmem mTHP v4",
                ),
            ),
        ),
        Experiment(
            "file_map",
            "iozone's initial write and rewrite of a ramfs file through a mapping, the knob page_cache off and on",
            "file_map",
            32,
            CACHE,
            (
                Theirs("on", ("pass",), 2207350 / 1444052, "initial writers 1.53 times, 1 thread", "THP page cache v4"),
                Theirs("on", ("again",), 3106380 / 2012192, "rewriters 1.54 times, 1 thread", "THP page cache v4"),
            ),
        ),
        Experiment(
            "file_write",
            "iozone's initial write and rewrite of a ramfs file by write(2), the knob page_cache off and on",
            "file_write",
            32,
            CACHE,
            (
                Theirs("on", ("pass",), 1817240 / 1786744, "initial writers 1.02 times, 1 thread", "THP page cache v4"),
                Theirs("on", ("again",), 2071648 / 2025119, "rewriters 1.02 times, 1 thread", "THP page cache v4"),
            ),
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
    )
}
