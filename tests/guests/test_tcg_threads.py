# SPDX-License-Identifier: GPL-2.0-only
"""How QEMU's TCG runs the guest's CPUs: in turns, or at the same time. Told by what QEMU was started with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest, names

from command import Ended, folioscope
from recorder import plugin

__all__ = ["plugin"]

pytestmark = [pytest.mark.parametrize("granule", ["4k"]), pytest.mark.only_machine("tcg")]
AT_ONCE = 20.0


def accelerator(guest: Guest) -> str:
    """The accelerator of the guest's QEMU, which the session has started."""
    pid = guest.session.pid
    children = " ".join(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")).split()
    lines = [Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0") for child in children]
    (words,) = [words for words in lines if "-accel" in words]
    return words[words.index("-accel") + 1]


def test_in_turns_unless_it_was_asked_for(guest: Guest, request: pytest.FixtureRequest) -> None:
    """One thread for all, or one for each where the user wants so of every test."""
    assert accelerator(guest) == "tcg,thread=" + names.get(request.config, "tcg-thread")


@pytest.mark.parallel
def test_at_the_same_time(guest: Guest) -> None:
    """A test can ask for it."""
    assert accelerator(guest) == "tcg,thread=multi"


@pytest.mark.recorded
@pytest.mark.usefixtures("plugin")
def test_a_recorded_guest_has_a_thread_for_each(guest: Guest) -> None:
    """In one thread QEMU tells the recorder the wrong CPU."""
    assert accelerator(guest) == "tcg,thread=multi"


@pytest.fixture
def run(tmp_path: Path, granule: str) -> Callable[..., Ended]:
    """`folioscope`, where it should not come to a guest; `--marks` has a file."""

    def run(*words: Any) -> Ended:
        more = [tmp_path / "marks"] if words[-1] == "--marks" else []
        return folioscope(*words, *more, "--granule", granule, "--out", tmp_path, seconds=AT_ONCE)

    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--machine", "kvm-in-tcg", "--tcg-thread", "multi"], "--tcg-thread are for guests under TCG"),
        (["run", "--machine", "tcg", "--icount", "--tcg-thread", "multi"], "--icount has all CPUs run in one thread"),
        (["record", "--tcg-thread", "single"], "a guest that is recorded has a thread for each CPU"),
        (["record", "--icount"], "a guest that is recorded has a thread for each CPU"),
    ],
)
def test_what_cannot_be_is_refused(run: Callable[..., Ended], words: list[str], says: str) -> None:
    """In a sentence that says what to do instead."""
    assert says in run(*words).sentence()


@pytest.mark.usefixtures("plugin")
def test_what_cannot_be_counted_is_refused(run: Callable[..., Ended]) -> None:
    """The same, where the counter's plugin is there."""
    said = run("run", "--machine", "tcg", "--tcg-thread", "single", "--marks").sentence()
    assert "--marks needs a thread for each CPU or --icount" in said
