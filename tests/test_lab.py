"""The laboratory: its counter of instructions, its experiments, what it makes of results, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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
from folioscope.lab.bench import Bench, measure, units
from folioscope.lab.entries import table
from folioscope.lab.experiments import EXPERIMENTS, MIB, Crowd, Experiment, Setting, Theirs, crowds, policies
from folioscope.lab.frames import BadHistogram, summary
from folioscope.lab.marks import NAMES, SIZES, BadMarks, Interval, intervals
from folioscope.lab.report import SCHEMA, compared, instructions, markdown, verdict
from folioscope.lab.statistics import ratio

from command import ROOT, SLOWER, folioscope

pytestmark = pytest.mark.only_machine("tcg")

# What builds the plugin and the loads when nothing of them is there.
BUILD_SECONDS = 300
PAGE = 4096
# Pages: tables, a program's data, and what the kernel does meanwhile.
FEW = 1000
# What two runs of a guest whose time is its instructions may differ by: the ticks of its clock fall elsewhere.
SPREAD = 0.02


def built(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script of the set-up, run to its end."""
    return subprocess.run(
        [ROOT / "vmm" / "setup" / script, *arguments],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS * SLOWER,
        check=False,
    )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Where experiments run; plugin and loads are built where they can be."""
    plugin = built("plugin.sh")
    if "needs Rust 1." in plugin.stderr:
        pytest.skip("the counter's plugin needs a newer Rust")
    assert plugin.returncode == 0, plugin.stderr
    loads = built("loads.sh")
    assert loads.returncode == 0, loads.stderr
    return Bench(Path(loads.stdout.strip()), tmp_path_factory.mktemp("lab"), runs=5)


def counted(guest: Guest, marks: Path, load: str) -> list[Interval]:
    """The intervals of a load."""
    before = len(marks.read_text().splitlines())
    assert guest.run("/lab/load", load, "65536").status == 0
    return intervals(marks, before)


@pytest.mark.parametrize("cpus", [1, 4])
@pytest.mark.parametrize("icount", [True, False])
def test_a_known_program_is_counted_exactly(bench: Bench, tmp_path: Path, icount: bool, cpus: int) -> None:
    """A register's turns, and stores and loads, of which each ends a run of what is counted at once."""
    marks = tmp_path / "marks"
    guest = bench.boot(marks, icount=icount, cpus=cpus)
    try:
        # An interrupt may come in between, and with it another process: never in the shortest of some runs.
        for load, instructions_ in (("known", 1 + 2 * 1000), ("known_memory", 1 + 4 * 500)):
            found = [each for _ in range(5) for each in counted(guest, marks, load)]
            assert {each.name for each in found} == {"known"} and all(each.cpu < cpus for each in found)
            assert min(each.user for each in found) == instructions_
            # Another CPU may do something at any time.
            assert cpus > 1 or min(each.kernel for each in found) == 0
    finally:
        guest.session.close()


def test_intervals_are_named_as_the_loads_number_them() -> None:
    """By tests/loads/load.h, and each experiment's figures are of intervals that there are."""
    numbered = re.findall(r"^\t([A-Z_0-9]+) = (\d+),", (ROOT / "tests/loads/load.h").read_text(), re.MULTILINE)
    assert {int(number): name.lower().replace("_", " ") for name, number in numbered} == NAMES
    for each in EXPERIMENTS.values():
        there = {crowd.of(name) if crowd else name for name in NAMES.values() for crowd in each.crowds or (None,)}
        assert {name for theirs in each.theirs for name in theirs.intervals} < there


FAULTS = Experiment("page_fault1", "", "page_fault1", 4, policies("baseline", "variable"))


def without_folio(setting: dict[str, Any]) -> int:
    """Bytes that are mapped of what is no folio: the zero page where data was read and not written, and the vDSO's."""
    return int(setting["memory"]["mapped"] - sum(setting["memory"]["folios"].values()))


def test_two_guests_agree_and_the_larger_order_is_cheaper(bench: Bench) -> None:
    """Instructions per fault repeat from guest to guest; 16 pages for one fault are a fraction of 16 faults."""
    first, second, variable = (measure(bench, FAULTS, FAULTS.settings[setting]) for setting in (0, 0, 1))
    for name in ("fault", "release"):
        one, other, third = (sorted(instructions(each, [name])) for each in (first, second, variable))
        assert len(one) == len(other) == len(third) == bench.runs
        assert abs(one[2] / other[2] - 1) < SPREAD
        assert one[2] > 3 * third[2]
    pages = units(FAULTS)
    # The loop's four, and the store once more that faulted.
    assert min(first["intervals"]["fault"]["user"]) == pytest.approx(5 * pages, abs=16)
    assert first["orders"]["0"] >= pages and "4" not in first["orders"]
    assert variable["orders"]["4"] == pages // 16 == variable["blocks"]["set"]
    # What the load has mapped when it is stopped, beside its program and stack.
    assert first["memory"]["contiguous"] == 0 and "4" not in first["memory"]["folios"]
    assert first["memory"]["folios"]["0"] >= pages * PAGE <= variable["memory"]["folios"]["4"]
    assert 0 <= variable["memory"]["contiguous"] - pages * PAGE <= MIB
    for each in (first, variable):
        assert pages <= each["memory"]["taken"] <= pages + FEW
        assert 0 <= without_folio(each) <= 16 * PAGE


def test_entries_have_all_that_the_kernel_executed(bench: Bench, tmp_path: Path) -> None:
    """Each page a data abort, one munmap(2), and together every instruction of the kernel's."""
    marks = tmp_path / "marks"
    pages = 4 * MIB // PAGE
    bench = replace(bench, more=("--entries",))
    guest = bench.boot(marks)
    try:
        guest.set_policy("baseline")
        assert guest.run("/lab/load", "page_fault1", str(4 * MIB)).status == 0
        fault, release = intervals(marks)
        for each, cause, times in ((fault, "data abort", pages), (release, "syscall 215", 1)):
            assert sum(count for _, count in each.entries.values()) == each.kernel
            assert each.entries[cause][0] == times and each.entries[cause][1] > 0.9 * each.kernel
    finally:
        guest.session.close()
    ended = folioscope("boot", "--machine", "tcg", "--marks", marks, "--entries", "--smp", "2")
    assert "--entries is for guests with one CPU and this one has 2" in ended.sentence()


def test_a_table_of_entries_and_what_others_have_counted() -> None:
    """System calls by name and together; kernel alone, faults, and memory within a range."""
    before = measured("baseline", [1000, 1010, 990, 1005, 995])
    after = measured("batched", [500, 505, 495, 500, 502])
    for each, abort, opened in ((before, 800, 100), (after, 300, 100)):
        each["entries"] = {
            "data abort": {"times": [7] * 5, "instructions": [abort] * 5},
            "syscall 56": {"times": [2] * 5, "instructions": [opened] * 5},
            "syscall 999": {"times": [1] * 5, "instructions": [10] * 5},
        }
    before |= {"orders": {"0": 30}, "memory": {"taken": 100}}
    after |= {"orders": {"0": 5, "4": 5}, "memory": {"taken": 101}}
    rows = [line.split(" | ") for line in table([before, after])]
    assert [row[0] for row in rows[3:]] == ["| data abort", "| syscall", "| openat", "| syscall 999"]
    assert rows[3][2] == "0.0 (7) -62.5% |" and rows[4][1:] == ["0.0 (3)", "0.0 (3) ~ |"]
    for counted, times, within, said in (
        ("kernel", 1000 / 500, None, "*reproduced*"),
        ("user", 1, None, "no difference"),
        ("entry data abort", 800 / 300, None, "*reproduced*"),
        ("entry openat", 1, None, "no difference"),
        ("faults", 10 / 30, None, "the other way"),
        ("memory", 100 / 101, (1 / 1.02, 1 / 0.99), "*reproduced*"),
        ("memory", 100 / 101, (0.995, 1.005), "beyond 0.99 to 1.00"),
    ):
        theirs = Theirs("batched", ("fault",), 2.0, "", "", counted=counted, within=within)
        ours, found = verdict(theirs, before, after)
        assert ours and ours.times == pytest.approx(times) and said in found, counted
    theirs = Theirs("batched", ("fault",), 2.0, "", "", counted="entry clone")
    assert verdict(theirs, before, after) == (None, "not measured: there are too few runs")


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


def test_page_frames_are_counted_by_their_event(bench: Bench, tmp_path: Path) -> None:
    """Of the kernel's text; what was left out is no count. The rig's own kernel has no TCP."""
    lines = [f"{{ pfn:{pfn:11} }} hitcount: {times:10}" for pfn, times in ((7, 1), (4096, 30), (5, 9), (6, 20))]
    text = "\n".join(["# event histogram", "#", "", *lines, "", "Totals:", "    Hits: 60", "    Entries: 4"])
    found = summary(text + "\n    Dropped: 0\n")
    assert (found["allocations"], found["frames"], found["half"]) == (60, 4, 1)
    assert found["most"][:2] == [{"pfn": 4096, "times": 30}, {"pfn": 6, "times": 20}]
    for wrong in (text, text + "\n    Dropped: 3\n", "\n    Dropped: 0\n"):
        with pytest.raises(BadHistogram, match="expected the counts of all page frames"):
            summary(wrong)
    tcp = replace(EXPERIMENTS["tcp"], kernel="")
    assert "the kernel has no TCP" in measure(bench, tcp, tcp.settings[0])["missing"]


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

    def ends_in_the_third(guest: Guest, experiment: Experiment, crowd: Crowd | None) -> None:
        if next(runs) == 2:
            os.kill(guest.session.pid, 9)
        load(guest, experiment, crowd)

    monkeypatch.setattr(lab_bench, "_load", ends_in_the_third)
    found = measure(bench, FAULTS, FAULTS.settings[0])
    assert found["lost"] and len(found["intervals"]["fault"]["kernel"]) == 1
    with pytest.raises(GuestLost):
        bench_without = Bench(Path("/nonexistent"), bench.out)
        bench_without.boot(bench.out / "marks")


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The laboratory's command."""
    return subprocess.run(
        [sys.executable, "-m", "folioscope.lab", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300 * SLOWER,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "plugin")},
    )


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
    assert "*reproduced*" in done.stdout and "folioscope: file_map, on" in done.stderr
    whole = tmp_path / "lab.json"
    report = json.loads(whole.read_text())
    jsonschema.validate(report, json.loads(lab("schema").stdout))
    assert (tmp_path / "lab.md").read_text() == markdown(report) == done.stdout.removesuffix("\n")

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
        faults = [sorted(without[name]["kernel"])[2] for name in (pattern, forward)]
        assert faults[0] == pytest.approx(faults[1], rel=SPREAD), pattern

    # As if it had been interrupted before the last.
    left = report["experiments"][0]["settings"].pop()
    (tmp_path / "lab.part.json").write_text(json.dumps(report))
    again = lab(*run)
    assert "going on with the lab that was interrupted" in again.stderr
    assert [line for line in again.stderr.splitlines() if "file_map, " in line] == [
        f"folioscope: file_map, {left['name']}"
    ]
    assert len(json.loads(whole.read_text())["experiments"][0]["settings"]) == 2
    assert not (tmp_path / "lab.part.json").exists()

    same = lab("compare", whole, whole, "--threshold", "0")
    assert same.returncode == 0 and "| file_map | off | pass |" in same.stdout
    assert all(line.endswith("| ~ |") for line in same.stdout.splitlines()[2:])


def measured(name: str, kernel: list[int]) -> dict[str, object]:
    """A setting's results of one interval."""
    counts = {"fault": {"user": [10] * len(kernel), "kernel": kernel}}
    return {
        "name": name,
        "missing": None,
        "lost": None,
        "intervals": counts,
        "orders": {},
        "blocks": {},
        "memory": None,
        "frames": [],
        "looks": [],
        "entries": {},
    }


def test_a_direction_needs_more_than_the_spread() -> None:
    """Reproduced, the other way, within the spread, and too few runs."""
    theirs = Theirs("variable", ("fault",), 2.0, "twice", "somewhere")
    first = measured("baseline", [1000, 1010, 990, 1005, 995])
    ours, said = verdict(theirs, first, measured("variable", [500, 505, 495, 500, 502]))
    assert ours and ours.times == pytest.approx(1010 / 510) and said == "*reproduced*"
    assert "moves the other way" in verdict(theirs, first, measured("variable", [2000, 2010, 1990, 2005, 1995]))[1]
    assert "no difference" in verdict(theirs, first, measured("variable", [900, 1100, 1001, 980, 1020]))[1]
    ours, said = verdict(theirs, first, measured("variable", [500]))
    assert ours is None and said == "not measured: there are too few runs"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_compare_tells_a_regression(tmp_path: Path) -> None:
    """Status 1 past the threshold, 0 below it."""
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    for path, kernel in ((one, [1000, 1010, 990, 1005, 995]), (other, [1100, 1110, 1090, 1105, 1095])):
        settings = [measured("baseline", kernel)]
        experiments = [{"name": "page_fault1", "unit": "page", "units": 1, "settings": settings}]
        report = {"format": "folioscope-lab", "version": 1, "key": "k", "runs": 5, "experiments": experiments}
        path.write_text(json.dumps(report))
    worse = lab("compare", one, other, "--threshold", "5")
    assert worse.returncode == 1 and "| page_fault1 | baseline | fault | 1,010 | 1,110 | +9.90% |" in worse.stdout
    assert lab("compare", one, other, "--threshold", "15").returncode == 0
    # And by the command, which has to know where the laboratory is.
    command = folioscope("lab", "compare", one, other, "--threshold", "5")
    assert command.status == 1 and command.out == worse.stdout
    assert lab("compare", other, one, "--threshold", "5").returncode == 0
    lines, regressed = compared(json.loads(one.read_text()), json.loads(other.read_text()), None)
    assert not regressed and len(lines) == 3


def test_a_ratio_of_medians() -> None:
    """Its interval has the ratio in it; runs that are all alike leave none; four are too few."""
    found = ratio([10, 11, 12, 13, 14], [5, 5.5, 6, 6.5, 7])
    assert found.low <= found.times == 2 <= found.high and found.moved
    assert ratio([4] * 5, [2] * 5).low == ratio([4] * 5, [2] * 5).high == 2
    # Beyond its interval, and yet a run of one took what one of the other did.
    near = ratio([109, 110, 110, 110, 101], [100, 100, 100, 100, 102])
    assert near.low > 1 and not near.moved
    with pytest.raises(ValueError, match="expected 5 runs of each side or more and found 4"):
        ratio([1] * 4, [1] * 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing\n", "expected a mark in line 1"),
        ('{"marker":3,"cpu":0,"counts":[[1,2]]}\n', "ends interval 1, which no line before begins"),
        ('{"marker":2,"cpu":0,"counts":[[1,2]]}\n', "has no end of interval 1"),
    ],
)
def test_bad_marks(tmp_path: Path, text: str, said: str) -> None:
    """Each in a sentence."""
    marks = tmp_path / "marks"
    marks.write_text(text)
    with pytest.raises(BadMarks, match=said):
        intervals(marks)


def test_bad_input(tmp_path: Path) -> None:
    """A sentence, and status 2."""
    nothing = tmp_path / "nothing"
    nothing.write_text("{}")
    for arguments, said in (
        (["run", "what", "--initrd", nothing], "there is no experiment 'what' in the laboratory; it has page_fault1, "),
        (["run", "malloc1", "--initrd", tmp_path / "none"], "expected an initramfs with the loads"),
        (
            ["run", "malloc1", "--initrd", nothing, "--memory", "256"],
            "expected 384 MiB or more for the load of malloc1",
        ),
        (["compare", nothing, nothing], "expected a lab's results"),
    ):
        ended = lab(*arguments)
        assert ended.returncode == 2 and said in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr
    refused = subprocess.run(
        [ROOT / "vmm/setup/lab.sh", "run"],
        env={**os.environ, "MACHINE": "kvm-in-tcg"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * SLOWER,
    )
    assert refused.returncode == 2 and "the laboratory counts instructions under QEMU's emulation" in refused.stderr
    said = folioscope(
        "boot", "--machine", "tcg", "--marks", tmp_path / "marks", "--counter", tmp_path / "none"
    ).sentence()
    assert f"expected the counter's plugin at {tmp_path / 'none'}" in said and "vmm/setup/plugin.sh" in said
