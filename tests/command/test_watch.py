# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope watch`: a process of a live guest, line by line and on a terminal, to its end and to ours."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import COMMAND, GONE_SECONDS, Running, folioscope
from held_guest import LAYOUT, Held

SECONDS = 60.0


class Watching:
    """A watch that runs, and what it has said."""

    def __init__(self, *arguments: str, terminal: bool = False) -> None:
        self.text = ""
        self.end: int | None = None
        if terminal:
            self.end, theirs = pty.openpty()
            self.child = subprocess.Popen([COMMAND, "watch", *arguments], stdout=theirs, stderr=theirs)
            os.close(theirs)
        else:
            self.child = subprocess.Popen(
                [COMMAND, "watch", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )

    def until(self, words: str, seconds: float = SECONDS) -> str:
        """Waits for words, and gives all that was said."""
        handle = self.end if self.end is not None else self.child.stdout.fileno()  # type: ignore[union-attr]
        limit = time.monotonic() + seconds
        while not re.search(words, self.text, re.M):
            ready, _, _ = select.select([handle], [], [], max(0.0, limit - time.monotonic()))
            assert ready, f"no {words!r} came: {self.text!r}"
            # A terminal whose other end is closed is an error.
            got = b""
            with contextlib.suppress(OSError):
                got = os.read(handle, 65536)
            assert got, f"it ended before {words!r}: {self.text!r}"
            self.text += got.decode()
        return self.text

    def ended(self) -> int:
        """Its exit status."""
        return self.child.wait(timeout=GONE_SECONDS)


@contextlib.contextmanager
def watching(*arguments: str, terminal: bool = False) -> Iterator[Watching]:
    """Starts one, and ends it."""
    watch = Watching(*arguments, terminal=terminal)
    try:
        yield watch
    finally:
        watch.child.kill()
        watch.child.wait()
        for handle in [watch.end] if watch.end is not None else []:
            os.close(handle)


def left_over(held: Held) -> list[Path]:
    """Files that a look may have left."""
    return list(Path(held.socket).parent.glob("*.core"))


def dropped(held: Held, process: int, address: int) -> None:
    """Its first page is given away."""
    held.op(process, "madvise", address=address, length=LAYOUT.page, advice="dontneed")


@pytest.fixture
def watched(held: Held) -> Iterator[tuple[dict[str, Any], int]]:
    """A process with a block, and the block's address."""
    spawned, address = held.area("watched", LAYOUT.block, LAYOUT.block)
    yield spawned, address
    with contextlib.suppress(AssertionError):
        held.call("command", command={"kill": {"process": spawned["process"]}})


def test_lines(held: Held, watched: tuple[dict[str, Any], int]) -> None:
    """Each change is a line, with when it was seen; the end of the process is the end of the watch."""
    spawned, address = watched
    with watching(str(spawned["pid"]), "--guest", held.socket, "--interval", "0.1") as watch:
        watch.until(rf"^watched \({spawned['pid']}\): \d+ pages are mapped$")
        dropped(held, spawned["process"], address)
        page = address + LAYOUT.page
        watch.until(rf"^ +\d+\.\d\ds  zap +{address:012x}-{page:012x} +1 page +anonymous, order 4, contiguous$")
        watch.until(rf"^ +\d+\.\d\ds  unfold +{page:012x}-{address + LAYOUT.block:012x} +15 pages$")
        held.call("command", command={"kill": {"process": spawned["process"]}})
        assert "the end: " in watch.until(r"^watched .*the end: ")
        assert watch.ended() == 0
    # Nothing is told twice, and nothing that did not happen.
    told = re.findall(r"^ +\d+\.\d\ds  (\S+) +(\w+)-", watch.text, re.M)
    assert [kind for kind, va in told if 0 <= int(va, 16) - address < LAYOUT.block] == ["zap", "unfold"]


def test_it_ends_by_a_signal(held: Held, watched: tuple[dict[str, Any], int]) -> None:
    """Ctrl-C is the way to end it, and no failure; nothing is left behind."""
    with watching(str(watched[0]["pid"]), "--guest", held.socket, "--interval", "0.05") as watch:
        watch.until("pages are mapped$")
        time.sleep(0.3)
        watch.child.send_signal(signal.SIGINT)
        assert watch.ended() == 0
    assert left_over(held) == []


def test_a_terminal(held: Held, watched: tuple[dict[str, Any], int]) -> None:
    """The map is drawn again in its place, with what happened below it."""
    spawned, address = watched
    with watching(str(spawned["pid"]), "--guest", held.socket, "--interval", "0.1", terminal=True) as watch:
        watch.until("watched")
        dropped(held, spawned["process"], address)
        text = watch.until(r"zap .*order 4, contiguous")
        before, after = text.rsplit("\x1b[H\x1b[J", 1)
        assert "zap" not in before and before.startswith("\x1b[H\x1b[J")
        # The area's own line may be beyond the screen; the process's is its first.
        assert f"({spawned['pid']})" in after.splitlines()[0]
        watch.child.send_signal(signal.SIGINT)
        assert watch.ended() == 0


def test_refusals(held: Held, watched: tuple[dict[str, Any], int]) -> None:
    """A snapshot, a process that is not there, one without memory."""
    guest = ["--guest", held.socket]
    assert "the guest has no process 99999" in folioscope("watch", "99999", *guest).sentence()
    assert "has no memory of its own" in folioscope("watch", "2", *guest).sentence()
    assert "a snapshot does not change" in folioscope("watch", "1", "some.core").sentence()
    assert "expected 0.01 to 3600 seconds" in folioscope("watch", "1", *guest, "--interval", "0").err
    assert "pages are mapped" in folioscope("watch", str(watched[0]["pid"]), *guest, "--looks", "1").ok()


def test_the_guest_goes(place: Path) -> None:
    """That is the end of it, and no failure."""
    with Running(["boot", "--out", str(place / "going"), "--memory", "512M"]) as running:
        held = Held(running)
        with watching(held.source[-1], "--guest", held.socket, "--interval", "0.1") as watch:
            watch.until("pages are mapped$")
            running.child.send_signal(signal.SIGINT)
            watch.until("the end: ")
            assert watch.ended() == 0
        running.child.wait(timeout=GONE_SECONDS)
