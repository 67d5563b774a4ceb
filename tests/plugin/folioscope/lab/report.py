"""What a lab says of its results: each beside the figures that it repeats, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from . import entries, steps, tables
from .bench import Result
from .entries import instructions_for
from .experiments import EXPERIMENTS, MIB, Experiment, Theirs
from .statistics import LEAST_RUNS, Ratio, changed, ratio

PAGE = 4096
#: What has more intervals is a table on its side.
MOST_COLUMNS = 8


def instructions(setting: Result, names: Sequence[str], halves: Sequence[str] = ("user", "kernel")) -> list[int]:
    """Of each run, user and kernel, in these intervals together; nothing where one was not measured."""
    found = [setting["intervals"].get(name) for name in names]
    if None in found:
        return []
    return [sum(run) for run in zip(*(each[half] for each in found for half in halves), strict=True)]


def runs_of(theirs: Theirs, setting: Result) -> list[int]:
    """What a comparison is made of, run by run; nothing where it was not measured.

    ``counted`` is "instructions" (of both halves), "kernel" or "user"; "entry " and a cause of :mod:`.entries`;
    "frames", how often the page frame was allocated that was allocated most often; "faults", how many folios they
    brought; "memory high" and "memory low", what was not free while the load ran, and with "_unavailable"
    what was not available.
    """
    counted = theirs.counted
    if counted == "frames":
        return [run["most"][0]["times"] for run in setting["frames"]]
    if counted == "faults":
        return [sum(each["times"] for each in run if each["order"] is not None) for run in setting["faults"]]
    if counted.startswith("memory "):
        return [run[counted.removeprefix("memory ")] for run in setting["water"]]
    if counted.startswith("entry "):
        return instructions_for(setting, counted.removeprefix("entry "))
    halves = ("user", "kernel") if counted == "instructions" else (counted,)
    return instructions(setting, theirs.intervals, halves)


def verdict(theirs: Theirs, first: Result, setting: Result) -> tuple[Ratio | None, str]:
    """How many times the work per instruction here, and whether that is their direction."""
    runs = [runs_of(theirs, each) for each in (first, setting)]
    if theirs.counted in ("frames", "faults"):
        # They say how many times as many; of instructions, how many times as much is done by one.
        runs.reverse()
    if min(map(len, runs)) < LEAST_RUNS:
        why = setting["missing"] or first["missing"] or setting["lost"] or first["lost"] or "there are too few runs"
        return None, f"not measured: {why}"
    if not all(runs[1]):
        return None, "not measured: in a run nothing was counted"
    ours = ratio(*runs)
    return ours, _within(ours, theirs) if theirs.within else _direction(ours, theirs)


def _within(ours: Ratio, theirs: Theirs) -> str:
    low, high = theirs.within or (0, 0)
    if low <= ours.low and ours.high <= high:
        return "*reproduced*"
    if ours.low <= high and low <= ours.high:
        return f"*not judged*: the runs lie on both sides of an end of {low:.2f} to {high:.2f}"
    return f"*not reproduced*: {theirs.why_not or f'beyond {low:.2f} to {high:.2f}'}"


def _direction(ours: Ratio, theirs: Theirs) -> str:
    if changed(ours) and (ours.times > 1) == (theirs.times > 1):
        return "*reproduced*"
    how = "it moves the other way" if changed(ours) else "no difference beyond the spread or 1 %"
    return f"*not reproduced*: {theirs.why_not or how}"


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
    yield from tables.did(settings, experiment.unit, count)
    yield from tables.faults(settings)
    yield from tables.water(settings)
    yield from tables.rates(experiment, settings, count)
    rows = list(judged(found))
    if rows:
        yield ""
        yield "| theirs | printed as | times | ours | |"
        yield "|---|---|---:|---:|---|"
        for row in rows:
            yield f"| {' | '.join(row)} |"


def judged(found: Result) -> Iterator[tuple[str, str, str, str, str]]:
    """Each figure that an experiment repeats: whose, as they print it, how many times, ours, and the verdict."""
    by_name = {setting["name"]: setting for setting in found["settings"]}
    for theirs in EXPERIMENTS[found["name"]].theirs:
        first = theirs.against or next(iter(by_name), "")
        lacks = next((name for name in (theirs.setting, first) if name not in by_name), None)
        if lacks is None:
            ours, said = verdict(theirs, by_name[first], by_name[theirs.setting])
        else:
            ours, said = None, f"not measured: there is no setting {lacks!r}"
        shown = f"{ours.times:.2f} ({ours.low:.2f} to {ours.high:.2f})" if ours else ""
        yield theirs.source, theirs.printed, f"{theirs.times:.2f}", shown, said


def _rows(experiment: Experiment, settings: Sequence[Result], names: Sequence[str], count: int) -> list[Sequence[str]]:
    """A head, and a row for each setting that was measured."""
    unit = experiment.unit
    heads = [f"{name}, kernel and user per {unit}" for name in names]
    rows: list[Sequence[str]] = [
        (f"{settings[0]['name']} against", *heads, "folios by order", "blocks", "mapped, contiguous")
    ]
    for setting in settings:
        if setting["intervals"]:
            cells = [_cell(setting, settings[0], name, count) for name in names]
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
