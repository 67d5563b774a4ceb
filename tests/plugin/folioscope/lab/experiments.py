"""The experiments: which load runs, under which settings of the kernel, and what others have measured of it."""

from __future__ import annotations

from .crowds import CROWDS
from .kinds import CACHE, MIB, PATTERNS, POLICIES, SHMEM, THP, Crowd, Experiment, Setting, Theirs, crowds, policies
from .orders import ORDERS
from .programs import PROGRAMS

__all__ = ["EXPERIMENTS", "MIB", "THP", "Crowd", "Experiment", "Setting", "Theirs", "crowds", "policies"]

RFC = "anon-folios RFC v2"


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


def iozone(*times: float) -> tuple[Theirs, ...]:
    """A row for each pattern, of one thread."""
    return tuple(
        Theirs("on", (interval,), each, f"{name} {each:.2f} times, 1 thread", "THP page cache v4")
        for (interval, name), each in zip(PATTERNS.items(), times, strict=True)
    )


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
            SHMEM,
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
