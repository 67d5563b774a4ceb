# SPDX-License-Identifier: GPL-2.0-only
"""The memory of a load, as it is from outside: by folio order where it is stopped, and what is free while it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..client import CommandFailed, GuestLost
from ..guest import Guest
from ..model import Program
from .kinds import PAGE

#: Stops at the end of its first interval, and then says so by its state.
_HELD = """
"$@" --hold </dev/null >/dev/null 2>&1 &
until grep -q '^State:.T' /proc/$!/status; do
    kill -0 $! || exit 1
    sleep 0.1
done
"""
#: Begun, and left alone: whoever waits for it would be in the way of those who look.
_BEGIN = '("$@" </dev/null >/said 2>&1; echo $? >/ended.new; mv /ended.new /ended) </dev/null >/dev/null 2>&1 &'
_ENDED = "while [ ! -e /ended ]; do sleep 0.1; done; cat /said; exit $(cat /ended; rm /ended)"
#: Seconds between two looks.
_BETWEEN = 0.2
#: So many looks are of free pages alone before one asks who is there.
_LOOKS = 10
_BEGIN_SECONDS = 20.0
#: A guest is at rest where so many looks in a row, so far apart, have the same; it is waited for no longer than this.
_ALIKE = 3
_REST = 0.05
_RESTS = 60
#: The kernel's name of a task is its program's.
_NAME = "load"
#: That of the process whose memory has aged.
_AGED = "aged"
#: Those of Debian's programs.
_PROGRAMS = ("cc1", "node")
_END_SECONDS = 60.0


def look(
    guest: Guest, words: Sequence[str], *, programs: bool = False, seconds: float = 300.0
) -> dict[str, Any] | None:
    """Bytes that a load's processes map at the end of its first interval: all, contiguous, by folio order; and by how
    many pages fewer are free than before. None where this kernel cannot be asked for VMAs or free pages.

    Of a load that has begun ``programs`` it is what these map where each is about to go, but for their files. A page
    that several processes map counts for each.
    """
    try:
        before = _rested(guest)
    except CommandFailed:
        return None
    started = guest.run("/bin/busybox", "sh", "-c", _HELD, "sh", *words, seconds=seconds)
    if started.status != 0:
        raise GuestLost(
            f"the load {words[1]} did not stop to be looked at: {started.stderr.strip() or 'without a word'}"
        )
    tasks = guest.tasks()
    held = [task.pid for task in tasks if task.name == _NAME]
    looked = [task.pid for task in tasks if task.name in _PROGRAMS] if programs else held
    try:
        areas = [area for pid in looked for area in guest.vmas(pid) if not (programs and area.inode)]
        taken = before - free(guest)
    except CommandFailed:
        return None
    finally:
        _end(guest, held)
    folios: Counter[str] = Counter()
    for area in areas:
        folios.update({str(order): size for order, size in area.folios.items()})
    return {
        "mapped": sum(area.mapped for area in areas),
        "contiguous": sum(area.contiguous for area in areas),
        "folios": dict(sorted(folios.items(), key=lambda each: int(each[0]))),
        "taken": taken,
    }


def _end(guest: Guest, held: Sequence[int]) -> None:
    """Kills what was held, and waits for it and its like to be gone: the next load needs their memory."""
    guest.run("/bin/busybox", "kill", "-KILL", *map(str, held))
    end = time.monotonic() + _END_SECONDS
    while any(task.name in (_NAME, _AGED, *_PROGRAMS) for task in guest.tasks()):
        if time.monotonic() > end:
            raise GuestLost(f"a load that was killed is still there after {_END_SECONDS:.0f} s")
        time.sleep(0.05)


def watched(
    guest: Guest, words: Sequence[str], marks: Path, total: int, seconds: float
) -> tuple[Program, dict[str, int] | None]:
    """Runs a load of one interval, and looks from outside at what of ``total`` bytes is not free, and not available:
    the least and the most of it, from its begin to its end; None where that cannot be read. The guest is not asked
    meanwhile."""
    before = len(marks.read_text().splitlines())
    guest.run("/bin/busybox", "sh", "-c", _BEGIN, "sh", *words, seconds=_BEGIN_SECONDS)
    used: list[int] = []
    unavailable: list[int] = []
    able = True
    looks, end = 0, time.monotonic() + seconds
    while (lines := len(marks.read_text().splitlines()) - before) < 2:
        if time.monotonic() > end:
            raise GuestLost(f"the load {words[1]} did not end within {seconds:.0f} s")
        looks += 1
        if looks % _LOOKS == 0 and all(task.name != _NAME for task in guest.tasks()):
            break
        if lines == 1 and able:
            try:
                of = _counted(guest)
                used.append(total - of.free * PAGE)
                unavailable.append(total - of.available * PAGE)
            except CommandFailed:
                # A lock was held at each of its stops; or a kernel does not say so, and never will.
                able = bool(used)
        time.sleep(_BETWEEN)
    program = guest.run("/bin/busybox", "sh", "-c", _ENDED, seconds=_END_SECONDS)
    ended = Program(program.status, program.signal, "", program.stdout, program.truncated)
    if not used:
        return ended, None
    marks_of = {"low": min(used), "high": max(used)}
    marks_of |= {"low_unavailable": min(unavailable), "high_unavailable": max(unavailable)}
    return ended, marks_of | {"looks": len(used)}


def _rested(guest: Guest) -> int:
    """Free pages once what has ended has given back all: some of it waits for other CPUs, and for a tick (RCU)."""
    found, alike = free(guest), 0
    for _ in range(_RESTS):
        time.sleep(_REST)
        before, found = found, free(guest)
        alike = alike + 1 if found == before else 0
        if alike == _ALIKE:
            break
    return found


class Free(NamedTuple):
    """Pages that are free, and pages that are available by ``MemAvailable``."""

    free: int
    available: int


def free(guest: Guest) -> int:
    """Pages that are free, in the zones' lists and on those of each CPU, by these lists themselves."""
    return _counted(guest).free


def _counted(guest: Guest) -> Free:
    # Somebody may hold a zone's lock when the guest is stopped.
    for _ in range(8):
        counted = guest.call("counted")["counted"]
        zones, available = counted["zones"].get("Ok", ()), counted["available"].get("Ok")
        parts = [zone["areas"] for zone in zones], [cpu for zone in zones for cpu in zone["cpus"]]
        if zones and available and all("Ok" in part for half in parts for part in half):
            areas = sum(of["listed"] << of["order"] for part in parts[0] for of in part["Ok"])
            listed = areas + sum(cpu["Ok"]["listed"] for cpu in parts[1])
            return Free(listed, available["pages"])
    raise CommandFailed({"message": "the lists of free pages could not be read"})
