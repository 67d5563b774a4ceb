# SPDX-License-Identifier: GPL-2.0-only
"""The laboratory on guests: its counter of instructions, its experiments, and what it looks at from outside."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from folioscope.client import GuestLost
from folioscope.guest import Guest
from folioscope.lab import bench as lab_bench
from folioscope.lab import side_by_side
from folioscope.lab.bench import Bench, measure, units
from folioscope.lab.experiments import EXPERIMENTS, MIB, Crowd, Experiment, Setting, crowds, policies
from folioscope.lab.marks import SIZES
from folioscope.lab.memory import PAGE
from folioscope.lab.orders import NOT_BUILT
from folioscope.lab.report import instructions, markdown

from laboratory import FEW, bench, built, lab

__all__ = ["bench"]

pytestmark = pytest.mark.only_machine("tcg")

# What the least of some runs may differ by from guest to guest, whose time is its instructions: what else a kernel does
# falls into some runs (at most 4 % was seen) and rarely into all (0.3 % of five on a busy host).
SPREAD = 0.02

FAULTS = Experiment("page_fault1", "", "page_fault1", 4, policies("baseline", "variable"))


def without_folio(setting: dict[str, Any]) -> int:
    """Bytes that are mapped of what is no folio: the zero page where data was read and not written, and the vDSO's."""
    return int(setting["memory"]["mapped"] - sum(setting["memory"]["folios"].values()))


def test_workers_end_by_themselves(bench: Bench) -> None:
    """One that is told to by a signal may not see it, and then nobody's wait for it ends."""
    settings = [Setting(name, image=NOT_BUILT) for name in ("one", "other")]
    results = side_by_side.results(bench, [(FAULTS, setting) for setting in settings])
    seen = [next(results)]
    workers = multiprocessing.active_children()
    seen += results
    assert {result["name"] for _, result in seen} == {"one", "other"}
    assert workers and [worker.exitcode for worker in workers] == [0] * len(workers)


@pytest.mark.parametrize(("free", "available", "many"), [(1, 9000, 3), (9000, 2049, 1), (1, 1, 1), (9000, 99000, 4)])
def test_as_many_guests_as_there_is_memory_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, available: int, many: int
) -> None:
    """By what a guest could have: the host's page cache makes room. On eight CPUs, four at most, one at least."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 99000000 kB\nMemFree: {free << 10} kB\nMemAvailable:  {available << 10} kB\n")
    assert side_by_side.guests(2048, meminfo) == many


def test_two_guests_agree_and_the_larger_order_is_cheaper(bench: Bench) -> None:
    """Instructions per fault repeat from guest to guest; 16 pages for one fault are a fraction of 16 faults."""
    first, second, variable = (measure(bench, FAULTS, FAULTS.settings[setting]) for setting in (0, 0, 1))
    for name in ("fault", "release"):
        one, other, third = (instructions(each, [name]) for each in (first, second, variable))
        assert len(one) == len(other) == len(third) == bench.runs
        assert min(one) == pytest.approx(min(other), rel=SPREAD)
        assert min(one) > 3 * min(third)
    pages = units(FAULTS)
    # The loop's four, and the store once more that faulted.
    assert min(first["intervals"]["fault"]["user"]) == pytest.approx(5 * pages, abs=16)
    assert first["orders"]["0"] >= pages and "4" not in first["orders"]
    assert variable["orders"]["4"] == pages // 16 == variable["blocks"]["set"]
    # What the load has mapped when it is stopped, beside its program and stack.
    assert first["memory"]["contiguous"] == 0 and "4" not in first["memory"]["folios"]
    assert first["memory"]["folios"]["0"] >= pages * PAGE <= variable["memory"]["folios"]["4"]
    assert 0 <= variable["memory"]["contiguous"] - pages * PAGE <= MIB
    for each, order, times in ((first, 0, pages), (variable, 4, pages // 16)):
        assert pages <= each["memory"]["taken"] <= pages + FEW
        assert 0 <= without_folio(each) <= 16 * PAGE
        # The record's own counters: by path, order and reason.
        (run,) = each["faults"]
        anonymous = {(one["path"], one["order"], one["why"]): one["times"] for one in run}
        assert times <= anonymous["anonymous", order, "chosen"] < times + FEW


@pytest.mark.long
@pytest.mark.network
def test_a_compiler_runs_in_the_guest(bench: Bench) -> None:
    """Eight at once; what they map is looked at where they are about to go, and large folios spare aborts."""
    made = built("programs.sh")
    assert made.returncode == 0, made.stderr
    compile_ = EXPERIMENTS["compile"]
    bench = replace(bench, programs=Path(made.stdout.strip()), runs=1)
    baseline, batched = (measure(bench, compile_, compile_.settings[at]) for at in (0, 3))
    for each in (baseline, batched):
        assert not each["missing"] and not each["lost"]
        assert each["entries"]["syscall 221"]["times"] == each["entries"]["syscall 94"]["times"] == [8]
        assert sum(each["memory"]["folios"].values()) > 8 * 8 * MIB and without_folio(each) <= 8 * 16 * PAGE
        (water,) = each["water"]
        # Not all are at their ends at once, but most of what they then have is in use together.
        # What is reserved, and free on a CPU's list, is not available.
        assert water["low"] < water["low_unavailable"] < water["high_unavailable"] > water["high"]
        assert water["looks"] > 5 and water["high"] - water["low"] > 0.5 * each["memory"]["taken"] * PAGE
    assert baseline["memory"]["contiguous"] == 0 < batched["memory"]["contiguous"]
    aborts = [each["entries"]["data abort"]["times"][0] for each in (baseline, batched)]
    assert aborts[0] > 1.5 * aborts[1]


SMALL = crowds("processes", 1, 4) + crowds("threads", 4)


def test_tasks_share_a_load(bench: Bench) -> None:
    """Whatever the number of tasks, and of whichever kind, all pages are faulted, and nothing of it is missed."""
    experiment = Experiment("page_fault1_tasks", "", "page_fault1", 4, policies("variable"), crowds=SMALL)
    found = measure(bench, experiment, experiment.settings[0])
    pages = units(experiment)
    for crowd in SMALL:
        fault = found["intervals"][crowd.of("fault")]
        assert len(fault["user"]) == bench.runs
        # To meet takes some.
        assert 0 <= min(fault["user"]) - (4 * pages + pages // 16) <= 500 * crowd.count
        alone = median(found["intervals"]["fault, 1 task"]["kernel"])
        assert 0.9 * alone < median(fault["kernel"]) < 1.5 * alone
    # A thread's area may begin within a block.
    blocks = pages // 16 - SMALL[-1].count
    assert found["orders"]["4"] >= blocks and found["memory"]["folios"]["4"] >= 16 * blocks * PAGE


def test_a_task_that_fails_ends_all(bench: Bench, tmp_path: Path) -> None:
    """The others would wait for it for ever."""
    guest = bench.boot(tmp_path / "marks", cpus=2)
    try:
        for kind in ("--processes", "--threads"):
            # No file of this size is whole records by a power of two.
            ended = guest.run("/lab/load", "file_map", str(3 * 65536), kind, "3", seconds=60)
            assert ended.status != 0 and "expected a file whose size is a power of two" in ended.stderr
        ended = guest.run("/lab/load", "read1", "65536", "--turns", "2")
        assert ended.status == 2 and "the load read1 has one turn" in ended.stderr
    finally:
        guest.session.close()


@pytest.mark.long
def test_memory_that_has_aged_is_less_contiguous(bench: Bench) -> None:
    """Single pages stay single pages; of order 4 is what folios of that order map; each seed has a look of its own."""
    aged = replace(EXPERIMENTS["aged"], times=3000)
    bench = replace(bench, runs=2)
    baseline, variable = (measure(bench, aged, aged.settings[at]) for at in (0, 2))
    for each in (baseline, variable):
        assert len(each["looks"]) == len(each["intervals"]["fault"]["kernel"]) == 2
        assert each["memory"] in each["looks"] and min(each["intervals"]["fault"]["user"]) >= 4 * units(aged)
        for look in each["looks"]:
            assert 16 * MIB <= look["mapped"] <= 18 * MIB <= look["taken"] * PAGE
    assert baseline["memory"]["contiguous"] == 0 < variable["memory"]["contiguous"]
    assert variable["memory"]["contiguous"] <= variable["memory"]["folios"]["4"]


@pytest.mark.long
def test_page_frames_come_back_sooner_without_high_orders(bench: Bench) -> None:
    """What TCP allocates on one CPU and frees on another: one that keeps none of high orders gives it back at once."""
    tcp = replace(EXPERIMENTS["tcp"], times=1000)
    every, none = (measure(bench, tcp, setting) for setting in tcp.settings[:2])
    for each in (every, none):
        assert not each["missing"] and len(each["frames"]) == bench.runs
        assert set(each["intervals"]) == {f"send {size}" for size in SIZES}
    assert median(run["most"][0]["times"] for run in none["frames"]) > median(
        run["most"][0]["times"] for run in every["frames"]
    )


def test_a_fold_and_an_unfold_are_counted(bench: Bench) -> None:
    """Each block is unfolded once and folded once."""
    fold = EXPERIMENTS["fold"]
    found = measure(bench, fold, fold.settings[1])
    assert found["blocks"]["unfold"] == found["blocks"]["fold"] == units(fold)


def test_a_kernel_without_a_policy_and_a_lost_guest(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence for the one; what was measured stays with the other."""
    found = measure(bench, FAULTS, Setting("best", "best"))
    assert "the kernel has no order policy best (it has sysfs, baseline," in found["missing"]
    assert not found["intervals"]

    runs = iter(range(3))
    load = lab_bench._load

    def ends_in_the_third(
        guest: Guest, experiment: Experiment, crowd: Crowd | None, watch: tuple[Path, int] | None = None
    ) -> None:
        if next(runs) == 2:
            os.kill(guest.session.pid, 9)
        load(guest, experiment, crowd, watch)

    monkeypatch.setattr(lab_bench, "_load", ends_in_the_third)
    found = measure(bench, FAULTS, FAULTS.settings[0])
    assert found["lost"] and len(found["intervals"]["fault"]["kernel"]) == 1
    with pytest.raises(GuestLost):
        bench_without = Bench(Path("/nonexistent"), bench.out)
        bench_without.boot(bench.out / "marks")


def bars(picture: Path) -> dict[str, float]:
    """How wide each bar of a plot is, by its name."""
    found = {}
    for group in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}g"):
        name = group.get("id", "")
        if ":" in name:
            path = group.find("{http://www.w3.org/2000/svg}path")
            assert path is not None
            across = [float(pair.split()[0]) for pair in re.split(r"[MLz]", path.get("d", "")) if pair.strip()]
            found[name] = max(across) - min(across)
    return found


def test_a_quick_lab_of_one_experiment(bench: Bench, tmp_path: Path) -> None:
    """It reports by its schema; interrupted it goes on; compared with itself nothing has moved."""
    run = ["run", "file_map", "--quick", "--initrd", bench.initrd, "--out", tmp_path]
    done = lab(*run)
    assert done.returncode == 0, done.stderr
    assert "*same direction*" in done.stdout and "folioscope: file_map, on" in done.stderr
    whole = tmp_path / "lab.json"
    report = json.loads(whole.read_text())
    jsonschema.validate(report, json.loads(lab("schema").stdout))
    seconds = [each["seconds"] for each in report["experiments"][0]["settings"]]
    assert all(0 < each["cpu"] <= each["all"] * os.cpu_count() for each in seconds)
    assert (tmp_path / "lab.md").read_text() == markdown(report) == done.stdout.removesuffix("\n")
    assert (
        "| THP page cache v4: iozone by mmap" in done.stdout
        and "<td>THP page cache v4: iozone by mmap" in (tmp_path / "lab.html").read_text()
    )

    # The picture shows what the tables say.
    (found,) = report["experiments"]
    widths = bars(tmp_path / "lab-file_map.svg")
    medians = {
        f"{interval}:{each['name']}": median(instructions(each, [interval]))
        for each in found["settings"]
        for interval in each["intervals"]
    }
    assert len(medians) >= 2
    scale = max(widths[name] for name in medians) / max(medians.values())
    for name, middle in medians.items():
        assert widths[name] == pytest.approx(middle * scale, rel=0.01), name
    memory = {
        f"{name}:{each['name']}": size
        for each in found["settings"]
        for name, size in (
            *((f"order {order}", size) for order, size in each["memory"]["folios"].items()),
            ("contiguous", each["memory"]["contiguous"]),
        )
    }
    # A file's folio of a PMD on one side, and single pages on the other.
    assert memory["order 9:on"] >= 32 * MIB <= memory["order 0:off"]
    scale = widths["order 9:on"] / memory["order 9:on"]
    for name, size in memory.items():
        assert widths[name] == pytest.approx(size * scale, abs=0.1), name

    # A fault for each page that is written; reads have one for each window of fault-around, in whatever order.
    without = report["experiments"][0]["settings"][0]["intervals"]
    for pattern in ("random write", "reverse", "stride", "random read"):
        forward = "again" if pattern == "random write" else "read"
        faults = [min(without[name]["kernel"]) for name in (pattern, forward)]
        assert faults[0] == pytest.approx(faults[1], rel=SPREAD), pattern

    # As if it had been interrupted before the last.
    left = report["experiments"][0]["settings"].pop()
    waits = {**report["experiments"][0], "name": "file_calls"}
    report["experiments"].append(waits)
    part = tmp_path / "lab.part.json"
    part.write_text(json.dumps(report))
    again = lab(*run)
    assert "going on with the lab that was interrupted" in again.stderr
    assert [line for line in again.stderr.splitlines() if "file_map, " in line] == [
        f"folioscope: file_map, {left['name']}"
    ]
    assert len(json.loads(whole.read_text())["experiments"][0]["settings"]) == 2
    # What was not asked for this time waits.
    assert json.loads(part.read_text())["experiments"] == [waits]
    part.unlink()

    same = lab("compare", whole, whole, "--threshold", "0")
    assert same.returncode == 0 and "| file_map | off | pass |" in same.stdout
    assert all(line.endswith("| ~ |") for line in same.stdout.splitlines()[2:])
