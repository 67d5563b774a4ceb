"""The marks that the counter of instructions writes, and the intervals between them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

# By the numbers of tests/loads/load.h.
NAMES = dict(enumerate(("fault", "release", "known", "unfold", "fold", "pass", "again"), 1))
NAMES |= dict(enumerate(("read", "reread", "reverse", "stride", "random read", "random write"), 8))
#: Bytes of a message.
SIZES = (64, 128, 256, 1024, 2048, 3312, 4096, 8192, 16384)
NAMES |= {number: f"send {size}" for number, size in enumerate(SIZES, 14)}


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

    @property
    def instructions(self) -> int:
        """Both."""
        return self.user + self.kernel


def intervals(path: Path, skip: int = 0) -> list[Interval]:
    """The intervals that a file of marks has behind its first ``skip`` lines, in the order in which they end."""
    found: list[Interval] = []
    begun: dict[int, tuple[int, list[list[int]]]] = {}
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines[skip:], skip + 1):
        try:
            mark = json.loads(line)
            marker, cpu, counts = int(mark["marker"]), int(mark["cpu"]), [[int(a), int(b)] for a, b in mark["counts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise BadMarks(
                f"expected a mark in line {number} of {path} and found {line[:80]!r}; take a file of --marks"
            ) from error
        key = marker // 2
        if marker % 2 == 0:
            begun[key] = (cpu, counts)
            continue
        if key not in begun:
            raise BadMarks(f"line {number} of {path} ends interval {key}, which no line before begins")
        first, before = begun.pop(key)
        # A CPU that came up in between had executed nothing.
        before = before + [[0, 0]] * (len(counts) - len(before))
        user, kernel = (
            sum(now[half] - then[half] for now, then in zip(counts, before, strict=True)) for half in (0, 1)
        )
        found.append(Interval(NAMES.get(key, str(key)), first, user, kernel))
    if begun:
        raise BadMarks(f"{path} has no end of interval {min(begun)}: the program did not get there")
    return found
