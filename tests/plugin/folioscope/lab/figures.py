# SPDX-License-Identifier: GPL-2.0-only
"""The figures that the seeds publish, one entry each, and what answers each here."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

#: One row for each figure.
TABLE = Path(__file__).with_name("figures.csv")
#: The texts, in the order in which they are counted.
SEEDS = {
    "anon-folios-rfc-v2": "anon-folios RFC v2",
    "anon-folios-v2": "anon-folios v2",
    "anon-shmem-mthp-v4": "anon-shmem mTHP v4",
    "pcp-high-order-limit": "pcp-high-order-limit",
    "thp-page-cache-v4": "THP page cache v4",
}
_AND = " + "


@dataclass(frozen=True)
class Figure:
    """A published figure: how many times as fast, or as much, ``setting`` is as the first setting."""

    name: str
    #: The text's file, without its suffix.
    seed: str
    #: Where its numbers are: line and number of that line. The last one is the figure's own.
    places: tuple[str, ...]
    #: The numbers as printed.
    printed: str
    #: What was measured, and its unit.
    what: str
    #: More than 1 is faster, or less of what costs; for counts of faults, pages and frames it is more of them.
    times: float
    #: How ``times`` follows from the numbers.
    ratio: str
    #: Whether it is beyond noise: by the text's own mark of significance where it has one, else by 1 %.
    effect: bool
    #: What answers it: an experiment, its setting, against which one (none: the first), and the intervals of the load.
    experiment: str = ""
    setting: str = ""
    against: str = ""
    intervals: tuple[str, ...] = ()
    #: What is counted: see :func:`folioscope.lab.grades.runs_of`.
    counted: str = "instructions"
    #: Why it cannot be shown here; then nothing answers it.
    why: str = ""


def read(path: Path = TABLE) -> tuple[Figure, ...]:
    """The table's figures, in the order of the texts."""
    with path.open(newline="") as rows:
        return tuple(
            Figure(
                name=row["id"],
                seed=row["seed"],
                places=tuple(row["places"].split()),
                printed=row["printed"],
                what=row["what"],
                times=float(row["times"]),
                ratio=row["ratio"],
                effect=row["effect"] == "yes",
                experiment=row["experiment"],
                setting=row["setting"],
                against=row["against"],
                intervals=tuple(row["intervals"].split(_AND)) if row["intervals"] else (),
                counted=row["counted"],
                why=row["why"],
            )
            for row in csv.DictReader(rows)
        )


FIGURES = read()


def answered_by(experiment: str) -> tuple[Figure, ...]:
    """The figures that an experiment answers."""
    return tuple(figure for figure in FIGURES if figure.experiment == experiment)
