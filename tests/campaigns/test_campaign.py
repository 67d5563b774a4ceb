# SPDX-License-Identifier: GPL-2.0-only
"""Campaigns: keys of cells, what a store keeps however a campaign ends, and that nothing of a cell outlives it."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from folioscope import content, locate
from folioscope.campaign.cell import Cell, Kernel, Test
from folioscope.campaign.errors import Lost, Refused
from folioscope.campaign.kept import Keeper, end_marked, marked
from folioscope.campaign.kinds import JUNIT, KINDS, PLUGIN, enough
from folioscope.campaign.parts import keys, same
from folioscope.campaign.result import SCHEMA, Result
from folioscope.campaign.store import Store

import command
from campaigns import ran_here, started, table, waiting
from command import COMMAND, ROOT, SLOWER, wait_until

SECONDS = 60 * SLOWER


def cell(**more: Any) -> Cell:
    """A cell of the tour."""
    return Cell(**{"kernel": Kernel("k", "4k-1"), "test": Test("tour", "tour", {"only": "anon"}), **more})


def test_a_key_is_that_of_the_scripts(tmp_path: Path) -> None:
    """One notion of a key: `content` of vmm/setup/lib.sh, over directories and files whose order a locale changes."""
    names = ["vmm/setup", "rootfs", "Makefile", "LICENSES"]
    script = f". {ROOT}/vmm/setup/lib.sh; content {' '.join(names)}"
    environment = {**os.environ, "FOLIOSCOPE_OUT": str(tmp_path)}
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert content.of_tree(ROOT, names) == ran.stdout.strip()


def test_a_cells_key_is_of_its_content() -> None:
    """Each value that makes the result is in it; a name, and how long it is waited for, are not."""
    one = cell()
    others = [
        cell(kernel=Kernel("k", "4k-2")),
        cell(test=Test("tour", "tour", {"only": "fork"})),
        cell(test=Test("tour", "crossing", {"only": "anon"})),
        *(cell(**{name: "x"}) for name in ("granule", "cpu", "machine", "policy", "memory", "append")),
        cell(smp=3),
        cell(rig={"folioscope": "0"}),
    ]
    assert len({one.key, *(other.key for other in others)}) == len(others) + 1
    assert one.key == replace(one, kernel=Kernel("other", "4k-1"), test=replace(one.test, name="n"), limit=3.0).key
    assert len(one.key) == content.LENGTH


def test_a_cell_with_a_result_is_not_run_again(tmp_path: Path) -> None:
    """Its result has the form of the schema, its files are in the store by their content, and twice is once."""
    store = Store(str(tmp_path / "store")).open()
    cells = waiting(3, 0)
    first = ran_here(cells, store)
    assert (first.kept, first.ran, first.lost) == (0, 3, {})
    again = ran_here([*cells, *cells, *waiting(4, 0)], store)
    assert (again.kept, again.ran) == (3, 1)
    for path in (tmp_path / "store" / "results").rglob("*.json"):
        found = json.loads(path.read_text())
        jsonschema.validate(found, SCHEMA)
        assert found["cell"]["content"]["test"]["kind"] == "wait"
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**found, "outcome": "lost"}, SCHEMA)
    assert not list((tmp_path / "store" / "tmp").iterdir())


def test_half_a_file_is_never_read(tmp_path: Path) -> None:
    """A name without contents, as a power failure leaves it, is none; a result that is cut short is not read."""
    store = Store(str(tmp_path)).open()
    cells = waiting(3, 0)
    ran_here(cells, store)
    empty, cut = (tmp_path / "results" / one.key[:2] / f"{one.key}.json" for one in cells[:2])
    empty.write_text("")
    cut.write_text(cut.read_text()[:-2])
    assert store.result(cells[0].key) is store.result(cells[1].key) is None
    assert ran_here(cells[:1], store).ran == 1
    assert store.result(cells[0].key) is not None


def test_an_object_is_what_its_name_says(tmp_path: Path) -> None:
    """It is fetched whole or not at all."""
    store = Store(str(tmp_path / "store")).open()
    (tmp_path / "file").write_text("contents")
    name = store.put(tmp_path / "file")
    store.fetch(name, tmp_path / "to" / "there")
    assert (tmp_path / "to" / "there").read_text() == "contents"
    (tmp_path / "store" / "objects" / name[:2] / name).write_text("content")
    with pytest.raises(Refused, match="is damaged"):
        store.fetch(name, tmp_path / "to" / "other")
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["there"]


def test_a_store_is_a_url_too(tmp_path: Path) -> None:
    """One that fsspec knows, with the same files as by its path; no message has the user and the password."""
    cells = waiting(2, 0)
    store = Store(f"file://{tmp_path}/store").open()
    assert ran_here(cells, store).ran == 2
    assert ran_here(cells, Store(str(tmp_path / "store")).open()).ran == 0
    with pytest.raises(Refused, match=r"the store ftp://\*\*\*@127.0.0.1:1/x could not be opened: .*refused"):
        Store("ftp://user:secret@127.0.0.1:1/x")


@pytest.mark.parametrize("url", ["memory://{}", "dir::file://{}"], ids=["put at once", "put, then moved"])
def test_other_file_systems(url: str, tmp_path: Path) -> None:
    """One where a put is whole or absent by itself, as an object store's is, and one that is not local."""
    place = url.format(tmp_path / "store")
    store, cells = Store(place).open(), waiting(3, 0)
    assert ran_here(cells, store).ran == 3
    again = Store(place).open()
    assert ran_here(cells, again).ran == 0 and set(table(cells, again).values()) == {"pass"}
    (tmp_path / "file").write_text("contents")
    again.fetch(store.put(tmp_path / "file"), tmp_path / "there")
    assert (tmp_path / "there").read_text() == "contents"


def test_two_writers_agree(tmp_path: Path) -> None:
    """Two campaigns of the same cells at once end with one table, whole."""
    both = [started(tmp_path, 8, 0.05) for _ in range(2)]
    for one in both:
        out, err = one.communicate(timeout=SECONDS)
        assert one.returncode == 0, err
        assert "0 lost" in out
    assert set(table(waiting(8, 0.05), Store(str(tmp_path))).values()) == {"pass"}


def test_a_cell_that_is_lost_is_tried_four_times(tmp_path: Path) -> None:
    """Then it is lost, which is no result: the others have theirs, and the next campaign tries it again."""
    store = Store(str(tmp_path)).open()
    late, soon = waiting(1, 30, limit=0.2), waiting(2, 0)[1:]
    began = time.monotonic()
    ran = ran_here([*late, *soon], store)
    assert time.monotonic() - began >= 4 * 0.2
    assert ran.lost == {late[0].key: "it took longer than its limit of 0.2 s"} and ran.ran == 1
    assert store.lost() == {late[0].key} and store.why_lost(late[0].key) == ran.lost[late[0].key]
    assert store.result(late[0].key) is None
    # Its limit is not content: with more time, it is no other cell.
    patient = replace(late[0], test=late[0].test, limit=None)
    assert patient.key == late[0].key


# A program that leaves a daemon behind in a session of its own, and one more below it.
DAEMON = """import os, time
if os.fork() == 0:
    os.setsid()
    os.fork()
    time.sleep(600)
print('left', flush=True)
"""


@pytest.mark.parametrize("how", ["exits", "limit", "keeper killed", "owner killed", "stopped"])
def test_what_a_cell_starts_ends_with_it(how: str, tmp_path: Path) -> None:
    """Also a daemon, however the program, its keeper or the campaign ends."""
    mark = uuid.uuid4().hex
    script = DAEMON + ("" if how == "exits" else "time.sleep(600)\n")
    code = (
        "import sys, threading, time; from pathlib import Path; from folioscope.campaign.kept import Keeper\n"
        "from folioscope.campaign.errors import Lost\n"
        "keeper = Keeper()\n"
        "if sys.argv[2] == 'stopped': threading.Timer(float(sys.argv[4]), keeper.stop).start()\n"
        "limit = float(sys.argv[4]) if sys.argv[2] == 'limit' else None\n"
        "place = Path(sys.argv[1])\n"
        "try: print(keeper.run([sys.executable, '-c', sys.argv[3]], place, place / 'said', limit).how, flush=True)\n"
        "except Lost: print('lost', flush=True)\n"
        "time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), how, script, str(3 * SLOWER)],
        env={**os.environ, command.MARK: mark, "PYTHONPATH": str(ROOT / "tests" / "plugin")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = tmp_path / "said"
        assert wait_until(lambda: said.exists() and "left" in said.read_text(), 20)
        if how.endswith("killed"):
            # Owner, keeper, program, daemon and the one below it.
            assert wait_until(lambda: len(command.marked(mark)) == 5, 10), command.marked(mark)
            (keeper,) = command.children(owner.pid)
            os.kill(owner.pid if how == "owner killed" else keeper, signal.SIGKILL)
        if how == "owner killed":
            owner.wait()
            assert wait_until(lambda: not command.marked(mark), 5)
        else:
            assert owner.stdout
            expected = {"exits": "exited", "keeper killed": "lost"}.get(how, how)
            assert owner.stdout.readline().strip() == expected
            # The owner, and the keeper that waits for another program.
            assert len(command.marked(mark)) == (1 if how == "keeper killed" else 2)
    finally:
        owner.kill()
        owner.communicate()
        assert wait_until(lambda: not command.marked(mark), 5)


def test_a_mark_finds_what_a_killed_keeper_has_left() -> None:
    """By the environment, which a process keeps when its parent changes."""
    mark = uuid.uuid4().hex
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, "FOLIOSCOPE_CELL": mark})
    assert wait_until(lambda: marked(mark) == [child.pid], 5)
    end_marked(mark)
    assert child.wait(5) == -signal.SIGKILL


def test_killed_at_any_instant_it_ends_with_the_same_table(tmp_path: Path) -> None:
    """Until a campaign comes to its end, it is killed at random instants with all that it has started, and begun
    anew: the table is that of one that was left alone, and nothing runs on."""
    count, seconds = 24, 0.05
    chance = random.Random(36)
    mark = uuid.uuid4().hex
    kills, out = 0, ""
    # The first is killed before it has done anything; on a busy host it takes longer until one comes to its end.
    while not out:
        campaign = started(tmp_path / "store", count, seconds, **{command.MARK: mark})
        try:
            out, err = campaign.communicate(timeout=chance.uniform(0.1, 0.1 + 0.5 * kills) * SLOWER)
            assert campaign.returncode == 0, err
            break
        except subprocess.TimeoutExpired:
            kills += 1
            for pid in command.marked(mark):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            campaign.communicate()
            assert wait_until(lambda: not command.marked(mark), 5)
    assert "0 lost" in out and kills > 0
    store = Store(str(tmp_path / "store"))
    alone = Store(str(tmp_path / "alone")).open()
    cells = waiting(count, seconds)
    ran_here(cells, alone, slots=4)
    assert table(cells, store) == table(cells, alone)
    assert set(table(cells, store).values()) == {"pass"}


@pytest.mark.qemu
def test_a_real_cell_killed_and_begun_again(tmp_path: Path) -> None:
    """The tour of a guest: killed while it runs, it leaves no QEMU; then it is judged, and its files are kept."""
    kernel = Kernel("pinned", "pinned", {"Image": str(ROOT / "out/kernel-4k/Image")})
    settings = {"only": "anon"}
    one = Cell(kernel, Test("anon", "tour", settings), machine="tcg", rig=keys("tour", settings), limit=300 * SLOWER)
    code = (
        "import pickle, sys; from campaigns import *\n"
        "store = Store(sys.argv[1]).open(); ran_here([pickle.loads(bytes.fromhex(sys.argv[2]))], store, 1)\n"
    )
    mark = uuid.uuid4().hex
    words = [sys.executable, "-c", code, str(tmp_path / "store"), pickle.dumps(one).hex()]
    path = os.pathsep.join(map(str, (ROOT / "tests" / "plugin", ROOT / "tests" / "helpers")))
    environment = {**os.environ, "PYTHONPATH": path, "FOLIOSCOPE": str(COMMAND), command.MARK: mark}

    def qemus() -> list[int]:
        return [pid for pid in command.marked(mark) if command.program(pid).startswith("qemu-system")]

    with subprocess.Popen(words, env=environment) as campaign:
        assert wait_until(qemus, 60)
        campaign.kill()
    assert wait_until(lambda: not command.marked(mark), 10)
    store = Store(str(tmp_path / "store"))
    assert store.named() == set()
    subprocess.run(words, env=environment, check=True, timeout=300 * SLOWER)
    result = store.result(one.key)
    assert result and (result.outcome, result.status, result.rules) == ("pass", 0, {})
    assert result.summary.endswith("0 errors, 0 remarks, 0 not judged")
    assert {"report.json", "junit.xml", "report.html", "said.txt"} <= result.files.keys()
    store.fetch(result.files["report.json"], tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    pages = [process["entries"] for step in report["steps"] for process in step["processes"]]
    share = sum(each["contiguous_pages"] for each in pages) / sum(each["pages"] for each in pages)
    assert result.figures["coverage"] == pytest.approx(share) and 0 < share < 1


def test_another_rig_is_refused() -> None:
    """A worker whose programs are others than the campaign's, by name."""
    wanted = keys("tour", {})
    assert wanted.keys() == {"folioscope", "initramfs.cpio", "qemu-system-aarch64"}
    same("tour", {}, wanted, "here")
    with pytest.raises(Refused, match="the worker here has folioscope [0-9a-f]{20} and the campaign has 0; build the"):
        same("tour", {}, {**wanted, "folioscope": "0"}, "here")


def test_the_recorder_is_a_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a test that is recorded; where it was not built, the sentence says how it is."""
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(locate, "command", lambda: locate.Command(COMMAND, tmp_path))
    for kind in ("tour", "crossing"):
        assert "recorder" not in KINDS[kind].parts({"record": False}, tmp_path)
        with pytest.raises(Refused, match="expected the recorder's plugin at .* make run RECORD=1 builds it"):
            KINDS[kind].parts({"record": True}, tmp_path)
    plugin = tmp_path / "out" / PLUGIN
    plugin.touch()
    assert KINDS["crossing"].parts({"record": True}, tmp_path)["recorder"] == plugin


def test_a_crossing_has_figures_of_its_cells(tmp_path: Path) -> None:
    """How many are green, and how many were left out."""
    totals = {"rules": {}, "steps": 0, "errors": 0}
    row = {"cells": [{"outcome": outcome} for outcome in ("left_out", "green", "left_out")]}
    (tmp_path / "report.json").write_text(json.dumps({"steps": [], "totals": totals, "crossing": {"rows": [row]}}))
    read = KINDS["crossing"].read(tmp_path, 0, "")
    assert (read.figures["green"], read.figures["left_out"], "red" in read.figures) == (1, 2, False)
    # Fewer than were asked for say nothing of the kernel.
    assert [enough(read, settings).outcome for settings in ({}, {"least": 0.33}, {"least": 0.5})] == [
        "pass",
        "pass",
        "unjudged",
    ]
    assert enough(read, {"least": 0.5}).summary == "expected 50% of 3 cells to be green and found 1"
    (tmp_path / "report.json").write_text(json.dumps({"steps": [], "totals": {**totals, "not_judged": 1}}))
    assert KINDS["tour"].read(tmp_path, 0, "").outcome == "unjudged"


def test_tests_that_are_all_skipped_are_not_judged(tmp_path: Path) -> None:
    """pytest is content with them; one that ran is enough."""
    for skipped, wanted in ((2, "unjudged"), (1, "pass")):
        counts = f'tests="2" failures="0" errors="0" skipped="{skipped}"'
        (tmp_path / JUNIT).write_text(f"<testsuites><testsuite {counts}/></testsuites>")
        assert KINDS["pytest"].read(tmp_path, 0, "").outcome == wanted


def test_a_guest_that_was_lost_is_no_verdict(tmp_path: Path) -> None:
    """Its report is there and says what was judged before; a refusal of the command's is why a cell is lost."""
    (tmp_path / "report.json").write_text('{"steps": [], "totals": {"rules": {}, "steps": 0, "errors": 0}}')
    read = KINDS["tour"].read
    assert read(tmp_path, 2, "").outcome == "unjudged"
    (tmp_path / "guests").mkdir()
    (tmp_path / "guests" / "why.txt").write_text("the guest\nstopped answering\n")
    with pytest.raises(Lost, match="the guest was lost: the guest stopped answering"):
        read(tmp_path, 2, "")
    with pytest.raises(Lost, match="^expected a kernel$"):
        read(tmp_path / "none", 2, "some words\nfolioscope: expected a kernel\n")


def refused(tmp_path: Path, prepare: str) -> str:
    """What a campaign says in a mount namespace where its store is on a file system of its own."""
    namespaces = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may make no user namespace")
    place = tmp_path / "store"
    place.mkdir()
    campaign = f"exec {sys.executable} {ROOT}/tests/helpers/campaigns.py {place} 40 0"
    script = f"set -e; mount -t tmpfs -o size=200k none {place}; {prepare}; {campaign}"
    ran = subprocess.run(
        [*namespaces, "bash", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "plugin")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    (line,) = ran.stderr.splitlines()
    return line.removeprefix(f"folioscope: the store {place} could not be ")


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        ("mount -o remount,ro {}", "written: Read-only file system; make it usable, or name another store"),
        ("head -c 190k /dev/zero > {}/full", "written: No space left on device; make it usable, or name another store"),
    ],
    ids=["read-only", "full"],
)
def test_a_store_that_cannot_be_written_is_refused(prepare: str, said: str, tmp_path: Path) -> None:
    """By one sentence, also where it is full only after some cells."""
    assert refused(tmp_path, prepare.format(tmp_path / "store")) == said


def test_a_store_of_others_is_refused(tmp_path: Path) -> None:
    """One of a newer version, and a directory with a file of that name."""
    (tmp_path / "store.json").write_text('{"format": "folioscope-store", "version": 2}')
    with pytest.raises(Refused, match="is of version 2 and this program knows up to 1; update it"):
        Store(str(tmp_path)).open()
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(Refused, match="expected a store of campaigns in .* and found other files"):
        Store(str(tmp_path)).open()


def test_a_keeper_stops_before_it_begins(tmp_path: Path) -> None:
    """A campaign that is cancelled starts no other cell."""
    keeper = Keeper()
    keeper.stop()
    assert keeper.run(["touch", str(tmp_path / "made")], tmp_path, tmp_path / "said", None).how == "stopped"
    assert not (tmp_path / "made").exists()
    keeper.close()


def test_results_of_another_version_are_none() -> None:
    """They are not read as if they were of this one."""
    found = Result("k", {}, "pass", 0, 1.0, "").as_json()
    assert Result.of_json(found).outcome == "pass"
    for change in ({"version": 2}, {"format": "other"}, {"outcome": "lost"}):
        with pytest.raises(ValueError, match="a result of|an outcome"):
            Result.of_json({**found, **change})
