# SPDX-License-Identifier: GPL-2.0-only
"""What each step of a load does to page tables: stores, TLBIs and DSBs by function of the kernel, by the recorder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..client import GuestLost
from ..guest import Guest
from . import tables

#: Of the kernel, and what they do; each is called by others that do more.
FUNCTIONS = {
    "handle_mm_fault": "a fault",
    "__contpte_try_unfold": "an unfold",
    "__contpte_try_fold": "a fold, and looking whether there can be one",
    "change_protection": "mprotect(), unfolds and folds included",
    "unmap_vmas": "unmapping, entry by entry",
    "tlb_finish_mmu": "unmapping, the TLB",
}
_SECONDS = 300.0
#: Of each length. What others in the guest do besides, as a copy on write after a fork, comes on top, and is in some.
#: Now and then one has less: the pages that a fault maps around a file's. So it is the second least that is taken.
_RUNS = 5
_KINDS = ("stores", "tlbis", "dsbs")


def steps(guest: Guest, words: Sequence[str]) -> dict[str, Any]:
    """Of a load's memory once: what a run of twice as much does more than one of it, by the second least of each, so
    that what a program does besides is in neither. The guest has the recorder."""
    taken: list[dict[str, dict[str, int]]] = []
    total = 0
    not_judged: list[str] = []
    # The first finds nothing in the page cache, and what is executed there the first time wants DSBs of its own.
    guest.run(*words, seconds=_SECONDS)
    for times in (1, 2):
        argv = [*words[:2], str(times * int(words[2])), *words[3:]]
        runs = []
        for _ in range(_RUNS):
            with guest.recording() as trace:
                program = guest.run(*argv, seconds=_SECONDS)
            if program.status != 0:
                raise GuestLost(f"the load {words[1]} ended with status {program.status} under the recorder")
            total += trace.total
            not_judged += [why for why in trace.not_judged if why not in not_judged]
            runs.append(trace.calls or {})
        taken.append(
            {
                name: {kind: sorted(getattr(run.get(name), kind, 0) for run in runs)[1] for kind in _KINDS}
                for name in FUNCTIONS
            }
        )
    once, twice = taken
    functions = {name: {kind: twice[name][kind] - once[name][kind] for kind in _KINDS} for name in FUNCTIONS}
    return {"functions": functions, "findings": total, "not_judged": not_judged}


def table(settings: Sequence[dict[str, Any]], unit: str, count: int) -> Iterator[str]:
    """A row for each function, a cell for each setting."""
    counted = [setting for setting in settings if setting["steps"]]
    if not counted:
        return
    rows = [[f"stores to page tables, TLBIs, DSBs per {unit}", *(setting["name"] for setting in counted)]]
    for name, does in FUNCTIONS.items():
        done = [setting["steps"]["functions"][name] for setting in counted]
        if not any(each[kind] for each in done for kind in _KINDS):
            # The compiler may have made it a part of others: that is no zero.
            rows.append([f"`{name}`: {does}", *("not seen" for _ in counted)])
            continue
        # No zero below zero.
        per = ([round(each[kind] / count, 1) + 0 for kind in _KINDS] for each in done)
        rows.append([f"`{name}`: {does}", *(", ".join(f"{each:,.1f}" for each in kinds) for kinds in per)])
    yield from tables.table(rows)
    for setting in counted:
        if setting["steps"]["findings"]:
            yield f"\n{setting['name']}: the recorder found {setting['steps']['findings']} sequences that break a rule"
        for sentence in setting["steps"]["not_judged"]:
            yield f"\n{setting['name']}: the recorder has not judged all: {sentence}"
