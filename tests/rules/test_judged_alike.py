# SPDX-License-Identifier: GPL-2.0-only
"""The same memory is judged alike on every way to it: live, in a core of its tables, in a core of all RAM, and in a
guest that hangs.

In a guest of ours, whose process waits at a checkpoint, and in a QEMU of one's own. The fault needs two entries: a page
that is mapped writable at one address of a process and read-only at another (L8), where a page of its own was before
(L7; L9 leaves pages alone in whose entries another rule is broken).
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest, GuestLost, Process, Session
from folioscope.rig import Wanted

from command import folioscope
from own_qemu import LAYOUT, LEFT_OUT, MEMFD, NONCE, RAM, checked
from own_qemu import Guest as OwnGuest
from test_hung_guest import FREEZE

WRITE, RDONLY = 1 << 51, 1 << 7
# They are asked of whoever drives a guest, not of its memory.
OF_DRIVERS = {"F1", "V1"}
PAGES = 3


def told(verdict: dict[str, Any], basis: dict[str, Any], not_judged: list[dict[str, str]]) -> dict[str, list[Any]]:
    """What is to be the same: the errors, what was not judged, which rules were in force and what they lacked."""
    errors = [(it["rule"], it["va"], it["end"]) for it in verdict["findings"] if it["severity"] == "error"]
    reasons = {it["reason"] for it in [*verdict["not_judged"], *not_judged]} | set(basis["lacks"])
    return {
        "errors": sorted(errors),
        "not judged": sorted(reasons),
        "in force": sorted(set(basis["in_force"]) - OF_DRIVERS),
    }


def of_report(report: dict[str, Any], pid: int) -> dict[str, list[Any]]:
    """The same of a report's process; no other process may have an error."""
    (step,) = report["steps"]
    (verdict,) = (it for it in step["processes"] if it["process"]["pid"] == pid)
    others = [it["findings"] for it in step["processes"] if it is not verdict]
    assert not [finding for findings in others for finding in findings if finding["severity"] == "error"]
    assert pid in {it["pid"] for it in step["basis"]["judged"]}
    return told(verdict, step["basis"], step["not_judged"])


def of_core(core: Path, pid: int, *words: str) -> dict[str, list[Any]]:
    """The same of a core."""
    path = core.with_suffix(".json")
    ended = folioscope("check", core, "--json", path, *words)
    assert ended.status == 1, ended.out + ended.err
    return of_report(json.loads(path.read_text()), pid)


def shared(word: int) -> int:
    """A word that maps the same page, read-only."""
    assert word & WRITE and not word & RDONLY
    return word & ~WRITE | RDONLY


@pytest.mark.parametrize("granule", ["4k"])
def test_guest_of_ours(process: Process, tmp_path: Path) -> None:
    """The process stays where it is: what is judged is one and the same memory."""
    guest, page = process.guest, process.guest.layout.page
    area = process.map(PAGES * page, hint="nohugepage")
    area.write()
    cores = [tmp_path / "tables.core", tmp_path / "full.core"]
    with process.hold() as held:
        entries = [held.judge().entry(area.address + number * page) for number in range(2)]
        mine, other = entries
        assert mine and other
        guest.poke([(other.address, shared(mine.word))])
        live = guest.call("judge", process=process.id)
        guest.call("snapshot", path=str(cores[0]), pid=process.pid)
        guest.call("save_full", path=str(cores[1]), pid=process.pid)
        guest.poke([(other.address, other.word)])
    expected = told(live["verdict"], live["basis"], [])
    assert ("L8", hex(area.address), hex(area.address + page)) in at(expected["errors"])
    assert {rule for rule, _, _ in expected["errors"]} == {"L7", "L8"}
    # A session's look is at the process alone, a core has the kernel half too.
    expected["in force"] = sorted([*expected["in force"], "K1", "K2"])
    for core in cores:
        assert of_core(core, process.pid) == expected, core


@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.only_machine("tcg")
def test_guest_that_hangs(wanted: Wanted, tmp_path: Path) -> None:
    """Nobody answers any more; each process is known by its task, and judged as it was before."""
    arguments = [*wanted.arguments(), "--out", str(tmp_path)]
    with contextlib.closing(Session(arguments, log=tmp_path / "session.log")) as session:
        guest = Guest(session, wanted.granule)
        guest.reset()
        process, page = guest.spawn(), guest.layout.page
        area = process.map(PAGES * page, hint="nohugepage")
        area.write()
        with contextlib.suppress(GuestLost), process.hold() as held:
            mine, other = (held.judge().entry(area.address + number * page) for number in range(2))
            assert mine and other
            guest.poke([(other.address, shared(mine.word))])
            live = guest.call("judge", process=process.id)
            guest.run("/bin/sh", "-c", f"(sleep 0.3; {FREEZE}) >/dev/null 2>&1 &")
            with pytest.raises(GuestLost) as lost:
                while True:
                    guest.command("ping", seconds=1)
    expected = told(live["verdict"], live["basis"], [])
    found = [(error.rule, hex(error.va)) for error in lost.value.findings]
    assert sorted(found) == [(rule, va) for rule, va, _ in at(expected["errors"])]
    assert {rule for rule, _ in found} == {"L7", "L8"}
    (verdict,) = (path.read_text() for path in tmp_path.glob("bundles/*/verdict.txt"))
    unsaid = [why for why in expected["not judged"] if f"{why}\n" not in verdict]
    assert not unsaid, verdict
    reasons = set(re.findall(r"^  (?:note|not judged): (.* not judged: .*)$", verdict, re.MULTILINE))
    # Here the whole guest is looked at, and its counts are left alone where a page is not what it should be.
    reasons = {why for why in reasons if not why.endswith("L7 has told of pages that are not what they should be")}
    # What only who drives a guest can say.
    (more,) = reasons - set(expected["not judged"])
    assert more.startswith(f"{LEFT_OUT}: "), more


def at(errors: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The errors, with addresses as Python writes them."""
    return [(rule, hex(int(start, 16)), hex(int(end, 16))) for rule, start, end in errors]


@pytest.mark.qemu
def test_qemu_of_ones_own(tmp_path: Path) -> None:
    """Nobody holds the process; it waits all the same, for the test alone."""
    (place := tmp_path / "own").mkdir()
    cores = [tmp_path / "tables.core", tmp_path / "full.core"]
    with OwnGuest(place, "-M", "virt,memory-backend=ram", "-object", MEMFD) as own:
        spawned = own.command("spawn", name="mine")["spawned"]
        process, pid = spawned["process"], spawned["pid"]
        where = {"isolated": {"offset": 0}}
        area = own.op(process, "mmap", length=PAGES * LAYOUT.page, place=where)["mapped"]["address"]
        own.op(process, "touch", address=area, length=PAGES * LAYOUT.page, access="write", order="forward")
        own.command("checkpoint", process=process, nonce=NONCE, smaps=False)
        assert checked(own, tmp_path)[0] == 0
        rows = {row["va"]: row for row in own.rows("--pid", str(pid))}
        mine, other = rows[area], rows[area + LAYOUT.page]
        start = other["table"] + 8 * other["index"] - RAM
        with own.ram() as memory:
            memory[start : start + 8] = shared(mine["word"]).to_bytes(8, "little")
        status, report = checked(own, tmp_path)
        own.attach("save", cores[0]).ok()
        own.attach("save", "--full", cores[1])
    assert status == 1
    expected = of_report(report, pid)
    assert ("L8", hex(area), hex(area + LAYOUT.page)) in at(expected["errors"])
    assert {rule for rule, _, _ in expected["errors"]} == {"L7", "L8"}
    for core in cores:
        assert of_core(core, pid) == expected, core
