"""What an experiment is made of: a load, settings of the kernel, tasks, and what others have measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

THP = "/sys/kernel/mm/transparent_hugepage"
#: The policies by which an anonymous folio's order is chosen.
POLICIES = ("baseline", "simple", "variable", "retry", "adaptive", "sysfs")
MIB = 1 << 20


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
class Theirs:
    """What others have measured: how many times as many operations a second ``setting`` has as the first."""

    setting: str
    #: The intervals of the load that one such operation goes through.
    intervals: tuple[str, ...]
    times: float
    #: As they print it, and where.
    printed: str
    source: str
    #: Why it is not to be expected here, where that is known.
    why_not: str = ""
    #: What they have counted: see report.py's runs_of().
    counted: str = "instructions"
    #: Against which setting, where that is not the first.
    against: str = ""
    #: Where theirs is a range, and no direction.
    within: tuple[float, float] | None = None


@dataclass(frozen=True)
class Experiment:
    """One load under several settings, of which the first is what the others are compared with."""

    name: str
    title: str
    load: str
    mib: int
    settings: tuple[Setting, ...]
    theirs: tuple[Theirs, ...] = ()
    #: What an instruction count is given for: a page of 4K, a block of 16 pages, or an operation of the load.
    unit: str = "page"
    #: How often the load does it in one run, where once would be little beside a tick of the clock.
    times: int = 1
    #: By which numbers of tasks the load is done, its memory and its operations divided among them. The guest has
    #: several CPUs then.
    crowds: tuple[Crowd, ...] = ()
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
    #: Not among all experiments: it takes hours, or wants more than all others. Measured where it is named.
    long: bool = False
    #: What one run of the load may take.
    seconds: float = 300.0
    #: What is otherwise where the lab has to be quick.
    quick: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recorded_runs(self) -> bool:
        """Whether something is claimed of how many folios faults bring: one run says nothing of a spread."""
        return any(theirs.counted == "faults" for theirs in self.theirs)

    def hurried(self) -> Experiment:
        """The same for a quick lab."""
        return replace(self, **self.quick)


def crowds(kind: str, *counts: int) -> tuple[Crowd, ...]:
    """Tasks of one kind by these numbers."""
    return tuple(Crowd(count, kind) for count in counts)


def policies(*names: str) -> tuple[Setting, ...]:
    """A setting for each policy. ``sysfs`` has the size of a contiguous block enabled, as the others choose it."""
    return tuple(
        Setting(name, name, {f"{THP}/hugepages-64kB/enabled": "always"} if name == "sysfs" else {}) for name in names
    )


#: Of the load, and what iozone's report calls them, in the order in which the cover letter has them.
PATTERNS = {
    "pass": "initial writers",
    "again": "rewriters",
    "read": "readers",
    "reread": "re-readers",
    "reverse": "reverse readers",
    "random read": "random readers",
    "random write": "random writers",
}

_SHMEM = f"{THP}/hugepages-64kB/shmem_enabled"
_FILES = f"{THP}/page_cache"
#: Shared anonymous memory without folios of 64K and with them; files of ramfs likewise.
SHMEM = (Setting("off", knobs={_SHMEM: "never"}), Setting("64K", knobs={_SHMEM: "always"}))
CACHE = (Setting("off", knobs={_FILES: "0"}), Setting("on", knobs={_FILES: "1"}))
