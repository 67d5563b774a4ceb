# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment is made of: a load, settings of the kernel, tasks, and what others have published of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .figures import Figure, answered_by

THP = "/sys/kernel/mm/transparent_hugepage"
#: The policies by which an anonymous folio's order is chosen.
POLICIES = ("baseline", "simple", "variable", "retry", "adaptive", "sysfs")
MIB = 1 << 20
#: Of the guests that experiments run in.
PAGE = 4096
_ORDER = f"{THP}/anon_order"
#: The switches that texts are about, each off: what a setting has no word of is as little on.
OFF = {f"{_ORDER}/{name}": "0" for name in ("align", "zero_page", "reuse", "copy", "zap_batch")}


@dataclass(frozen=True)
class Setting:
    """What an experiment is run under: an order policy, or other knobs beside ``variable``."""

    name: str
    policy: str = "variable"
    #: Files of the guest, and what is written there.
    knobs: Mapping[str, str] = field(default_factory=dict)
    #: The Image of another kernel.
    image: str = ""


@dataclass(frozen=True)
class Crowd:
    """So many tasks that do a load together, each its part of it."""

    count: int
    #: "processes" or "threads".
    kind: str

    def __str__(self) -> str:
        return f"{self.count} {self.kind if self.count > 1 else 'task'}"

    def of(self, interval: str) -> str:
        """The name of an interval that all of them go through."""
        return f"{interval}, {self}"


@dataclass(frozen=True)
class Experiment:
    """One load under several settings, of which the first is what the others are compared with."""

    name: str
    title: str
    load: str
    mib: int
    settings: tuple[Setting, ...]
    #: What an instruction count is given for: a page of 4K, a block of 16 pages, or an operation of the load.
    unit: str = "page"
    #: How often the load does it in one run, where once would be little beside a tick of the clock.
    times: int = 1
    #: By which numbers of tasks the load is done, its memory and its operations divided among them. The guest has
    #: several CPUs then.
    crowds: tuple[Crowd, ...] = ()
    #: MiB of each task of a crowd, where they do not divide ``mib`` among them; ``mib`` is then what all have at most.
    each: int = 0
    #: MiB that the guest has, where that is not what all others have.
    memory: int = 0
    #: Of which the guest has to have as many.
    cpus: int = 1
    #: Another kernel than the rig's own, by its name in out/: that with TCP.
    kernel: str = ""
    #: Each run is looked at, and begins with another seed.
    aged: bool = False
    #: Page frames are counted too, how often each was allocated.
    frames: bool = False
    #: The load begins programs of Debian's; the kernel's work is told apart by what it was entered for, and memory is
    #: looked at while they are at work.
    programs: bool = False
    #: One more guest has the recorder, which counts stores to page tables, TLBIs and DSBs by function of the kernel.
    steps: bool = False
    #: What a fault costs is told: the kernel's instructions for data aborts are told apart.
    per_fault: bool = False
    #: Calls of the functions that take locks are counted; the kernel runs where it was linked.
    locks: bool = False
    #: Not among all experiments: it takes hours, or wants more than all others. Measured where it is named.
    long: bool = False
    #: What one run of the load may take.
    seconds: float = 300.0
    #: What is otherwise where the lab has to be quick.
    quick: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recorded_runs(self) -> bool:
        """Whether something is claimed of how many folios faults bring: one run says nothing of a spread."""
        return any(figure.counted in ("faults", "pages") for figure in self.figures)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """What others have published that it answers."""
        return answered_by(self.name)

    def count(self, units: int, interval: str) -> int:
        """How many units an interval has, where a run that divides the load among its tasks has ``units``."""
        tasks = next((crowd.count for crowd in self.crowds if interval.endswith(crowd.of(""))), 0)
        return self.each * tasks * MIB // PAGE if self.each else units

    def hurried(self) -> Experiment:
        """The same for a quick lab."""
        return replace(self, **self.quick)


def crowds(kind: str, *counts: int) -> tuple[Crowd, ...]:
    """Tasks of one kind by these numbers."""
    return tuple(Crowd(count, kind) for count in counts)


#: The kernels of the texts, as far as this one can be put under them. The RFC retries with each lower order,
#: and does all that its 17 patches say. v1 of its successor left writes to what is there and the alignment out; v2 does
#: not retry either, and clears entries one by one.
TEXTS = {
    "rfc": Setting("rfc", "retry", dict.fromkeys(OFF, "1")),
    "v1": Setting("v1", "retry", {**OFF, f"{_ORDER}/zap_batch": "1"}),
    "v2": Setting("v2", "variable", OFF),
}
#: What the RFC proposes for its open question, on top of the rest of it.
ADAPTIVE_RFC = Setting("adaptive rfc", "adaptive", TEXTS["rfc"].knobs)


def policies(*names: str) -> tuple[Setting, ...]:
    """A setting for each policy or text. ``sysfs`` has 64K enabled, which is what the others choose."""
    sysfs = {f"{THP}/hugepages-64kB/enabled": "always"}
    return tuple(TEXTS.get(name) or Setting(name, name, sysfs if name == "sysfs" else {}) for name in names)


_SHMEM = f"{THP}/hugepages-64kB/shmem_enabled"
_FILES = f"{THP}/page_cache"
#: Shared anonymous memory without folios of 64K and with them; files of ramfs likewise.
SHMEM = (Setting("off", knobs={_SHMEM: "never"}), Setting("64K", knobs={_SHMEM: "always"}))
CACHE = (Setting("off", knobs={_FILES: "0"}), Setting("on", knobs={_FILES: "1"}))
#: For records of 4K by system calls: what a write brings in follows its length, or is a PMD's as in the text.
CALLS = (*CACHE, Setting("pmd", knobs={_FILES: "2"}))
