# SPDX-License-Identifier: GPL-2.0-only
"""Which page frames are allocated, and how often each: by the kernel's own trace event, counted where it happens."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from ..guest import Guest

TRACING = "/sys/kernel/tracing"
_TRIGGER = f"{TRACING}/events/kmem/mm_page_alloc/trigger"
#: Room for as many page frames as a guest of 1 GiB can have in use.
_COUNT = "hist:keys=pfn:size=131072"
_HIST = f"{TRACING}/events/kmem/mm_page_alloc/hist"
_LINE = re.compile(r"^\{ pfn: +(\d+) \} hitcount: +(\d+)$")
_DROPPED = re.compile(r"^ +Dropped: (\d+)$")
#: As many are named.
MOST = 5


class BadHistogram(ValueError):
    """The kernel's count of an event is not what it should be."""


def can_count(guest: Guest) -> bool:
    """Whether this kernel counts events by their fields; then the file to ask for it is there."""
    guest.run("/bin/busybox", "mount", "-t", "tracefs", "tracefs", TRACING)
    return guest.run("/bin/busybox", "test", "-e", _HIST).status == 0


def begin(guest: Guest) -> None:
    """Counts from now on."""
    guest.write(_TRIGGER, _COUNT)


def end(guest: Guest) -> dict[str, Any]:
    """What was counted since."""
    text = guest.read(_HIST)
    guest.write(_TRIGGER, f"!{_COUNT}")
    return summary(text)


def summary(text: str) -> dict[str, Any]:
    """Of a histogram: allocations, frames that served, how often those most often used did, and how many did half."""
    counts: Counter[int] = Counter()
    dropped = None
    for line in text.splitlines():
        if found := _LINE.match(line):
            counts[int(found[1])] += int(found[2])
        elif found := _DROPPED.match(line):
            dropped = int(found[1])
    if dropped != 0 or not counts:
        raise BadHistogram(f"expected the counts of all page frames and found {len(counts)}, and {dropped} left out")
    whole, half = counts.total(), 0
    reached = 0
    for _, count in counts.most_common():
        reached += count
        half += 1
        if 2 * reached >= whole:
            break
    most = [{"pfn": pfn, "times": count} for pfn, count in counts.most_common(MOST)]
    return {"allocations": whole, "frames": len(counts), "half": half, "most": most}
