# SPDX-License-Identifier: GPL-2.0-only
"""What Markdown of the tree is rendered to: tables whole, no line continuation in text, links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import ROOT

# What is made, and what is not ours.
LEFT_OUT = {"out", "target", "node_modules"}
FILES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part in LEFT_OUT or part.startswith(".") for part in path.relative_to(ROOT).parts[:-1])
)
DELIMITERS = re.compile(r" {0,3}\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?")


def text_of(source: str) -> list[str]:
    """Its lines, with those of code blocks empty: what is in them is shown as it is."""
    lines: list[str] = []
    fence, indented, blank = "", False, True
    for line in source.splitlines():
        indented = not fence and line.startswith("    ") and (blank or indented)
        blank = not line.strip()
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if fence or mark:
            if not fence and mark:
                fence = mark[1]
            elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = ""
            lines.append("")
        else:
            lines.append("" if indented else line)
    assert not fence, "a code block does not end"
    return lines


def cells(row: str) -> int:
    r"""How many cells a row has (GitHub Flavored Markdown, 4.10): a bar ends one also in code, unless it is `\|`."""
    row = row.strip().removeprefix("|")
    row = re.sub(r"(?<!\\)\|$", "", row)
    return len(re.findall(r"(?<!\\)\|", row)) + 1


#: Columns of a line of text; a row of a table has as many as it needs, and so has a word.
COLUMNS = 100


def long_lines(source: str) -> Iterator[str]:
    """Lines of text that are too long for a diff and two files side by side."""
    for number, line in enumerate(text_of(source), 1):
        if (
            len(line) > COLUMNS
            and not line.startswith("|")
            and " " in re.sub(r"`[^`]*`", "", line[: COLUMNS + 1].strip())
        ):
            yield f"line {number}: {len(line)} columns"


def faults(source: str) -> Iterator[str]:
    """What a reader would see otherwise than it was meant."""
    lines = text_of(source)
    columns = 0
    for number, line in enumerate(lines, 1):
        following = lines[number] if number < len(lines) else ""
        if not line.strip():
            columns = 0
        elif not columns and "|" in line and DELIMITERS.fullmatch(following):
            columns = cells(line)
        elif not columns and line.lstrip().startswith("|"):
            yield f"line {number}: a row outside of a table"
        if columns and not line.startswith("|"):
            yield f"line {number}: a table has a line that is no row"
        elif columns and cells(line) != columns:
            yield f"line {number}: a row of {cells(line)} cells in a table of {columns}"
        if line.endswith("\\"):
            yield f"line {number}: a line continuation"


def anchors(path: Path) -> set[str]:
    """The names by which links lead to headings, as GitHub makes them."""
    headings = [line.lstrip("#") for line in text_of(path.read_text()) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def lost_links(path: Path) -> Iterator[str]:
    """Links of a file that lead to no file, or to no heading."""
    text = re.sub(r"`[^`\n]*`", "", "\n".join(text_of(path.read_text())))
    for link in re.findall(r"\]\(([^()\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: no such heading"


def test_each_document_is_on_the_maps() -> None:
    """A document of docs/ is in README's map, in that of docs/README.md, and in the site's."""
    maps = {name: (ROOT / name).read_text() for name in ("README.md", "docs/README.md", "docs/site/mkdocs.yml")}
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]
    assert len(pages) > 20
    # README has the laboratory's results by way of the laboratory.
    by_way = {"README.md": {"docs/README.md", "docs/laboratory-results.md"}, "docs/README.md": {"docs/README.md"}}
    by_way["docs/site/mkdocs.yml"] = {"docs/README.md"}
    for name, text in maps.items():
        below = (ROOT / name).parent if name == "docs/README.md" else ROOT
        lost = {str(page.relative_to(ROOT)) for page in pages if str(page.relative_to(below)) not in text}
        assert lost <= by_way[name], f"{name} lacks {lost - by_way[name]}"


def test_markdown_is_there() -> None:
    """The files that users read are among those that are looked at."""
    names = {str(path.relative_to(ROOT)) for path in FILES}
    assert names >= {"README.md", "docs/rules.md", "docs/tutorial.md", "docs/testing.md", "kernel-patches/README.md"}


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_markdown_is_rendered_as_it_was_meant(path: Path) -> None:
    """Each row has the cells of its header, no row stands alone, every link leads somewhere, lines of text fit."""
    assert [*faults(path.read_text()), *lost_links(path), *long_lines(path.read_text())] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("| a | b |\n|---|---|\n| 1 |\n", "line 3: a row of 1 cells in a table of 2"),
        ("| a | b |\n|---|---|\n| 1 | `x|y` |\n", "line 3: a row of 3 cells in a table of 2"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\n| 3 | 4 |\n", "line 5: a row outside of a table"),
        ("| a | b |\n|---|---|\n| 1 | 2\n  and 3 |\n", "line 4: a table has a line that is no row"),
        ("| a | b |\n|---|\n| 1 | 2 |\n", "line 2: a row of 1 cells in a table of 2"),
        ("one line \\\nand more\n", "line 1: a line continuation"),
    ],
    ids=["few", "bar", "alone", "broken", "header", "continuation"],
)
def test_what_is_rendered_otherwise_is_seen(source: str, fault: str) -> None:
    """One fault each, and none in what is right."""
    assert fault in list(faults(source))
    right = "| a | b |\n|---|---|\n| 1 | `x\\|y` |\n\n```\n| 1 | 2 \\\n```\n\n    | 1 \\\n    2\n"
    assert list(faults(right)) == []
