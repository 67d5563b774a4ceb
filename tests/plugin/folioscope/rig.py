# SPDX-License-Identifier: GPL-2.0-only
"""Who owns the guests of a run: each boots when it is first asked for, and serves all tests that want the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from . import machines
from .client import Session
from .guest import Guest

# Guests that stay booted side by side; each takes the memory that its kernel touches, some 100 MiB.
KEEP = 4


@dataclass(frozen=True)
class Wanted:
    """What identifies a guest: two tests that want the same share it."""

    granule: str
    cpu: str
    machine: str
    # More of the command line of ``folioscope session``.
    more: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """As ``folioscope session`` takes them."""
        return ["--granule", self.granule, "--cpu", self.cpu, *machines.arguments(self.machine), *self.more]

    def __str__(self) -> str:
        rest = [hashlib.sha256("\0".join(self.more).encode()).hexdigest()[:8]] if self.more else []
        return "-".join([self.granule, self.cpu, self.machine, *rest])


class Rig:
    """Owns every guest: boots it when first asked for, replaces one that is lost, ends all at the end."""

    def __init__(self, out: Path) -> None:
        self._out = out.absolute()
        self._guests: dict[Wanted, Guest] = {}
        self._carriers = machines.Carriers(self._out)
        self._booted = 0

    def guest(self, wanted: Wanted) -> Guest:
        """A live guest; the one that others use as well, if there is one."""
        if (guest := self._guests.get(wanted)) and not guest.session.lost:
            self._guests[wanted] = self._guests.pop(wanted)
            return guest
        self.drop(wanted)
        # Another carrier than the one that there is, or none, ends the guests in that one.
        for other in list(self._guests):
            if other.machine in machines.CARRIED and (other.machine, other.cpu) != (wanted.machine, wanted.cpu):
                self.drop(other)
        environment = self._carriers.environment(wanted.machine, wanted.cpu)
        while len(self._guests) >= KEEP:
            self.drop(next(iter(self._guests)))
        self._booted += 1
        name = "".join(c if c.isalnum() or c in "-." else "_" for c in str(wanted))
        place = self._out / f"{self._booted:03d}-{name}"
        session = Session(
            [*wanted.arguments(), "--out", str(place)], log=place / "session.log", environment=environment
        )
        self._guests[wanted] = Guest(session, wanted.granule)
        return self._guests[wanted]

    def drop(self, wanted: Wanted) -> None:
        """Ends a guest."""
        if guest := self._guests.pop(wanted, None):
            guest.session.close()

    def close(self) -> None:
        """Ends all guests."""
        for wanted in list(self._guests):
            self.drop(wanted)
        self._carriers.close()
