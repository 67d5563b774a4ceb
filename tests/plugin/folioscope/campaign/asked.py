# SPDX-License-Identifier: GPL-2.0-only
"""Asks commits whether a condition holds: each is built, and judged, once or several times."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .campaign import run
from .cell import Cell, Kernel, Test
from .commands import cell_of, engine_of
from .condition import Condition
from .errors import Refused
from .kernels import Builder
from .parts import keys
from .progress import Lines
from .result import Result
from .store import Store
from .told import report
from .trees import Own, Tree
from .values import rules, values


@dataclass(frozen=True)
class Question:
    """What is asked of a kernel: a test, and whether its verdict is as was said."""

    text: str
    test: Test
    #: Also why the answer is not known.
    answer: Callable[[Result, Mapping[str, Any]], bool | None]
    #: The names of all rules; none for tests of the user's own.
    names: tuple[str, ...] = ()
    #: What the last verdict lacks for an answer, where that can be said.
    lacking: Callable[[], str] = str


def question(when: str, only: str | None, is_whole: bool) -> Question:
    """A condition on the verdict of the tour, or a pytest file, which has to fail. Raises ``Refused``."""
    if when.partition("::")[0].endswith(".py"):
        if only:
            raise Refused(f"--only chooses workloads of the tour, and {when} is a pytest file; leave --only out")
        settings = {"select": [when]}
        keys("pytest", settings)
        test = Test("pytest", "pytest", settings, str(Path.cwd()))
        return Question(f"{when} fails", test, lambda result, _: {"pass": False, "fail": True}.get(result.outcome))
    names = rules()
    condition = Condition(when, names)
    test = Test("tour", "tour", {"only": only} if only else {})

    def answer(result: Result, about: Mapping[str, Any]) -> bool | None:
        return condition.holds(values(result, about, is_whole, names))

    return Question(when, test, answer, names, lambda: condition.lacking)


@dataclass(frozen=True)
class Answer:
    """What came of a commit."""

    commit: str
    subject: str
    #: Of each time that it was asked; ``None`` is no answer.
    said: Sequence[bool | None]
    #: Why there is none.
    why: str
    cells: Sequence[Cell]
    #: The verdict that the answer is by.
    result: Result | None = None
    seconds: float = 0.0
    #: Kernels that were built for it, and cells that were run.
    builds: int = 0
    ran: int = 0

    @property
    def holds(self) -> bool | None:
        """Once is enough: what is there sometimes is there."""
        return True if True in self.said else None if None in self.said else False

    @property
    def agree(self) -> bool:
        """All times that it was asked the answer was the same."""
        return len(set(self.said)) == 1

    def word(self) -> str:
        """As the table has it."""
        word = {True: "yes", False: "no", None: "skip"}[self.holds]
        return word if self.agree else f"{word} ({self.said.count(True)}/{len(self.said)})"


class _Counting(Builder):
    """Counts what it builds."""

    count = 0

    def __call__(self, kernel: Kernel) -> Mapping[str, Path] | str:
        """Its files, or why it does not build."""
        self.count += 1
        return super().__call__(kernel)


@dataclass
class Asker:
    """Answers for commits; what the store has is not run again, and what was asked is kept here."""

    tree: Tree
    own: Own
    store: Store
    asked: Question
    arguments: argparse.Namespace
    log: Path
    answers: dict[str, Answer] = field(default_factory=dict)

    def ask(self, commit: str) -> Answer:
        """The answer for a commit."""
        if commit not in self.answers:
            self.answers[commit] = self._asked(commit)
        return self.answers[commit]

    def cells(self) -> list[Cell]:
        """All cells that were asked for."""
        return [cell for answer in self.answers.values() for cell in answer.cells]

    def _asked(self, commit: str) -> Answer:
        began, told, subject = time.monotonic(), self.arguments, self.tree.subject(commit)
        kernel = self.own.kernel(f"{commit[:12]} {subject}", commit, told.config or "")
        cells = [self.cell(kernel, repeat) for repeat in range(told.repeat)]
        builder = _Counting(self.log)
        done = run(cells, self.store, engine_of(told.engine, self.store, cells, told.jobs), builder, Lines())
        said: list[bool | None] = []
        results: list[Result | None] = []
        why = ""
        for cell in cells:
            result = self.store.result(cell.key)
            answer = self.asked.answer(result, report(result, self.store)) if result else None
            if result is None:
                why = why or self.store.why_lost(cell.key) or "it was not run"
            elif answer is None:
                reason = self.asked.lacking() or f"a part that matters was not judged ({result.summary})"
                why = why or f"its verdict does not tell, for {reason}"
            said.append(answer)
            results.append(result)
        holds = True if True in said else None if None in said else False
        chosen = results[said.index(holds)]
        return Answer(commit, subject, said, why, cells, chosen, time.monotonic() - began, builder.count, done.ran)

    def cell(self, kernel: Kernel, repeat: int) -> Cell:
        """What is asked of a kernel, for the first time or again."""
        name = f"{kernel.name}, time {repeat + 1}" if repeat else kernel.name
        return cell_of(replace(kernel, name=name), self.asked.test, self.arguments, repeat)
