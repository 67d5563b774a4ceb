# SPDX-License-Identifier: GPL-2.0-only
"""``folioscope reply``: what a series came to, as text for a mail."""

from __future__ import annotations

import argparse
import shlex
import textwrap
from collections.abc import Iterator
from typing import Any

from .errors import Refused
from .patches import more
from .store import Store
from .told import finding, report

COLUMNS = 70
_INDENT = "    "


def _paragraph(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _command(words: list[str]) -> list[str]:
    """A command, in lines that a shell joins again."""
    lines, line = [], f"{_INDENT}out/folioscope"
    for word in map(shlex.quote, words):
        if len(line) + 1 + len(word) > COLUMNS - 2:
            lines.append(f"{line} \\")
            line = f"{_INDENT}  {word}"
        else:
            line += f" {word}"
    return [*lines, line]


def text(record: dict[str, Any], store: Store) -> Iterator[str]:
    """The lines of the mail."""
    rows, about = record["rows"], record["about"]
    base, patches = rows[0], [row for row in rows[1:] if "without" not in row]
    if title := record["cover"].partition("\n")[0]:
        yield from _paragraph(f"[{title}]")
        yield ""
    count = f"{len(patches)} patch{'es' * (len(patches) != 1)}"
    yield from _paragraph(
        f"{count} on top of {about['base'][:12]} ({about['granule']} pages), each built on the one before and booted "
        f"on an emulated arm64 CPU ({about['cpu']}). Page tables were read from outside the guest, and judged by "
        "folioscope."
    )
    yield ""
    for row in rows:
        name = f"{row['number']}/{len(patches)} {row['subject']}" if row["number"] else "base"
        yield from _paragraph(f"all, without {row['without']}" if "without" in row else name)
        yield from _paragraph("; ".join(_changes(row, base)), _INDENT)
    for error in record["errors"]:
        yield ""
        row = next(row for row in rows if row["number"] == error["number"])
        told = finding(report(store.result(row["cell"]), store), error["rule"], error["steps"])
        where = f" ({told['step']}):" if told else ":"
        yield from _paragraph(f"{error['rule']}, {_whose(error, row)}, {row['rules'][error['rule']]} times{where}")
        yield from _paragraph(told["message"] if told else "its report is not in the store", _INDENT)
    yield ""
    yield "To repeat it, in a checkout of folioscope:"
    yield ""
    yield from _command(about["words"])


def _whose(error: dict[str, Any], row: dict[str, Any]) -> str:
    if not error["number"]:
        return "in the base already"
    since = f"without {row['without']}" if "without" in row else f"with patch {error['number']}"
    said = f"{more(error['more'], error['steps'])}first {since}"
    named = [f"patch {each}" if each else "the base" for each in error["unsure"]]
    return f"{said} or with {', '.join(named)}, without a verdict" if named else said


def _changes(row: dict[str, Any], base: dict[str, Any]) -> Iterator[str]:
    """The verdict, and what differs from the base."""
    yield row["summary"]
    if row["coverage"] is not None:
        before = "" if row is base or base["coverage"] is None else f" (base {100 * base['coverage']:.1f} %)"
        yield f"{100 * row['coverage']:.1f} % of pages contiguous{before}"
    for name, value in row["costs"].items():
        if row is base or base["costs"].get(name) not in (None, value):
            yield f"{name} {value:.0f}" + ("" if row is base else f" (base {base['costs'][name]:.0f})")
    for warning in row["warnings"] or []:
        yield f"new warning: {warning}"


def reply(arguments: argparse.Namespace) -> int:
    """Prints the answer to the newest series in a store, or to one by its key."""
    store = Store(arguments.store)
    records = store.records()
    if not records:
        raise Refused(f"expected a series in the store {arguments.store} and found none; run folioscope series first")
    key = arguments.series or max(records, key=lambda each: float(records[each]["about"]["time"]))
    if key not in records:
        raise Refused(f"there is no series {key!r} in the store; there are {', '.join(records)}")
    print("\n".join(text(records[key], store)))
    return 0
