"""What a lab has measured as pictures: SVG, by matplotlib, the same bytes for the same results."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from .bench import Result  # noqa: E402
from .experiments import EXPERIMENTS  # noqa: E402
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
    """Instructions of each setting, interval by interval, and the memory that its faults brought by folio order."""
    settings = [setting for setting in found["settings"] if setting["intervals"]]
    if not settings:
        return None
    names = [setting["name"] for setting in settings]
    intervals = list(dict.fromkeys(name for setting in settings for name in setting["intervals"]))
    orders = sorted({int(order) for setting in settings for order in setting["orders"]})
    style = {"svg.hashsalt": "folioscope", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    with pyplot.rc_context({**style, "axes.spines.right": False}):
        size = (9, 1.1 + 0.32 * len(names) * len(intervals))
        figure, axes = pyplot.subplots(
            1, 1 + bool(orders), figsize=size, squeeze=False, sharey=True, layout="constrained"
        )
        height = 0.8 / len(intervals)
        for place, interval in enumerate(intervals):
            for row, setting in enumerate(settings):
                runs = [count / found["units"] for count in instructions(setting, [interval])]
                if not runs:
                    continue
                middle = median(runs)
                (bar,) = axes[0][0].barh(
                    row + (place + 0.5) * height - 0.4,
                    middle,
                    height,
                    color=f"C{place}",
                    xerr=[[middle - min(runs)], [max(runs) - middle]],
                    label=interval if row == 0 else None,
                )
                bar.set_gid(f"{interval}:{setting['name']}")
        axes[0][0].set_yticks(range(len(names)), names)
        axes[0][0].invert_yaxis()
        axes[0][0].set_xlabel(f"instructions per {found['unit']}, median and range")
        title = EXPERIMENTS[found["name"]].title.split(": ")[-1]
        figure.suptitle(f"{found['name']}: {title}", x=0.01, ha="left", fontsize=9)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False)
        if orders:
            _memory(axes[0][1], settings, orders)
            figure.legend(*axes[0][1].get_legend_handles_labels(), loc="outside lower right", ncols=9, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return path


def _memory(axes: Axes, settings: list[Result], orders: list[int]) -> None:
    """The share of memory that came in folios of each order, for each setting."""
    shades = matplotlib.colormaps["Blues"]
    for row, setting in enumerate(settings):
        pages = {order: setting["orders"].get(str(order), 0) << order for order in orders}
        left, whole = 0.0, sum(pages.values())
        for rank, order in enumerate(orders):
            share = 100 * pages[order] / whole if whole else 0.0
            shade = shades(LIGHTEST + (1 - LIGHTEST) * (rank + 1) / len(orders))
            (bar,) = axes.barh(row, share, 0.6, left=left, color=shade, label=f"order {order}" if row == 0 else None)
            bar.set_gid(f"order {order}:{setting['name']}")
            left += share
    axes.set_xlabel("memory that faults brought, by folio order, %")
