# SPDX-License-Identifier: GPL-2.0-only
"""The matrix as one static page: a cell leads to its report, and what changed since the last page is marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .table import Row, grid, totals, word

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif; }
body { margin: 2em auto; max-width: 80em; padding: 0 1em; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8888; padding: .3em .7em; text-align: left; }
td a { color: inherit; text-decoration: none; display: block; }
td a:hover, td a:focus { text-decoration: underline; }
.pass { background: #2a82; } .known { background: #28a2; } .fail, .gone { background: #c225; font-weight: 600; }
.unjudged, .lost { background: #c924; } .changed { outline: 3px solid #c60; outline-offset: -3px; }
.wide { overflow-x: auto; }
"""
#: The file that a cell leads to: the first that it has.
LEADS = ("report.html", "junit.xml", "said.txt")


def written(found: Sequence[Row], before: Mapping[str, Any] | None, title: str) -> str:
    """The page. ``before`` is the table that the last page was of."""
    names, lines = grid(found)
    last = {_place(cell["axes"]): cell["state"] for cell in (before or {}).get("cells", ())}
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = []
    for label, of in lines:
        cells = "".join(_cell(of.get(name), last) for name in names)
        body.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    count = ", ".join(f"{number} {state}" for state, number in totals(found).items())
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>'
        f"<h1>{escape(title)}</h1>\n<p>{len(found)} cells: {escape(count)}</p>\n"
        f'<div class="wide"><table><thead><tr><td></td>{heads}</tr></thead>\n'
        f"<tbody>{''.join(body)}</tbody></table></div>\n"
        f"{_changes(found, last)}{_known(found)}</body></html>\n"
    )


def _place(axes: Mapping[str, str]) -> tuple[str, ...]:
    """Where a cell is in the matrix; its key changes with what it is made of."""
    return tuple(axes.values())


def _cell(row: Row | None, last: Mapping[tuple[str, ...], str]) -> str:
    if row is None:
        return "<td></td>"
    changed = " changed" if last.get(_place(row.axes), row.state) != row.state else ""
    lead = next((name for name in LEADS if name in row.files), None)
    said = f"{escape(word(row))}"
    link = f'<a href="cells/{row.key}/{lead}">{said}</a>' if lead else said
    return f'<td class="{row.state.replace(" ", "-")}{changed}" title="{escape(row.summary)}">{link}</td>'


def _changes(found: Sequence[Row], last: Mapping[tuple[str, ...], str]) -> str:
    if not last:
        return ""
    items = []
    for row in found:
        was = last.get(_place(row.axes))
        if was is not None and was != row.state:
            name = " ".join(value for value in row.axes.values() if value)
            items.append(f"<li>{escape(name)}: {escape(was)} before, {escape(word(row))} now</li>")
    return (
        f"<h2>Changed since the last page</h2>\n<ul>{''.join(items)}</ul>\n"
        if items
        else "<p>Nothing changed since the last page.</p>\n"
    )


def _known(found: Sequence[Row]) -> str:
    why = {f"{rule}: {reason}" for row in found if row.state == "known" for rule, reason in row.expected.items()}
    return f"<h2>Known</h2>\n<ul>{''.join(f'<li>{escape(each)}</li>' for each in sorted(why))}</ul>\n" if why else ""
