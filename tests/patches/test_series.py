# SPDX-License-Identifier: GPL-2.0-only
"""The series patch by patch: each builds and shows no error. What its tree says of bad input is quick."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from command import COMMAND, ROOT

SCRIPT = ROOT / "kernel-patches" / "tree.sh"
SERIES = (ROOT / "kernel-patches" / "series").read_text()
PATCHES = [name for name in SERIES.split() if name.endswith(".patch")]
# A row that has a whole verdict.
GOOD = re.compile(r"^(\S.{55}) .* 0 errors, \d+ remarks, 0 not judged(?: \([^()]*\))?$", re.MULTILINE)
ALONE = [name for line in SERIES.splitlines() if line.startswith("# Alone: ") for name in line.split()[2:]]


def made(place: Path, tarball: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The script, with a cache of its own."""
    environment = {**os.environ, "FOLIOSCOPE_CACHE": str(place / "cache"), "FOLIOSCOPE_KERNEL_TARBALL": str(tarball)}
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_bad_input(tmp_path: Path) -> None:
    """A sentence, and nothing is made."""
    tarball = tmp_path / "linux.tar.xz"
    for words, said in ((["--what"], "expected no argument and found '--what'"), ([], f"source {tarball} is missing")):
        ended = made(tmp_path, tarball, *words)
        assert ended.returncode == 2 and ended.stdout == "" and said in ended.stderr and ended.stderr.count("\n") == 1
    assert not (tmp_path / "cache").exists()


def test_another_source_is_refused(tmp_path: Path) -> None:
    """Patches that do not apply are said, and such a tree is never taken for whole."""
    tarball = tmp_path / "linux.tar.xz"
    with tarfile.open(tarball, "w:xz") as archive:
        member = tarfile.TarInfo("linux/Makefile")
        archive.addfile(member, io.BytesIO())
    for _ in range(2):
        ended = made(tmp_path, tarball)
        assert ended.returncode == 1 and ended.stdout == ""
        assert "tree: git am failed in " in ended.stderr and "Patch failed at 0001 " in ended.stderr


def judged(granule: str, range_: str, place: Path, *more: str) -> str:
    """The table that `folioscope series` prints of a range of the series' tree; each row has no error."""
    tree = subprocess.run([SCRIPT], capture_output=True, text=True, check=True).stdout.strip()
    words = ["series", range_, "--tree", tree, "--granule", granule, "--out", place, *more]
    ended = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    assert len(GOOD.findall(ended.stdout)) == json.loads((place / "matrix.json").read_text())["totals"]["pass"]
    return ended.stdout


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_each_patch_stands_alone(pytestconfig: pytest.Config, tmp_path: Path, granule: str) -> None:
    """Each of them, and all without each option that the series adds."""
    anew = ["--again"] if pytestconfig.getoption("--afresh") else []
    found = judged(granule, "base..series", tmp_path, "--off", *anew)
    names = GOOD.findall(found)
    assert [name[:4] for name in names[: len(PATCHES) + 1]] == ["base", *(name[:4] for name in PATCHES)]
    without = names[len(PATCHES) + 1 :]
    assert without and all(name.startswith("all, without ") for name in without)


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("topic", ALONE)
def test_a_set_that_stands_alone(tmp_path: Path, topic: str) -> None:
    """It builds and shows no error on the source, without the sets before."""
    found = judged("4k", f"base..alone/{topic}", tmp_path, "--no-costs")
    assert len(GOOD.findall(found)) > 1
