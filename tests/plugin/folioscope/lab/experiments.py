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


def will_it_scale(
    name: str, does: str, mib: int, ops: tuple[int, int, str], *intervals: str, times: int = 1
) -> Experiment:
    """One of its tests, under each policy."""
    unit = "page" if times == 1 else "operation"
    title = f"will-it-scale's {name}: {does}"
    return Experiment(
        name, title, name, mib, policies(*POLICIES), (rates(name, *ops, *intervals),), unit=unit, times=times
    )


#: Of the load, and what iozone's report calls them, in the order in which the cover letter has them.
PATTERNS = {
    "pass": "initial writers",
    "again": "rewriters",
    "read": "readers",
    "reread": "re-readers",
    "reverse": "reverse readers",
    "random read": "random readers",
    "random write": "random writers",
}


def iozone(*times: float) -> tuple[Theirs, ...]:
    """A row for each pattern, of one thread."""
    return tuple(
        Theirs("on", (interval,), each, f"{name} {each:.2f} times, 1 thread", "THP page cache v4")
        for (interval, name), each in zip(PATTERNS.items(), times, strict=True)
    )


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
        will_it_scale("mmap1", "map and unmap, touch nothing", 128, (410253, 375746, "-8.4%"), "pass", times=256),
        will_it_scale("read1", "read a file by records of 4K", 32, (1806908, 1905752, "5.5%"), "pass"),
        will_it_scale(
            "context_switch1", "a byte to another process and back", 16, (328744, 351150, "6.8%"), "pass", times=256
        ),
        will_it_scale(
            "tlb_flush1",
            "each page of a private file mapping written, given back, read",
            32,
            (143910, 152097, "5.7%"),
            "fault",
            "release",
        ),
        will_it_scale(
            "tlb_flush2",
            "each page of anonymous memory written, given back, read",
            32,
            (266763, 322320, "20.8%"),
            "fault",
            "release",
        ),
        Experiment(
            "file_map",
            "iozone's patterns on a ramfs file through a mapping, the knob page_cache off and on",
            "file_map",
            32,
            CACHE,
            iozone(1.53, 1.54, 1.17, 1.34, 1.03, 1.72, 2.42),
        ),
        Experiment(
            "file_calls",
            "iozone's patterns on a ramfs file by pread(2) and pwrite(2), the knob page_cache off and on",
            "file_calls",
            32,
            CACHE,
            iozone(1.02, 1.02, 0.99, 0.92, 0.94, 0.80, 1.06),
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
