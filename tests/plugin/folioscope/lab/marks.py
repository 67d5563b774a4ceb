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

    @property
    def instructions(self) -> int:
        """Both."""
        return self.user + self.kernel


def intervals(path: Path, skip: int = 0) -> list[Interval]:
    """The intervals that a file of marks has behind its first ``skip`` lines, in the order in which they end."""
    found: list[Interval] = []
    begun: dict[int, tuple[int, list[list[int]], Entries]] = {}
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines[skip:], skip + 1):
        try:
            mark = json.loads(line)
            marker, cpu, counts = int(mark["marker"]), int(mark["cpu"]), [[int(a), int(b)] for a, b in mark["counts"]]
            entries = {str(cause): (int(a), int(b)) for cause, (a, b) in mark.get("entries", {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadMarks(
                f"expected a mark in line {number} of {path} and found {line[:80]!r}; take a file of --marks"
            ) from error
        key = marker // 2
        if marker % 2 == 0:
            begun[key] = (cpu, counts, entries)
            continue
        if key not in begun:
            raise BadMarks(f"line {number} of {path} ends interval {key}, which no line before begins")
        first, before, then_entries = begun.pop(key)
        # A CPU that came up in between had executed nothing.
        before = before + [[0, 0]] * (len(counts) - len(before))
        user, kernel = (
            sum(now[half] - then[half] for now, then in zip(counts, before, strict=True)) for half in (0, 1)
        )
        since = {
            cause: (times - then_entries.get(cause, (0, 0))[0], count - then_entries.get(cause, (0, 0))[1])
            for cause, (times, count) in entries.items()
        }
        told = {cause: each for cause, each in since.items() if any(each)}
        found.append(Interval(NAMES.get(key, str(key)), first, user, kernel, told))
    if begun:
        raise BadMarks(f"{path} has no end of interval {min(begun)}: the program did not get there")
    return found
