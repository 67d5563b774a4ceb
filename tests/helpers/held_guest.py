# SPDX-License-Identifier: GPL-2.0-only
"""A guest that `folioscope boot` holds, for tests of the commands that look at it; and what is saved of it."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folioscope.layout import LAYOUTS

from command import BOOT_SECONDS, GONE_SECONDS, Running, folioscope

LAYOUT = LAYOUTS["4k"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for --out; its path is short, as a Unix socket's has to be."""
    return tmp_path_factory.mktemp("cli")


class Held:
    """A guest that `folioscope boot` holds."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.lines = []
        assert running.child.stdout is not None
        for line in running.child.stdout:
            self.lines.append(line)
            if line.startswith("end:"):
                break
        else:
            raise AssertionError(f"boot ended: {self.lines} {running.child.stderr.read()}")
        text = "".join(self.lines)
        self.socket = re.search(r"--guest (\S+)", text)[1]
        self.pid = int(re.search(r"^process (\d+)", text, re.MULTILINE)[1])
        self.source = ["--guest", self.socket, "--pid", str(self.four_blocks())]

    def call(self, method: str, **params: Any) -> Any:
        """A line to its socket, and the answer."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(BOOT_SECONDS)
            stream.connect(self.socket)
            stream.sendall(json.dumps({"id": 7, "method": method, "params": params}).encode() + b"\n")
            lines = stream.makefile()
            assert "ready" in json.loads(lines.readline())
            answer = json.loads(lines.readline())
        assert answer["id"] == 7 and "ok" in answer, answer
        return answer["ok"]

    def op(self, process: int, name: str, **params: Any) -> Any:
        """An operation of a process of the guest."""
        return self.call("command", command={"op": {"process": process, "op": {name: params}}})

    def area(self, name: str, length: int, written: int, offset: int = 0) -> tuple[dict[str, Any], int]:
        """A process with one hinted area, written from its start, and the area's address."""
        spawned = self.call("command", command={"spawn": {"name": name}})["spawned"]
        process, where = spawned["process"], {"isolated": {"offset": offset}}
        address = self.op(process, "mmap", length=length, place=where)["mapped"]["address"]
        self.op(process, "madvise", address=address, length=length, advice="hugepage")
        self.op(process, "touch", address=address, length=written, access="write", order="forward")
        return spawned, address

    def four_blocks(self) -> int:
        """The pid of a process that has written four blocks and given one page of the second away."""
        spawned, address = self.area("four", 4 * LAYOUT.block, 4 * LAYOUT.block)
        page = address + LAYOUT.block + 3 * LAYOUT.page
        self.op(spawned["process"], "madvise", address=page, length=LAYOUT.page, advice="dontneed")
        return spawned["pid"]


@pytest.fixture(scope="module")
def held(place: Path) -> Iterator[Held]:
    """`folioscope boot`."""
    with Running(["boot", "--out", str(place), "--memory", "512M"]) as running:
        held = Held(running)
        yield held
        running.child.send_signal(signal.SIGINT)
        running.child.wait(timeout=GONE_SECONDS)
        running.nothing_left()


@pytest.fixture(scope="module")
def core(held: Held, place: Path) -> Path:
    """A snapshot of its process."""
    path = place / "saved.core"
    said = folioscope("save", *held.source, path).ok()
    assert re.fullmatch(rf"{path}: 2 CPUs, \d+ KiB of guest memory, 1 process\(es\)\n", said)
    return path


def rows(text: str) -> list[dict[str, Any]]:
    """The entries of a dump in JSON, with the numbers as numbers."""
    found = json.loads(text)
    for row in found:
        for name in ("va", "table", "word", "group"):
            row[name] = int(row[name], 16) if row[name] else None
    return found


def folded(core: Path) -> list[dict[str, Any]]:
    """The contiguous level-3 entries of a saved process."""
    return rows(folioscope("dump", core, "--contiguous", "--level", "3", "--format", "json").ok())
