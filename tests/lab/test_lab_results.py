# SPDX-License-Identifier: GPL-2.0-only
"""What the laboratory makes of results: grades, statistics, marks, tables, the key of its inputs, and bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from folioscope.lab import key
from folioscope.lab.__main__ import gone_on_with
from folioscope.lab.bench import Bench
from folioscope.lab.entries import table
from folioscope.lab.experiments import EXPERIMENTS
from folioscope.lab.figures import Figure
from folioscope.lab.grades import (
    NEITHER,
    NOT_JUDGED,
    NOT_MEASURED,
    OPPOSITE,
    OURS_ALONE,
    SAME,
    THEIRS_ALONE,
    WITHIN_10,
    WITHIN_25,
    grade,
)
from folioscope.lab.marks import NAMES, BadMarks, intervals
from folioscope.lab.orders import NOT_BUILT, BadList, series
from folioscope.lab.report import judged
from folioscope.lab.schema import SCHEMA
from folioscope.lab.statistics import ratio
from folioscope.lab.steps import FUNCTIONS
from folioscope.lab.steps import table as table_of_steps
from folioscope.lab.tables import costs, did, faults, per_fault, rates, water

from command import ROOT, SLOWER, folioscope
from laboratory import Said, inside, measured, reported

__all__ = ["inside"]

pytestmark = pytest.mark.only_machine("tcg")


def figure(**more: Any) -> Figure:
    """A published figure: twice as fast."""
    of = {"experiment": "page_fault1", "setting": "rfc", "intervals": ("fault",), "times": 2.0, "effect": True}
    return Figure("f", "anon-folios-v2", ("1.1",), "2", "", ratio="times", **{**of, **more})


MARK = '"cpu":0,"ns":5,"counts":[[1,2]],"did":[0,0,0,0]'


def test_intervals_are_named_as_the_loads_number_them() -> None:
    """By tests/loads/load.h, and each experiment's figures are of intervals that there are."""
    numbered = re.findall(r"^\t([A-Z_0-9]+) = (\d+),", (ROOT / "tests/loads/load.h").read_text(), re.MULTILINE)
    assert {int(number): name.lower().replace("_", " ") for name, number in numbered} == NAMES
    loads = re.findall(r'^\t\{ "(\w+)", ', (ROOT / "tests/loads/main.c").read_text(), re.MULTILINE)
    for each in EXPERIMENTS.values():
        for one in (each, each.hurried()):
            assert one.load in loads
            there = {crowd.of(name) if crowd else name for name in NAMES.values() for crowd in one.crowds or (None,)}
            wanted = {name for figure in each.figures for name in figure.intervals}
            # A quick lab may leave numbers of tasks out, and then answers fewer.
            assert wanted < there or (one.crowds != each.crowds and wanted & there)


def test_a_table_of_entries_and_what_others_have_counted() -> None:
    """System calls by name and together; kernel alone, faults, and memory within a range."""
    before = measured("baseline", [1000, 1010, 990, 1005, 995])
    after = measured("rfc", [500, 505, 495, 500, 502])
    for each, abort, opened in ((before, 800, 100), (after, 300, 100)):
        each["entries"] = {
            "data abort": {"times": [7] * 5, "instructions": [abort] * 5},
            "syscall 56": {"times": [2] * 5, "instructions": [opened] * 5},
            "syscall 999": {"times": [1] * 5, "instructions": [10] * 5},
            "own": {"times": [0] * 5, "instructions": [0] * 5},
        }
    fault = {"path": "anonymous", "order": 0, "why": "chosen", "times": 30}
    ended = {**fault, "order": None, "why": "charge-failed", "times": 99}
    before |= {"faults": [[fault, ended]] * 5, "water": [{"low": 90, "high": 100 + run % 2} for run in range(5)]}
    after |= {
        "faults": [[{**fault, "order": 2, "times": 10}]] * 5,
        "water": [{"low": 90, "high": 101} for _ in range(5)],
    }
    for each, most in ((before, 50), (after, 60)):
        for run in each["water"]:
            run["high_unavailable"] = most
    rows = [line.split(" | ") for line in table([before, after])]
    assert [row[0] for row in rows[3:]] == ["| data abort", "| own", "| syscall", "| openat", "| syscall 999"]
    assert rows[3][2] == "0.0 (7) -62.5% |" and rows[5][1:] == ["0.0 (3)", "0.0 (3) ~ |"]
    for counted, times, grade_ in (
        ("kernel", 1000 / 500, WITHIN_10),
        ("user", 1, THEIRS_ALONE),
        ("entry data abort", 800 / 300, SAME),
        ("entry openat", 1, THEIRS_ALONE),
        ("faults", 10 / 30, OPPOSITE),
        ("pages", 40 / 30, SAME),
        ("memory high_unavailable", 5 / 6, OPPOSITE),
        ("memory low", 1, THEIRS_ALONE),
    ):
        found = grade(figure(counted=counted), {"baseline": before, "rfc": after})
        assert found.ours and found.ours.times == pytest.approx(times) and found.grade == grade_, counted
    for counted, said in (
        ("entry clone", "there are too few runs"),
        ("entry own", "in a run nothing was counted"),
    ):
        found = grade(figure(counted=counted), {"baseline": before, "rfc": after})
        assert (found.ours, found.grade, found.why) == (None, NOT_MEASURED, said)


@pytest.mark.parametrize("counted", ["faults", "pages", "memory high", "frames 1", "kernel", "entry data abort"])
def test_one_run_has_no_grade(counted: str) -> None:
    """Whatever is counted: a direction is claimed of five runs or more of each."""

    def once(times: int) -> dict[str, Any]:
        return measured(
            "x",
            [times],
            faults=[[{"path": "anonymous", "order": 0, "why": "chosen", "times": times}]],
            water=[{"low": times, "high": times, "looks": 9}],
            frames=[{"most": [{"pfn": 1, "times": times}]}],
            entries={"data abort": {"times": [1], "instructions": [times]}},
        )

    for one, other in ((160, 100), (100, 160)):
        found = grade(figure(counted=counted), {"baseline": once(one), "rfc": once(other)})
        assert (found.ours, found.grade, found.why) == (None, NOT_MEASURED, "there are too few runs")


FIRST = [1000, 1010, 990, 1005, 995]
HALF = [500, 505, 495, 500, 502]
WIDE = [700, 1400, 1001, 800, 1250]


@pytest.mark.parametrize(
    ("times", "effect", "runs", "said"),
    [
        (2.0, True, HALF, WITHIN_10),
        (1.82, True, HALF, WITHIN_10),
        (1.7, True, HALF, WITHIN_25),
        (2.4, True, HALF, WITHIN_25),
        (1.5, True, HALF, SAME),
        (9.0, True, HALF, SAME),
        # However near to 1 both are.
        (0.98, True, [970, 975, 965, 972, 968], OPPOSITE),
        (0.5, True, HALF, OPPOSITE),
        (1.0, False, FIRST, NEITHER),
        (1.02, True, FIRST, THEIRS_ALONE),
        (2.0, True, FIRST, THEIRS_ALONE),
        (1.0, False, HALF, OURS_ALONE),
        # What is as small as the runs' own spread was not seen, either way.
        (1.1, True, WIDE, NOT_JUDGED),
        (1.0, False, WIDE, NOT_JUDGED),
        (5.0, True, WIDE, THEIRS_ALONE),
        (2.0, True, HALF[:4], NOT_MEASURED),
    ],
)
def test_a_grade_is_computed(times: float, effect: bool, runs: list[int], said: str) -> None:
    """By direction first, beyond the spread and 1 %; then by how far the ratios are apart."""
    found = grade(
        figure(times=times, effect=effect), {"baseline": measured("baseline", FIRST), "rfc": measured("rfc", runs)}
    )
    assert found.grade == said and str(found).startswith(f"*{said}*")


def test_a_figure_that_nothing_answers() -> None:
    """With its reason; one whose experiment was not run is not measured."""
    cannot = figure(why="there are no caches", experiment="", setting="")
    assert str(grade(cannot, {})) == "*cannot be shown here*: there are no caches"
    assert str(grade(figure(), {})) == "*not measured*: the experiment page_fault1 was not run"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


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
        (f'{{"marker":3,{MARK}}}\n', "ends interval 1, which no line before begins"),
        (f'{{"marker":2,{MARK}}}\n', "has no end of interval 1"),
        ('{"marker":2,"cpu":0,"ns":1,"counts":[[1,2]],"did":[1,2,3]}\n', "expected a mark in line 1"),
    ],
)
def test_bad_marks(tmp_path: Path, text: str, said: str) -> None:
    """Each in a sentence."""
    marks = tmp_path / "marks"
    marks.write_text(text)
    with pytest.raises(BadMarks, match=said):
        intervals(marks)


def test_an_interval_is_what_lies_between_two_marks(tmp_path: Path) -> None:
    """Instructions, their kinds, entries, and the host's time; a CPU that came up in between had done nothing."""
    marks = tmp_path / "marks"
    marks.write_text(
        '{"marker":2,"cpu":1,"ns":1000,"counts":[[1,2]],"did":[1,2,3,4],"entries":{"own":[1,10]}}\n'
        '{"marker":3,"cpu":0,"ns":4500,"counts":[[11,22],[5,6]],"did":[4,4,3,5],"entries":{"own":[1,12],"irq":[2,7]}}\n'
    )
    (found,) = intervals(marks)
    assert (found.name, found.cpu, found.user, found.kernel, found.ns) == ("fault", 1, 15, 26, 3500)
    assert found.did == {"tlbi": 3, "dsb": 2, "dmb": 0, "isb": 1}
    assert found.entries == {"own": (0, 2), "irq": (2, 7)}


def test_tables_beside_the_instructions() -> None:
    """Medians per unit, faults by path and order, what one costs, memory in use, and the host's seconds."""
    kinds = {"tlbi": [8, 10, 9, 50, 9], "dsb": [18] * 5, "dmb": [0] * 5, "isb": [9, 9, 9, 9, 0]}
    first, second = (measured(name, [100 * times] * 5) for name, times in (("one", 2), ("other", 1)))
    first["intervals"]["fault"] |= kinds
    first["faults"] = [
        [
            {"path": "anonymous", "order": 0, "why": "chosen", "times": 12_000},
            {"path": "shmem", "order": None, "why": "charge-failed", "times": 2},
        ],
        [],
    ]
    second["faults"] = [[{"path": "anonymous", "order": 4, "why": "chosen", "times": 9}]]
    lines = list(did(EXPERIMENTS["zap"], [first, second], 9))
    assert lines[1:2] + lines[3:] == [
        "| TLBI, DSB, DMB, ISB per page | fault |",
        "| one | 1.00, 2.00, 0.00, 1.00 |",
        "| other | 0.00, 0.00, 0.00, 0.00 |",
    ]
    assert list(faults([first, second]))[3:] == [
        "| anonymous, order 0, chosen | 12,000 | 0 |",
        "| anonymous, order 4, chosen | 0 | 9 |",
        "| shmem, none, charge-failed | 2 | 0 |",
    ]
    first["entries"] = {"data abort": {"times": [16] * 5, "instructions": [1600, 1600, 1760, 1600, 1600]}}
    second["entries"] = {"data abort": {"times": [1] * 5, "instructions": [800] * 5}}
    assert per_fault(first) == [100, 100, 110, 100, 100] and per_fault(measured("none", [1])) == []
    assert list(costs([first, second], 16))[3:] == [
        "| one | 16 | 100 ±5.0% | 100 |  |",
        "| other | 1 | 800 ±0.0% | 50 | -50.0% |",
    ]
    rest = {"high": 30 << 20, "low_unavailable": 8 << 20, "high_unavailable": 25 << 20, "looks": 7}
    first["water"] = [{"low": low << 20, **rest} for low in (9, 10, 11)]
    assert list(water([first, second]))[3:] == ["| one | 10.0 | 30.0 | 30.0, 30.0, 30.0 | 8.0 | 25.0 | 7 |"]
    crowd = EXPERIMENTS["page_fault1_tasks"]
    task = measured("one", [100] * 5, interval="fault, 2 threads")
    # A millisecond each.
    assert list(rates(crowd, [task], 500))[3:] == ["| fault, 2 threads | 500,000 |"]
    assert not list(rates(EXPERIMENTS["zap"], [task], 500))


def test_a_figure_without_its_setting_is_said() -> None:
    """Of each figure there is a row, whether it was measured or not."""
    (found,) = reported({"script": [measured("simple", [1] * 5)]})["experiments"]
    row = list(judged(found))[-1]
    assert row[-1] == "*not measured*: there is no setting 'v1'"
    for name, experiment in EXPERIMENTS.items():
        (empty,) = reported({name: []})["experiments"]
        assert len(list(judged(empty))) == len(experiment.figures)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a lab's guests are made of, as files of a line."""
    out = tmp_path / "out"
    for name in ("kernel-4k/Image", "kernel-4k/vmlinux", "kernel-net/Image", "kernel-net/vmlinux"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("as it was")
    for name in ("libcounter_plugin.so", "librecorder_plugin.so", "folioscope", "loads", "programs", "patched"):
        (out / name).write_text("as it was")
    qemu = tmp_path / "bin" / "qemu-system-aarch64"
    qemu.parent.mkdir()
    qemu.write_text("as it was")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{qemu.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(key, "command", lambda: SimpleNamespace(path=out / "folioscope", directory=tmp_path))
    return tmp_path


INPUTS = [
    *(f"out/kernel-{name}/{part}" for name in ("4k", "net") for part in ("Image", "vmlinux")),
    *(f"out/lib{name}_plugin.so" for name in ("counter", "recorder")),
    *(f"out/{name}" for name in ("folioscope", "loads", "programs", "patched")),
    "bin/qemu-system-aarch64",
]


@pytest.mark.parametrize("changed", INPUTS)
def test_what_is_built_anew_is_measured_anew(checkout: Path, changed: str) -> None:
    """Each file that a guest is made of is in the key by which an interrupted lab goes on."""
    out = checkout / "out"
    bench = Bench(out / "loads", out, programs=out / "programs")
    listed = checkout / "list"
    listed.write_text(f"0\tbase\t{out / 'patched'}\n")
    settings = series(listed).settings
    before = key.key_of(bench, settings)
    assert before == key.key_of(bench, settings)
    (checkout / changed).write_text("otherwise")
    assert key.key_of(bench, settings) != before
    (checkout / changed).unlink()
    assert key.key_of(bench, settings) != before


def test_what_was_interrupted_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With all but what was lost; and never with what is of other inputs, of another version, or cut short."""
    part = tmp_path / "lab.part.json"
    settings = [measured("baseline", [1] * 5), measured("variable", [1] * 3, lost="it hung")]
    report = reported({"zap": settings})
    part.write_text(json.dumps(report))
    (found,) = gone_on_with(part, "k")
    assert [each["name"] for each in found["settings"]] == ["baseline"]
    assert "going on with the lab that was interrupted" in capsys.readouterr().err
    for text in (json.dumps({**report, "version": 1}), json.dumps({**report, "experiments": [{}]}), "{", "[]"):
        part.write_text(text)
        assert gone_on_with(part, "k") == []
        assert "all is measured anew" in capsys.readouterr().err
    part.write_text(json.dumps(report))
    assert gone_on_with(part, "another") == []


def test_the_kernel_of_a_user_is_in_the_key(checkout: Path) -> None:
    """With the vmlinux beside it, which is taken unasked; the rig's own are not asked for then."""
    mine = checkout / "mine"
    mine.mkdir()
    for part in ("Image", "vmlinux"):
        (mine / part).write_text("as it was")
    bench = Bench(checkout / "out" / "loads", checkout, more=("--kernel", str(mine / "Image")))
    keys = {key.key_of(bench)}
    (checkout / "out/kernel-net/Image").write_text("otherwise")
    assert {key.key_of(bench)} == keys
    for part in ("Image", "vmlinux"):
        (mine / part).write_text("otherwise")
        keys.add(key.key_of(bench))
    assert len(keys) == 3


def test_the_series_is_measured_as_far_as_it_is_built(tmp_path: Path) -> None:
    """Two settings for each kernel; what is not built is left out with a sentence."""
    listed = tmp_path / "list"
    # As `folioscope series --list` prints it, whose own test holds it to that.
    listed.write_text("0\tbase\t/kernels/a/Image\n1\t0001 mm: one change, and another\t-\n")
    found = series(listed)
    assert [(setting.name, setting.image) for setting in found.settings] == [
        ("00 base, single pages", "/kernels/a/Image"),
        ("00 base, 64K", "/kernels/a/Image"),
        ("01 mm: one change, and another, single pages", NOT_BUILT),
        ("01 mm: one change, and another, 64K", NOT_BUILT),
    ]
    listed.write_text("1\tsomething\n")
    with pytest.raises(BadList, match="expected a number, a name and an Image in line 1"):
        series(listed)


def test_bad_input(tmp_path: Path, inside: Callable[..., Said]) -> None:
    """A sentence, and status 2."""
    nothing = tmp_path / "nothing"
    nothing.write_text("{}")
    hollow = tmp_path / "hollow"
    hollow.write_text('{"format": "folioscope-lab", "version": 3}')
    run = ["run", "malloc1", "--initrd", nothing]
    size = "expected the guest's memory in MiB, or as 1024M or 1G, and found"
    threshold = "expected a threshold in percent, 0 or more, and found"
    for arguments, said in (
        (["run", "what", "--initrd", nothing], "there is no experiment 'what' in the laboratory; it has page_fault1, "),
        (["run", "malloc1", "--initrd", tmp_path / "none"], "expected an initramfs with the loads"),
        (
            [*run, "--memory", "256"],
            "for the load of malloc1 and found 256; give the guest more by MEM=384M ",
        ),
        ([*run, "--memory", "256M"], "expected 384 MiB or more"),
        ([*run, "--json", "-"], "expected a path for --json and found -; give another name"),
        ([*run, "--out", "-"], "expected a path for --out and found -; give another name"),
        ([*run, "--memory", "0"], f"{size} '0'"),
        ([*run, "--memory", "much"], f"{size} 'much'; check MEM="),
        (["run", "series", "--initrd", nothing], "the experiment series is of kernels that --series lists"),
        (
            ["run", "series", "--initrd", nothing, "--series", hollow],
            "expected a number, a name and an Image in line 1",
        ),
        (["compare", nothing, nothing], "expected a lab's results"),
        (["compare", hollow, hollow], "and found results without 'key'"),
        (["compare", hollow, hollow, "--threshold", "nan"], f"{threshold} nan"),
        (["compare", hollow, hollow, "--threshold", "-1"], f"{threshold} -1.0"),
    ):
        ended = inside(*arguments)
        assert ended.status == 2 and said in ended.err and len(ended.err.splitlines()) == 1, ended.err
    for variable, value, words in (
        ("MACHINE", "kvm-in-tcg", "the laboratory counts instructions under QEMU's emulation"),
        ("GRANULE", "16k", "are of pages and blocks of 4K kernels, and GRANULE is 16k; leave it out"),
    ):
        for script in (["vmm/setup/lab.sh", "run"], ["vmm/setup/inputs.sh", "lab"]):
            refused = subprocess.run(
                [ROOT / script[0], *script[1:]],
                env={**os.environ, variable: value},
                capture_output=True,
                text=True,
                check=False,
                timeout=60 * SLOWER,
            )
            assert refused.returncode == 2 and words in refused.stderr, refused.stderr
    said = folioscope(
        "boot", "--machine", "tcg", "--marks", tmp_path / "marks", "--counter", tmp_path / "none"
    ).sentence()
    assert f"expected the counter's plugin at {tmp_path / 'none'}" in said and "vmm/setup/plugin.sh" in said


def test_make_lab_hands_on_what_the_user_says() -> None:
    """MEM=, CPU= and SMP= reach the laboratory."""
    said = subprocess.run(
        ["make", "--no-print-directory", "-n", "lab", "EXP=zap", "QUICK=1", "MEM=2G", "CPU=neoverse-n1", "SMP=8"],
        cwd=ROOT,
        # As a user's shell has it, also where another make runs the tests.
        env={name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}},
        capture_output=True,
        text=True,
        check=True,
        timeout=60 * SLOWER,
    ).stdout
    words = said.replace("\\\n", " ").split("lab.sh ")[-1].split()
    assert words == ["run", "zap", "--quick", "--smp", "'8'", "--memory", "'2G'", "--cpu", "'neoverse-n1'"]


def test_a_function_that_nobody_saw_is_no_zero() -> None:
    """Where one setting has it the others' zeros are zeros; where none has, it may be a part of another function."""

    def setting(name: str, unfolds: int) -> dict[str, Any]:
        functions = {each: {"stores": 0, "tlbis": 0, "dsbs": 0} for each in FUNCTIONS}
        functions["handle_mm_fault"]["stores"] = 160
        functions["__contpte_try_unfold"] = {"stores": 32 * unfolds, "tlbis": unfolds, "dsbs": 2 * unfolds}
        return measured(name, [], steps={"functions": functions, "findings": 0, "not_judged": []})

    rows = {
        row.split("`")[1]: row
        for row in table_of_steps([setting("one", 0), setting("two", 10)], "block", 10)
        if "`" in row
    }
    assert rows["__contpte_try_unfold"].endswith("| 0.0, 0.0, 0.0 | 32.0, 1.0, 2.0 |")
    assert rows["handle_mm_fault"].endswith("| 16.0, 0.0, 0.0 | 16.0, 0.0, 0.0 |")
    assert rows["unmap_vmas"].endswith("| not seen | not seen |")
