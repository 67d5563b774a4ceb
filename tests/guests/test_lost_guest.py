# SPDX-License-Identifier: GPL-2.0-only
"""Guests that panic, hang, spin or lose their owner: what stays behind, and that nothing else does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from folioscope import CommandFailed, Entry, Guest, GuestLost, Process, Session
from folioscope.rig import Wanted

from command import children, program

AF = 1 << 10
BUNDLE = ["why.txt", "command.txt", "console.log", "registers.txt", "findings.txt", "tables.core"]

# How a guest is lost does not depend on the granule; that its machine is a process of its own is QEMU's way.
pytestmark = [pytest.mark.parametrize("granule", ["4k"]), pytest.mark.only_machine("tcg")]

Boot = Callable[[], Guest]


def machines(session: Session) -> list[int]:
    """The processes that the command started: QEMU."""
    found = [pid for pid in children(session.pid) if "qemu" in program(pid)]
    assert found, "the command runs no QEMU"
    return found


def gone(pids: list[int], seconds: float) -> bool:
    """Whether none of them runs any more, at the latest after so long."""
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """Whether it runs; what is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def boot(wanted: Wanted, tmp_path: Path) -> Iterator[Boot]:
    """Boots guests that are this test's alone, and ends them."""
    sessions: list[Session] = []

    def boot() -> Guest:
        place = tmp_path / f"guest-{len(sessions)}"
        sessions.append(Session([*wanted.arguments(), "--out", str(place)], log=place / "session.log"))
        guest = Guest(sessions[-1], wanted.granule)
        guest.reset()
        return guest

    yield boot
    for session in sessions:
        session.close()


def lose(guest: Guest) -> str:
    """Makes the guest's kernel panic; gives what the host says of it."""
    with guest.provokes("Kernel panic - not syncing"):
        guest.command("panic")
        with pytest.raises(GuestLost) as lost:
            guest.command("ping", seconds=5)
    return str(lost.value)


def bundle_in(message: str) -> Path:
    """The bundle that a message names."""
    found = re.search(r"what there was of it is in (.+)$", message)
    assert found, message
    return Path(found[1])


def test_panic_leaves_a_bundle(boot: Boot) -> None:
    """Console, registers, findings, tables and command; the tables still hold what was mapped."""
    guest = boot()
    process = guest.spawn()
    area = process.blocks(2)
    area.write()
    with process.hold():
        message = lose(guest)
    assert "panicked" in message
    place = bundle_in(message)
    sizes = {name: (place / name).stat().st_size for name in BUNDLE}
    assert all(sizes.values()), sizes
    assert "panicked" in (place / "why.txt").read_text()
    assert (place / "command.txt").read_text().split()[0].endswith("qemu-system-aarch64")
    assert "Kernel panic - not syncing" in (place / "console.log").read_text()
    registers = (place / "registers.txt").read_text()
    assert [f"CPU {cpu} at EL" in registers for cpu in range(guest.hello.cpus)] == [True] * guest.hello.cpus
    assert re.search(r"at EL1: PC 0x[0-9a-f]{16} <\w+\+0x", registers), "no CPU is at a place that has a name"
    assert "0 violations" in (place / "findings.txt").read_text()
    assert (place / "tables.core").read_bytes()[:4] == b"\x7fELF"


def test_lost_stays_lost(boot: Boot) -> None:
    """After the loss every call says so at once; closing is safe, twice too."""
    guest = boot()
    lose(guest)
    start = time.monotonic()
    for _ in range(3):
        with pytest.raises(GuestLost):
            guest.command("ping")
    assert time.monotonic() - start < 1
    machine = machines(guest.session)
    guest.session.close()
    assert gone(machine, 2)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda end: end.name)
def test_machine_does_not_outlive_the_command(boot: Boot, end: signal.Signals) -> None:
    """However the command ends, its QEMU is gone within two seconds."""
    guest = boot()
    machine = machines(guest.session)
    guest.spawn().blocks(1).write()
    os.kill(guest.session.pid, end)
    assert gone([*machine, guest.session.pid], 2)
    with pytest.raises(GuestLost):
        guest.command("ping")


def test_closed_input_ends_the_machine(boot: Boot) -> None:
    """The command ends when whoever drives it does, in the middle of a checkpoint too."""
    guest = boot()
    machine = machines(guest.session)
    guest.spawn().hold()
    guest.session.close()
    assert gone(machine, 2)


def test_machine_killed(boot: Boot) -> None:
    """QEMU ends by itself: the guest is lost, and the command lives to say so."""
    guest = boot()
    os.kill(machines(guest.session)[0], signal.SIGKILL)
    with pytest.raises(GuestLost) as lost:
        guest.command("ping", seconds=5)
    assert "did not answer within" not in str(lost.value), "the command itself hung"


def test_machine_stopped(boot: Boot) -> None:
    """A machine that does nothing any more is lost within deadline and margin, and ends when closed."""
    guest = boot()
    machine = machines(guest.session)
    os.kill(machine[0], signal.SIGSTOP)
    with pytest.raises(GuestLost) as lost:
        guest.command("ping", seconds=1)
    assert "did not answer within" not in str(lost.value), "the command itself hung"
    guest.session.close()
    assert gone(machine, 2)


def test_side_by_side(boot: Boot) -> None:
    """Two guests: neither writes, pokes nor the end of one are seen in the other."""
    one, two = boot(), boot()
    areas = []
    for salt, guest in enumerate((one, two), 1):
        area = guest.spawn().blocks(2)
        area.write(salt=salt)
        areas.append(area)
    assert areas[0].address == areas[1].address
    with areas[0].process.hold() as held:
        entry = held.judge().entry(areas[0].address)
        assert entry
        poke = [(entry.address, 0)]
        assert held.judge(poke).rules() == {"L1"}
        one.poke([(entry.address, 0)])
        assert held.judge(check=False).rules() == {"L1"}
        other = areas[1].process.look()
        assert not other.errors
        assert other.pattern(areas[1].address, areas[1].length) == "CC"
        one.poke([(entry.address, entry.word)])
    lose(one)
    assert areas[1].verify(salt=2).wrong == 0
    assert not areas[1].process.look().errors


@pytest.mark.parametrize("cpu", ["max", "cortex-a72"])
def test_broken_entry_spins(guest: Guest, process: Process) -> None:
    """A reserved type, left there: no page for the CPU, present for Linux, so the fault returns for ever.

    Such a break is an A7 before it is a hang, and a fault without end is a finding of its own, with the words. The
    workload is stuck; its guest is not, and can end it.
    """
    area = process.blocks(1, hint="nohugepage")
    area.write()
    va = area.address + 3 * guest.layout.page
    with process.hold() as held:
        entry = held.judge().entry(va)
        assert entry
        leave(guest, entry, entry.word & ~2)
        assert [(e.rule, e.va) for e in held.judge(check=False).errors] == [("A7", va)]
    forget(guest, process)
    with pytest.raises(CommandFailed) as stuck:
        process.op("touch", address=va, length=8, access="read", seconds=2)
    assert stuck.value.kind == "deadline", stuck.value.kind
    found = {finding.rule: finding for finding in stuck.value.findings}
    assert set(found) == {"F1", "A7"}, found
    spins = found["F1"]
    assert (spins.va, spins.process and spins.process.pid) == (va, process.pid)
    assert spins.table + 8 * spins.index == entry.address - entry.address % (8 * 16)
    assert [word & 3 for word in spins.words] == [3] * 3 + [1] + [3] * 12
    process.kill()
    again = guest.spawn()
    fresh = again.blocks(2)
    fresh.write()
    assert again.look().pattern(fresh.address, fresh.length) == "CC"


@pytest.mark.parametrize("cpu", ["cortex-a72"])
def test_old_entry_of_a_young_block(guest: Guest, process: Process) -> None:
    """Where the CPU sets no AF, one old entry is an L5, and 6.12.117 makes every entry young at the next fault.

    Before it looked at the raw entries (contpte_all_subptes_match_access_flags()) the kernel saw a young block
    there and returned to the fault for ever.
    """
    area = process.blocks(2)
    area.write()
    va = area.address + 3 * guest.layout.page
    with process.hold() as held:
        entry = held.judge().entry(va)
        assert entry
        leave(guest, entry, entry.word & ~AF)
        assert [(e.rule, e.va) for e in held.judge(check=False).errors] == [("L5", area.address)]
    forget(guest, process)
    process.op("touch", address=va, length=8, access="read")
    view = process.look()
    assert not view.errors
    assert view.pattern(area.address, area.length) == "CC"
    assert all(view.word(area.address + page * guest.layout.page) & AF for page in range(area.pages))
    assert area.verify().wrong == 0


def leave(guest: Guest, entry: Entry, word: int) -> None:
    """Writes a word of a table that stays."""
    guest.poke([(entry.address, word)])


def forget(guest: Guest, process: Process) -> None:
    """Runs another process on the same CPU, so that its TLB forgets the entries as they were."""
    other = guest.spawn(cpu=process.cpu)
    other.blocks(1).write()
    other.kill()


NESTED = """
def test_loses_its_guest(folioscope_guest):
    area = folioscope_guest.spawn().blocks(1)
    area.write()
    folioscope_guest.command("panic")
    folioscope_guest.command("ping", seconds=5)


def test_has_another_guest(folioscope_process):
    area = folioscope_process.blocks(2)
    area.write()
    assert folioscope_process.look().pattern(area) == "CC"
"""


def test_plugin_replaces_a_lost_guest(tmp_path: Path, granule: str) -> None:
    """In a run of its own: the test that lost its guest fails and leaves a bundle, the next one passes."""
    (tmp_path / "test_nested.py").write_text(NESTED)
    plugin = Path(__file__).parents[1] / "plugin"
    # Kernels and initramfs are found as always; logs and bundles go to the test's own directory.
    environment = os.environ | {"PYTHONPATH": str(plugin), "FOLIOSCOPE_OUT": str(tmp_path / "out")}
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "folioscope.plugin",
            "--folioscope-granule",
            granule,
            "--rootdir",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    (bundle,) = (tmp_path / "out" / "bundles").iterdir()
    assert str(bundle) in run.stdout
    assert {"lost.txt", *BUNDLE} <= {path.name for path in bundle.iterdir()}
