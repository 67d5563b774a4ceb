# SPDX-License-Identifier: GPL-2.0-only
"""The logs of a guest: of bounded size whatever it prints, and whoever asks is told where they are not whole."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import BOOT_SECONDS, Running

# As machine::log has them: what is kept of the beginning, and at least of the end.
FIRST, LAST = 8 << 20, 1 << 20
# A file that may not grow is an error to who writes it, and not its end.
PREFIX = ("bash", "-c", 'trap "" XFSZ; exec "$@"', "bash")


class Driven:
    """A session, driven line by line."""

    def __init__(self, running: Running, out: Path) -> None:
        self.running, self.number = running, 0
        assert "ready" in json.loads(running.child.stdout.readline())
        (self.place,) = (path.parent for path in out.rglob("console.log"))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A request and its answer."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": params, "deadline_ms": 600_000}
        self.running.child.stdin.write(json.dumps(request) + "\n")
        self.running.child.stdin.flush()
        answer = json.loads(self.running.child.stdout.readline())
        assert "ok" in answer, answer
        return answer


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Driven]:
    """A guest."""
    words = ["session", "--memory", "256M", "--out", str(tmp_path)]
    with Running(words, prefix=PREFIX, input=subprocess.PIPE) as running:
        yield Driven(running, tmp_path)


def test_a_log_that_has_no_room_is_told_of(session: Driven) -> None:
    """The guest goes on, and what is judged does not depend on it; its user is told which log is not whole, and why."""
    child = session.running.child
    _, hard = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (1, hard))
    session.call("command", command={"processes": {}})
    ended = session.running.end(BOOT_SECONDS)
    assert ended.status == 0, ended.err
    said = "folioscope: the guest's logs are not whole: channel.log could not be written: File too large"
    assert said in ended.err, ended.err


@pytest.mark.long
def test_a_guest_that_prints_without_end(session: Driven) -> None:
    """The first and the last are kept and a line says how much is not; a report of the kernel in between is heard."""
    log = session.place / "console.log"
    # 16 KiB a write. The console is the emulated UART's, a byte at a time.
    page = "busybox yes 0123456789abcde | busybox head -c 16384 >/page; "
    text = "for i in $(busybox seq 320); do busybox cat /page; done >/dev/console; "
    warning = "echo 'WARNING: CPU: 0 PID: 1 at mm/made_up.c:1 made_up+0x10/0x20' >/dev/kmsg; "
    script = page + text + warning + text + "echo this is the end >/dev/console"
    answer = session.call("command", command={"run": {"argv": ["/bin/sh", "-c", script]}})
    spoken = [report["headline"] for report in answer["voice"]]
    assert spoken == ["WARNING: CPU: 0 PID: 1 at mm/made_up.c:1 made_up+0x10/0x20"], answer
    kept = log.read_bytes()
    assert FIRST + LAST < len(kept) < FIRST + 2 * LAST + 1000, len(kept)
    assert b"Booting Linux" in kept[:1000]
    assert kept[FIRST:].startswith(b"\n[folioscope: ") and b"bytes are left out here" in kept[FIRST : FIRST + 100]
    assert b"this is the end" in kept[-100:]
    assert "not whole" not in session.running.end(BOOT_SECONDS).err
