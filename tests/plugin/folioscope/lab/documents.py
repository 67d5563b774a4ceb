# SPDX-License-Identifier: GPL-2.0-only
"""Documents whose tables are made from results that are kept in the tree, and made again by a test.

A document has a place for each table: a line ``<!-- lab: NAME -->``, what was made, and a line ``<!-- lab end -->``.
NAME is ``totals``, ``summary``, ``figures SEED``, ``experiment EXPERIMENT`` or ``waiting``.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import tables
from .bench import Result
from .experiments import EXPERIMENTS
from .figures import FIGURES, SEEDS
from .grades import CANNOT, OPPOSITE, SAME, THEIRS_ALONE, WITHIN_10, WITHIN_25, Graded, graded, totals
from .report import markdown
from .schema import check

#: Where they are, in a checkout.
DOCUMENTS = ("docs/laboratory.md", "docs/laboratory-results.md", "docs/laboratory-figures.md", "README.md")
RESULTS = "docs/lab"
#: Of a line of a document.
_COLUMNS = 100
_PLACE = re.compile(r"^<!-- lab: (?P<name>[\w -]+) -->\n(?P<made>.*?)^<!-- lab end -->$", re.MULTILINE | re.DOTALL)


class BadPlace(ValueError):
    """A document asks for a table that there is none of."""


def results(directory: Path) -> dict[str, Result]:
    """What labs have measured, one experiment in each file ``EXPERIMENT.json``, in the order of the experiments.

    Raises ``ValueError`` where a file is none of a lab's, or has another experiment than its name says.
    """
    found: dict[str, Result] = {}
    for path in directory.glob("*.json"):
        report = json.loads(path.read_text())
        check(report, where=str(path))
        names = [each["name"] for each in report["experiments"]]
        if names != [path.stem]:
            raise ValueError(f"expected the experiment {path.stem} in {path} and found {', '.join(names) or 'none'}")
        found[path.stem] = report
    return {name: found[name] for name in EXPERIMENTS if name in found}


def all_grades(found: Mapping[str, Result]) -> list[Graded]:
    """The grade of each figure, by these results."""
    return graded(each["experiments"][0] for each in found.values())


def made(text: str, found: Mapping[str, Result], grades: list[Graded]) -> str:
    """The document with all of its tables made anew."""

    def place(match: re.Match[str]) -> str:
        lines = list(_table(match["name"], found, grades))
        body = "\n".join(lines).strip("\n")
        return f"<!-- lab: {match['name']} -->\n\n{body}\n\n<!-- lab end -->"

    return _PLACE.sub(place, text)


def _table(name: str, found: Mapping[str, Result], grades: list[Graded]) -> Iterator[str]:
    kind, _, which = name.partition(" ")
    if kind == "totals":
        yield from tables.table(totals(grades))
    elif kind == "summary":
        yield from textwrap.wrap(summary(grades), _COLUMNS)
    elif kind == "figures" and which in SEEDS:
        yield from _figures(which, found, grades)
    elif kind == "experiment" and which in EXPERIMENTS:
        yield from _experiment(which, found)
    elif kind == "waiting":
        yield from _waiting(found)
    else:
        raise BadPlace(
            f"expected a place of totals, summary, figures SEED, experiment NAME or waiting and found {name!r}"
        )


def summary(grades: list[Graded]) -> str:
    """Two sentences about all figures."""
    count = Counter(each.grade for each in grades)
    return (
        f"Of {len(grades)} figures, {count[WITHIN_10] + count[WITHIN_25]} are within 25 % of the published ratio, "
        f"{count[SAME]} more move in the same direction, and {count[OPPOSITE]} move in the opposite one. "
        f"{count[THEIRS_ALONE]} published effects do not show here, and {count[CANNOT]} figures cannot be shown."
    )


def _figures(seed: str, found: Mapping[str, Result], grades: list[Graded]) -> Iterator[str]:
    yield "| figure | line | printed | times | here | experiment, setting | grade |"
    yield "|---|---:|---|---:|---:|---|---|"
    for each in grades:
        figure = each.figure
        if figure.seed != seed:
            continue
        ours = each.ours
        here = f"{ours.times:.2f} ({ours.low:.2f} to {ours.high:.2f})" if ours else ""
        by = f"{figure.experiment}, {figure.setting}" if figure.experiment else ""
        cells = (figure.what, figure.places[-1].partition(".")[0], figure.printed, f"{figure.times:.2f}", here, by)
        yield f"| {' | '.join(cells)} | {each} |"


def source(report: Result) -> str:
    """Where an experiment's results come from: a sentence of three lines, and how many guests were lost."""
    by = report["measured"]
    lost = sum(bool(setting["lost"]) for each in report["experiments"] for setting in each["settings"])
    said = f"\n{lost} guests were lost." if lost else ""
    return (
        f"Measured on {by['date']} at commit {by['commit'] or 'unknown'} by\n`{by['command']}`,\n"
        f"{report['runs']} runs of each setting; {by['machine']}.{said}"
    )


def _experiment(name: str, found: Mapping[str, Result]) -> Iterator[str]:
    if name not in found:
        yield "Not measured."
        return
    yield source(found[name])
    # All but the heading.
    yield markdown(found[name]).partition("\n")[2]


def _waiting(found: Mapping[str, Result]) -> Iterator[str]:
    missing = [name for name in EXPERIMENTS if name not in found]
    counts = [sum(figure.experiment == name for figure in FIGURES) for name in missing]
    for name, count in zip(missing, counts, strict=True):
        yield f"- `{name}`{f', which would answer {count} figures' if count else ''}"
    if not missing:
        yield "- none"
