# SPDX-License-Identifier: GPL-2.0-only
"""The table of a matrix: the state of each cell against what is expected of it, as text, JSON and JUnit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from .cell import Cell
from .matrix import AXES, Expectation, matches
from .result import _COUNTS, _object
from .store import Store

FORMAT = "folioscope-matrix"
VERSION = 1
#: No error; errors that are expected; errors; an expected error is absent; and what has no verdict.
STATES = ("pass", "known", "fail", "gone", "unjudged", "lost", "not run")
#: By these a matrix has failed; by the others without a verdict it could not be judged.
FAILED = ("fail", "gone")
OPEN = ("unjudged", "lost", "not run")
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The table of a matrix of folioscope",
    **_object(
        ("format", "version", "totals", "cells"),
        format={"const": FORMAT},
        version={"const": VERSION},
        totals={**_COUNTS, "description": "cells by state"},
        cells={
            "type": "array",
            "items": _object(
                ("key", "axes", "state", "seconds", "summary", "rules", "figures", "expected"),
                key={"type": "string"},
                axes={"type": "object", "additionalProperties": {"type": "string"}},
                state={"enum": list(STATES)},
                seconds={"type": "number"},
                summary={"type": "string"},
                rules=_COUNTS,
                figures={"type": "object", "additionalProperties": {"type": "number"}},
                expected={
                    "type": "object",
                    "description": "rules that the cell is expected to break, and why",
                    "additionalProperties": {"type": "string"},
                },
            ),
        },
    ),
}


@dataclass(frozen=True)
class Row:
    """A cell and what came of it."""

    key: str
    axes: Mapping[str, str]
    state: str
    summary: str
    seconds: float = 0.0
    rules: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def broken(self) -> list[str]:
        """Rules with errors: what is information has a name of its own."""
        return [name for name in self.rules if not name.startswith("I-")]

    def surprises(self) -> list[str]:
        """Rules that are broken and not expected to be, or the reverse."""
        found = [name for name in self.broken() if name not in self.expected]
        return found + [f"no {name}" for name in self.expected if name not in self.rules]


def rows(cells: Sequence[Cell], store: Store, expectations: Sequence[Expectation] = ()) -> list[Row]:
    """The rows of a matrix, as the store has them."""
    lost = store.lost()
    found = []
    for cell in cells:
        axes = cell.axes()
        expected = {rule: each.why for each in expectations if matches(axes, each.values) for rule in each.rules}
        result = store.result(cell.key)
        if result is None:
            why = store.why_lost(cell.key) if cell.key in lost else None
            state = ("not run", "it was not run") if why is None else ("lost", why)
            found.append(Row(cell.key, axes, *state, expected=expected))
            continue
        row = Row(
            cell.key, axes, result.outcome, result.summary, result.seconds,
            result.rules, result.figures, expected, result.files,
        )  # fmt: skip
        found.append(_judged(row))
    return found


def _judged(row: Row) -> Row:
    """A row with its state against what is expected."""
    state = row.state
    if state in ("pass", "fail") and row.expected:
        unexpected = set(row.broken()) - row.expected.keys()
        if state == "fail" and not row.broken():
            unexpected = {"status"}
        state = "fail" if unexpected else "gone" if row.expected.keys() - row.rules.keys() else "known"
    return Row(**{**row.__dict__, "state": state})


def status(found: Sequence[Row]) -> int:
    """The exit status: 1 if a cell is not as expected, 2 if one has no verdict."""
    states = {row.state for row in found}
    return 1 if states & set(FAILED) else 2 if states & set(OPEN) else 0


def as_json(found: Sequence[Row]) -> dict[str, Any]:
    """The table as values of JSON."""
    cells = [{name: value for name, value in row.__dict__.items() if name != "files"} for row in found]
    return {"format": FORMAT, "version": VERSION, "totals": totals(found), "cells": cells}


def totals(found: Sequence[Row]) -> dict[str, int]:
    """Cells by state, in the order of the states."""
    count = Counter(row.state for row in found)
    return {state: count[state] for state in STATES if count[state]}


def axes_shown(found: Sequence[Row]) -> tuple[list[str], list[str]]:
    """The axes whose values differ: those of rows, and that of columns."""
    several = [axis for axis in AXES if len({row.axes[axis] for row in found}) > 1]
    columns = ["test"] if "test" in several else several[-1:]
    return [axis for axis in several if axis not in columns] or ["kernel"], columns or ["test"]


def grid(found: Sequence[Row]) -> tuple[list[str], list[tuple[str, dict[str, Row]]]]:
    """The names of the columns; and of each row, its name and the cell in each column."""
    by, columns = axes_shown(found)
    names = list(dict.fromkeys(row.axes[columns[0]] for row in found))
    lines: dict[str, dict[str, Row]] = {}
    for row in found:
        label = " ".join(row.axes[axis] for axis in by if row.axes[axis])
        lines.setdefault(label, {})[row.axes[columns[0]]] = row
    return names, list(lines.items())


def word(row: Row) -> str:
    """A cell of the grid in a few letters."""
    rules = " ".join(row.surprises() if row.state in FAILED else row.broken()) if row.state != "unjudged" else ""
    return f"{row.state} {rules}".strip()


def text(found: Sequence[Row]) -> Iterator[str]:
    """The grid, and a line for each cell that is not as it should be."""
    names, lines = grid(found)
    cells = [["", *names], *([label, *(word(of[name]) if name in of else "" for name in names)] for label, of in lines)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names) + 1)]
    for line in cells:
        yield "  ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)).rstrip()
    for row in found:
        if row.state in (*FAILED, *OPEN):
            name = " ".join(value for value in row.axes.values() if value)
            yield f"{row.state}: {name}: {row.summary}"
    yield f"{len(found)} cells: {', '.join(f'{count} {state}' for state, count in totals(found).items())}"


def junit(found: Sequence[Row]) -> str:
    """The table as JUnit: a suite for each kernel; a cell without a verdict is an error there."""
    root = ElementTree.Element("testsuites", name="folioscope matrix")
    suites: dict[str, ElementTree.Element] = {}
    for row in found:
        name = row.axes["kernel"]
        suite = suites.get(name)
        if suite is None:
            suite = suites[name] = ElementTree.SubElement(root, "testsuite", name=name)
        title = " ".join(value for axis, value in row.axes.items() if value and axis not in ("kernel", "test"))
        case = ElementTree.SubElement(
            suite, "testcase", name=title, classname=f"{name}.{row.axes['test']}", time=f"{row.seconds:.3f}"
        )
        kind = "failure" if row.state in FAILED else "error" if row.state in OPEN else None
        if kind:
            ElementTree.SubElement(case, kind, message=word(row)).text = row.summary
        elif row.state == "known":
            ElementTree.SubElement(case, "system-out").text = "; ".join(
                f"{rule}: {why}" for rule, why in row.expected.items()
            )
    for suite in suites.values():
        suite.set("tests", str(len(suite)))
        for kind, plural in (("failure", "failures"), ("error", "errors")):
            suite.set(plural, str(sum(case.find(kind) is not None for case in suite)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
