# SPDX-License-Identifier: GPL-2.0-only
"""What happened between two looks, as events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .layout import Layout
from .model import Fields, Raw, Who, number, plain

Kind = Literal[
    "exec",
    "map",
    "unmap",
    "protection",
    "flags",
    "split",
    "collapse",
    "fault",
    "zap",
    "move",
    "copy-on-write",
    "migrate",
    "merge",
    "replace",
    "swap-out",
    "swap-in",
    "fold",
    "unfold",
    "deny",
    "allow",
    "write-protect",
    "write-unprotect",
    "dirty",
    "clean",
    "young",
    "old",
    "mark",
    "unmark",
    "attributes",
]


class Range(Protocol):
    """Anything with an address and a length: an ``Area``."""

    @property
    def address(self) -> int:
        """The first address."""

    @property
    def length(self) -> int:
        """The bytes."""


@dataclass(frozen=True, slots=True)
class State(Fields):
    """An entry at one instant."""

    level: int
    """Its lookup level."""
    word: int
    """The raw descriptor."""
    pfn: int | None
    """The page frame number; None where it maps none."""
    contiguous: bool
    """Whether it is valid and has the Contiguous bit."""
    order: int | None
    """The order of its folio, where that is known."""

    @classmethod
    def read(cls, raw: Raw) -> State:
        """From JSON."""
        return cls(word=number(raw["word"]), **plain(cls, raw, "word"))


@dataclass(frozen=True, slots=True)
class Event(Fields):
    """One thing that happened to neighbouring pages alike."""

    kind: Kind
    """What happened."""
    va: int
    """The first address."""
    end: int
    """The first address after it."""
    pages: int
    """Pages that it happened to."""
    detail: str
    """What more is known, for people."""
    before: State | None
    """The first entry before; None where there was none, and for an event of a VMA."""
    after: State | None
    """The first entry after; None likewise."""

    @classmethod
    def read(cls, raw: Raw) -> Event:
        """From JSON."""
        before, after = (None if raw[side] is None else State.read(raw[side]) for side in ("before", "after"))
        own = plain(cls, raw, "va", "end", "before", "after")
        return cls(va=number(raw["va"]), end=number(raw["end"]), before=before, after=after, **own)


@dataclass(frozen=True, slots=True)
class ProcessChanges(Fields):
    """What happened to one process."""

    process: Who
    """The process."""
    started_ns: int | None
    """When it was started, in nanoseconds since boot; None where that is not known."""
    lives: Literal["both", "started", "ended"]
    """Whether it existed both times."""
    events: tuple[Event, ...]
    """In the order of addresses."""
    notes: tuple[str, ...]
    """What is not known, and why."""


class Changes:
    """What happened between two looks.

    ``events`` are of the process that was looked at, ``processes`` are all to which something happened that is known.
    """

    def __init__(self, raw: Mapping[str, Any], process: Who, layout: Layout) -> None:
        self.raw = raw
        self.layout = layout
        self.processes = tuple(
            ProcessChanges(
                process=Who(each["pid"], each["name"]),
                started_ns=each["started_ns"],
                lives=each["lives"],
                events=tuple(map(Event.read, each["events"])),
                notes=tuple(each["notes"]),
            )
            for each in raw["processes"]
        )
        # What was left out or is not known, in one sentence each.
        self.notes: tuple[str, ...] = tuple(raw["notes"])
        self.events = self.of(process.pid)

    def of(self, pid: int) -> tuple[Event, ...]:
        """What happened to the process with this pid, if anything."""
        return next((each.events for each in self.processes if each.process.pid == pid), ())

    def told(self, area: Range, pid: int | None = None) -> list[str]:
        """The events in an area, as ``fold 0-16``: what happened, first page and the page behind the last."""
        first, end, page = area.address, area.address + area.length, self.layout.page
        events = self.events if pid is None else self.of(pid)
        return [
            f"{event.kind} {(event.va - first) // page}-{(event.end - first) // page}"
            for event in events
            if event.va < end and event.end > first
        ]
