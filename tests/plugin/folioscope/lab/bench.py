# SPDX-License-Identifier: GPL-2.0-only
"""Runs one experiment: a guest for each setting, whose time is its instructions, and a load in it."""

from __future__ import annotations

import resource
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..client import CommandFailed, GuestLost, Session
from ..guest import Guest
from ..locate import command
from .experiments import MIB, THP, Crowd, Experiment, Setting
from .frames import begin, can_count, end
from .locks import listed
from .marks import DID, Interval, intervals
from .memory import look, watched
from .orders import NOT_BUILT
from .steps import steps

#: Runs of the load before those that count: the first finds nothing in the kernel's caches.
WARM = 1
LOAD = "/lab/load"
COUNTING = f"{THP}/anon_order/contpte"
RECORD = f"{THP}/anon_order/record"
#: What an interval has of each run: instructions, those of some kinds, and the host's time.
COUNTED = ("user", "kernel", *DID, "ns")
Result = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Where experiments run."""

    #: The initramfs with the loads, which vmm/setup/loads.sh makes.
    initrd: Path
    #: Where guests leave their logs.
    out: Path
    granule: str = "4k"
    memory_mib: int = 1024
    #: More of the command line of ``folioscope session``: a kernel, a CPU model.
    more: tuple[str, ...] = ()
    #: How often a load is measured.
    runs: int = 15
    #: Of the guest of a load with several tasks.
    cpus: int = 4
    #: The initramfs that has Debian's programs as well, which vmm/setup/programs.sh makes.
    programs: Path | None = None
    #: Loads are shorter where experiments say so.
    quick: bool = False

    def boot(
        self,
        marks: Path | None,
        *,
        icount: bool = True,
        cpus: int = 1,
        memory_mib: int = 0,
        kernel: str | Path = "",
        programs: bool = False,
        entries: bool = False,
        functions: Path | None = None,
    ) -> Guest:
        """A guest whose counter writes to ``marks``, or without a place for these one that is recorded; of another
        kernel than the rig's unless the user named one."""
        memory = memory_mib or self.memory_mib
        initrd = self.programs if programs else self.initrd
        arguments = ["--machine", "tcg", "--granule", self.granule, "--initrd", str(initrd), "--smp", str(cpus)]
        arguments += ["--memory", f"{memory}M", "--out", str(self.out), *self.more]
        arguments += ["--record"] if marks is None else ["--marks", str(marks)]
        if functions:
            # By the addresses that it is linked at.
            arguments += ["--functions", str(functions), "--append", "nokaslr"]
        arguments += ["--entries"] * entries + ["--icount"] * (icount and marks is not None)
        if kernel and "--kernel" not in self.more:
            arguments += ["--kernel", str(kernel)]
        return Guest(Session(arguments, log=self.out / "lab.log"), self.granule)

    @property
    def cpu(self) -> str:
        """The CPU model."""
        return self.more[self.more.index("--cpu") + 1] if "--cpu" in self.more else "max"

    def vmlinux_of(self, experiment: Experiment, setting: Setting) -> Path:
        """The vmlinux of that Image."""
        if "--vmlinux" in self.more:
            return Path(self.more[self.more.index("--vmlinux") + 1])
        image = self.more[self.more.index("--kernel") + 1] if "--kernel" in self.more else ""
        image = str(image or self.kernel_of(experiment, setting))
        own = command().directory / "out" / f"kernel-{self.granule}" / "Image"
        return Path(image or own).with_name("vmlinux")

    def kernel_of(self, experiment: Experiment, setting: Setting) -> str | Path:
        """The Image that a setting wants; nothing for the rig's own."""
        if setting.image:
            return setting.image
        return command().directory / "out" / experiment.kernel / "Image" if experiment.kernel else ""


def missing(guest: Guest, setting: Setting) -> str | None:
    """Why this kernel cannot be put under a setting; None where it can be, and then it is."""
    if setting.policy in guest.policies:
        guest.set_policy(setting.policy)
    elif setting.policy not in ("sysfs", "variable") or (setting.policy == "variable" and setting.name == "variable"):
        has = ", ".join(guest.policies) or "none"
        return f"the kernel has no order policy {setting.policy} (it has {has}), so this setting was left out"
    # No folio of a PMD: the orders that are argued about are below.
    knobs = {f"{THP}/enabled": "always", f"{THP}/hugepages-2048kB/enabled": "never", **setting.knobs}
    for path, value in knobs.items():
        try:
            guest.write(path, value)
        except CommandFailed as error:
            if path in setting.knobs:
                return f"the kernel takes no {value} in {path} ({error}), so this setting was left out"
    return None


def lacking(guest: Guest, experiment: Experiment) -> str | None:
    """What of the kernel an experiment needs and this one does not have."""
    if experiment.load == "tcp" and guest.run("/bin/busybox", "test", "-d", "/proc/sys/net/ipv4").status:
        return "the kernel has no TCP (CONFIG_INET), so this setting was left out"
    if experiment.frames and not can_count(guest):
        return "the kernel does not count events by their fields (CONFIG_HIST_TRIGGERS), so this setting was left out"
    return None


def measure(bench: Bench, experiment: Experiment, setting: Setting) -> Result:
    """One experiment under one setting: the instructions of each run, and what was decided in one more."""
    began, used = time.monotonic(), _used()
    if bench.quick:
        experiment = experiment.hurried()
    result: Result = {"name": setting.name, "missing": None, "lost": None, "intervals": {}, "orders": {}, "blocks": {}}
    result |= {"memory": None, "frames": [], "looks": [], "entries": {}, "faults": [], "water": [], "steps": None}
    result["locks"] = {}
    cpus = bench.cpus if experiment.crowds else experiment.cpus
    memory = experiment.memory or bench.memory_mib
    # What has to be alike where two are compared.
    result["load"] = {"words": words(experiment, None), "cpus": cpus, "memory_mib": memory, "cpu": bench.cpu}
    if setting.image == NOT_BUILT:
        return {**result, "missing": "this kernel is not built (make series builds it), so it was left out"}
    with tempfile.TemporaryDirectory(prefix="folioscope-lab-") as place:
        marks = Path(place) / "marks"

        functions = Path(place) / "functions" if experiment.locks else None

        def boot(marks: Path | None) -> Guest:
            if functions and not functions.exists():
                functions.write_text(listed(bench.vmlinux_of(experiment, setting)))
            return bench.boot(
                marks,
                cpus=cpus,
                memory_mib=memory,
                kernel=bench.kernel_of(experiment, setting),
                programs=experiment.programs,
                entries=marks is not None and (experiment.programs or experiment.per_fault),
                functions=functions if marks is not None else None,
            )

        try:
            guest = boot(marks)
        except GuestLost as error:
            return {**result, "lost": str(error)}
        try:
            result["guest"] = guest.hello.kernel_release
            result["missing"] = missing(guest, setting) or lacking(guest, experiment)
            if result["missing"] is None:
                _runs(bench, guest, experiment, marks, result)
                if experiment.steps:
                    guest.session.close()
                    guest = boot(None)
                    missing(guest, setting)
                    _quiet(guest)
                    result["steps"] = steps(guest, words(experiment, None))
        except GuestLost as error:
            result["lost"] = str(error)
        finally:
            guest.session.close()
    result["seconds"] = {"all": round(time.monotonic() - began, 1), "cpu": round(_used() - used, 1)}
    return result


def _used() -> float:
    """Seconds of the host's CPUs that guests of this process have had which are gone."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def _quiet(guest: Guest) -> None:
    # Where an area begins within a block is for its settings to decide, and not for chance.
    guest.write("/proc/sys/kernel/randomize_va_space", "0")
    # What the record costs is none of the load's.
    _switch(guest, RECORD, "0")


def _runs(bench: Bench, guest: Guest, experiment: Experiment, marks: Path, result: Result) -> None:
    _quiet(guest)
    if experiment.aged:
        _aged(bench, guest, experiment, marks, result)
        return
    total = result["load"]["memory_mib"] * MIB
    for crowd in experiment.crowds or (None,):
        for run in range(WARM + bench.runs):
            before = len(marks.read_text().splitlines())
            water = _load(guest, experiment, crowd, (marks, total) if experiment.programs else None)
            found = intervals(marks, before)
            if run < WARM:
                continue
            _take_in(result, found, crowd, run - WARM)
            if water:
                result["water"].append(water)
    largest = experiment.crowds[-1] if experiment.crowds else None
    # Once more with all that is counted switched on; as often as before where something is claimed of that.
    _switch(guest, RECORD, "1")
    for _ in range(bench.runs if experiment.recorded_runs else 1):
        if not _recorded(guest, experiment, largest, result):
            break
    _switch(guest, COUNTING, "0")
    _switch(guest, RECORD, "0")
    for _ in range(bench.runs if experiment.frames else 0):
        begin(guest)
        _load(guest, experiment, largest)
        result["frames"].append(end(guest))
    result["memory"] = look(guest, words(experiment, largest), programs=experiment.programs)


def _take_in(result: Result, found: Sequence[Interval], crowd: Crowd | None, runs: int) -> None:
    """One more run. By name: a load may go through an interval more than once."""
    sums: dict[str, Counter[str]] = {}
    calls: dict[str, Counter[str]] = {}
    entries: Counter[tuple[str, str]] = Counter()
    for each in found:
        name = crowd.of(each.name) if crowd else each.name
        sums.setdefault(name, Counter()).update(user=each.user, kernel=each.kernel, ns=each.ns, **each.did)
        calls.setdefault(name, Counter()).update(each.functions)
        for cause, (times, count) in each.entries.items():
            entries.update({(cause, "times"): times, (cause, "instructions"): count})
    result["entries"] = _with(result["entries"], entries, runs)
    for name, sum in sums.items():
        counts = result["intervals"].setdefault(name, {kind: [] for kind in COUNTED})
        for kind, of_runs in counts.items():
            of_runs.append(sum[kind])
        for function, count in calls[name].items():
            result["locks"].setdefault(name, {}).setdefault(function, []).append(count)


def _recorded(guest: Guest, experiment: Experiment, crowd: Crowd | None, result: Result) -> bool:
    """One run whose decisions are counted; whether this kernel does that."""
    try:
        if not _switch(guest, COUNTING, "1"):
            return False
        counts = guest.counts()
        _load(guest, experiment, crowd)
        since = guest.counts().since(counts)
    except CommandFailed:  # a kernel without symbols for what it counts
        return False
    orders: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    for decision, count in (since.orders or {}).items():
        faults.append({"path": decision.path, "order": decision.chosen, "why": decision.why, "times": count})
        if decision.chosen is not None:
            orders[str(decision.chosen)] += count
    result["faults"].append(sorted(faults, key=lambda each: (each["path"], -each["times"], each["why"])))
    result["orders"] = result["orders"] or dict(sorted(orders.items()))
    blocks = {event: count for event, count in sorted((since.contpte or {}).items()) if count}
    result["blocks"] = result["blocks"] or blocks
    return True


def _with(
    before: Mapping[str, Mapping[str, list[int]]], entries: Mapping[tuple[str, str], int], runs: int
) -> dict[str, dict[str, list[int]]]:
    """What the kernel was entered for, run by run, with one run more than the ``runs`` before."""
    causes = sorted({*before, *(cause for cause, _ in entries)})
    return {
        cause: {
            part: [*before.get(cause, {}).get(part, [0] * runs), entries.get((cause, part), 0)]
            for part in ("times", "instructions")
        }
        for cause in causes
    }


def _aged(bench: Bench, guest: Guest, experiment: Experiment, marks: Path, result: Result) -> None:
    """Each run with a seed of its own, ended where it is looked at, behind the first interval."""
    for seed in range(1, bench.runs + 1):
        before = len(marks.read_text().splitlines())
        found = look(guest, [*words(experiment, None), "--seed", str(seed)], seconds=experiment.seconds)
        if found is None:
            result["missing"] = "the kernel does not say what is mapped and free, so this setting was left out"
            return
        result["looks"].append(found)
        _take_in(result, intervals(marks, before), None, seed - 1)
    shares = sorted(result["looks"], key=lambda each: float(each["contiguous"] / each["mapped"]))
    result["memory"] = shares[len(shares) // 2]


def _switch(guest: Guest, path: str, value: str) -> bool:
    try:
        guest.write(path, value)
    except CommandFailed:  # a kernel without that patch
        return False
    return True


def words(experiment: Experiment, crowd: Crowd | None) -> list[str]:
    """The load's command line: memory or operations are divided among the tasks."""
    pages, count = experiment.unit == "page", crowd.count if crowd else 1
    bytes_ = experiment.each * MIB if experiment.each else experiment.mib * MIB // (count if pages else 1)
    found = [LOAD, experiment.load, str(bytes_)]
    if experiment.times > 1:
        found += ["--turns", str(experiment.times // count)]
    return found + ([f"--{crowd.kind}", str(count)] if crowd else [])


def _load(
    guest: Guest, experiment: Experiment, crowd: Crowd | None = None, watch: tuple[Path, int] | None = None
) -> dict[str, int] | None:
    """One run of the load. With marks, and the bytes that the guest has, memory is looked at meanwhile."""
    argv, water = words(experiment, crowd), None
    if watch is None:
        program = guest.run(*argv, seconds=experiment.seconds)
    else:
        program, water = watched(guest, argv, *watch, experiment.seconds)
    if program.status != 0:
        how = program.signal or f"status {program.status}"
        raise GuestLost(f"the load {experiment.load} ended with {how}: {program.stderr.strip() or 'without a word'}")
    return water


def units(experiment: Experiment, page: int = 4096) -> int:
    """How many pages, blocks or operations a run of the load goes through."""
    one = {
        "page": experiment.mib * MIB // page,
        "block": experiment.mib * MIB // (16 * page),
        "operation": experiment.times,
    }
    return one[experiment.unit]
