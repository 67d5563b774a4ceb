# SPDX-License-Identifier: GPL-2.0-only
"""The table of a series: a row for the base and each patch; an error is put down to the first that has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .kernels import NOT_BUILT
from .result import _COUNTS, Result, _object

FORMAT = "folioscope-series"
VERSION = 1
POLICIES = ("sysfs", "variable")
_WIDTH = 56
_OPTIONAL = {"type": ["number", "null"]}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What a series came to, as folioscope notes it in a store",
    **_object(
        ("format", "version", "cover", "about", "rows", "errors"),
        format={"const": FORMAT},
        version={"const": VERSION},
        cover={"type": "string", "description": "subject and text of the cover letter"},
        about={"type": "object", "description": "base, granule, CPU, time, and the words of the command"},
        rows={
            "type": "array",
            "items": _object(
                ("number", "subject", "commit", "kernel", "cell", "state", "summary", "rules", "seconds"),
                number={"type": "integer", "description": "0 is the base"},
                subject={"type": "string"},
                commit={"type": "string"},
                without={"type": "string", "description": "the option of the configuration that this row is without"},
                kernel={"type": "string", "description": "the kernel's key"},
                cell={"type": "string", "description": "the key of the tour's cell"},
                state={"enum": ["pass", "fail", "unjudged", "not built", "lost"]},
                summary={"type": "string"},
                rules={**_COUNTS, "description": "how many errors each rule has"},
                coverage={**_OPTIONAL, "description": "the part of the pages that is in contiguous blocks"},
                costs={"type": "object", "additionalProperties": {"type": "number"}},
                warnings={
                    "type": ["array", "null"],
                    "description": "what the compiler warns of since this patch; null where it is not known",
                    "items": {"type": "string"},
                },
                seconds={"type": "number"},
            ),
        },
        errors={
            "type": "array",
            "description": "errors that no row before has",
            "items": _object(
                ("rule", "number", "steps", "more", "unsure"),
                rule={"type": "string"},
                number={"type": "integer", "description": "of the first row that has it"},
                steps={"type": "array", "items": {"type": "string"}, "description": "checkpoints, new with this row"},
                more={"type": "boolean", "description": "a row before has the rule at other checkpoints"},
                unsure={
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "rows right before that have no verdict: it may be theirs",
                },
            ),
        },
    ),
}


@dataclass(frozen=True)
class Patch:
    """A commit that is judged; the base has the number 0."""

    number: int
    subject: str
    commit: str
    #: The option of the configuration that it is built without; numbers go on behind the last patch.
    without: str = ""
    #: Of a series that was mail: SHA-256 of the SHA-256s of the patches up to this one.
    patchset: str = ""

    @property
    def name(self) -> str:
        """As rows have it."""
        if self.without:
            return f"all, without {self.without}"
        return f"{self.number:04d} {self.subject}" if self.number else self.subject

    @property
    def since(self) -> str:
        """As sentences have it that say where something began."""
        return f"without {self.without}" if self.without else f"with {self.name}"


@dataclass(frozen=True)
class Row:
    """A patch and what came of it."""

    patch: Patch
    kernel: str
    cell: str
    tour: Result | None
    costs: Result | None
    #: Why there is no verdict.
    why: str = ""
    #: Warnings that the row before has not; none where they are not known.
    warnings: list[str] | None = None
    #: The checkpoints at which each rule has an error.
    steps: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: Why the verdict is not of what the row is about.
    note: str = ""

    @property
    def state(self) -> str:
        """As a row of a matrix has it, or that the kernel does not build."""
        if self.tour:
            return "unjudged" if self.note and self.tour.outcome == "pass" else self.tour.outcome
        return "not built" if self.why.startswith(NOT_BUILT) else "lost"

    def rules(self) -> dict[str, int]:
        """Rules with errors, and how many."""
        found = self.tour.rules if self.tour else {}
        return {name: count for name, count in found.items() if not name.startswith("I-")}

    def verdict(self) -> str:
        """What the table says of the tour."""
        if self.state == "not built":
            return f"does not build: {self.why.removeprefix(NOT_BUILT).lstrip(': ')}"
        if self.tour is None:
            return f"lost: {self.why}"
        said = self.tour.summary.partition(" entries: ")[2] or self.tour.summary
        said = f"{said} (status {self.tour.status})" if self.tour.status else said
        return f"{said}; not judged without it: {self.note}" if self.note else said


@dataclass(frozen=True)
class Error:
    """A rule that is broken at checkpoints where no row before breaks it."""

    rule: str
    #: Of the row.
    number: int
    steps: list[str]
    #: Whether a row before breaks it elsewhere.
    more: bool
    #: The rows right before that have no verdict: it may be theirs.
    unsure: list[int]


def errors(rows: Sequence[Row]) -> list[Error]:
    """The errors by the first row that has each, also where one goes and comes again."""
    found: list[Error] = []
    seen: dict[str, set[str]] = {}
    unsure: list[int] = []
    for row in rows:
        if row.tour is None:
            unsure.append(row.patch.number)
            continue
        for rule in row.rules():
            # Without a report it is not known where.
            steps = row.steps.get(rule) or frozenset({""})
            if new := sorted(steps - seen.get(rule, set())):
                found.append(Error(rule, row.patch.number, new, rule in seen, list(unsure)))
            seen.setdefault(rule, set()).update(steps)
        unsure = []
    return found


def status(rows: Sequence[Row]) -> int:
    """1 if a patch does not build or brings an error; 2 if something has no verdict. An error of the base, or that may
    be the base's, is not the series'."""
    if any(row.state == "not built" for row in rows[1:]):
        return 1
    if any(each.number and 0 not in each.unsure for each in errors(rows)):
        return 1
    return 2 if any(row.state in ("unjudged", "lost", "not built") for row in rows) else 0


def more(is_more: bool, steps: Sequence[str]) -> str:
    """Where an error is, if a row before has the rule at other checkpoints."""
    return f"at {len(steps)} more checkpoint{'s' * (len(steps) != 1)} " if is_more else ""


def _sentence(error: Error, rows: Mapping[int, Row]) -> str:
    row = rows[error.number]
    count = row.rules()[error.rule]
    said = f"{error.rule}: {count} error{'s' * (count != 1)}, "
    if not error.number:
        return f"{said}in the base already"
    said += more(error.more, error.steps)
    said += f"first {row.patch.since}"
    if error.unsure:
        names = ", ".join(rows[each].patch.name for each in error.unsure)
        said += f", or with what has no verdict before it: {names}"
    return said


def _columns(row: Row) -> str:
    figures = row.costs.figures if row.costs else {}
    shown = []
    for policy in POLICIES:
        values = [figures.get(f"{policy} {what}") for what in ("instructions", "faults")]
        shown.append(" ".join(f"{'-' if value is None else int(value):>6}" for value in values))
    return "  ".join(shown)


def text(rows: Sequence[Row], granule: str) -> Iterator[str]:
    """The table, and what is new with each patch."""
    first_line = f"{'first patches, ' + granule:{_WIDTH}} {'contig.':>7}  {'sysfs':>13}  {'variable':>13}"
    yield f"{first_line}  {'new':>5} {'time':>5}  tour"
    yield f"{'':{_WIDTH}} {'pages':>7}" + "  instr. faults" * 2 + f"  {'warn.':>5}"
    for row in rows:
        coverage = row.tour.figures.get("coverage") if row.tour else None
        pages = "-" if coverage is None else f"{100 * coverage:.1f} %"
        new = "-" if row.warnings is None else str(len(row.warnings))
        seconds = sum(each.seconds for each in (row.tour, row.costs) if each)
        shown = f"{row.patch.name[:_WIDTH]:{_WIDTH}} {pages:>7}  {_columns(row)}  {new:>5} {seconds:4.0f}s"
        yield f"{shown}  {row.verdict()}"
    yield "instr.: of a page, writing 16 MiB page by page once; faults: for all of them (QEMU -icount shift=0)"
    by_number = {row.patch.number: row for row in rows}
    for error in errors(rows):
        yield _sentence(error, by_number)
    for row in rows:
        for warning in row.warnings or []:
            yield f"new warning {row.patch.since}: {warning}"


def as_json(rows: Sequence[Row], cover: str, about: dict[str, Any]) -> dict[str, Any]:
    """The same as values of JSON."""
    shown = [
        {
            "number": row.patch.number,
            "subject": row.patch.subject,
            "commit": row.patch.commit,
            **({"without": row.patch.without} if row.patch.without else {}),
            "kernel": row.kernel,
            "cell": row.cell,
            "state": row.state,
            "summary": row.verdict(),
            "rules": row.rules(),
            "coverage": row.tour.figures.get("coverage") if row.tour else None,
            "costs": row.costs.figures if row.costs else {},
            "warnings": row.warnings,
            "seconds": row.tour.seconds if row.tour else 0.0,
        }
        for row in rows
    ]
    found = [asdict(error) for error in errors(rows)]
    return {"format": FORMAT, "version": VERSION, "cover": cover, "about": about, "rows": shown, "errors": found}
