# SPDX-License-Identifier: GPL-2.0-only
"""A QEMU that somebody else has started: without our agent's help, or with an agent that the test alone speaks to."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from folioscope.layout import LAYOUTS

from command import BOOT_SECONDS, ROOT, Ended, folioscope, wait_until

KERNEL = ROOT / "out" / "kernel-4k"
INITRAMFS = ROOT / "out" / "initramfs.cpio"
LAYOUT = LAYOUTS["4k"]
RAM = 0x4000_0000
MEMORY = 512 << 20
MEMFD = "memory-backend-memfd,id=ram,size=512M,share=on"
NONCE = 0x5EED
# A reserved type at level 3: no CPU walks through it, and no kernel writes it.
PLANTED = 0b01
LEFT_OUT = (
    "L11, C1, C2, C4 to C7 and what L6 says of written pages and what L10 says of files' hugetlb pages were not judged"
)


class Lines:
    """JSON lines on a socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(BOOT_SECONDS)
        try:
            assert wait_until(lambda: self.connects(path), BOOT_SECONDS), f"{path} takes no connection"
        except OSError:
            self.socket.close()
            raise
        self.file = self.socket.makefile("rw")

    def connects(self, path: Path) -> bool:
        """Whether there is room for a connection: QEMU lets one wait, and that can be of somebody who was killed."""
        try:
            self.socket.connect(str(path))
        except BlockingIOError:
            return False
        return True

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def ask(self, line: dict[str, Any] | None) -> dict[str, Any]:
        """Writes a line, if there is one, and gives the next that comes."""
        if line is not None:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
        return json.loads(self.file.readline())


class Qemu:
    """A QEMU as its user starts it."""

    def __init__(self, place: Path, *arguments: str, binary: str = "qemu-system-aarch64") -> None:
        self.place = place
        self.qmp = place / "qmp.sock"
        # It dies with the test, however that ends.
        line = ["setpriv", "--pdeathsig", "KILL", binary, "-nodefaults", "-display", "none"]
        # QMP last: once it listens, whatever else listens does.
        line += [*arguments, "-qmp", f"unix:{self.qmp},server=on,wait=off"]
        self.log = (place / "qemu.log").open("w")
        self.child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=place)

    def __enter__(self) -> Qemu:
        up = wait_until(lambda: self.listens() or self.child.poll() is not None, BOOT_SECONDS)
        assert up and self.child.poll() is None, (self.place / "qemu.log").read_text()
        return self

    def listens(self) -> bool:
        """Whether its socket is there, and takes a connection: between the two a CPU may do something else."""
        try:
            Lines(self.qmp).__exit__()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        self.log.close()

    def ask(self, command: str, **arguments: Any) -> Any:
        """One QMP command, on a connection of its own."""
        # An answer to a client that was killed may be there, before the greeting and behind it, and events are.
        given = [{"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments, "id": NONCE}]
        with Lines(self.qmp) as lines:
            answer = lines.ask(None)
            while "QMP" not in answer:
                answer = lines.ask(None)
            for line in given:
                lines.file.write(json.dumps(line) + "\n")
            lines.file.flush()
            while answer.get("id") != NONCE:
                answer = lines.ask(None)
            return answer["return"]

    def state(self) -> tuple[str, list[str], list[str]]:
        """What attaching must not change: the guest's state, QEMU's devices, the files beside it."""
        devices = [device["label"] for device in self.ask("query-chardev")]
        # QEMU's own monitor for gdb, which stays once there was a stub.
        devices = sorted(label for label in devices if not label.startswith("#"))
        return self.ask("query-status")["status"], devices, sorted(path.name for path in self.place.iterdir())

    def attach(self, *words: Any) -> Ended:
        """`folioscope attach`, which leaves everything as it was."""
        before = self.state()
        ended = folioscope("attach", self.qmp, *words)
        assert self.state() == before
        return ended


class Foreign(Qemu):
    """One whose init is the test's own: there is no agent, its RAM is a memfd, its console a file."""

    def __init__(
        self,
        place: Path,
        kernel: Path,
        initramfs: Path,
        *words: str,
        cpus: int,
        memory: str,
        devices: tuple[str, ...] = (),
    ) -> None:
        self.console = place / "console.log"
        super().__init__(
            place,
            *("-M", "virt,memory-backend=ram", "-cpu", "max", "-smp", str(cpus), "-m", memory),
            *("-object", f"memory-backend-memfd,id=ram,size={memory},share=on", "-serial", f"file:{self.console}"),
            *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", " ".join(["console=ttyAMA0", *words])),
            *devices,
        )

    def said(self) -> str:
        """What is on its console."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""


class Guest(Qemu):
    """One with our agent in it, and our kernel or another one."""

    def __init__(self, place: Path, *arguments: str, kernel: Path = KERNEL / "Image", append: str = "") -> None:
        self.agent_socket, self.console = place / "agent.sock", place / "console.log"
        super().__init__(
            place,
            *("-cpu", "max", "-smp", "2", "-m", "512M"),
            *("-serial", f"file:{self.console}", "-serial", f"unix:{self.agent_socket},server=on,wait=off"),
            *("-kernel", str(kernel), "-initrd", str(INITRAMFS), "-append", f"console=ttyAMA0 {append}".strip()),
            *arguments,
        )

    def __enter__(self) -> Guest:
        super().__enter__()
        said = lambda: self.console.read_text(errors="replace") if self.console.exists() else ""  # noqa: E731
        assert wait_until(lambda: "ready on Uart" in said() or self.child.poll() is not None, BOOT_SECONDS), said()
        return self

    def command(self, name: str, /, seconds: float = 60, **parameters: Any) -> Any:
        """A command of the guest's agent."""
        with Lines(self.agent_socket) as lines:
            lines.file.write("\n")
            request = {"id": 1, "deadline_ms": int(seconds * 1000), "command": {name: parameters}}
            lines.file.write(json.dumps(request) + "\n")
            lines.file.flush()
            for line in lines.file:
                # The first may be the end of one that was said to nobody.
                with contextlib.suppress(json.JSONDecodeError):
                    answer = json.loads(line)
                    if answer.get("reply", {}).get("id") == 1:
                        return answer["reply"]["result"]["ok"]
            raise AssertionError("the agent's channel closed")

    def op(self, process: int, name: str, /, **parameters: Any) -> Any:
        """An operation of a process."""
        return self.command("op", process=process, op={name: parameters})

    @contextlib.contextmanager
    def ram(self) -> Iterator[mmap.mmap]:
        """The guest's memory, through QEMU's own descriptor."""
        for fd in Path(f"/proc/{self.child.pid}/fd").iterdir():
            # A connection that it closes meanwhile is none of ours.
            if fd.is_symlink() and "memory-backend-memfd" in os.path.realpath(fd):
                with fd.open("r+b", buffering=0) as file, mmap.mmap(file.fileno(), MEMORY) as memory:
                    yield memory
                return
        raise AssertionError("no memfd")

    @contextlib.contextmanager
    def planted(self, address: int, word: int = PLANTED) -> Iterator[None]:
        """A word in a place of a table that is not in use, taken away in the end."""
        with self.ram() as memory:
            where = slice(address - RAM, address - RAM + 8)
            assert memory[where] == bytes(8), "the place is in use"
            memory[where] = word.to_bytes(8, "little")
            try:
                yield
            finally:
                memory[where] = bytes(8)

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """The entries of a dump, with numbers as numbers."""
        found = json.loads(self.attach("dump", "--format", "json", *words).ok())
        for row in found:
            for name in ("va", "table", "word"):
                row[name] = int(row[name], 16)
        return found

    def unused(self, rows: list[dict[str, Any]], near: int) -> tuple[int, int]:
        """The last place of the table that maps the end of what is mapped from ``near`` on: its address, its VA."""
        run = sorted((row for row in rows if row["va"] >= near), key=lambda row: row["va"])
        for row, after in pairwise(run):
            if after["va"] - row["va"] > LAYOUT.pmd and row["level"] == 3 and row["index"] < 511:
                return row["table"] + 511 * 8, row["va"] + (511 - row["index"]) * LAYOUT.page
        raise AssertionError("every table is full")


def errors(report: dict[str, Any]) -> list[tuple[str, int]]:
    """The errors of a report: rule and address."""
    findings = [f for step in report["steps"] for p in step["processes"] for f in p["findings"]]
    findings += [f for step in report["steps"] for f in step.get("kernel", {}).get("findings", [])]
    return [(f["rule"], int(f["va"], 16)) for f in findings if f["severity"] == "error"]


def checked(own: Qemu, place: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Status and report of a check."""
    path = place / "report.json"
    ended = own.attach("check", "--json", path, *words)
    assert path.exists(), ended.err
    return ended.status, json.loads(path.read_text())


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest with a memfd, and a process in user mode."""
    with Guest(tmp_path_factory.mktemp("own"), "-M", "virt,memory-backend=ram", "-object", MEMFD) as own:
        spawned = own.command("spawn", name="mine")["spawned"]
        own.process, own.pid = spawned["process"], spawned["pid"]
        where = {"isolated": {"offset": 0}}
        own.area = own.op(own.process, "mmap", length=4 * LAYOUT.block, place=where)["mapped"]["address"]
        own.op(own.process, "touch", address=own.area, length=4 * LAYOUT.block, access="write", order="forward")
        own.command("checkpoint", process=own.process, nonce=NONCE, smaps=False)
        yield own
