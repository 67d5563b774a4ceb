# SPDX-License-Identifier: GPL-2.0-only
"""Tables of a lab beside its instructions: what faults brought, what they cost, barriers, memory in use, seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from .kinds import MIB, Experiment
from .marks import DID
from .statistics import LEAST_RUNS, changed, ratio

#: What is told of the memory in use, in columns.
WATER = ("low", "high", "low_unavailable", "high_unavailable")
#: The counter's name of what a fault of user code's own data is.
FAULT = "data abort"
#: Reasons that are named; there are always some of a program's own.
MOST_REASONS = 6


def _names(first: str, settings: Sequence[dict[str, Any]]) -> list[str]:
    return [first, *(setting["name"] for setting in settings)]


def faults(settings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Of the first run whose decisions were counted: by path of the kernel, order and reason."""
    counted = [setting for setting in settings if setting["faults"]]
    if not counted:
        return
    sums: list[Counter[str]] = []
    for setting in counted:
        sum: Counter[str] = Counter()
        for each in setting["faults"][0]:
            order = "none" if each["order"] is None else f"order {each['order']}"
            sum[f"{each['path']}, {order}, {each['why']}"] += each["times"]
        sums.append(sum)
    # What one setting has often, whatever the others have.
    wanted = {name for sum in sums for name, _ in sum.most_common(MOST_REASONS)}
    rows = [[name, *(f"{sum[name]:,}" for sum in sums)] for name in sorted(wanted)]
    yield from table([_names("faults of one run, by path, order and reason", counted), *rows])


def did(experiment: Experiment, settings: Sequence[dict[str, Any]], count: int) -> Iterator[str]:
    """What the kernel did in each interval: TLBIs and barriers, per unit, medians."""
    counted = [setting for setting in settings if setting["intervals"]]
    names = list(dict.fromkeys(name for setting in counted for name in setting["intervals"]))
    grid = [[f"{', '.join(map(str.upper, DID))} per {experiment.unit}", *names]]
    for setting in counted:
        cells = []
        for name in names:
            kinds = setting["intervals"].get(name)
            told = kinds and all(kinds[kind] for kind in DID)
            units = experiment.count(count, name)
            cells.append(", ".join(f"{median(kinds[kind]) / units:,.2f}" for kind in DID) if told else "")
        grid.append([setting["name"], *cells])
    if counted:
        # As high as it is wide, or higher.
        yield from table(grid if len(counted) >= len(names) else [list(row) for row in zip(*grid, strict=True)])


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A head, and rows whose first cell is a name and all others are figures."""
    head, *body = rows
    yield ""
    yield f"| {' | '.join(head)} |"
    yield "|---|" + "---:|" * (len(head) - 1)
    for row in body:
        yield f"| {' | '.join(row)} |"


def per_fault(setting: dict[str, Any]) -> list[float]:
    """The kernel's instructions for a fault, run by run; nothing where causes were not told apart."""
    told = setting["entries"].get(FAULT)
    if not told or not all(told["times"]):
        return []
    return [count / times for count, times in zip(told["instructions"], told["times"], strict=True)]


def costs(settings: Sequence[dict[str, Any]], count: int) -> Iterator[str]:
    """A row for each setting: how many faults a run has, and what one of them costs."""
    counted = [(setting, runs) for setting in settings if (runs := per_fault(setting))]
    if not counted:
        return
    rows = [["kernel instructions", "faults of a run", "for a fault", "for a page, its share of faults", ""]]
    first: list[float] = []
    for setting, runs in counted:
        pages = [each / count for each in setting["entries"][FAULT]["instructions"]]
        first = first or pages
        spread = (max(runs) - min(runs)) / median(runs) / 2
        against = ""
        if pages is not first and min(len(pages), len(first)) >= LEAST_RUNS:
            found = ratio(pages, first)
            against = f"{found.times - 1:+.1%}" if changed(found) else "~"
        times = median(setting["entries"][FAULT]["times"])
        cost = f"{median(runs):,.0f} ±{spread:.1%}"
        rows.append([setting["name"], f"{times:,.0f}", cost, f"{median(pages):,.0f}", against])
    yield from table(rows)


def water(settings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What was in use of all memory while the load ran."""
    looked = [setting for setting in settings if setting["water"]]
    if not looked:
        return
    names = ("not free, least", "most", "its runs", "not available, least", "most", "looks")
    rows = [["memory in use while it runs, MiB", *names]]
    for setting in looked:
        high = ", ".join(f"{run['high'] / MIB:,.1f}" for run in sorted(setting["water"], key=lambda run: run["high"]))
        of = {mark: median(run[mark] for run in setting["water"]) for mark in setting["water"][0]}
        low, most, *unavailable = (f"{of[mark] / MIB:,.1f}" for mark in WATER)
        rows.append([setting["name"], low, most, high, *unavailable, f"{of['looks']:,.0f}"])
    yield from table(rows)


def rate(setting: dict[str, Any], interval: str, count: int) -> float | None:
    """Units a second of the host's, which is busy with other things as well and executes CPUs in turn."""
    runs = setting["intervals"].get(interval, {}).get("ns")
    return count / (median(runs) / 1e9) if runs and median(runs) else None


def rates(experiment: Experiment, settings: Sequence[dict[str, Any]], count: int) -> Iterator[str]:
    """Pages or operations a second by number of tasks: of this host, at that time, and no claim."""
    counted = [setting for setting in settings if setting["intervals"]]
    if len(experiment.crowds) < 2 or not counted:
        return
    rows = [_names(f"{experiment.unit}s a second of this host", counted)]
    for name in dict.fromkeys(name for setting in counted for name in setting["intervals"]):
        found = [rate(setting, name, experiment.count(count, name)) for setting in counted]
        rows.append([name, *(f"{each:,.0f}" if each else "" for each in found)])
    yield from table(rows)
