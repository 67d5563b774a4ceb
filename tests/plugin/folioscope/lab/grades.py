# SPDX-License-Identifier: GPL-2.0-only
"""How near a figure measured here comes to the published one: computed from the runs, for every figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .bench import Result
from .entries import instructions_for
from .figures import FIGURES, SEEDS, Figure
from .statistics import LEAST_RUNS, Ratio, changed, ratio

WITHIN_10 = "within 10 %"
WITHIN_25 = "within 25 %"
SAME = "same direction"
NEITHER = "no effect in both"
#: The text has an effect and these runs have none, and the other way round.
THEIRS_ALONE = "no effect here"
OURS_ALONE = "an effect here alone"
OPPOSITE = "opposite"
NOT_JUDGED = "not judged"
CANNOT = "cannot be shown here"
NOT_MEASURED = "not measured"
#: All, the best first.
GRADES = (
    WITHIN_10,
    WITHIN_25,
    SAME,
    NEITHER,
    THEIRS_ALONE,
    OURS_ALONE,
    OPPOSITE,
    NOT_JUDGED,
    CANNOT,
    NOT_MEASURED,
)
#: An interval that reaches further than this from 1 does not show that there is no effect.
_QUIET = 1.05


@dataclass(frozen=True)
class Graded:
    """A figure, the ratio measured here (None: there is none), and the grade with its reason where it needs one."""

    figure: Figure
    ours: Ratio | None
    grade: str
    why: str = ""

    def __str__(self) -> str:
        return f"*{self.grade}*: {self.why}" if self.why else f"*{self.grade}*"


def instructions(setting: Result, names: Sequence[str], halves: Sequence[str] = ("user", "kernel")) -> list[int]:
    """Of each run, user and kernel, in these intervals together; nothing where one was not measured."""
    found = [setting["intervals"].get(name) for name in names]
    if None in found:
        return []
    return [sum(run) for run in zip(*(each[half] for each in found for half in halves), strict=True)]


def runs_of(figure: Figure, setting: Result) -> list[int]:
    """What a figure is compared by, run by run; nothing where it was not measured.

    ``counted`` is "instructions" (of both halves), "kernel" or "user"; "entry " and a cause of :mod:`.entries`;
    "frames " and a rank, how often the page frame of that rank was allocated; "faults", how many folios they
    brought, and "pages", how many pages these had; "memory high" and "memory low", what was not free while the load
    ran, and with "_unavailable" what was not available.
    """
    kind, _, which = figure.counted.partition(" ")
    match kind:
        case "frames":
            rank = int(which)
            runs = setting["frames"]
            return [run["most"][rank - 1]["times"] for run in runs if len(run["most"]) >= rank]
        case "faults" | "pages":
            shifts = [
                [(each["times"], each["order"]) for each in run if each["order"] is not None]
                for run in setting["faults"]
            ]
            return [sum(times << (order if kind == "pages" else 0) for times, order in run) for run in shifts]
        case "memory":
            return [run[which] for run in setting["water"]]
        case "entry":
            return instructions_for(setting, which)
    halves = ("user", "kernel") if kind == "instructions" else (kind,)
    return instructions(setting, figure.intervals, halves)


def grade(figure: Figure, settings: Mapping[str, Result]) -> Graded:
    """The grade of one figure, by the settings of its experiment that were measured."""
    if figure.why:
        return Graded(figure, None, CANNOT, figure.why)
    if not settings:
        return Graded(figure, None, NOT_MEASURED, f"the experiment {figure.experiment} was not run")
    against = figure.against or next(iter(settings))
    for name in (figure.setting, against):
        if name not in settings:
            return Graded(figure, None, NOT_MEASURED, f"there is no setting {name!r}")
    first, second = settings[against], settings[figure.setting]
    runs = [runs_of(figure, each) for each in (first, second)]
    if figure.counted.partition(" ")[0] in ("frames", "faults", "pages"):
        # They say how many times as many; of instructions, how many times as much is done by one.
        runs.reverse()
    if min(map(len, runs)) < LEAST_RUNS:
        why = second["missing"] or first["missing"] or second["lost"] or first["lost"] or "there are too few runs"
        return Graded(figure, None, NOT_MEASURED, why)
    if not all(map(all, runs)):
        return Graded(figure, None, NOT_MEASURED, "in a run nothing was counted")
    ours = ratio(*runs)
    return Graded(figure, ours, *_compared(ours, figure))


def _compared(ours: Ratio, figure: Figure) -> tuple[str, str]:
    spread = f"the runs lie between {ours.low:.2f} and {ours.high:.2f}"
    if not changed(ours):
        if figure.effect:
            # What is too small to be told from these runs' spread was not looked at.
            return (NOT_JUDGED, spread) if ours.low <= figure.times <= ours.high else (THEIRS_ALONE, "")
        quiet = ours.low >= 1 / _QUIET and ours.high <= _QUIET
        return (NEITHER, "") if quiet else (NOT_JUDGED, spread)
    if not figure.effect:
        return OURS_ALONE, ""
    if (ours.times > 1) != (figure.times > 1):
        return OPPOSITE, ""
    apart = max(ours.times / figure.times, figure.times / ours.times)
    return (WITHIN_10 if apart <= 1.1 else WITHIN_25 if apart <= 1.25 else SAME), ""


def graded(experiments: Iterable[Result], figures: Sequence[Figure] = FIGURES) -> list[Graded]:
    """All figures with their grades, by what these experiments have measured."""
    found = {each["name"]: {setting["name"]: setting for setting in each["settings"]} for each in experiments}
    return [grade(figure, found.get(figure.experiment, {})) for figure in figures]


def totals(found: Iterable[Graded]) -> list[list[str]]:
    """A head, a row for each grade, and the sums: a column for each seed, and one for all."""
    counts = Counter((each.grade, each.figure.seed) for each in found)
    rows = [["grade", *SEEDS.values(), "all"]]
    for name in (*GRADES, ""):
        of = [sum(count for (one, by), count in counts.items() if by == seed and name in (one, "")) for seed in SEEDS]
        rows.append([name or "figures", *map(str, of), str(sum(of))])
    return rows
