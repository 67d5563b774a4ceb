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


MUTANTS = [Mutant.read(line) for line in README.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
