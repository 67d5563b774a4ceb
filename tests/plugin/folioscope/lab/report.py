# SPDX-License-Identifier: GPL-2.0-only
"""What a lab says of its results: each beside the figures that it repeats, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from . import entries, locks, steps, tables
from .bench import Result
from .experiments import EXPERIMENTS, MIB, Experiment
from .figures import SEEDS
from .grades import grade, instructions
from .kinds import PAGE
from .statistics import LEAST_RUNS, changed, ratio

#: What has more intervals is a table on its side.
MOST_COLUMNS = 8


def markdown(report: Result) -> str:
    """The tables."""
    return "\n".join(line for each in report["experiments"] for line in (*_experiment(each), ""))


def _experiment(found: Result) -> Iterator[str]:
    experiment: Experiment = EXPERIMENTS[found["name"]]
    yield f"### {experiment.name}: {experiment.title}"
    if not found["settings"]:
        yield "\nNothing was measured."
        return
    names = list(dict.fromkeys(name for each in found["settings"] for name in each["intervals"]))
    if names:
        rows = _rows(experiment, found["settings"], names, found["units"])
        # Many intervals go down.
        yield from tables.table(rows if len(names) <= MOST_COLUMNS else list(zip(*rows, strict=True)))
    for setting in found["settings"]:
        for why in ("missing", "lost"):
            if setting[why]:
                yield f"\n{setting['name']}: {why}: {setting[why]}"
    settings, count = found["settings"], found["units"]
    yield from _coverage(settings)
    yield from _frames(settings)
    if experiment.per_fault:
        yield from tables.costs(settings, count)
    else:
        yield from entries.table(settings)
    yield from steps.table(settings, experiment.unit, count)
    yield from tables.did(experiment, settings, count)
    yield from locks.table(experiment, settings, count)
    yield from tables.faults(settings)
    yield from tables.water(settings)
    yield from tables.rates(experiment, settings, count)
    rows = list(judged(found))
    if rows:
        yield ""
        yield "| published | printed as | times | here | grade |"
        yield "|---|---|---:|---:|---|"
        for row in rows:
            yield f"| {' | '.join(row)} |"


def judged(found: Result) -> Iterator[tuple[str, str, str, str, str]]:
    """Each figure that an experiment answers: the text and what it measured, its numbers, the ratio they stand for, the
    ratio here, and the grade."""
    by_name = {setting["name"]: setting for setting in found["settings"]}
    for figure in EXPERIMENTS[found["name"]].figures:
        graded = grade(figure, by_name)
        ours = graded.ours
        shown = f"{ours.times:.2f} ({ours.low:.2f} to {ours.high:.2f})" if ours else ""
        what = f"{SEEDS[figure.seed]}: {figure.what}"
        yield what, figure.printed, f"{figure.times:.2f}", shown, str(graded)


def _rows(experiment: Experiment, settings: Sequence[Result], names: Sequence[str], count: int) -> list[Sequence[str]]:
    """A head, and a row for each setting that was measured."""
    unit = experiment.unit
    heads = [f"{name}, kernel and user per {unit}" for name in names]
    rows: list[Sequence[str]] = [
        (f"{settings[0]['name']} against", *heads, "folios by order", "blocks", "mapped, contiguous")
    ]
    for setting in settings:
        if setting["intervals"]:
            cells = [_cell(setting, settings[0], name, experiment.count(count, name)) for name in names]
            cells += [_counts(setting["orders"]), _counts(setting["blocks"])]
            cells.append(_memory(setting["memory"], taken=experiment.programs))
            rows.append((setting["name"], *cells))
    return rows


def _coverage(settings: Sequence[Result]) -> Iterator[str]:
    """How much was contiguous run by run, and the range."""
    looked = [setting for setting in settings if setting["looks"]]
    if not looked:
        return
    yield ""
    yield "| contiguous | median | runs |"
    yield "|---|---:|---|"
    for setting in looked:
        shares = [each["contiguous"] / each["mapped"] for each in setting["looks"]]
        yield f"| {setting['name']} | {median(shares):.1%} | {', '.join(f'{share:.1%}' for share in sorted(shares))} |"


def _frames(settings: Sequence[Result]) -> Iterator[str]:
    """How often page frames were allocated: the run whose most used one is the median, and the range of the runs."""
    counted = [setting for setting in settings if setting["frames"]]
    if not counted:
        return
    yield ""
    yield "| page frames | allocations | frames that served | half of them by | most often | runs |"
    yield "|---|---:|---:|---:|---|---|"
    for setting in counted:
        runs = sorted(setting["frames"], key=lambda run: run["most"][0]["times"])
        run = runs[len(runs) // 2]
        most = ", ".join(f"{each['times']:,} of {each['pfn']:#x}" for each in run["most"])
        span = f"{runs[0]['most'][0]['times']:,} to {runs[-1]['most'][0]['times']:,}"
        yield (
            f"| {setting['name']} | {run['allocations']:,} | {run['frames']:,} | {run['half']:,} | {most} | {span} |"
        )


def _memory(memory: Result | None, *, taken: bool) -> str:
    if not memory:
        return ""
    whole = memory["mapped"] or 1
    orders = ", ".join(f"{order}: {size / whole:.1%}" for order, size in memory["folios"].items())
    free = f"; {memory['taken'] * PAGE / MIB:.1f} MiB fewer are free" if taken else ""
    return f"{memory['mapped'] / MIB:.1f} MiB ({orders}), {memory['contiguous'] / whole:.1%}{free}"


def _cell(setting: Result, first: Result, name: str, count: int) -> str:
    halves = setting["intervals"].get(name)
    if not halves or not halves["kernel"]:
        return ""
    kernel, user = (median(halves[half]) / count for half in ("kernel", "user"))
    runs = instructions(setting, [name])
    spread = (max(runs) - min(runs)) / median(runs)
    text = f"{kernel:,.0f} + {user:,.1f} ±{spread / 2:.1%}"
    others = instructions(first, [name])
    if setting is not first and min(len(runs), len(others)) >= LEAST_RUNS:
        against = ratio(runs, others)
        text += f" ({against.times - 1:+.1%})" if changed(against) else " (~)"
    return text


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
