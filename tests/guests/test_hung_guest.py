# SPDX-License-Identifier: GPL-2.0-only
"""A guest that hangs is read and judged: broken tables are errors, and good ones are no verdict that all is well.

The guest's own agent is frozen (cgroup.freeze), so nothing answers any more, and a process spins in user mode.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import stat
import struct
import time
from pathlib import Path

import pytest
from folioscope import Guest, GuestLost, Session
from folioscope.rig import Wanted

from command import BOOT_SECONDS, Running, wait_until

# How a guest is lost does not depend on the granule; its memory is written to behind QEMU's back.
pytestmark = [pytest.mark.parametrize("granule", ["4k"]), pytest.mark.only_machine("tcg")]

# What the guest may take for a command that moves no memory, and what it has to be silent for beyond that.
DEADLINE_SECONDS = 8
LOST_SECONDS = DEADLINE_SECONDS + 5.0
GROUP = "/sys/fs/cgroup/still"
# Freezes the agent. What it has started goes on.
FREEZE = f"mkdir {GROUP}; echo 1 >{GROUP}/cgroup.procs; echo 1 >{GROUP}/cgroup.freeze"


@pytest.mark.parametrize(
    "broken", [pytest.param(True, id="broken", marks=pytest.mark.long), pytest.param(False, id="whole")]
)
def test_session_names_what_is_broken(wanted: Wanted, tmp_path: Path, broken: bool) -> None:
    """The answer that says that the guest is lost has the errors of its tables, and so has the bundle."""
    with contextlib.closing(
        Session([*wanted.arguments(), "--out", str(tmp_path)], log=tmp_path / "session.log")
    ) as session:
        guest = Guest(session, wanted.granule)
        guest.reset()
        process = guest.spawn()
        area = process.blocks(2)
        area.write()
        va = area.address + 3 * guest.layout.page
        with contextlib.suppress(GuestLost), process.hold() as held:
            entry = held.judge().entry(va)
            assert entry
            if broken:
                # A reserved type: no page for the CPU.
                guest.poke([(entry.address, entry.word & ~2)])
            # It answers before it stands still.
            guest.run("/bin/sh", "-c", f"(sleep 0.3; {FREEZE}) >/dev/null 2>&1 &")
            with pytest.raises(GuestLost) as lost:
                while True:
                    guest.command("ping", seconds=1)
        # Who leaves is not kept: what it held is not asked for.
        start = time.monotonic()
    assert time.monotonic() - start < 5
    found = [(error.rule, error.va, error.process and error.process.pid) for error in lost.value.findings]
    assert found == ([("A7", va, process.pid)] if broken else [])
    (bundle,) = (tmp_path / "bundles").iterdir()
    verdict = (bundle / "verdict.txt").read_text()
    assert ("A7" in verdict) == broken, verdict
    # Each is known by its task, and nobody says what they did.
    assert f"process {process.pid} test: " in verdict and "process 1 init: " in verdict
    assert "no agent of the guest tells" in verdict


# The guest's first process: it becomes the agent, and leaves one behind that waits for the workload to begin.
SCRIPT = (
    "busybox mknod /kmsg c 1 11; (until read on </sys/kernel/mm/ksm/run && [ $on = 1 ]; do :; done; "
    f"{FREEZE}; echo frozen >/kmsg; while :; do :; done) 2>/null & exec /init"
)


@pytest.mark.parametrize(
    "broken", [pytest.param(True, id="broken"), pytest.param(False, id="whole", marks=pytest.mark.long)]
)
def test_run_ends_with_what_is_broken(tmp_path: Path, granule: str, broken: bool) -> None:
    """`run` loses its guest in the middle of a workload: status 1 where its tables are broken, else 2."""
    place = tmp_path / "report.json"
    arguments = ["run", "--granule", granule, "--smp", "1", "--only", "ksm", "--json", place, "--out", tmp_path]
    arguments += ["--deadline", DEADLINE_SECONDS]
    arguments.append(f'--append=rdinit=/bin/sh -- -c "{SCRIPT}"')
    with Running([str(argument) for argument in arguments]) as running:

        def frozen() -> bool:
            logs = [path.read_text(errors="replace") for path in tmp_path.glob("guests/*/console.log")]
            return any("] frozen" in log for log in logs)

        assert wait_until(frozen, BOOT_SECONDS), "the guest was to hang"
        if broken:
            (qemu,) = running.qemus()
            assert break_tables(qemu) > 0
        ended = running.end(LOST_SECONDS + BOOT_SECONDS)
    assert ended.status == (1 if broken else 2), ended.out + ended.err
    report = json.loads(place.read_text())
    assert len(report["not_judged"]) == 1 and "workload ksm" in report["not_judged"][0]["reason"]
    (rest,) = report["steps"]
    assert (rest["workload"], rest["step"]) == ("ksm", "what is left")
    # The one that spins, and where the kernel's structures were found before the guest hung each by its task.
    assert rest["processes"]
    findings = [finding for process in rest["processes"] for finding in process["findings"]]
    assert {finding["rule"] for finding in findings} == ({"A7"} if broken else set())
    assert report["totals"]["errors"] == sum(finding["places"] for finding in findings)
    assert ("A7" in ended.out) == broken


def break_tables(qemu: int) -> int:
    """Writes an entry of a reserved type into each level-3 table of a user process, where nothing is mapped; gives how
    many there are. The guest's memory is a file of its QEMU."""
    files = []
    for place in Path(f"/proc/{qemu}/fd").iterdir():
        # Others come and go: QEMU is at work.
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISREG(os.stat(place).st_mode) and "memfd:" in os.readlink(place):
                files.append(place)
    # QEMU has smaller ones of its own.
    memory = max(files, key=lambda place: os.stat(place).st_size)
    broken = 0
    with open(memory, "r+b", buffering=0) as file, mmap.mmap(file.fileno(), 0) as words:
        end = os.fstat(file.fileno()).st_size
        at = 0
        while at < end:
            # Holes were never written to.
            with contextlib.suppress(OSError):
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            for page in range(at, hole, 4096):
                table = struct.unpack_from("<512Q", words, page)
                some = next(filter(None, table), 0)
                if table[-1] == 0 and is_user(some) and all(word == 0 or is_user(word) for word in table):
                    struct.pack_into("<Q", words, page + 511 * 8, some & ~2)
                    broken += 1
            at = hole if hole > at else end
    return broken


def is_user(word: int) -> bool:
    """Whether a word looks like an entry of a page that a program can use: valid, AP[1], AF and nG."""
    return word & 0xC43 == 0xC43
