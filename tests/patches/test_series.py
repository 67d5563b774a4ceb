# SPDX-License-Identifier: GPL-2.0-only
"""The series patch by patch: each builds and shows no error. What it says of input that makes no sense is quick."""

from __future__ import annotations

import re
import subprocess

import pytest

from command import COMMAND, ROOT

SCRIPT = ROOT / "kernel-patches" / "series.sh"
SERIES = (ROOT / "kernel-patches" / "series").read_text()
PATCHES = [name for name in SERIES.split() if name.endswith(".patch")]
# The last patch of each topic.
TOPICS = [
    PATCHES[PATCHES.index(name) - 1] for name in re.findall(r"^# Topic .*\n(.*)", SERIES, re.MULTILINE)[1:]
] + PATCHES[-1:]
# A row: the pages that were contiguous, instructions and faults under two policies, the time, what the tour found.
ROW = re.compile(
    r"^(\S+|all, without \w+) +[\d.]+ % +(\d+) +(\d+) +([\d-]+) +([\d-]+) +\d+s +(\d+) errors", re.MULTILINE
)


@pytest.mark.parametrize(
    "words,said",
    [
        (["--from", "3", "--to", "2", COMMAND], f"--from and --to in 0..{len(PATCHES)}"),
        (["--to", str(len(PATCHES) + 1), COMMAND], f"--from and --to in 0..{len(PATCHES)}"),
        (["--granule", "5k", COMMAND], "--granule must be 4k, 16k or 64k"),
        (["--what"], "unknown argument '--what'"),
        ([], "expected the folioscope command"),
    ],
)
def test_bad_input(words: list[str], said: str) -> None:
    """A sentence, and nothing is unpacked."""
    ended = subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2 and ended.stdout == ""
    assert said in ended.stderr and ended.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_each_patch_stands_alone(pytestconfig: pytest.Config, granule: str) -> None:
    """At 4K each of them, at the others the end of each topic; and all without each option that the series adds."""
    words = ["--granule", granule, *([] if granule == "4k" else ["--topics"]), "--off"]
    anew = ["--again"] if pytestconfig.getoption("--afresh") else []
    ended = subprocess.run([SCRIPT, *words, *anew, COMMAND], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    rows = ROW.findall(ended.stdout)
    names = ["base", *(PATCHES if granule == "4k" else TOPICS)]
    assert [row[0] for row in rows[: len(names)]] == [name.removesuffix(".patch")[:56] for name in names]
    assert all(row[5] == "0" for row in rows) and len(rows) > len(names)
    # And goes on where it stopped: nothing is tried twice.
    again = subprocess.run([SCRIPT, *words, COMMAND], capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0 and again.stdout == ended.stdout
    assert again.stderr.count(": as it was found before") == len(rows)
