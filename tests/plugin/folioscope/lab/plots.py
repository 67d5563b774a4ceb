"""What a lab has measured as pictures: SVG, by matplotlib, the same bytes for the same results."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from .bench import Result  # noqa: E402
from .experiments import EXPERIMENTS, MIB  # noqa: E402
from .report import instructions  # noqa: E402

#: Of the first order that there is; larger ones are darker.
LIGHTEST = 0.25


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
    rows = len(settings) * (len(intervals) if not experiment.crowds else 4)
    style = {"svg.hashsalt": "folioscope", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    with pyplot.rc_context({**style, "axes.spines.right": False}):
        size = (9, max(2.4, 1.1 + 0.32 * rows))
        figure, axes = pyplot.subplots(1, 1 + bool(orders), figsize=size, squeeze=False, layout="constrained")
        if len(experiment.crowds) > 1:
            _tasks(axes[0][0], found, settings)
        else:
            _intervals(axes[0][0], found, settings, intervals)
        title = experiment.title.split(": ")[-1]
        figure.suptitle(f"{found['name']}: {title}", x=0.01, ha="left", fontsize=9)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False)
        if orders:
            _memory(axes[0][1], settings, orders)
            figure.legend(*axes[0][1].get_legend_handles_labels(), loc="outside lower right", ncols=9, frameon=False)
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
                label=interval if row == 0 else None,
            )
            bar.set_gid(f"{interval}:{setting['name']}")
    _settings(axes, settings)
    axes.set_xlabel(f"instructions per {found['unit']}, median and range")


def _tasks(axes: Axes, found: Result, settings: list[Result]) -> None:
    """All intervals of a load together, against the number of its tasks."""
    crowds = EXPERIMENTS[found["name"]].crowds
    for color, setting in enumerate(settings):
        for kind in dict.fromkeys(crowd.kind for crowd in crowds):
            points = []
            for crowd in crowds:
                names = [name for name in setting["intervals"] if name.endswith(f", {crowd}")]
                runs = [count / found["units"] for count in instructions(setting, names)] if names else []
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
            shade = shades(LIGHTEST + (1 - LIGHTEST) * (rank + 1) / len(orders))
            (bar,) = axes.barh(row, mib, 0.6, left=left, color=shade, label=f"order {order}" if row == 0 else None)
            bar.set_gid(f"order {order}:{setting['name']}")
            left += mib
        label = "contiguous" if row == 0 else None
        (bar,) = axes.barh(row, memory["contiguous"] / MIB, 0.1, color="black", label=label)
        bar.set_gid(f"contiguous:{setting['name']}")
    _settings(axes, settings)
    axes.set_xlabel("MiB mapped, by folio order")
