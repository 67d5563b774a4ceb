# SPDX-License-Identifier: GPL-2.0-only
"""How often the kernel takes locks that many CPUs want: calls of the functions that take them, by the counter.

Spin locks are inlined in this kernel, so a lock is known by its function. That is a count of what could wait for each
other, and says nothing of waiting: the tasks of a guest of one CPU do not.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ..client import GuestLost
from . import tables
from .kinds import Experiment

#: Of Linux 6.12 (mm/, kernel/locking/rwsem.c). What else takes a lock is inlined into other functions, and is not
#: counted: an allocation of an order that no CPU's lists keep takes the zone's in ``rmqueue()``.
LOCKS: Mapping[str, Sequence[str]] = {
    "LRU lock": ("folio_lruvec_lock", "folio_lruvec_lock_irq", "folio_lruvec_lock_irqsave"),
    "zone lock, but in rmqueue()": ("rmqueue_bulk", "free_pcppages_bulk", "free_one_page"),
    "deferred split queue": ("deferred_split_folio", "__folio_unqueue_deferred_split"),
    "page table lock": ("__pte_offset_map_lock",),
    "VMA lock, read": ("lock_vma_under_rcu",),
    "mmap_lock and other rw_semaphores": ("down_read", "down_read_trylock", "down_write", "down_write_killable"),
}
_NM = ("aarch64-linux-gnu-nm", "nm")


def listed(vmlinux: Path) -> str:
    """The functions of all locks that this kernel has, with the addresses that it is linked at: a line for each."""
    program = next((path for name in _NM if (path := shutil.which(name))), None)
    if program is None or not vmlinux.is_file():
        raise GuestLost(f"expected nm and a vmlinux at {vmlinux} and found not both; make lab installs and builds them")
    symbols = subprocess.run([program, vmlinux], capture_output=True, text=True, check=True).stdout
    wanted = {name for names in LOCKS.values() for name in names}
    found: dict[str, str] = {}
    for line in symbols.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "tT" and words[2] in wanted:
            found[words[2]] = words[0]
    return "".join(f"{name} {address}\n" for name, address in sorted(found.items()))


def table(experiment: Experiment, settings: Sequence[dict[str, Any]], count: int) -> Iterator[str]:
    """A row for each lock and interval, a cell for each setting."""
    counted = [setting for setting in settings if setting.get("locks")]
    if not counted:
        return
    rows = [[f"locks taken per {experiment.unit}", *(setting["name"] for setting in counted)]]
    for interval in dict.fromkeys(name for setting in counted for name in setting["locks"]):
        units = experiment.count(count, interval)
        for lock, functions in LOCKS.items():
            sums = [_sums(setting["locks"].get(interval, {}), functions) for setting in counted]
            # A lock without a function of its own is no zero.
            cells = [f"{median(runs) / units:,.4f}" if runs else "not counted" for runs in sums]
            rows.append([f"{lock}, {interval}", *cells])
    yield from tables.table(rows)


def _sums(calls: Mapping[str, Sequence[int]], functions: Sequence[str]) -> list[int]:
    return [sum(run) for run in zip(*(calls[name] for name in functions if name in calls), strict=True)]
