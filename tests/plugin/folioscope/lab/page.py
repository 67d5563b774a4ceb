# SPDX-License-Identifier: GPL-2.0-only
"""What a lab has measured as one page: pictures and tables in a file that needs no network, light or dark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from .bench import Result
from .experiments import EXPERIMENTS
from .grades import NEITHER, OPPOSITE, OURS_ALONE, SAME, THEIRS_ALONE, WITHIN_10, WITHIN_25
from .plots import GROUND, INK
from .report import judged, markdown

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --ground: #ffffff; --quiet: #66676b; --line: #d9dade;
  --good: #1a7f37; --bad: #b3261e; --unsure: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e8; --ground: #17181b; --quiet: #9a9ba1; --line: #3a3b41;
  --good: #56d364; --bad: #ff7b72; --unsure: #e3b341; } }
body { color: var(--ink); background: var(--ground); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 3rem; }
p.quiet { color: var(--quiet); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.85rem; }
td:first-child, th:first-child { min-width: 9rem; }
th, td { border-bottom: 1px solid var(--line); padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .unsure { color: var(--unsure); }
svg { max-width: 100%; height: auto; color: var(--ink); }
a { color: inherit; }
"""
#: How a grade is shown; what is not here says neither.
_CLASSES = {f"*{grade}*": "good" for grade in (WITHIN_10, WITHIN_25, SAME, NEITHER)}
_CLASSES |= {f"*{grade}*": "bad" for grade in (THEIRS_ALONE, OURS_ALONE, OPPOSITE)}


def written(report: Result, pictures: Sequence[Path]) -> str:
    """The page."""
    return "\n".join(_page(report, {path.stem.partition("-")[2]: path.read_text() for path in pictures})) + "\n"


def _page(report: Result, pictures: dict[str, str]) -> Iterator[str]:
    settings = [setting for each in report["experiments"] for setting in each["settings"]]
    kernels = sorted({setting["guest"] for setting in settings if setting.get("guest")})
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Folioscope: the laboratory</title><style>{_STYLE}</style></head><body>"
    yield "<h1>The laboratory</h1>"
    yield (
        f'<p class="quiet">Linux {escape(", ".join(kernels) or "of no guest")}; {report["runs"]} runs of each setting. '
        "Figures are instructions, counted from outside under emulation: work of the kernel, and no time.</p>"
    )
    for setting in settings:
        if setting["lost"]:
            yield f'<p class="bad">A guest was lost ({escape(setting["name"])}): {escape(setting["lost"])}</p>'
    yield from _grades(report)
    for each in report["experiments"]:
        name = each["name"]
        yield f'<section id="{escape(name)}"><h2>{escape(name)}: {escape(EXPERIMENTS[name].title)}</h2>'
        if name in pictures:
            yield f"<figure>{_inline(pictures[name], name)}</figure>"
        yield from _seconds(each)
        text = markdown({**report, "experiments": [each]})
        yield from _tables(text.partition("\n")[2])
        yield "</section>"
    yield "</body></html>"


def _seconds(found: Result) -> Iterator[str]:
    told = [setting["seconds"] for setting in found["settings"] if "seconds" in setting]
    if told:
        whole, cpu = (sum(each[kind] for each in told) for kind in ("all", "cpu"))
        yield f'<p class="quiet">Guests ran for {whole:,.0f} s in all, {cpu:,.0f} s of it on a CPU.</p>'


def _grades(report: Result) -> Iterator[str]:
    rows = [(each["name"], *row) for each in report["experiments"] for row in judged(each)]
    if not rows:
        return
    heads = ("experiment", "published", "printed as", "times", "here", "grade")
    yield '<table id="grades"><thead><tr>' + "".join(f"<th>{head}</th>" for head in heads) + "</tr></thead><tbody>"
    for name, *cells, said in rows:
        link = f'<td><a href="#{escape(name)}">{escape(name)}</a></td>'
        shown = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        yield f'<tr>{link}{shown}<td class="{_class(said)}">{_text(said)}</td></tr>'
    yield "</tbody></table>"


def _class(said: str) -> str:
    return _CLASSES.get(said.partition(":")[0], "unsure")


def _text(markdown_: str) -> str:
    text = escape(markdown_)
    text = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _tables(text: str) -> Iterator[str]:
    """The tables and paragraphs of what report.py has written."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if rows:
            head, _, *body = rows
            yield '<div class="scroll"><table><thead><tr>' + "".join(f"<th>{_text(cell)}</th>" for cell in head)
            yield "</tr></thead><tbody>"
            for first, *cells in body:
                shown = "".join(_cell(cell) for cell in cells)
                yield f"<tr><td>{_text(first)}</td>{shown}</tr>"
            yield "</tbody></table></div>"
            rows = []
        if line:
            yield f"<p>{_text(line)}</p>"


def _cell(cell: str) -> str:
    kind = ' class="number"' if re.match(r"[-+±0-9]", cell) and len(cell) < 40 else ""
    if cell.startswith("*"):
        kind = f' class="{_class(cell)}"'
    return f"<td{kind}>{_text(cell)}</td>"


def _inline(svg: str, name: str) -> str:
    """A picture as part of the page: its names are its own, and its ink and ground the page's."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = svg.replace(INK, "currentColor").replace(f"fill: {GROUND}", "fill: none")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(EXPERIMENTS[name].title)}" ', 1)
