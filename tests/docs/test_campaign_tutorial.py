# SPDX-License-Identifier: GPL-2.0-only
"""The tutorial of campaigns, command by command, with kernels that are prebuilt and one worker that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from folioscope.campaign.series import of_mail
from folioscope.campaign.trees import Tree

import command
from command import CACHE, ROOT, SLOWER, wait_until
from dask_cluster import Cluster
from kernel_edits import edit, never_contiguous, sets_contiguous
from kernel_trees import BROKEN, SmallTree
from test_readme import commands

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(1200)]
PAGE = ROOT / "docs" / "tutorial-campaigns.md"
SECONDS = 300 * SLOWER
#: Of the branch; from the sixth on no block is contiguous, and the fourth does not build.
COMMITS, BROKEN_ONE, WRONG = 8, 4, 6


class Reader:
    """Somebody who follows the page, in a directory of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.lines = commands(PAGE.read_text())
        (place / "out").symlink_to(ROOT / "out")
        self.tree = SmallTree(place)
        # The Python environment is this machine's.
        self.tree.cache.mkdir()
        (self.tree.cache / "venv").symlink_to(CACHE / "venv")

    def start(self, line: str, **more: str) -> subprocess.Popen[str]:
        """Starts a line of the page; its files are ours."""
        assert line in self.lines, f"the page has no {line!r}"
        names = {"first.toml": self.place / "first.toml", "topic.mbox": self.place / "topic.mbox"}
        names |= {f"{word} {name}": f"{word} {self.place / name}" for word in ("--store", "reply") for name in
                  ("second", "third")} | {"~/linux": self.tree.place}  # fmt: skip
        for name, ours in {**names, **more}.items():
            line = line.replace(name, str(ours))
        environment = {
            **os.environ,
            "FOLIOSCOPE_CACHE": str(self.tree.cache),
            "FOLIOSCOPE_OUT": str(self.place / "tables"),
        }
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "bash", "-c", f"exec {line}"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, line: str, status: int = 0, **more: str) -> tuple[str, str]:
        """Runs a line to its end; returns what it has printed and said."""
        with self.start(line, **more) as child:
            try:
                out, said = child.communicate(timeout=SECONDS)
            finally:
                child.terminate()
        assert child.returncode == status, f"{line}: status {child.returncode}\n{out}{said}"
        return out, said


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Follows the page."""
    one = Reader(tmp_path_factory.mktemp("reader"))
    (toml,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (one.place / "first.toml").write_text(toml)
    yield one


def table(out: str) -> list[list[str]]:
    """The words of the table of cells."""
    return [line.split() for line in out.splitlines()]


FOUR = [["faults", "forks"], ["max", "pass", "pass"], ["cortex-a72", "pass", "pass"], ["4", "cells:", "4", "pass"]]


def test_four_cells_here_and_on_workers(reader: Reader, tmp_path: Path) -> None:
    """A worker is killed while its guest runs; the table is the same."""
    out, _ = reader.run("out/folioscope matrix first.toml --dry-run")
    assert "4 cells, 4 to run, 0 kernels to build" in out
    out, _ = reader.run("out/folioscope matrix first.toml")
    assert table(out) == FOUR == table(PAGE.read_text().partition("boots four guests")[2].split("```\n")[1])
    out, said = reader.run("out/folioscope matrix first.toml")
    assert table(out) == FOUR and "4 cells, 4 of them with a result" in said
    line = "out/folioscope matrix first.toml --store second --engine dask=tcp://127.0.0.1:8786"
    with Cluster(tmp_path) as cluster:
        workers = [cluster.worker("--no-nanny") for _ in range(2)]
        with reader.start(line, **{"tcp://127.0.0.1:8786": cluster.address}) as child:
            assert wait_until(lambda: guests(cluster), SECONDS), cluster.logs()
            guest = guests(cluster)[0]
            victim = next(each for each in workers if guest in below(each.pid))
            os.kill(victim.pid, signal.SIGKILL)
            assert wait_until(lambda: guest not in guests(cluster), 10)
            out, said = child.communicate(timeout=SECONDS)
        assert child.returncode == 0 and table(out) == FOUR, said + cluster.logs()


def guests(cluster: Cluster) -> list[int]:
    """The QEMUs of its cells."""
    return [pid for pid in cluster.processes() if command.program(pid).startswith("qemu-system")]


def below(pid: int) -> set[int]:
    """A process, and all that it and its children have started."""
    return {pid}.union(*(below(child) for child in command.children(pid)))


def test_a_series_its_answer_and_a_bisect(reader: Reader) -> None:
    """An mbox of three patches, and eight commits of which one does not build."""
    tree = reader.tree
    tree.git("tag", "v6.12")
    tree.git("checkout", "--quiet", "-b", "topic")
    topic = [tree.base]
    for number in range(1, COMMITS + 1):
        files = tree.line(number, f"changed by {number}")
        files["Makefile"] = BROKEN if number == BROKEN_ONE else "# no kernel\n"
        topic.append(tree.commit(f"mm: change {number}", files))
    mbox = tree.git("format-patch", "--stdout", "--cover-letter", "--base=v6.12", "v6.12..topic~5")
    (reader.place / "topic.mbox").write_text(f"{mbox}\n\n")
    tree.git("checkout", "--quiet", "main")
    cache = os.environ.get("FOLIOSCOPE_CACHE")
    try:
        os.environ["FOLIOSCOPE_CACHE"] = str(tree.cache)
        with Tree(tree.place).own("4k") as own:
            sent = [each.commit for each in of_mail(Tree(tree.place), own, reader.place / "topic.mbox", None).patches]
            tree.git("fetch", "--quiet", str(own.tree), sent[-1])
    finally:
        os.environ.pop("FOLIOSCOPE_CACHE")
        if cache:
            os.environ["FOLIOSCOPE_CACHE"] = cache
    kernel, wrong = ROOT / "out" / "kernel-4k", reader.place / "Image"
    assert edit(kernel, "contpte_set_ptes", sets_contiguous, never_contiguous, wrong) == 1
    for number, commit in [*enumerate(topic), *((1, each) for each in sent)]:
        if number != BROKEN_ONE:
            tree.prebuilt(commit, wrong if number >= WRONG else kernel / "Image")
    before = tree.state()
    out, _ = reader.run("out/folioscope series topic.mbox --tree ~/linux --only anon --no-costs --store third")
    rows = out.splitlines()[2:6]
    assert [row.split()[0] for row in rows] == ["base", "0001", "0002", "0003"]
    assert all(row.endswith("0 errors, 0 remarks, 0 not judged") for row in rows)
    out, _ = reader.run("out/folioscope reply third")
    assert "3/3 mm: change 3" in out and max(map(len, out.splitlines())) <= 70
    line = "out/folioscope bisect v6.12 topic --tree ~/linux --only anon --when 'coverage < 0.1' --store third"
    out, _ = reader.run(line)
    assert f"first with {topic[WRONG]}\n  mm: change {WRONG}\n" in out
    assert "skip" in out and "!----------------!" in out
    out, said = reader.run(line.replace("coverage < 0.1", 'rule("C1")'))
    assert f"first with {topic[WRONG]}\n" in out
    # But for the commit that does not build.
    assert said.count("1 cells, 0 of them with a result") == 1
    assert tree.state() == before


def test_all_lines_are_followed() -> None:
    """The page has no command that no test above runs."""
    followed = Path(__file__).read_text()
    lines = [line.replace('rule("C1")', "coverage < 0.1") for line in commands(PAGE.read_text())]
    assert len(lines) == 7 and not [line for line in lines if line not in followed]
