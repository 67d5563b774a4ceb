# SPDX-License-Identifier: GPL-2.0-only
"""What two labs have measured, one beside the other: what moved beyond the spread, and what could not be judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from .bench import Result
from .grades import instructions
from .marks import DID
from .statistics import LEAST_RUNS, changed, ratio

NOT_JUDGED = "*not judged*"
#: One TLBI or barrier for so many pages or operations, or it may be an interrupt's.
LEAST_SHARE = 100
#: The two of a comparison, in words.
_SIDES = ("the first", "the second")


@dataclass
class Comparison:
    """A table, and what it comes to."""

    lines: list[str] = field(
        default_factory=lambda: [
            "| experiment | setting | interval | instructions | then | |",
            "|---|---|---|---:|---:|---:|",
        ]
    )
    judged: int = 0
    unjudged: int = 0
    #: Whether anything takes so much more that it is a regression.
    worse: bool = False

    def left(self, why: str, *where: str) -> None:
        """Something that was asked and cannot be said."""
        self.unjudged += 1
        self.note(f"{NOT_JUDGED}: {why}", *where)

    def moved(
        self, where: tuple[str, ...], before: list[int], after: list[int], threshold: float | None, *, shown: bool
    ) -> None:
        """How what was counted has moved, and whether that is a regression; a row of it, or only if it has moved."""
        found = ratio(after, before)
        worse = threshold is not None and found.moved and found.times - 1 > threshold / 100
        self.worse |= worse
        # A status is never without the figure that it is for.
        said = f"{found.times - 1:+.2%}" if changed(found) or worse else "~"
        if shown or said != "~":
            self.lines.append(f"| {' | '.join((*where, f'{median(before):,.0f}', f'{median(after):,.0f}', said))} |")

    def note(self, what: str, *where: str) -> None:
        """A row without figures."""
        cells = [*where, "", "", ""][:3]
        self.lines.append(f"| {' | '.join(cells)} | | | {what} |")


def _both(one: Result, other: Result, member: str) -> Iterator[tuple[str, Result | None, Result | None]]:
    """What the two have in lists of this name, by its own name, in the order of the first."""
    first, second = ({each["name"]: each for each in side[member]} for side in (one, other))
    for name in dict.fromkeys((*first, *second)):
        yield name, first.get(name), second.get(name)


def compared(one: Result, other: Result, threshold: float | None) -> Comparison:
    """What takes more or fewer instructions in the other, whether anything takes ``threshold`` percent more, and what
    of either cannot be held against the other."""
    found = Comparison()
    for name, before, after in _both(one, other, "experiments"):
        if before is None or after is None:
            found.left(f"it is not in {_SIDES[before is not None]}", name)
            continue
        for setting, then, now in _both(before, after, "settings"):
            if then is None or now is None:
                found.left(f"it is not in {_SIDES[then is not None]}", name, setting)
            else:
                _settings(found, (name, setting), then, now, threshold)
                _kinds(found, (name, setting), then, now, threshold, before["units"])
    if not found.judged and not found.unjudged:
        found.left("neither has measured anything")
    return found


def _settings(found: Comparison, where: tuple[str, str], then: Result, now: Result, threshold: float | None) -> None:
    if then["missing"] and now["missing"]:
        found.note(f"left out: neither kernel can be put under it ({then['missing']})", *where)
        return
    if then["load"] != now["load"]:
        loads = " and ".join(
            f"{' '.join(load['words'])} ({load['cpus']} x {load['cpu']}, {load['memory_mib']} MiB)"
            for load in (then["load"], now["load"])
        )
        found.left(f"the loads differ: {loads}", *where)
        return
    for side, setting in zip(_SIDES, (then, now), strict=True):
        for why in ("missing", "lost"):
            if setting[why]:
                found.left(f"{side}: {why}: {setting[why]}", *where)
    names = list(dict.fromkeys((*then["intervals"], *now["intervals"])))
    if not names and not (then["missing"] or now["missing"] or then["lost"] or now["lost"]):
        found.left("neither has a run of it", *where)
    for name in names:
        before, after = (instructions(each, [name]) for each in (then, now))
        few = [
            f"{side} has {len(runs)}"
            for side, runs in zip(_SIDES, (before, after), strict=True)
            if len(runs) < LEAST_RUNS
        ]
        if few:
            found.left(f"of {LEAST_RUNS} runs or more of each, {' and '.join(few)}", *where, name)
            continue
        if not min(before):
            found.left("the first has counted nothing in a run", *where, name)
            continue
        found.judged += 1
        found.moved((*where, name), before, after, threshold, shown=True)


def _kinds(
    found: Comparison, where: tuple[str, str], then: Result, now: Result, threshold: float | None, count: int
) -> None:
    """TLBIs and barriers where their number has moved, and there are enough of them to be the load's."""
    if then["load"] != now["load"]:
        return
    for name in (name for name in then["intervals"] if name in now["intervals"]):
        for kind in DID:
            before, after = (each["intervals"][name][kind] for each in (then, now))
            # With fewer runs the interval itself is not judged.
            few = min(len(before), len(after)) < LEAST_RUNS
            if few or max(median(before), median(after)) * LEAST_SHARE < count:
                continue
            named = (*where, f"{name}, {kind.upper()}")
            if min(before):
                found.moved(named, before, after, threshold, shown=False)
            else:
                found.left(f"the first has none in a run, and the second {median(after):,.0f}", *named)


def bad_threshold(percent: float | None) -> bool:
    """Whether nothing can be held against it."""
    return percent is not None and not (math.isfinite(percent) and percent >= 0)
