"""What a lab says: JSON, by a schema, and the same as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from . import entries
from .bench import Result, units
from .entries import instructions_for
from .experiments import EXPERIMENTS, MIB, Experiment, Theirs
from .statistics import LEAST_RUNS, Ratio, changed, exactly, ratio

FORMAT = "folioscope-lab"
VERSION = 1
PAGE = 4096
#: What has more intervals is a table on its side.
MOST_COLUMNS = 8

_COUNTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_RUNS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_SENTENCE: dict[str, Any] = {"type": ["string", "null"]}


def _object(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


#: Of a lab's JSON.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What folioscope's laboratory has measured",
    **_object(
        ("format", "version", "key", "runs", "experiments"),
        format={"const": FORMAT},
        version={"const": VERSION},
        key={"type": "string", "description": "what was measured: kernel, loads, command, runs"},
        runs={"type": "integer", "minimum": LEAST_RUNS},
        experiments={
            "type": "array",
            "items": _object(
                ("name", "unit", "units", "settings"),
                name={"type": "string"},
                unit={"enum": ["page", "block", "operation"]},
                units={"type": "integer", "minimum": 1, "description": "how many of them a run goes through"},
                settings={
                    "type": "array",
                    "items": _object(
                        ("name", "missing", "lost", "intervals", "orders", "blocks"),
                        name={"type": "string"},
                        guest={"type": "string", "description": "the kernel's release"},
                        missing={**_SENTENCE, "description": "why this kernel was not measured under it"},
                        lost={**_SENTENCE, "description": "how the guest was lost; what is there was measured before"},
                        intervals={
                            "type": "object",
                            "additionalProperties": _object(("user", "kernel"), user=_RUNS, kernel=_RUNS),
                        },
                        orders={**_COUNTS, "description": "folios that faults brought in one run, by order"},
                        memory={
                            "description": "what the load mapped when it was stopped, by the snapshot; null: not asked",
                            "type": ["object", "null"],
                            "required": ["mapped", "contiguous", "folios", "taken"],
                            "properties": {
                                "mapped": {"type": "integer", "description": "bytes"},
                                "contiguous": {"type": "integer", "description": "bytes of them"},
                                "folios": {**_COUNTS, "description": "bytes by folio order"},
                                "taken": {"type": "integer", "description": "free pages, fewer than before"},
                            },
                        },
                        looks={"type": "array", "description": "as memory, run by run, each of another seed"},
                        frames={
                            "type": "array",
                            "description": "which page frames were allocated, run by run",
                            "items": _object(
                                ("allocations", "frames", "half", "most"),
                                allocations={"type": "integer"},
                                frames={"type": "integer", "description": "that served"},
                                half={"type": "integer", "description": "those used most that made half of it"},
                                most={
                                    "type": "array",
                                    "items": _object(
                                        ("pfn", "times"), pfn={"type": "integer"}, times={"type": "integer"}
                                    ),
                                },
                            ),
                        },
                        entries={
                            "type": "object",
                            "description": "what the kernel was entered for, run by run: how often, what was executed",
                            "additionalProperties": _object(("times", "instructions"), times=_RUNS, instructions=_RUNS),
                        },
                        blocks={**_COUNTS, "description": "what became of contiguous blocks in one run"},
                    ),
                },
            ),
        },
    ),
}


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
    brought; "memory", the free pages that were taken. Of the last two there is one figure.
    """
    counted = theirs.counted
    if counted == "frames":
        return [run["most"][0]["times"] for run in setting["frames"]]
    if counted == "faults":
        return [sum(setting["orders"].values())] if setting["orders"] else []
    if counted == "memory":
        return [setting["memory"]["taken"]] if setting["memory"] else []
    if counted.startswith("entry "):
        return instructions_for(setting, counted.removeprefix("entry "))
    halves = ("user", "kernel") if counted == "instructions" else (counted,)
    return instructions(setting, theirs.intervals, halves)


def verdict(theirs: Theirs, first: Result, setting: Result) -> tuple[Ratio | None, str]:
    """How many times the work per instruction here, and whether that is their direction."""
    single = theirs.counted in ("faults", "memory")
    runs = [runs_of(theirs, each) for each in (first, setting)]
    if theirs.counted in ("frames", "faults"):
        # They say how many times as many; of instructions, how many times as much is done by one.
        runs.reverse()
    if min(map(len, runs)) < (1 if single else LEAST_RUNS):
        why = setting["missing"] or first["missing"] or setting["lost"] or first["lost"] or "there are too few runs"
        return None, f"not measured: {why}"
    ours = exactly(runs[0][0] / runs[1][0]) if single else ratio(*runs)
    if theirs.within:
        low, high = theirs.within
        if low <= ours.times <= high:
            return ours, "*reproduced*"
        return ours, f"*not reproduced*: {theirs.why_not or f'beyond {low:.2f} to {high:.2f}'}"
    if changed(ours) and (ours.times > 1) == (theirs.times > 1):
        return ours, "*reproduced*"
    how = "it moves the other way" if changed(ours) else "no difference beyond the spread or 1 %"
    return ours, f"*not reproduced*: {theirs.why_not or how}"


def markdown(report: Result) -> str:
    """The tables."""
    return "\n".join(line for each in report["experiments"] for line in (*_experiment(each), ""))


def _experiment(found: Result) -> Iterator[str]:
    experiment: Experiment = EXPERIMENTS[found["name"]]
    yield f"### {experiment.name}: {experiment.title}"
    yield ""
    first, *_ = found["settings"]
    names = list(dict.fromkeys(name for each in found["settings"] for name in each["intervals"]))
    if names:
        rows = _rows(experiment, found["settings"], names)
        # Many intervals go down.
        yield from _table(rows if len(names) <= MOST_COLUMNS else list(zip(*rows, strict=True)))
    for setting in found["settings"]:
        for why in ("missing", "lost"):
            if setting[why]:
                yield f"\n{setting['name']}: {why}: {setting[why]}"
    yield from _coverage(found["settings"])
    yield from _frames(found["settings"])
    yield from entries.table(found["settings"])
    by_name = {setting["name"]: setting for setting in found["settings"]}
    if experiment.theirs:
        yield ""
        yield "| theirs | printed as | times | ours | |"
        yield "|---|---|---:|---:|---|"
    for theirs in experiment.theirs:
        if theirs.setting not in by_name:
            continue
        if theirs.against and theirs.against not in by_name:
            continue
        ours, said = verdict(theirs, by_name.get(theirs.against, first), by_name[theirs.setting])
        shown = f"{ours.times:.2f} ({ours.low:.2f} to {ours.high:.2f})" if ours else ""
        yield f"| {theirs.source} | {theirs.printed} | {theirs.times:.2f} | {shown} | {said} |"


def _rows(experiment: Experiment, settings: Sequence[Result], names: Sequence[str]) -> list[Sequence[str]]:
    """A head, and a row for each setting that was measured."""
    unit, count = experiment.unit, units(experiment)
    heads = [f"{name}, kernel and user per {unit}" for name in names]
    rows: list[Sequence[str]] = [
        (f"{experiment.settings[0].name} against", *heads, "folios by order", "blocks", "mapped, contiguous")
    ]
    for setting in settings:
        if setting["intervals"]:
            cells = [_cell(setting, settings[0], name, count) for name in names]
            cells += [_counts(setting["orders"]), _counts(setting["blocks"])]
            cells.append(_memory(setting["memory"], taken=experiment.programs))
            rows.append((setting["name"], *cells))
    return rows


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(rows[0])} |"
    yield "|---|" + "---:|" * (len(rows[0]) - 1)
    for row in rows[1:]:
        yield f"| {' | '.join(row)} |"


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


def compared(one: Result, other: Result, threshold: float | None) -> tuple[list[str], bool]:
    """A table of what takes more or fewer instructions in the other, and whether anything takes ``threshold`` more."""
    lines = ["| experiment | setting | interval | instructions | then | |", "|---|---|---|---:|---:|---:|"]
    worse = False
    after = {(each["name"], setting["name"]): setting for each in other["experiments"] for setting in each["settings"]}
    for experiment in one["experiments"]:
        for setting in experiment["settings"]:
            there = after.get((experiment["name"], setting["name"]))
            for name in setting["intervals"] if there else ():
                runs = [instructions(each, [name]) for each in (setting, there) if each]
                if min(map(len, runs)) < LEAST_RUNS:
                    continue
                found = ratio(runs[1], runs[0])
                moved = f"{found.times - 1:+.2%}" if changed(found) else "~"
                worse |= threshold is not None and found.moved and found.times - 1 > threshold / 100
                where = f"| {experiment['name']} | {setting['name']} | {name}"
                lines.append(f"{where} | {median(runs[0]):,.0f} | {median(runs[1]):,.0f} | {moved} |")
    return lines, worse
