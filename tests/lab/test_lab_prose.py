# SPDX-License-Identifier: GPL-2.0-only
"""Figures that sentences and cover letters give beside the tables are those of the runs in docs/lab."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import pytest
from folioscope.lab import documents
from folioscope.lab.documents import results
from folioscope.lab.grades import instructions
from folioscope.lab.kinds import MIB
from folioscope.lab.locks import LOCKS

from command import ROOT

LAB = "docs/laboratory.md"
TOPICS = "kernel-patches/topics"
FOUND = results(ROOT / documents.RESULTS)


def measured(experiment: str) -> dict[str, Any]:
    """An experiment's results."""
    return next(each for each in FOUND[experiment]["experiments"] if each["name"] == experiment)


def setting(experiment: str, name: str) -> dict[str, Any]:
    """The results under one setting."""
    return next(each for each in measured(experiment)["settings"] if each["name"] == name)


def a_unit(experiment: str, name: str, *intervals: str, halves: Sequence[str] = ("user", "kernel")) -> float:
    """Instructions of a page, block or operation."""
    runs = instructions(setting(experiment, name), intervals, halves)
    return float(median(runs)) / int(measured(experiment)["units"])


def times(experiment: str, first: str, second: str, *intervals: str) -> float:
    """How many times as many instructions one setting takes as another."""
    return a_unit(experiment, first, *intervals) / a_unit(experiment, second, *intervals)


def mapped(experiment: str, name: str) -> float:
    """MiB that the load's processes have mapped."""
    return float(setting(experiment, name)["memory"]["mapped"]) / MIB


def fewer(*intervals: str) -> float:
    """How many times fewer instructions a pattern of iozone takes through a mapping with large folios."""
    return 1 / times("file_map", "on", "off", *intervals)


def lru_locks(name: str) -> float:
    """How often the LRU lock is taken for a page that is written."""
    calls = setting("locks", name)["locks"]["fault"]
    runs = zip(*(calls[function] for function in LOCKS["LRU lock"] if function in calls), strict=True)
    return float(median(map(sum, runs))) / int(measured("locks")["units"])


MALLOC = "fault", "release"
CALLS = "file_calls", "pmd", "off"
#: Where each stands, the words around the numbers, and what these are: the format and the value.
SAID: dict[str, tuple[str, str, Callable[[], list[tuple[str, float]]]]] = {
    "malloc1": (
        LAB,
        r"a turn takes (\S+) times the instructions of `baseline`, under the RFC's kernel with its 16 pages (\S+) "
        r"times",
        lambda: [(".2f", times("malloc1", name, "baseline", *MALLOC)) for name in ("adaptive", "rfc")],
    ),
    "malloc1 without align": (
        LAB,
        r"`variable` and `retry` without `align` bring 4 pages for (\S+) times",
        lambda: [(".2f", times("malloc1", "variable", "baseline", *MALLOC))],
    ),
    "page_fault1": (
        LAB,
        r"A walk through 32 MiB costs `adaptive` (\S+) times what it costs `retry`",
        lambda: [(".2f", times("page_fault1", "adaptive", "retry", "fault"))],
    ),
    "sparse": (
        LAB,
        r"With order 4, one page in each 64K takes 16 times the memory, as the RFC reckons, and (\S+) times the "
        r"instructions\. `adaptive` in a fresh area takes no more memory than single pages, and (\S+) times their",
        lambda: [
            (".1f", times("sparse", "variable", "baseline", "fault")),
            (".2f", times("sparse", "adaptive", "baseline", "fault")),
        ],
    ),
    "sparse_behind": (
        LAB,
        r"(\S+) MiB are mapped where single pages take (\S+) and order 4 takes (\S+), see",
        lambda: [(".1f", mapped("sparse_behind", name)) for name in ("adaptive", "baseline", "variable")],
    ),
    "forks": (
        LAB,
        r"After a fork the child's writes take (\S+) times the instructions, and the parent's (\S+) times those",
        lambda: [(".2f", times("forks", "rfc", "v1", interval)) for interval in ("pass", "again")],
    ),
    "file_calls": (
        LAB,
        r"an initial write by system calls takes (\S+) times the instructions, .* Rewrites take (\S+) times as many, "
        r"reads (\S+) times,",
        lambda: [(".2f", times(*CALLS, interval)) for interval in ("pass", "again", "read")],
    ),
    "folios of adaptive": (
        f"{TOPICS}/2-policy",
        r"\"adaptive\" also brings (\d+) folios of order 2 and (\d+) of order 3 there",
        lambda: [(".0f", setting("page_fault1", "adaptive")["orders"][order]) for order in ("2", "3")],
    ),
    "zap": (
        f"{TOPICS}/4-roadmap",
        r"Zapping one by one takes (\d+) instructions of the kernel for each page of order 4 folios, in batches (\d+)",
        lambda: [(".0f", a_unit("zap", name, "release", halves=["kernel"])) for name in ("off", "on")],
    ),
    "file_map": (
        f"{TOPICS}/5-ramfs",
        r"an initial write (\S+) times fewer, rewrites and random writes (\S+), reads of any order (\S+) \(4K",
        lambda: [(".1f", fewer(interval)) for interval in ("pass", "again", "read")],
    ),
    "file_map, others": (
        f"{TOPICS}/5-ramfs",
        r"an initial write \S+ times fewer, rewrites and random writes (\S+), reads of any order (\S+) \(4K",
        lambda: [(".1f", fewer(interval)) for interval in ("random write", "random read")],
    ),
    "file_calls of the letter": (
        f"{TOPICS}/5-ramfs",
        r"By system calls of 4K with 2, an initial write takes (\S+) times fewer, and a rewrite (\S+) times as many",
        lambda: [(".1f", 1 / times(*CALLS, "pass")), (".2f", times(*CALLS, "again"))],
    ),
    "forks of the letter": (
        f"{TOPICS}/6-write-faults",
        r"A child that writes all that it shares with its parent takes (\S+) times the instructions, and its parent's "
        r"writes after it (\S+) times",
        lambda: [(".2f", times("forks", "rfc", "v1", interval)) for interval in ("pass", "again")],
    ),
    "LRU lock": (
        f"{TOPICS}/4-roadmap",
        r"take the LRU lock (\S+) times for each page, and (\S+) times with lru_batch",
        lambda: [(".4f", lru_locks(name)) for name in ("rfc", "rfc, lru_batch")],
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_a_sentence_has_the_figures_of_the_runs(what: str) -> None:
    """It is there once, and each number in it is that of the results in the tree, rounded."""
    name, words, wanted = SAID[what]
    text = " ".join((ROOT / name).read_text().split())
    said = re.findall(words, text)
    assert len(said) == 1, f"{name} does not say: {words}"
    numbers = said[0] if isinstance(said[0], tuple) else (said[0],)
    assert list(numbers) == [format(value, of) for of, value in wanted()], f"{name}, of {what}: say what was measured"


def row(name: str) -> str:
    """A policy's row of the letter's table: the kernel's instructions of a page, and folios."""
    cost = [a_unit("page_fault1", name, interval, halves=["kernel"]) for interval in ("fault", "release")]
    orders = setting("page_fault1", name)["orders"]
    folios = [str(orders[order]) if orders.get(order) else "-" for order in ("0", "4")]
    label = "sysfs, 64K on" if name == "sysfs" else name
    return f"{label} {cost[0]:.0f} {cost[1]:.0f} {' '.join(folios)}"


def test_the_letters_table_is_of_the_runs() -> None:
    """Each policy has a row, which the results in the tree make again."""
    text = "\n".join(" ".join(line.split()) for line in (ROOT / TOPICS / "2-policy").read_text().splitlines())
    rows = [row(each["name"]) for each in measured("page_fault1")["settings"] if each["name"] != "rfc"]
    assert len(rows) == 6 and "\n".join(rows) in text, "make the table of topics/2-policy:\n" + "\n".join(rows)
