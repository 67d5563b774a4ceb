# SPDX-License-Identifier: GPL-2.0-only
"""What a test knows of the step that it has just done, to be held against the tables at the next look.

Most of it the rig judges itself: rules C1 (must fold), C2 (must not fold), L6 (written) and L11 (freshly faulted) speak
only where somebody says what went before. The order of a fault is held against the kernel's record here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from .model import Finding, Record, Who

What = Literal[
    "contiguous",
    "contiguous-if-possible",
    "not-contiguous",
    "written",
    "not-written",
    "freshly-faulted",
    "readable",
    "writable",
    "young",
    "old",
    "dirty",
    "clean",
    "mapped",
    "unheld",
    "exclusive",
]


@dataclass(frozen=True, slots=True)
class Expectation:
    """Something that is known of a range of addresses."""

    start: int
    """The first address."""
    end: int
    """The first address after it."""
    what: What
    """What is expected."""
    reason: str | None = None
    """Why, for people."""

    def json(self) -> dict[str, Any]:
        """As the session takes it."""
        return {"start": self.start, "end": self.end, "what": self.what}

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.what} at {self.start:#x}-{self.end:#x}{why}"


def with_reason(finding: Finding, stated: Iterable[Expectation | OrderExpected]) -> Finding:
    """A finding of what must not fold, with the reason that the test gave for it."""
    if finding.rule == "C2":
        for known in stated:
            inside = known.start < finding.end and finding.va < known.end
            if isinstance(known, Expectation) and known.what == "not-contiguous" and known.reason and inside:
                return replace(finding, message=f"{finding.message} ({known.reason})")
    return finding


@dataclass(frozen=True, slots=True)
class OrderExpected:
    """Each fault in a range since the look before got a folio of this order."""

    start: int
    end: int
    order: int

    def __str__(self) -> str:
        return f"order {self.order} at {self.start:#x}-{self.end:#x}"

    def judge(self, records: Iterable[Record], who: Who) -> list[Finding] | None:
        """An error for each fault that got another order; None where there is no record of a fault."""
        mine = [record for record in records if self.start <= record.address < self.end]
        if not mine:
            return None
        return [self._finding(record, who) for record in mine if record.chosen != self.order]

    def _finding(self, record: Record, who: Who) -> Finding:
        got = "no folio" if record.chosen is None else f"order {record.chosen}"
        why = record.reasons[self.order]
        return Finding(
            rule="order",
            severity="error",
            message=f"the fault got {got} where the test expects order {self.order}: its record says {why} of that",
            process=who,
            va=record.address,
            end=record.address + 1,
            level=3,
            table=0,
            index=0,
            words=(),
        )


Stated = Expectation | OrderExpected

#: Kinds that are judged by entries, so that they say nothing of a range without one.
OF_ENTRIES: frozenset[What] = frozenset(
    ("written", "not-written", "readable", "writable", "young", "old", "dirty", "clean", "unheld")
)


class Open:
    """Expectations of this process's tests that no look has judged yet, of all guests."""

    stated: ClassVar[list[Stated]] = []

    @classmethod
    def add(cls, expectation: Stated) -> None:
        """A test has stated it."""
        cls.stated.append(expectation)

    @classmethod
    def settle(cls, expectations: Iterable[Stated]) -> None:
        """A look has judged them, and the test has what came of it."""
        done = {id(expectation) for expectation in expectations}
        cls.stated[:] = [expectation for expectation in cls.stated if id(expectation) not in done]

    @classmethod
    def take(cls) -> list[Stated]:
        """All of them; none is open then."""
        taken, cls.stated[:] = list(cls.stated), []
        return taken
