# SPDX-License-Identifier: GPL-2.0-only
"""The mutation test: small wrong edits of mm code, one in a guest's kernel at a time, and the rules that name it.

The rules of the table in README.md must speak and no others: where one more names an edit this fails too, and the table
is brought up to date.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from folioscope import CommandFailed, GuestLost
from folioscope.rig import Rig, Wanted
from folioscope.voice import Heard
from scene import Scene
from scenes import SCENES, SWAP, play
from table import CROSSED, FEATURES, MUTANTS, Mutant

from command import ROOT

KERNEL = ROOT / "out" / "kernel-mutants"
PARAMETERS = "/sys/module/mutant/parameters"
HERE = Path(__file__).parent
# The kernel may come to a fault of its own when what the process had is freed.
LATE_SECONDS = 0.3
KILL_SECONDS = 5.0

by_tcg = pytest.mark.qemu


class Booted:
    """A guest whose kernel has one wrong edit, which strikes when it is armed."""

    def __init__(self, rig: Rig, number: int, cpu: str) -> None:
        # The agent is process 1, without which no guest goes on.
        words = f"mutant.number={number} mutant.armed=0 mutant.spared=init"
        more = ("--kernel", str(KERNEL / "Image"), "--vmlinux", str(KERNEL / "vmlinux"), f"--append={words}")
        self._rig, self._wanted = rig, Wanted("4k", cpu, "tcg", more)
        Heard.reports.clear()
        self.guest = rig.guest(self._wanted)
        self.guest.reset()
        self.guest.write(f"{PARAMETERS}/armed", "1")

    def hits(self) -> int:
        """How often the edit's place was reached."""
        return int(self.guest.read(f"{PARAMETERS}/hits"))

    def end(self) -> list[str]:
        """Ends the processes, and the guest; gives what its kernel has reported."""
        guest = self.guest
        with contextlib.suppress(GuestLost, CommandFailed):
            for process in guest.command("processes")["processes"]["processes"]:
                guest.command("kill", seconds=KILL_SECONDS, process=process["process"])
            guest.call("voice")
            time.sleep(LATE_SECONDS)
            guest.call("voice")
        self._rig.drop(self._wanted)
        heard = [report.headline for report in Heard.reports]
        Heard.reports.clear()
        return heard


def strike(rig: Rig, mutant: Mutant) -> tuple[Scene, list[str]]:
    """Plays a mutant's scene on its kernel: what was said, and what the kernel reported."""
    booted = Booted(rig, mutant.number, mutant.cpu)
    try:
        scene = play(booted.guest, mutant.scene)
        assert booted.hits() > 0, "the edit's place was never reached"
    finally:
        heard = booted.end()
    return scene, heard


@pytest.fixture(scope="session")
def said(folioscope_logs: Path) -> Iterator[dict[int, dict[str, object]]]:
    """What was said of each mutant, for people; it ends up in ``mutants.json`` of the logs."""
    told: dict[int, dict[str, object]] = {}
    yield told
    (folioscope_logs / "mutants.json").write_text(json.dumps(told, indent=1))


@by_tcg
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.number}-{mutant.scene.strip('[]')}")
def test_mutant(rig: Rig, mutant: Mutant, said: dict[int, dict[str, object]]) -> None:
    """A wrong edit is named by the rules that must name it, and by no other."""
    scene, heard = strike(rig, mutant)
    said[mutant.number] = {"rules": scene.told, "kernel": heard}
    assert scene.rules == set(mutant.rules), scene.told
    # It need not: what was an mm's is checked when the last CPU has left it, which may be never.
    assert mutant.voice or not heard, heard


@by_tcg
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cpu", sorted({mutant.cpu for mutant in MUTANTS}))
def test_none(rig: Rig, cpu: str) -> None:
    """The same kernel without an edit: every scene and every workload that shows one, and not one error."""
    booted = Booted(rig, 0, cpu)
    try:
        for name in sorted({mutant.scene for mutant in MUTANTS if mutant.cpu == cpu}):
            scene = play(booted.guest, name)
            assert not scene.told, f"{name}: {scene.told}"
            booted.guest.reset()
            if SWAP in booted.guest.read("/proc/swaps"):
                booted.guest.swap_off(SWAP)
    finally:
        heard = booted.end()
    assert not heard, heard


def test_table() -> None:
    """Each edit is in a patch and in the table, with a scene that there is; what no rule names has a reason."""
    numbers = [edit.number for edits in (MUTANTS, FEATURES, CROSSED) for edit in edits]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(MUTANTS) >= 30 and len(FEATURES) >= 10 and len(CROSSED) >= 50
    patches = "".join(path.read_text() for path in sorted(HERE.glob("*.patch")))
    assert all(f"mutant({number})" in patches for number in numbers)
    assert f"mutant({len(numbers) + 1})" not in patches
    scenes = {mutant.scene.strip("[]") for mutant in MUTANTS if mutant.scene.startswith("[")}
    assert scenes <= SCENES.keys()
    assert all(bool(mutant.rules) != bool(mutant.why_not) for mutant in MUTANTS)
    assert all(bool(crossed.rules) != bool(crossed.why_not) for crossed in CROSSED)
    named = sum(bool(mutant.rules) for mutant in MUTANTS)
    assert f"{named} of the {len(MUTANTS)} are named" in (HERE / "README.md").read_text()
