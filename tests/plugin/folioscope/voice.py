# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own voice: what it reports on a guest's console to be wrong with itself fails the test of that time.

A test that provokes a report names it, by a part of one of its lines::

    @pytest.mark.folioscope_provokes("BUG: Bad rss-counter state")
    def test_lost_page(process): ...

    with guest.provokes("WARNING: "):
        ...

A report that is named has to come, and any other fails the test as it would without. A kernel that has reported a
fault may fall over it later: the next test gets another guest.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from . import names

# How long a report that was named may take: the kernel may find out later, from another CPU.
PROVOKED_SECONDS = 5.0
TICK = 0.02


@dataclass(frozen=True)
class Spoken:
    """One report: a WARNING, a BUG, an oops, a stall, with its lines."""

    headline: str
    lines: tuple[str, ...]
    at_us: int | None

    @staticmethod
    def read(raw: dict[str, Any]) -> Spoken:
        """From a session's answer."""
        return Spoken(raw["headline"], tuple(raw["lines"]), raw["at_us"])

    def has(self, text: str) -> bool:
        """Whether a line of it has this text."""
        return any(text in line for line in self.lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Heard:
    """What the kernels of this process's guests have reported and nobody has named yet."""

    reports: ClassVar[list[Spoken]] = []

    @classmethod
    def take_in(cls, answer: dict[str, Any]) -> bool:
        """The reports that came with an answer; whether there were any."""
        new = [Spoken.read(raw) for raw in answer.get("voice", [])]
        cls.reports += new
        return bool(new)

    @classmethod
    def claim(cls, texts: tuple[str, ...]) -> set[str]:
        """Takes out the reports that have one of these texts; gives the texts that none has."""
        missing = {text for text in texts if not any(report.has(text) for report in cls.reports)}
        cls.reports[:] = [report for report in cls.reports if not any(report.has(text) for text in texts)]
        return missing

    @classmethod
    def wait_for(cls, texts: tuple[str, ...], ask: Any) -> None:
        """Claims the reports with these texts, each of which has to come; ``ask`` fetches what is new."""
        end = time.monotonic() + PROVOKED_SECONDS
        missing = cls.claim(texts)
        while missing and time.monotonic() < end and ask():
            time.sleep(TICK)
            missing = cls.claim(tuple(missing))
        # A second report of the same kind is no surprise either.
        cls.claim(texts)
        assert not missing, f"the kernel was to report {sorted(missing)} and did not"

    @classmethod
    def surprise(cls, when: str) -> None:
        """Fails where there are reports that nobody has named."""
        reports, cls.reports[:] = list(cls.reports), []
        if reports:
            pytest.fail(
                "\n\n".join([f"the guest's kernel reports a fault of its own {when}:", *map(str, reports)]), False
            )


def _named(item: pytest.Item) -> tuple[str, ...]:
    return tuple(text for mark in names.marks(item, "provokes") for text in mark.args)


def _ask(item: pytest.Item) -> bool:
    """Fetches what is new from the test's guest; false where that is lost, or there is none."""
    guest = getattr(item, "funcargs", {}).get("folioscope_guest")
    if guest is None or guest.session.lost:
        return False
    guest.call("voice")
    return True


class Voice:
    """A plugin of pytest: listens in each phase of a test."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, None]:
        """What is heard here was said at boot, or late by what the test before did."""
        outcome = yield
        Heard.claim(_named(item))
        self._conclude(outcome, "before this test began (at boot, or because of the test before)")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """What the test has provoked, and what it should have."""
        outcome = yield
        try:
            _ask(item)
            if outcome.excinfo is None:
                Heard.wait_for(_named(item), lambda: _ask(item))
            Heard.claim(_named(item))
        except BaseException as error:
            if outcome.excinfo is None:
                outcome.force_exception(error)
        self._conclude(outcome, "during this test", item)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, None]:
        """What the end of the test's processes has brought up."""
        outcome = yield
        Heard.claim(_named(item))
        self._conclude(outcome, "at the end of this test")

    @staticmethod
    def _conclude(outcome: Any, when: str, item: pytest.Item | None = None) -> None:
        try:
            Heard.surprise(when)
        except BaseException as error:
            if outcome.excinfo is None:
                outcome.force_exception(error)
            elif item is not None:
                item.add_report_section("call", "kernel", str(error))
