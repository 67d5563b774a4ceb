# SPDX-License-Identifier: GPL-2.0-only
"""The table of a campaign for other programs: the library of KCIDB takes the submission, and KTAP keeps its plan."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import kcidb_io
import pytest
from folioscope.campaign import __main__
from folioscope.campaign.cell import Cell, Kernel, Test
from folioscope.campaign.errors import Refused
from folioscope.campaign.kernels import NOT_BUILT
from folioscope.campaign.matrix import Expectation
from folioscope.campaign.outputs import Source, kcidb, ktap, put_all
from folioscope.campaign.result import Result
from folioscope.campaign.store import Store
from folioscope.campaign.table import rows

from command import ROOT

JUNIT = """<testsuites name="folioscope">
<testsuite name="anon"><testcase name="forward" time="0.5"/>
<testcase name="backward: 2nd"><failure message="A4 the bit">of a neighbour</failure></testcase></testsuite>
<testsuite name="fork"><testcase name="child"><error message="nothing was judged"/></testcase>
<testcase name="child"/></testsuite></testsuites>
"""
MATRIX = """version = 1
store = "store"
[kernels.given]
image = "{image}"
[tests.pages]
kind = "tour"
only = "anon"
[axes]
kernel = ["given"]
machine = ["tcg"]
test = ["pages"]
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cells(tmp_path: Path) -> tuple[list[Cell], Store]:
    """Cells of each state."""
    store = Store(str(tmp_path / "store")).open()
    (tmp_path / "junit.xml").write_text(JUNIT)
    files = {"junit.xml": store.put(tmp_path / "junit.xml")}
    good, bad, none, new = (Kernel(f"mm: {name} # {number}", name) for number, name in enumerate(("a", "b", "c", "d")))
    made = [
        *(Cell(kernel, Test(test, test)) for kernel in (good, bad) for test in ("tour", "costs")),
        Cell(none, Test("tour", "tour")),
        Cell(good, Test("tour", "tour"), granule="64k"),
        Cell(good, Test("tour", "tour"), granule="16k"),
        Cell(new, Test("tour", "tour")),
        Cell(Kernel("none", "none"), Test("soon", "wait")),
    ]
    said: list[dict[str, Any]] = [
        {"outcome": "pass", "status": 0, "files": files},
        {"outcome": "pass", "status": 0, "figures": {"sysfs faults": 4096.0}},
        {"outcome": "fail", "status": 1, "rules": {"A4": 2}},
        {"outcome": "fail", "status": 1, "rules": {"L4": 1}},
    ]
    for cell, result in zip(made, said, strict=False):
        store.name(Result(cell.key, cell.axes(), seconds=2.5, summary="9 checkpoints", **result))
    store.lose(made[4].key, f"{NOT_BUILT}: x.c:1:1: error: no\0")
    store.lose(made[5].key, "the guest was lost")
    store.name(Result(made[6].key, made[6].axes(), "unjudged", 2, 1.0, "1 not judged"))
    store.name(Result(made[8].key, made[8].axes(), "pass", 0, 1.0, "waited"))
    return made, store


def test_kcidb_takes_the_submission(cells: tuple[list[Cell], Store]) -> None:
    """By its own library: checkouts, builds, tests, with the paths of checkpoints; what was not run is not in it."""
    made, store = cells
    known = Expectation({"kernel": made[2].kernel.name, "test": "costs"}, ("L4",), "known")
    sources = {
        made[0].kernel.name: Source(COMMIT, "", "the base"),
        made[2].kernel.name: Source(COMMIT, "ab" * 32, "a patch"),
    }
    found = kcidb(made, rows(made, store, [known]), store, sources)
    version = kcidb_io.schema.LATEST
    assert version.validate(found) is found and version.is_compatible(found)
    tests = {(each["id"].split(":")[1], each["path"]): each for each in found["tests"]}
    assert len(tests) == len({each["id"] for each in found["tests"]}) - 1 == 9
    of = {path: each["status"] for (key, path), each in tests.items() if key == made[0].key}
    assert of == {
        "folioscope.tour": "PASS",
        "folioscope.tour.anon.forward": "PASS",
        "folioscope.tour.anon.backward_2nd": "FAIL",
        "folioscope.tour.fork.child": "PASS",
    }
    assert [each["status"] for each in found["tests"] if each["path"].endswith("fork.child")] == ["ERROR", "PASS"]
    bad = next(each for each in found["tests"] if each["path"].endswith("2nd"))
    assert bad["log_excerpt"] == "A4 the bit\nof a neighbour"
    rest = {number: tests[made[number].key, f"folioscope.{made[number].test.name}"] for number in (1, 2, 3, 5, 6)}
    assert {number: each["status"] for number, each in rest.items()} == {
        1: "DONE", 2: "FAIL", 3: "FAIL", 5: "MISS", 6: "ERROR",
    }  # fmt: skip
    assert rest[3]["misc"]["state"] == "known" and rest[1]["misc"]["figures"] == {"sysfs faults": 4096.0}
    builds = {each["id"]: each for each in found["builds"]}
    assert [each["status"] for each in builds.values()] == ["PASS", "PASS", "FAIL"]
    assert builds["folioscope:c"]["log_excerpt"] == f"{NOT_BUILT}: x.c:1:1: error: no"
    assert all(each["build_id"] in builds for each in found["tests"])
    checkouts = {each["id"]: each for each in found["checkouts"]}
    assert builds["folioscope:b"]["checkout_id"] == f"folioscope:{COMMIT}:{'ab' * 32}"
    assert (
        builds["folioscope:c"]["checkout_id"] == "folioscope:c" and "git_commit_hash" not in checkouts["folioscope:c"]
    )
    assert len(checkouts) == 3


def test_no_submission_is_as_empty_as_it_must_be(cells: tuple[list[Cell], Store]) -> None:
    """A campaign of which nothing has run is still taken."""
    made, store = cells
    assert kcidb_io.schema.LATEST.validate(kcidb(made[7:8], rows(made[7:8], store), store, {}))


def test_ktap_counts_as_it_plans(cells: tuple[list[Cell], Store]) -> None:
    """A kernel with a cell that is not as expected is not ok; a name has no `#`, which would begin a directive."""
    made, store = cells
    lines = list(ktap(rows(made, store)))
    assert lines[:4] == ["KTAP version 1", "1..5", "  KTAP version 1", "  # Subtest: mm: a 0"]
    for line in lines:
        assert re.fullmatch(r" *(KTAP version 1|1\.\.\d+|(not )?ok \d+ [^#]*|# .*)", line), line
    assert [line for line in lines if re.match("(not )?ok", line)] == [
        "not ok 1 mm: a 0", "not ok 2 mm: b 1", "not ok 3 mm: c 2", "not ok 4 mm: d 3", "ok 5 none",
    ]  # fmt: skip
    inner = [len(re.findall(r"^  (?:not )?ok", part, re.MULTILINE)) for part in "\n".join(lines).split("# Subtest")[1:]]
    plans = [int(line[5:]) for line in lines if line.startswith("  1..")]
    assert inner == plans == [4, 2, 1, 1, 1]
    assert "  # not judged: lost: the guest was lost" in lines and "  # fail A4: 9 checkpoints" in lines


def test_they_are_written_where_it_is_asked_for(cells: tuple[list[Cell], Store], tmp_path: Path) -> None:
    """A place that cannot be written is refused."""
    made, store = cells
    found = rows(made, store)
    put_all(tmp_path / "kcidb.json", tmp_path / "table.ktap", made, found, store, {})
    assert json.loads((tmp_path / "kcidb.json").read_text()) == kcidb(made, found, store, {})
    assert (tmp_path / "table.ktap").read_text().splitlines() == list(ktap(found))
    with pytest.raises(Refused, match="expected to write .*none/x and found No such file or directory; name another"):
        put_all(tmp_path / "none" / "x", None, made, found, store, {})
    put_all(None, None, made, found, store, {})


@pytest.mark.qemu
def test_a_matrix_writes_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a guest: each checkpoint has a path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    Path("matrix.toml").write_text(MATRIX.format(image=ROOT / "out" / "kernel-4k" / "Image"))
    words = ["matrix", "matrix.toml", "--kcidb", "kcidb.json", "--ktap", "table.ktap", "--out", "out"]
    monkeypatch.setattr("sys.argv", ["campaign", *words])
    assert __main__.main() == 0
    found = json.loads(Path("kcidb.json").read_text())
    kcidb_io.schema.LATEST.validate(found)
    assert {"folioscope.pages", "folioscope.pages.anon.forward"} <= {each["path"] for each in found["tests"]}
    assert all(each["status"] == "PASS" for each in [*found["tests"], *found["builds"]])
    assert Path("table.ktap").read_text().endswith("ok 1 given\n")
