# SPDX-License-Identifier: GPL-2.0-only
"""The experiments whose loads are Debian's programs: a compiler and a JavaScript engine, as in the policies' texts."""

from __future__ import annotations

from .kinds import ADAPTIVE_RFC, OFF, TEXTS, Experiment, Setting

_BASELINE = Setting("baseline", "baseline", OFF)
#: What the text of v2 compares: no large folios; one preferred order or none; its own, and the version before.
_OF_V2 = (_BASELINE, Setting("simple", "simple", OFF), TEXTS["v2"], TEXTS["v1"])
#: And the RFC's, with the policy that it proposes for memory.
_ALL = (*_OF_V2, TEXTS["rfc"], ADAPTIVE_RFC)


def _many(jobs: int, memory: int, settings: tuple[Setting, ...]) -> Experiment:
    """So many compilers at once on one CPU, and memory that they fit into."""
    return Experiment(
        f"compile_{jobs}",
        f"GCC 12 compiles the smallest files of the kernel's device tree library, {jobs} at once",
        "compile_small",
        16,
        settings,
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
        _ALL,
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
        _OF_V2,
        unit="operation",
        times=1,
        programs=True,
        quick={"load": "script_short"},
    ),
    _many(80, 2048, _OF_V2),
    _many(160, 3072, (_BASELINE, TEXTS["rfc"])),
)
