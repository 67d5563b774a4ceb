# SPDX-License-Identifier: GPL-2.0-only
"""The crossing: every state of memory under every operation. A test is a cell, in one of the three processes; all cells
are played by the campaign of `make test-long`."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command import Ended, folioscope
from recorder import plugin
from without import THP

__all__ = ["plugin"]
pytestmark = pytest.mark.only_machine("tcg")

#: Bytes of a block at 4K.
BLOCK = 64 << 10
ACTING = ("alone", "parent", "child")
#: Seconds that the whole of it may take on a busy host.
SECONDS = 2400


@functools.cache
def named() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of states and of operations."""
    states, operations = folioscope("cross", "--list").ok().removeprefix("states:\n").split("operations:\n")
    names = lambda text: tuple(line.split()[0] for line in text.splitlines())  # noqa: E731
    return names(states), names(operations)


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Sequences are judged too, where the recorder's plugin can be built."""
    try:
        request.getfixturevalue("plugin")
    except pytest.skip.Exception:
        return ()
    return ("--record",)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory, recording: tuple[str, ...]) -> tuple[Ended, Path]:
    """The command that plays a cell of each state and operation, once, and its report."""
    place = tmp_path_factory.mktemp("crossing")
    report = place / "report.json"
    words = ["--quick", *recording, "--granule", "4k", "--out", place, "--json", report]
    return folioscope("cross", *words, seconds=SECONDS), report


@pytest.fixture(scope="module")
def crossing(command: tuple[Ended, Path]) -> dict[str, Any]:
    """All cells. One that is red or was not judged fails its own test, not all of them."""
    ended, report = command
    assert report.exists(), ended.out + ended.err
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["crossing"]["rows"], ended.out + ended.err
    return found


def cells(crossing: dict[str, Any], state: str, operation: str) -> list[dict[str, Any]]:
    """Those of a state and an operation."""
    table = crossing["crossing"]
    (at,) = (at for at, known in enumerate(table["states"]) if known["name"] == state)
    return [row["cells"][at] for row in table["rows"] if row["operation"] == operation]


def said(ended: Ended) -> str:
    """Standard output of one that succeeded. Beside it there is nothing but, on a busy host, how far it is."""
    pace = re.compile(r"folioscope: \S+: \d+ of \d+ rows, \d+ s")
    assert all(pace.fullmatch(line) for line in ended.err.splitlines()), ended.err
    return replace(ended, err="").ok()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each pair."""
    if "state" in metafunc.fixturenames:
        states, operations = named()
        metafunc.parametrize(("state", "operation"), [(one, other) for one in states for other in operations])


def test_crossing(crossing: dict[str, Any], state: str, operation: str) -> None:
    """Nothing is wrong, nothing is not judged; what makes no sense has its reason."""
    (its,) = cells(crossing, state, operation)
    assert its["outcome"] in ("green", "left_out"), its
    assert its["outcome"] == "green" or its["reason"]


def test_the_command_ends_well(command: tuple[Ended, Path]) -> None:
    """Of what is in no cell nothing is wrong and nothing is not judged either."""
    ended, _ = command
    assert ended.status == 0, ended.out[-4000:]


def test_most_cells_are_played(crossing: dict[str, Any]) -> None:
    """A rule that leaves out too much would make all of it green. No state and no operation is left out everywhere."""
    states, operations = named()
    outcomes = [it["outcome"] for row in crossing["crossing"]["rows"] for it in row["cells"]]
    assert len(outcomes) == len(states) * len(operations)
    # These are for files of a disk, shared files, areas of a PMD's range, and for what one process alone has.
    few = {"sync", "write-sync", "evict", "uffd-move-all", "pin-collapse"}
    few |= {"busy-collapse", "busy-evict", "busy-remove"}
    rows = [row for row in crossing["crossing"]["rows"] if row["operation"] not in few]
    outcomes = [it["outcome"] for row in rows for it in row["cells"]]
    assert outcomes.count("green") > len(outcomes) * 3 // 4
    guards = {"guard", "unguard", "guarded"}
    for operation in set(operations) - guards:
        rows = [row for row in crossing["crossing"]["rows"] if row["operation"] == operation]
        assert any(it["outcome"] == "green" for row in rows for it in row["cells"]), operation
    for state in set(states) - guards:
        assert any(it["outcome"] == "green" for it in cells(crossing, state, "nothing")), state
    assert all(row["elsewhere"] == 0 for row in crossing["crossing"]["rows"])


def test_sequences_are_judged(crossing: dict[str, Any], recording: tuple[str, ...]) -> None:
    """The recording is a step of its own, and nothing of it is wrong or could not be judged."""
    if not recording:
        pytest.skip("the recorder's plugin needs a newer Rust")
    (step,) = (step for step in crossing["steps"] if step["workload"] == "record")
    assert step["basis"]["in_force"] == [f"S{number}" for number in range(1, 8)]
    assert (step["kernel"]["findings"], step["kernel"]["not_judged"]) == ([], [])


def test_notifiers_invalidate(crossing: dict[str, Any]) -> None:
    """A secondary MMU copies the tables of each batch; notifiers invalidate each page that an operation takes away."""
    rows = {row["operation"]: row["notified"] for row in crossing["crossing"]["rows"]}
    assert min(it["copied"] for it in rows.values()) > 10_000
    assert {it["missed"] for it in rows.values()} == {0}
    for operation in ("dontneed", "fork", "migrate", "move", "pageout", "protect", "unmap"):
        assert rows[operation]["invalidated"] > 3_000, operation


def played(only: str, place: Path, *more: str) -> dict[str, list[dict[str, Any]]]:
    """The VMAs of the look after each step of these cells."""
    report = place / "report.json"
    words = ["--only", only, *more, "--granule", "4k", "--out", place, "--json", report]
    folioscope("cross", *words).ok()
    steps = (step for step in json.loads(report.read_text())["steps"] if step["workload"] == "cross")
    return {step["step"]: [vma for verdict in step["processes"] for vma in verdict["vmas"]] for step in steps}


@pytest.mark.parametrize(
    "only,why",
    [
        ("small,hugetlb,khugepaged", "khugepaged passes over a process without an area of a PMD's size"),
        ("hugetlb,merge", "KSM merges no hugetlb pages"),
        ("hugetlb,limit", "hugetlb pages are not charged to the cgroup"),
    ],
)
def test_what_needs_another_state_is_left_out(only: str, why: str, tmp_path: Path) -> None:
    """The kernel never does it with the states that were chosen, so it is not waited for; nothing was judged."""
    ended = folioscope("cross", "--only", only, "--granule", "4k", "--out", tmp_path)
    assert ended.status == 2 and f"no cell of the crossing was judged: {why}" in ended.out, ended.out


def test_old_pages_stay_dirty(tmp_path: Path) -> None:
    """The kernel writes back what is older than so much; while a state is built it must not."""
    areas = "disk-written,disk-read,disk-copied"
    every = "sysctl.vm.dirty_writeback_centisecs=1 sysctl.vm.dirty_expire_centisecs=1"
    looks = played(f"{areas},nothing,protect,dontneed-read", tmp_path, "--append", every)
    assert any("nothing" in step for step in looks)


def test_hints_are_made(tmp_path: Path) -> None:
    """Every page of these areas has one, which is two blocks of sixteen, and none after a load of each."""
    areas = ("small", "folded", "migrated", "shmem", "tmpfs-huge-written")
    looks = played(",".join((*areas, "hint", "hint-read")), tmp_path)
    for step, hints in [("hint", 32), ("hint-read", 0)]:
        its = (vma for vma in looks[step] if int(vma["end"], 16) - int(vma["start"], 16) == 2 * BLOCK)
        found = [sum(row["pages"].count("n") * row["blocks"] for row in vma["rows"]) for vma in its]
        assert found == [hints] * len(areas), step


def folded(place: Path, *more: str) -> int:
    """Blocks that are folded after a store to one of some zero pages."""
    looks = played("zero,write-page", place, *more)
    return sum(vma["blocks"].get("folded", 0) for vma in looks["write-page"])


def test_a_knob_is_written_first(tmp_path: Path) -> None:
    """With the switch a write to one of a block's zero pages makes the block a large folio, and without it does not."""
    assert folded(tmp_path, f"--knob={THP}/anon_order/zero_page=1") == folded(tmp_path) + 1


def test_write_faults_of_the_series(tmp_path: Path) -> None:
    """With its switches on, writes replace zero pages and shared folios by large folios."""
    states = "none,zero,small,ksm-zero,folded,border,cut,queued,freed,swapped,pinned,read-only-page,uffd-wp-page"
    operations = "write-page,write,force-word,other-writes,other-exits,fork-write,fork-then-write,pageout"
    report = tmp_path / "report.json"
    switches = [f"--knob={THP}/anon_order/{switch}=1" for switch in ("zero_page", "reuse", "copy")]
    words = ["--only", f"{states},{operations}", *switches, "--granule", "4k", "--out", tmp_path, "--json", report]
    ended = folioscope("cross", *words, seconds=300)
    assert ended.status == 0, ended.out + ended.err
    found = json.loads(report.read_text())["crossing"]
    green = [it for row in found["rows"] for it in row["cells"] if it["outcome"] == "green"]
    assert len(green) > len(found["rows"]) * len(found["states"]) * 3 // 4


def test_a_knob_that_is_none() -> None:
    """It is refused before anything is played, with the guest's answer."""
    said = folioscope("cross", "--only", "none,read", "--knob", f"{THP}/frozen=1").sentence()
    assert f"expected to write '1' to {THP}/frozen of the guest (--knob), and it answered" in said
    assert "ENOENT" in said
    ended = folioscope("cross", "--knob", "frozen")
    assert (ended.status, ended.out) == (2, "")
    assert "expected a file of the guest and a text, as in /sys/" in ended.err


def test_names() -> None:
    """A name that is none is refused with all that there are."""
    said = folioscope("cross", "--only", "frozen").sentence()
    assert "expected a state or an operation of the crossing and found" in said
    assert all(name in said for names in named() for name in names)


def test_one_cell(tmp_path: Path) -> None:
    """By names; the table has it alone."""
    report = tmp_path / "report.json"
    ended = folioscope("cross", "--only", "swapped,move", "--out", tmp_path, "--json", report)
    assert re.search(r"^3 cells: 3 green, 0 red, 0 not judged; 0 pairs left out$", said(ended), re.M)
    table = json.loads(report.read_text())["crossing"]
    assert [it["name"] for it in table["states"]] == ["swapped"]
    assert [row["operation"] for row in table["rows"]] == ["move"] * 3


def test_nothing_to_play(tmp_path: Path) -> None:
    """Where every pair is left out nothing was judged, and that is the outcome: 6.12 has no guard markers."""
    report = tmp_path / "report.json"
    words = ["--only", "folded,guard", "--granule", "4k", "--out", tmp_path, "--json", report]
    ended = folioscope("cross", *words)
    assert ended.status == 2, ended.out
    reason = "no cell of the crossing was judged: the kernel has no guard markers"
    assert ended.out.splitlines()[-1] == f"NOT JUDGED could not be judged: {reason} (exit status 2)"
    rows = json.loads(report.read_text())["crossing"]["rows"]
    assert [it["outcome"] for row in rows for it in row["cells"]] == ["left_out"] * len(ACTING)


def test_a_range_too_large_is_left_out(tmp_path: Path) -> None:
    """At 64K what a PMD maps is half of the guest's memory; the other states are played there too."""
    words = ["--only", "pmd,folded,write-page", "--granule", "64k", "--out", tmp_path]
    ended = folioscope("cross", *words)
    assert re.search(r"^3 cells: 3 green, 0 red, 0 not judged; 3 pairs left out$", said(ended), re.M)
