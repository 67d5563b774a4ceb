# SPDX-License-Identifier: GPL-2.0-only
"""What this host has room for."""

from __future__ import annotations

import os
import re
from pathlib import Path

#: More guests want more memory than a laptop has.
MOST = 4
#: MiB that a guest takes beside its own memory.
BESIDE = 512


def guests(memory_mib: int, meminfo: Path = Path("/proc/meminfo"), most: int = MOST) -> int:
    """How many guests of so much memory run at once: one on each CPU, as far as memory goes. Page cache
    counts as available."""
    found = re.findall(r"^MemAvailable: *(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    available = int(found[0]) >> 10
    return max(1, min(len(os.sched_getaffinity(0)), most, available // (memory_mib + BESIDE)))
