# SPDX-License-Identifier: GPL-2.0-only
"""What may be in the way of `folioscope attach`, and that it leaves a guest as it was, however it ends itself."""

from __future__ import annotations

import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest

from command import BOOT_SECONDS, Running, folioscope, program, wait_until
from own_qemu import LAYOUT, Guest, Lines, checked

pytestmark = pytest.mark.qemu


def test_process_that_is_not_there(own: Guest) -> None:
    """Nor is a thread of the kernel, which has no memory of its own."""
    said = own.attach("dump", "--pid", "4711").sentence()
    assert "the guest has no process 4711; `folioscope ps` lists those it has" in said
    said = own.attach("dump", "--pid", "2").sentence()
    assert "process 2 (kthreadd) has no memory of its own: it is a thread of the kernel" in said


def test_second_client(own: Guest) -> None:
    """QEMU answers the first one only."""
    with Lines(own.qmp) as first:
        first.ask(None)
        said = folioscope("attach", own.qmp, "check").sentence()
    assert "one client of a QMP socket at a time" in said and "a second one with -qmp unix:" in said


def test_sockets_that_are_none(own: Guest, tmp_path: Path) -> None:
    """A UART, a file, nothing, and what a QEMU that is gone has left."""
    assert "nobody greeted" in folioscope("attach", own.agent_socket).sentence()
    file, gone = tmp_path / "file", tmp_path / "gone.sock"
    file.touch()
    assert "expected a socket for SOCKET and found a file" in folioscope("attach", file, "check").sentence()
    assert "expected a socket for --guest and found a file" in folioscope("check", "--guest", file).sentence()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(gone))
    for path in (tmp_path / "nothing", gone):
        for words in (["attach", path, "check"], ["check", "--guest", path]):
            said = folioscope(*words).sentence()
            assert "cannot connect to" in said and "-qmp unix:PATH" in said


def test_two_guests_named(own: Guest, tmp_path: Path) -> None:
    """attach has its guest already."""
    for words in (["check", "--guest", own.qmp], ["dump", tmp_path / "x.core"], ["save", "--guest", "x", "x.core"]):
        assert "expected one guest and found two" in folioscope("attach", own.qmp, *words).sentence()


def test_debugger(own: Guest) -> None:
    """The user's own stub is used while it is free; while a debugger has it, that is said."""
    with tempfile.TemporaryDirectory() as place:
        stub = Path(place) / "gdb.sock"
        own.ask("human-monitor-command", **{"command-line": f"gdbserver unix:{stub},server=on,wait=off"})
        try:
            assert f"gdb stub unix:{stub}" in own.attach().ok()
            assert own.attach("check").status == 0
            with socket.socket(socket.AF_UNIX) as debugger:
                debugger.connect(str(stub))
                assert wait_until(lambda: own.state()[0] == "paused", 5)
                assert "a debugger is connected to QEMU's gdb stub" in own.attach("check").sentence()
            # The debugger is gone, and QEMU serves the next one.
            assert wait_until(lambda: f"disconnected:unix:{stub}" in str(own.ask("query-chardev")), 5)
        finally:
            own.ask("human-monitor-command", **{"command-line": "gdbserver none"})
            own.ask("cont")
    assert own.attach("check").status == 0


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_signals(own: Guest, name: str) -> None:
    """Whenever it comes, the guest goes on and nothing of ours stays in QEMU."""
    before, statuses = own.state(), set()
    for delay in range(0, 60, 4):
        with Running(["attach", str(own.qmp), "check"]) as running:
            time.sleep(delay / 1000)
            running.child.send_signal(getattr(signal, f"SIG{name}"))
            statuses.add(running.end(BOOT_SECONDS).status)
        assert own.state() == before
    assert statuses <= {0, -getattr(signal, f"SIG{name}")}
    assert -getattr(signal, f"SIG{name}") in statuses


@pytest.mark.parametrize("name", ["INT", "HUP"])
def test_signals_that_are_ignored(own: Guest, name: str) -> None:
    """Under `nohup`, and in the background of a script, they end nobody: it is judged as ever."""
    ignoring = ("sh", "-c", f'trap "" {name}; exec "$@"', "sh")
    for delay in range(0, 60, 12):
        with Running(["attach", str(own.qmp), "check"], prefix=ignoring) as running:
            assert wait_until(lambda pid=running.child.pid: program(pid) == "folioscope", 5)
            time.sleep(delay / 1000)
            running.child.send_signal(getattr(signal, f"SIG{name}"))
            ended = running.end(BOOT_SECONDS)
        assert ended.status == 0, ended.err


def test_kill(own: Guest) -> None:
    """After SIGKILL the guest may stand still, and that is all: the next one cleans up, and says so."""
    before, told = own.state(), 0
    for delay in range(5, 40, 3):
        with Running(["attach", str(own.qmp), "check"]) as running:
            time.sleep(delay / 1000)
            running.child.kill()
            running.end(BOOT_SECONDS)
        own.ask("cont")
        told += "one of ours that was killed" in folioscope("attach", own.qmp).ok()
        # QEMU obeys what it had still to read of the one that was killed, a stop too, before it serves the next one.
        own.ask("cont")
        assert own.state() == before
    assert told


def test_guest_that_works(own: Guest, tmp_path: Path) -> None:
    """No false alarm while a process maps, folds, writes and unmaps as fast as it can."""
    process = own.command("spawn", name="busy")["spawned"]["process"]
    over = threading.Event()

    def work() -> None:
        place = {"isolated": {"offset": 0}}
        while not over.is_set():
            length = 32 * LAYOUT.block
            address = own.op(process, "mmap", length=length, place=place)["mapped"]["address"]
            own.op(process, "madvise", address=address, length=length, advice="hugepage")
            own.op(process, "touch", address=address, length=length, access="write", order="forward")
            own.op(process, "munmap", address=address, length=length)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(20):
            assert checked(own, tmp_path)[0] == 0
    finally:
        over.set()
        worker.join()
