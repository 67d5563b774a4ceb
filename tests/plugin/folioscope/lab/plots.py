# SPDX-License-Identifier: GPL-2.0-only
"""What a lab has measured as pictures: SVG, by matplotlib, the same bytes for the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from .bench import Result  # noqa: E402
from .experiments import EXPERIMENTS, MIB  # noqa: E402
from .grades import instructions  # noqa: E402
from .orders import SERIES  # noqa: E402
from .tables import per_fault, rate  # noqa: E402

#: Of the first order that there is, and of the last: larger ones are darker, and all are to be seen on either ground.
LIGHTEST, DARKEST = 0.3, 0.85
#: Lines and letters, and what they are on: the page that has pictures in it takes others for these two.
INK, GROUND = "#1b1b1b", "#ffffff"
#: In a row below a picture.
LABELS = 6
#: Page frames of a setting that are drawn.
FRAMES = 5


def draw(report: Result, path: Path) -> list[Path]:
    """One file for each experiment beside ``path``, named after both; those that have anything to show."""
    return [
        drawn
        for each in report["experiments"]
        if (drawn := _draw(each, path.with_name(f"{path.stem}-{each['name']}.svg")))
    ]


def _draw(found: Result, path: Path) -> Path | None:
    """Instructions of each setting, interval by interval or by number of tasks, and the memory that it mapped."""
    settings = [setting for setting in found["settings"] if setting["intervals"]]
    if not settings:
        return None
    experiment = EXPERIMENTS[found["name"]]
    looked = [setting for setting in settings if setting["memory"]]
    orders = sorted({int(order) for setting in looked for order in setting["memory"]["folios"]})
    intervals = list(dict.fromkeys(name for setting in settings for name in setting["intervals"]))
    panels: list[Callable[[Axes], None]] = []
    if experiment.name == SERIES.name:
        panels.append(lambda axes: _series(axes, settings))
    elif experiment.per_fault:
        panels.append(lambda axes: _faults(axes, settings))
    elif len(experiment.crowds) > 1:
        panels += [lambda axes: _tasks(axes, found, settings), lambda axes: _rates(axes, found, settings)]
    else:
        panels.append(lambda axes: _intervals(axes, found, settings, intervals))
    if any(setting["frames"] for setting in settings):
        panels.append(lambda axes: _frames(axes, settings))
    if orders and experiment.name != SERIES.name:
        panels.append(lambda axes: _memory(axes, settings, orders))
    wide = experiment.crowds or experiment.per_fault
    rows = len(settings) * (4 if experiment.crowds else 1 if wide else len(intervals))
    style = {"svg.hashsalt": "folioscope", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    style |= {"text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}
    style |= {"figure.facecolor": GROUND, "axes.facecolor": GROUND}
    with pyplot.rc_context({**style, "axes.spines.right": False}):
        size = (4.5 * max(2, len(panels)), max(2.4, 1.1 + 0.32 * rows))
        figure, axes = pyplot.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
        for each, panel in zip(axes[0], panels, strict=True):
            panel(each)
        title = experiment.title.split(": ")[-1]
        figure.suptitle(f"{found['name']}: {title}", x=0.01, ha="left", fontsize=9)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False)
        if len(panels) > 1:
            labels = axes[0][-1].get_legend_handles_labels()
            figure.legend(*labels, loc="outside lower right", ncols=LABELS, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return path


def _intervals(axes: Axes, found: Result, settings: list[Result], intervals: list[str]) -> None:
    """A bar for each interval of each setting."""
    height = 0.8 / len(intervals)
    for place, interval in enumerate(intervals):
        for row, setting in enumerate(settings):
            runs = [count / found["units"] for count in instructions(setting, [interval])]
            if not runs:
                continue
            middle = median(runs)
            (bar,) = axes.barh(
                row + (place + 0.5) * height - 0.4,
                middle,
                height,
                color=f"C{place}",
                xerr=[[middle - min(runs)], [max(runs) - middle]],
                ecolor=INK,
                label=interval if row == 0 else None,
            )
            bar.set_gid(f"{interval}:{setting['name']}")
    _settings(axes, settings)
    axes.set_xlabel(f"instructions per {found['unit']}, median and range")


def _tasks(axes: Axes, found: Result, settings: list[Result]) -> None:
    """All intervals of a load together, against the number of its tasks."""
    experiment = EXPERIMENTS[found["name"]]
    crowds = experiment.crowds
    for color, setting in enumerate(settings):
        for kind in dict.fromkeys(crowd.kind for crowd in crowds):
            points = []
            for crowd in crowds:
                names = [name for name in setting["intervals"] if name.endswith(f", {crowd}")]
                units = experiment.count(found["units"], crowd.of(""))
                runs = [count / units for count in instructions(setting, names)] if names else []
                if runs and (crowd.kind == kind or crowd.count == 1):
                    points.append((crowd.count, median(runs), min(runs), max(runs)))
            if not points:
                continue
            at, middle, low, high = zip(*points, strict=True)
            (line, _, _) = axes.errorbar(
                at,
                middle,
                yerr=[
                    [m - a for m, a in zip(middle, low, strict=True)],
                    [b - m for m, b in zip(middle, high, strict=True)],
                ],
                color=f"C{color}",
                linestyle="-" if kind == "processes" else "--",
                marker=".",
                label=f"{setting['name']}, {kind}",
            )
            line.set_gid(f"{kind}:{setting['name']}")
    axes.set_xticks(sorted({crowd.count for crowd in crowds}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tasks")
    axes.set_ylabel(f"instructions per {found['unit']}")


def _rates(axes: Axes, found: Result, settings: list[Result]) -> None:
    """How many pages or operations a second of the host's the tasks come to in each interval, by their number."""
    experiment = EXPERIMENTS[found["name"]]
    crowds = experiment.crowds
    interval = next(iter(settings[0]["intervals"])).removesuffix(f", {crowds[0]}")
    for color, setting in enumerate(settings):
        for kind in dict.fromkeys(crowd.kind for crowd in crowds):
            points = [
                (crowd.count, each)
                for crowd in crowds
                if crowd.kind == kind or crowd.count == 1
                if (name := crowd.of(interval))
                if (each := rate(setting, name, experiment.count(found["units"], name)))
            ]
            if points:
                at, many = zip(*points, strict=True)
                (line,) = axes.plot(
                    at, many, color=f"C{color}", linestyle="-" if kind == "processes" else "--", marker="."
                )
                line.set_gid(f"rate {kind}:{setting['name']}")
    axes.set_xticks(sorted({crowd.count for crowd in crowds}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tasks")
    axes.set_ylabel(f"{interval}: {found['unit']}s a second of this host")


def _faults(axes: Axes, settings: list[Result]) -> None:
    """What a fault costs the kernel, setting by setting."""
    for row, setting in enumerate(settings):
        if runs := per_fault(setting):
            middle = median(runs)
            low, high = middle - min(runs), max(runs) - middle
            (bar,) = axes.barh(row, middle, 0.6, color="C0", xerr=[[low], [high]], ecolor=INK)
            bar.set_gid(f"fault:{setting['name']}")
    _settings(axes, settings)
    axes.set_xscale("log")
    axes.set_xlabel("kernel instructions per fault, median and range")


def _series(axes: Axes, settings: list[Result]) -> None:
    """The same against the number of patches, a line for each size."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for setting in settings:
        patch, _, size = setting["name"].rpartition(", ")
        if runs := per_fault(setting):
            lines.setdefault(size, []).append((int(patch.split()[0]), median(runs)))
    for size, points in lines.items():
        at, middle = zip(*points, strict=True)
        (line,) = axes.plot(at, middle, marker=".", label=size)
        line.set_gid(f"series:{size}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("patches of the series")
    axes.set_ylabel("kernel instructions per fault")


def _frames(axes: Axes, settings: list[Result]) -> None:
    """How often the page frames were allocated that were allocated most often, medians of the runs, rank by rank."""
    height = 0.8 / FRAMES
    for row, setting in enumerate(settings):
        for rank in range(FRAMES):
            runs = [run["most"][rank]["times"] for run in setting["frames"] if len(run["most"]) > rank]
            if not runs:
                continue
            middle = median(runs)
            low, high = middle - min(runs), max(runs) - middle
            at = row + (rank + 0.5) * height - 0.4
            (bar,) = axes.barh(at, middle, height, color="C1", alpha=1 - 0.15 * rank, xerr=[[low], [high]], ecolor=INK)
            bar.set_gid(f"frame {rank + 1}:{setting['name']}")
    _settings(axes, settings)
    axes.set_xlabel(f"allocations of each of the {FRAMES} page frames most used")


def _settings(axes: Axes, settings: list[Result]) -> None:
    axes.set_yticks(range(len(settings)), [setting["name"] for setting in settings])
    axes.invert_yaxis()


def _memory(axes: Axes, settings: list[Result], orders: list[int]) -> None:
    """What each setting had mapped, in folios of each order, and how much of it was contiguous."""
    shades = matplotlib.colormaps["Blues"]
    for row, setting in enumerate(settings):
        memory = setting["memory"] or {"folios": {}, "contiguous": 0}
        left = 0.0
        for rank, order in enumerate(orders):
            mib = memory["folios"].get(str(order), 0) / MIB
            shade = shades(LIGHTEST + (DARKEST - LIGHTEST) * (rank + 1) / len(orders))
            (bar,) = axes.barh(row, mib, 0.6, left=left, color=shade, label=f"order {order}" if row == 0 else None)
            bar.set_gid(f"order {order}:{setting['name']}")
            left += mib
        label = "contiguous" if row == 0 else None
        (bar,) = axes.barh(row, memory["contiguous"] / MIB, 0.1, color=INK, label=label)
        bar.set_gid(f"contiguous:{setting['name']}")
    _settings(axes, settings)
    axes.set_xlabel("MiB mapped, by folio order")
