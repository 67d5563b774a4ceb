# SPDX-License-Identifier: GPL-2.0-only
"""The patches as sets that can be sent, and those for a second base."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from command import ROOT
from test_stock_kernel import FETCH_SECONDS

PATCHES = ROOT / "kernel-patches"
NAMES = [line for line in (PATCHES / "series").read_text().splitlines() if line and not line.startswith("#")]
TRIED = re.findall(r"^# Tried on (\S+)\.$", (PATCHES / "series").read_text(), re.MULTILINE)[0]
ALONE = {"1-fixes", "2-policy", "4-roadmap", "5-ramfs", "6-write-faults", "8-notifiers", "9-watched-writes"}


def run(words: list[str | Path], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def sets(script: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Writes them to a directory."""
    return run([script, out])


def diff(patch: Path) -> list[str]:
    """What it changes, line by line."""
    return [line for line in patch.read_text().splitlines() if line[:1] in "+-" and not line.startswith(("---", "+++"))]


def test_topics(tmp_path: Path) -> None:
    """Each is numbered and has its cover letter with the list and what it changes; together they are the series."""
    ended = sets(PATCHES / "topics.sh", tmp_path / "sets")
    assert ended.returncode == 0, ended.stderr
    written: list[Path] = []
    before = None
    for topic in sorted((PATCHES / "topics").iterdir()):
        cover, *patches = sorted((tmp_path / "sets" / topic.name).iterdir())
        text = cover.read_text()
        subject = topic.read_text().splitlines()[0]
        said = re.search(r"^Subject: (\[PATCH 0+/(\d+)\])((?: .*\n)+)\n", text, re.MULTILINE)
        assert said and int(said[2]) == len(patches) and said[3].split() == subject.split()
        assert "***" not in text and re.search(r"\d+ files? changed, \d+ insertions", text)
        applies = "by itself" if topic.name in ALONE else f'on top of the set "{before}"'
        assert text.count("\nApplies to v") == 1 and f"\nApplies to v{TRIED} {applies}." in text
        for number, patch in enumerate(patches, 1):
            assert re.search(rf"^Subject: \[PATCH 0*{number}/{len(patches)}\] ", patch.read_text(), re.MULTILINE)
        written += patches
        before = subject
    assert [diff(patch) for patch in written] == [diff(PATCHES / name) for name in NAMES]
    again = sets(PATCHES / "topics.sh", tmp_path / "sets")
    assert again.returncode == 2 and "is there already" in again.stderr


def test_sets_that_stand_alone() -> None:
    """Each applies to the source without the others, which check.sh tries."""
    checked = run([PATCHES / "check.sh"])
    assert checked.returncode == 0, checked.stderr
    assert f"{len(NAMES)} patches apply to 6.12" in checked.stdout
    assert f" {len(ALONE)} topics without the others" in checked.stdout
    assert (PATCHES / "series").read_text().count(f"# Alone: {' '.join(sorted(ALONE))}\n") == 1


@pytest.mark.parametrize(
    "topic,said",
    [
        ("7-together", "without the topics before 7-together"),
        ("3-page-lists", "without the topics before 3-page-lists"),
        ("8-else", "says that the topic 8-else stands alone, and has no patch below a line '# Topic 8-else'"),
    ],
)
def test_a_set_that_does_not_stand_alone(topic: str, said: str, tmp_path: Path) -> None:
    """It is not said to."""
    ours = tmp_path / "kernel-patches"
    shutil.copytree(PATCHES, ours, ignore=shutil.ignore_patterns("tests", "7.x"))
    series = (ours / "series").read_text()
    (ours / "series").write_text(re.sub(r"^# Alone: .*$", f"# Alone: {topic}", series, flags=re.MULTILINE))
    checked = run([ours / "check.sh"])
    assert checked.returncode == 1 and said in checked.stderr, checked.stderr


@pytest.mark.parametrize(
    "lost,said",
    [
        (r"# Topic 1-fixes\n", "no patch below a line '# Topic 1-fixes'"),
        (r"(?<=# Topic 1-fixes\n)(0001.*\n)", f"has {len(NAMES)} patches and {len(NAMES) - 1} of them are in a topic"),
    ],
)
def test_a_patch_of_no_topic(lost: str, said: str, tmp_path: Path) -> None:
    """It is not left out in silence."""
    ours = tmp_path / "kernel-patches"
    shutil.copytree(PATCHES, ours, ignore=shutil.ignore_patterns("tests", "7.x"))
    series = (ours / "series").read_text()
    kept, times = re.subn(lost, "", series)
    assert times == 1
    if "0001" in lost:
        kept = kept.replace("# Topic 1-fixes", f"{NAMES[0]}\n# Topic 1-fixes")
    (ours / "series").write_text(kept)
    ended = sets(ours / "topics.sh", tmp_path / "sets")
    assert ended.returncode == 1 and said in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    "words,said",
    [
        (["build.sh", "--granule", "4k", "--base", "5.x"], "there are no patches for base '5.x'"),
        (["build.sh", "--granule", "4k", "--base", "7.x"], "--base 7.x wants its source: set FOLIOSCOPE_"),
        (["check.sh", "--base", "5.x"], "--base wants one of the directories here"),
    ],
)
def test_a_base_without_patches(words: list[str], said: str) -> None:
    """A sentence, for each of the two that take one."""
    environment = {name: value for name, value in os.environ.items() if name != "FOLIOSCOPE_KERNEL_TARBALL"}
    ended = run([PATCHES / words[0], *words[1:]], env=environment)
    assert ended.returncode == 2 and said in ended.stderr and ended.stderr.count("\n") == 1


def test_a_base_that_is_newer(tmp_path: Path) -> None:
    """It is said to be newer and tried all the same; where a patch does not fit, what the base has there is shown."""
    tree = tmp_path / "linux-source-7.9"
    (tree / "include" / "linux").mkdir(parents=True)
    (tree / "Makefile").write_text("kernelversion:\n\t@echo 7.9.1\n")
    (tree / "include" / "linux" / "pgtable.h").write_text("/* all of it has moved */\n")
    tarball = tmp_path / "linux-source-7.9.tar.xz"
    assert run(["tar", "-C", tmp_path, "-cJf", tarball, tree.name]).returncode == 0
    environment = {**os.environ, "FOLIOSCOPE_KERNEL_TARBALL": str(tarball), "FOLIOSCOPE_CACHE": str(tmp_path / "cache")}
    ended = run([PATCHES / "build.sh", "--granule", "4k", "--base", "7.x"], env=environment)
    assert ended.returncode == 1
    assert "the patches were tried on 7.3.4, and this is 7.9.1" in ended.stderr
    assert "arch_wants_pte_order" in ended.stderr, "the hunk that was rejected"
    assert re.search(r"0001-\S+\.patch does not apply to 7\.9\.1, see the rejected hunks above", ended.stderr)
    assert not list((tmp_path / "cache" / "kernels").iterdir())


@pytest.mark.long
@pytest.mark.network
@pytest.mark.timeout(FETCH_SECONDS)
def test_the_newest_base() -> None:
    """Its patches apply and please checkpatch; what they do there is asked in test_newer_base.py."""
    fetched = run(["vmm/setup/source.sh", "7"])
    assert fetched.returncode == 0, fetched.stderr
    environment = {**os.environ, "FOLIOSCOPE_KERNEL_TARBALL": fetched.stdout.strip()}
    checked = run([PATCHES / "check.sh", "--base", "7.x"], env=environment)
    many = len(re.findall(r"^0.*[.]patch$", (PATCHES / "7.x" / "series").read_text(), re.MULTILINE))
    said = checked.stdout + checked.stderr
    assert checked.returncode == 0 and many >= 12 and f"{many} patches apply to 7." in said, said
