# SPDX-License-Identifier: GPL-2.0-only
"""Comments name the thing first and say who acts, in the folders whose comments are done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import ROOT

#: Folders whose comments are in plain English. The list only grows.
DONE = [
    "guest/agent",
    "guest/carrier",
    "guest/protocol",
    "vmm/analysis",
    "vmm/carrier",
    "vmm/changes",
    "vmm/evidence",
    "vmm/folioscope",
    "vmm/fuzz/fuzz_targets",
    "vmm/kvm",
    "vmm/linux",
    "vmm/machine",
    "vmm/recorder",
    "vmm/recorder-plugin",
    "vmm/report",
    "vmm/snapshot",
    "vmm/stage1",
    "vmm/structures",
    "vmm/untrusted",
    "vmm/verdict",
]
COMMENT = re.compile(r"(?:^|\s)(//[/!]?)(?: (.*))?$")
#: Pronouns in place of the task, the user or the CPU that acts.
WORDS = re.compile(r"\b(?:nobody|somebody|whoever|to be had)\b", re.IGNORECASE)
#: A relative clause in place of a noun phrase or a verb.
BEGINS = re.compile(r"(?:What|Whose|Of|Why|Whether|Who)\b")


def comments(text: str) -> Iterator[tuple[int, str, str, bool]]:
    """Line number, mark, text of each comment line, and whether it begins a doc comment."""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = COMMENT.search(line)
        mark = found[1] if found else ""
        if found:
            yield number, mark, found[2] or "", mark not in ("//", before)
        before = mark


def faults(text: str) -> list[tuple[int, str]]:
    """The comment lines that break the rules, by number."""
    return [
        (number, line)
        for number, _, line, first in comments(text)
        if WORDS.search(line) or (first and BEGINS.match(line))
    ]


@pytest.mark.parametrize("folder", DONE)
def test_comments_are_in_plain_words(folder: str) -> None:
    """No comment of a listed folder has these words; a folder without comments is listed by mistake."""
    found: list[str] = []
    count = 0
    for path in sorted(Path(ROOT, folder).rglob("*.rs")):
        text = path.read_text()
        count += sum(1 for _ in comments(text))
        found += [f"{path.relative_to(ROOT)}:{number}: {line}" for number, line in faults(text)]
    assert count, f"{folder} has no comment"
    assert not found, "\n".join(found)


def test_such_words_are_found() -> None:
    """In each kind of comment, and the first word only where a doc comment begins."""
    text = """//! Whether it is so.
//! Of the rest nothing.

/// Nobody reads it.
let url = "https://somebody"; // whoever runs
/// The name.
/// What follows.
fn nobody() {}
    /// Why.
    // What follows is fine.
    // No version is to be had.
"""
    assert [number for number, _ in faults(text)] == [1, 4, 5, 9, 11]
