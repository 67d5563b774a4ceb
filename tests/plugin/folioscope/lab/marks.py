# SPDX-License-Identifier: GPL-2.0-only
"""The marks that the counter of instructions writes, and the intervals between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# By the numbers of tests/loads/load.h.
NAMES = dict(enumerate(("fault", "release", "known", "unfold", "fold", "pass", "again"), 1))
NAMES |= dict(enumerate(("read", "reread", "reverse", "stride", "random read", "random write"), 8))
#: Bytes of a message.
SIZES = (64, 128, 256, 1024, 2048, 3312, 4096, 8192, 16384)
NAMES |= {number: f"send {size}" for number, size in enumerate(SIZES, 14)}


Entries = Mapping[str, tuple[int, int]]
#: What the kernel's instructions are counted by beside their number, in the counter's order.
DID = ("tlbi", "dsb", "dmb", "isb")


class BadMarks(ValueError):
    """The file of marks is not what the counter writes, or a program's intervals do not begin and end in turn."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What was executed between two markers."""

    name: str
    #: The CPU that met the begin.
    cpu: int
    #: Instructions on all CPUs, below and above the middle of the address space.
    user: int
    kernel: int
    #: By what the kernel was entered for, how often, and what it executed for that; empty where it was not asked for.
    entries: Entries = field(default_factory=dict)
    #: How many of the kernel's instructions were of each of these kinds.
    did: Mapping[str, int] = field(default_factory=dict)
    #: Nanoseconds of the host's, in which it did other things too.
    ns: int = 0
    #: Calls of functions of the kernel, by name; empty where it was not asked for.
    functions: Mapping[str, int] = field(default_factory=dict)

    @property
    def instructions(self) -> int:
        """Both."""
        return self.user + self.kernel


@dataclass(frozen=True, slots=True)
class _Mark:
    cpu: int
    ns: int
    counts: list[list[int]]
    did: list[int]
    entries: Entries
    functions: Mapping[str, int]


def intervals(path: Path, skip: int = 0) -> list[Interval]:
    """The intervals that a file of marks has behind its first ``skip`` lines, in the order in which they end."""
    found: list[Interval] = []
    begun: dict[int, _Mark] = {}
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines[skip:], skip + 1):
        marker, now = _mark(path, number, line)
        key = marker // 2
        if marker % 2 == 0:
            begun[key] = now
            continue
        if key not in begun:
            raise BadMarks(f"line {number} of {path} ends interval {key}, which no line before begins")
        found.append(_between(NAMES.get(key, str(key)), begun.pop(key), now))
    if begun:
        raise BadMarks(f"{path} has no end of interval {min(begun)}: the program did not get there")
    return found


def _mark(path: Path, number: int, line: str) -> tuple[int, _Mark]:
    try:
        mark = json.loads(line)
        counts = [[int(a), int(b)] for a, b in mark["counts"]]
        did = [int(count) for count in mark["did"]]
        entries = {str(cause): (int(a), int(b)) for cause, (a, b) in mark.get("entries", {}).items()}
        functions = {str(name): int(count) for name, count in mark.get("functions", {}).items()}
        found = _Mark(int(mark["cpu"]), int(mark["ns"]), counts, did, entries, functions)
        if len(did) != len(DID):
            raise ValueError
        return int(mark["marker"]), found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMarks(
            f"expected a mark in line {number} of {path} and found {line[:80]!r}; take a file of --marks"
        ) from error


def _between(name: str, then: _Mark, now: _Mark) -> Interval:
    # A CPU that came up in between had executed nothing.
    before = then.counts + [[0, 0]] * (len(now.counts) - len(then.counts))
    user, kernel = (
        sum(after[half] - was[half] for after, was in zip(now.counts, before, strict=True)) for half in (0, 1)
    )
    since = {
        cause: (times - then.entries.get(cause, (0, 0))[0], count - then.entries.get(cause, (0, 0))[1])
        for cause, (times, count) in now.entries.items()
    }
    did = {kind: after - was for kind, after, was in zip(DID, now.did, then.did, strict=True)}
    told = {cause: each for cause, each in since.items() if any(each)}
    calls = {each: count - then.functions.get(each, 0) for each, count in now.functions.items()}
    return Interval(name, then.cpu, user, kernel, told, did, now.ns - then.ns, calls)
