# SPDX-License-Identifier: GPL-2.0-only
"""The wrong edits, as the table of README.md has them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).with_name("README.md")
NONE = "**none**: "


@dataclass(frozen=True)
class Mutant:
    """One wrong edit."""

    #: As on the kernel's command line: ``mutant.number=``.
    number: int
    #: File and function, and what is wrong there.
    place: str
    wrong: str
    #: What is done: a workload of the tour, or a function of ``scenes.py`` by its name in brackets.
    scene: str
    cpu: str
    #: The rules that name it, all of them.
    rules: frozenset[str]
    #: Why none does.
    why_not: str
    #: Whether the kernel may report a fault of its own as well (V1): mostly when the processes end.
    voice: bool

    @staticmethod
    def read(line: str) -> Mutant:
        """From a row of the table."""
        cells = line.removeprefix("|").removesuffix("|").split("|")
        number, place, wrong, where, named, kernel = (cell.strip() for cell in cells)
        scene, _, cpu = where.partition(" on ")
        why_not = named.removeprefix(NONE) if named.startswith(NONE) else ""
        rules = frozenset() if why_not else frozenset(named.split(", "))
        return Mutant(int(number), place, wrong, scene, cpu or "max", rules, why_not, kernel == "V1")


@dataclass(frozen=True)
class Feature:
    """A wrong edit that tests of a feature name."""

    number: int
    place: str
    wrong: str
    #: A file of ``tests/``, and what ``-k`` selects in it.
    file: str
    selected: str

    @staticmethod
    def read(line: str) -> Feature:
        """From a row of the second table."""
        number, place, wrong, test = (cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|"))
        file, _, selected = test.partition(": ")
        return Feature(int(number), place, wrong, file, selected)


@dataclass(frozen=True)
class Crossed:
    """A wrong edit that the crossing names."""

    number: int
    place: str
    wrong: str
    #: States and operations, as ``--only`` takes them, and a switch of large folios that is on for them.
    only: str
    switch: str
    rules: frozenset[str]
    #: Why no rule names it.
    why_not: str

    @staticmethod
    def read(line: str) -> Crossed:
        """From a row of the third table."""
        number, place, wrong, only, named = (
            cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")
        )
        why_not = named.removeprefix(NONE) if named.startswith(NONE) else ""
        rules = frozenset() if why_not else frozenset(named.split(", "))
        only, _, switch = only.partition(" with ")
        return Crossed(int(number), place, wrong, only, switch, rules, why_not)


RULES, TESTS = README.read_text().split("\n## What tests name\n")
TESTS, CROSSING = TESTS.split("\n## What the crossing names\n")
ROW = re.compile(r"\| \d+ \|")
MUTANTS = [Mutant.read(line) for line in RULES.splitlines() if ROW.match(line)]
FEATURES = [Feature.read(line) for line in TESTS.splitlines() if ROW.match(line)]
CROSSED = [Crossed.read(line) for line in CROSSING.splitlines() if ROW.match(line)]
