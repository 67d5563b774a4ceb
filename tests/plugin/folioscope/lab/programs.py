"""The experiments whose loads are Debian's programs: a compiler and a JavaScript engine, as in the policies' texts."""

from __future__ import annotations

from .kinds import THP, Experiment, Setting, Theirs

_BATCHES = f"{THP}/anon_order/zap_batch"
_RFC, _V2 = "anon-folios RFC v2", "anon-folios v2"
#: What they compare: no large folios; one preferred order or none; theirs, and with the batches of the text before.
_SETTINGS = (
    Setting("baseline", "baseline", {_BATCHES: "0"}),
    Setting("simple", "simple", {_BATCHES: "0"}),
    Setting("variable", "variable", {_BATCHES: "0"}),
    Setting("batched", "variable", {_BATCHES: "1"}),
)


def _kernel(setting: str, percent: float, name: str, jobs: int = 8) -> Theirs:
    printed = f"{jobs} jobs, {name}: kern-time {percent:+.1f}%"
    return Theirs(setting, ("pass",), 1 / (1 + percent / 100), printed, _V2, counted="kernel")


def _cycles(cause: str, before: int, after: int, percent: str) -> Theirs:
    """A row of the RFC's tables, in thousand millions of cycles of the kernel; its kernel zaps in batches."""
    printed = f"{cause}: {before}B to {after}B cycles, {percent}"
    return Theirs("batched", ("pass",), before / after, printed, f"{_RFC}, 8 jobs", counted=f"entry {cause}")


def _memory(mark: str, name: str, before: int, after: int, percent: str) -> Theirs:
    """Memory in use while they compile, in MB: between a percent less and two more, as that text says."""
    printed = f"mem-used-{mark} by {name}: {before} to {after} MB, {percent}"
    counted = f"memory {mark}" if name == "MemFree" else f"memory {mark}_unavailable"
    return Theirs("batched", (), before / after, printed, _RFC, counted=counted, within=(1 / 1.02, 1 / 0.99))


def _many(jobs: int, memory: int, *theirs: Theirs) -> Experiment:
    """So many compilers at once on one CPU, and memory that they fit into."""
    return Experiment(
        f"compile_{jobs}",
        f"GCC 12 compiles the smallest files of the kernel's device tree library, {jobs} at once",
        "compile_small",
        16,
        _SETTINGS,
        theirs,
        unit="operation",
        times=jobs,
        memory=memory,
        programs=True,
        long=True,
        seconds=3600.0,
    )


PROGRAMS = (
    Experiment(
        "compile",
        "GCC 12 compiles the kernel's device tree library, eight files at once",
        "compile",
        16,
        _SETTINGS,
        (
            _kernel("simple", -36.5, "anonfolio-lkml-v2-simple-order"),
            _kernel("variable", -38.6, "anonfolio-lkml-v2"),
            _kernel("batched", -42.9, "anonfolio-lkml-v1"),
            Theirs("batched", ("pass",), 510.7 / 340.9, "510.7 to 340.9 s sys-time, -33.3%", _RFC, counted="kernel"),
            _cycles("data abort", 683, 316, "-53.8%"),
            _cycles("instruction abort", 93, 76, "-18.4%"),
            _cycles("syscall", 887, 767, "-13.6%"),
            _cycles("openat", 194, 188, "-3.3%"),
            _cycles("exit_group", 192, 124, "-35.7%"),
            _cycles("read", 124, 108, "-12.7%"),
            _cycles("execve", 75, 67, "-11.0%"),
            _cycles("mmap", 51, 50, "-3.0%"),
            _cycles("mprotect", 15, 13, "-12.0%"),
            _cycles("write", 43, 42, "-2.9%"),
            _cycles("munmap", 15, 12, "-17.0%"),
            _cycles("newfstatat", 46, 41, "-9.7%"),
            _cycles("clone", 26, 24, "-10.0%"),
            _memory("low", "MemFree", 825, 842, "2.1%"),
            _memory("high", "MemFree", 2697, 2672, "-0.9%"),
            _memory("low", "MemAvailable", 518, 530, "2.3%"),
            _memory("high", "MemAvailable", 1522, 1537, "1.0%"),
        ),
        unit="operation",
        times=8,
        programs=True,
        quick={"load": "compile_small"},
    ),
    Experiment(
        "script",
        "V8 runs a list of things to do, in the manner of Speedometer",
        "script",
        16,
        _SETTINGS,
        (
            Theirs(
                "simple",
                (),
                2.75,
                "2.75 times as many faults as v1, Speedometer 2.0",
                _V2,
                counted="faults",
                against="batched",
            ),
        ),
        unit="operation",
        times=1,
        programs=True,
        quick={"load": "script_short"},
    ),
    _many(
        80,
        2048,
        _kernel("simple", -40.2, "anonfolio-lkml-v2-simple-order", 80),
        _kernel("variable", -42.6, "anonfolio-lkml-v2", 80),
        _kernel("batched", -45.7, "anonfolio-lkml-v1", 80),
    ),
    _many(
        160,
        3072,
        Theirs(
            "batched",
            ("pass",),
            1370.4 / 1064.3,
            "160 jobs, 1370.4 to 1064.3 s sys-time, -22.3%",
            _RFC,
            counted="kernel",
        ),
    ),
)
