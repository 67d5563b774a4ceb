# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope matrix`: the file and its errors, the table against what is expected, the page, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from folioscope.campaign import __main__, table
from folioscope.campaign.cell import Cell, Kernel, Test
from folioscope.campaign.commands import cells_of
from folioscope.campaign.errors import Refused
from folioscope.campaign.kernels import Builder, built
from folioscope.campaign.matrix import SCHEMA, Expectation, Source, line_of, load
from folioscope.campaign.result import Result
from folioscope.campaign.store import Store

import command
from browser import browser
from command import COMMAND, ROOT, SLOWER, wait_until
from laboratory import Said, in_process

MATRIX = """version = 1
store = "store"

[kernels.one]
image = "one"   # a build of before
[kernels.two]

[tests.soon]
kind = "wait"
seconds = 0

[axes]
kernel = ["one", "two"]
granule = ["4k", "64k"]
test = ["soon"]
"""


PASS = ["pass", "pass"]


@pytest.fixture
def campaign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """The command in this process, in a directory of its own, with `matrix.toml` there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(text: str, *words: object) -> Said:
        (tmp_path / "matrix.toml").write_text(text)
        return in_process(__main__.main, capsys, monkeypatch, "campaign", "matrix", "matrix.toml", *words)

    return run


def said(campaign: Callable[..., Said], text: str, *words: object) -> str:
    """The one sentence of a refusal."""
    ended = campaign(text, *words)
    assert (ended.status, ended.out) == (2, ""), ended
    (line,) = ended.err.splitlines()
    return line.removeprefix("folioscope: ")


def test_all_combinations_are_cells(tmp_path: Path) -> None:
    """But those that are excluded, and those that are included, once; values that no axis has are the defaults."""
    more = (
        MATRIX
        + """
[[exclude]]
kernel = ["one", "one"]
granule = "64k"
[[include]]
kernel = "one"
test = "tour"
smp = [4, 8]
memory = ["1G", "2G"]
[[include]]
kernel = "one"
test = "soon"
"""
    )
    (tmp_path / "m.toml").write_text(more)
    found = load(tmp_path / "m.toml")
    axes = ("kernel", "granule", "test", "smp", "memory", "cpu")
    assert [tuple(each[axis] for axis in axes) for each in found.cells] == [
        ("one", "4k", "soon", 2, "1G", "max"),
        ("two", "4k", "soon", 2, "1G", "max"),
        ("two", "64k", "soon", 2, "1G", "max"),
        ("one", "4k", "tour", 4, "1G", "max"),
        ("one", "4k", "tour", 8, "1G", "max"),
        ("one", "4k", "tour", 4, "2G", "max"),
        ("one", "4k", "tour", 8, "2G", "max"),
    ]
    jsonschema.validate(tomllib.loads(more), SCHEMA)


BAD = [
    ("granule = [", "granul = [", "14: there is no axis 'granul' in axes; did you mean 'granule'?"),
    ('"64k"]', '"46k"]', "14: expected axes.granule.1 to be one of 4k, 16k, 64k and found '46k'"),
    ('test = ["soon"]', 'test = ["son"]', "15: there is no test 'son'; did you mean 'soon'?"),
    ('"one", "two"', '"one", "three"', "13: there is no kernel 'three'; there are one, two"),
    ("seconds = 0", "second = 0", "10: there is no word 'second' in tests.soon; did you mean 'seconds'?"),
    ("seconds = 0", 'only = "anon"', "10: a test of kind wait has no only; it may have seconds, number"),
    (
        'kind = "wait"',
        'kind = "pytest"',
        "10: a test of kind pytest has no seconds; it may have select, keyword, needs",
    ),
    ("seconds = 0", 'seconds = "0"', "10: expected tests.soon.seconds to be a number and found '0'"),
    ("version = 1", "version = 2", "1: expected version to be 1 and found 2; update this program, or the file"),
    ("version = 1", "version = 1\nlimit = 0", "2: expected limit to be more than 0 and found 0"),
    ("[kernels.two]", "[kernels.two]\nconfig = 1", "7: expected kernels.two.config to be a string and found 1"),
    (
        "[kernels.two]",
        "[kernels.two]\ntree = 'a'\nbase = 'b'",
        "6: expected one of image, tree and base in kernels.two",
    ),
    ("[kernels.two]", "[kernels.two]\ncommit = 'a'", "6: expected the tree of the commit in kernels.two and found"),
    ("[kernels.two]", "[kernels.two]\nvmlinux = 'a'", "6: kernels.two is built with its vmlinux; leave vmlinux out"),
    (
        'image = "one"',
        'image = "one"\ndebug = true',
        "4: the image of kernels.one is as it is; leave",
    ),
    ("[axes]", "[axes", "12: this is no TOML: expected ']' at the end of a table declaration; check the line"),
    ('test = ["soon"]', "", "12: expected 'test' in axes and found none"),
    ('kernel = ["one", "two"]', "kernel = []", "13: expected axes.kernel to have something in it and found nothing"),
    ("[axes]", '[axes]\nmemory = ["1T"]', "13: expected axes.memory.0 to be a size such as 1G or 512M and found '1T'"),
    ("[axes]", "[axes]\nsmp = [true]", "13: expected axes.smp.0 to be a whole number and found True"),
    (
        'test = ["soon"]',
        'test = ["soon"]\n[[exclude]]\nkernel = "one"\n[[exclude]]\nkernels = "one"',
        "19: there is no axis 'kernels' in exclude.1; did you mean 'kernel'?",
    ),
    (
        'test = ["soon"]',
        'test = ["soon"]\n[[include]]\nkernel = "one"\ntest = ["soon", "son"]',
        "18: there is no test 'son'; did you mean 'soon'?",
    ),
    (
        'test = ["soon"]',
        'test = ["soon"]\n[[include]]\nkernel = "one"\ntest = "soon"\nsmp = [1, "2"]',
        "19: expected include.0.smp.1 to be a whole number and found '2'",
    ),
    ('test = ["soon"]', 'test = ["soon"]\n[[expect]]\nrules = ["L4"]', "16: expected 'why' in expect.0 and found none"),
]


@pytest.mark.parametrize(("part", "instead", "wanted"), BAD, ids=[each[2].partition(" ")[2][:40] for each in BAD])
def test_an_error_names_its_line(part: str, instead: str, wanted: str, campaign: Callable[..., Said]) -> None:
    """One sentence, with file and line, and status 2; nothing is run and no store is made."""
    assert part in MATRIX
    sentence = said(campaign, MATRIX.replace(part, instead, 1))
    assert sentence.startswith(f"matrix.toml:{wanted}"), sentence
    assert not Path("store").exists()


def test_lines_of_values() -> None:
    """By tables, arrays of tables, dotted and quoted keys; what has no line of its own is where it is in."""
    text = '[a."b c"]\nd.e = 1\n[[f]]\ng = 1\n[[f]]\ng = [\n 1,\n 2]\n'
    for where, line in (
        (("a", "b c", "d", "e"), 2),
        (("f", 0, "g"), 4),
        (("f", 1, "g", 1), 6),
        (("f", 1), 5),
        (("h",), 1),
    ):
        assert line_of(text, where) == line


def test_bad_words_are_refused(campaign: Callable[..., Said], tmp_path: Path) -> None:
    """One sentence each: no file, no store, no such engine, no cell, no image."""
    plain = MATRIX.replace('kernel = ["one", "two"]', 'kernel = ["two"]')
    assert said(campaign, plain.replace('store = "store"\n', "")).startswith("expected `store` in matrix.toml, or")
    sentence = said(campaign, plain, "--engine", "slurm")
    assert sentence == "there is no engine 'slurm'; use local, or dask=ADDRESS of a Dask scheduler"
    every = plain + '[[exclude]]\nkernel = "two"\n'
    assert said(campaign, every) == "matrix.toml has no cell: all are excluded; check [[exclude]]"
    sentence = said(campaign, MATRIX.replace('"soon"]', '"tour"]'))
    assert sentence.startswith("kernels.one: ") and f"{tmp_path}/one" in sentence
    with pytest.raises(Refused, match=r"expected a matrix in /nonexistent.toml and found No such file or directory"):
        load(Path("/nonexistent.toml"))


def test_a_matrix_from_dry_run_to_page(campaign: Callable[..., Said], tmp_path: Path) -> None:
    """A dry run lists cells and runs none; then each has a result; a dry run knows the times; twice is once."""
    words = ("--out", tmp_path / "out")
    planned = campaign(MATRIX, "--dry-run", *words)
    unknown = re.findall(r"^[0-9a-f]{20}  (?:one|two) .* time unknown$", planned.out, re.M)
    assert planned.status == 0 and len(unknown) == 4
    assert "4 cells, 4 to run, 0 kernels to build; about 0 s, 4 of them of unknown time" in planned.out
    assert not (tmp_path / "store").exists()
    ran = campaign(MATRIX, *words)
    assert ran.status == 0 and "4 cells: 4 pass" in ran.out
    assert [line.split() for line in ran.out.splitlines()[:3]] == [["4k", "64k"], ["one", *PASS], ["two", *PASS]]
    assert campaign(MATRIX, "--dry-run").out.count("has a result") == 4
    again = campaign(MATRIX, *words)
    # What waits has no kernel: the cells of both kernels are the same two.
    assert "2 cells, 2 of them with a result" in again.err and again.out == ran.out
    anew = campaign(MATRIX, *words, "--again")
    assert "2 cells, 0 of them with a result" in anew.err and anew.out == ran.out
    found = json.loads((tmp_path / "out" / "matrix.json").read_text())
    jsonschema.validate(found, table.SCHEMA)
    assert [cell["state"] for cell in found["cells"]] == ["pass"] * 4
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [("one", "2"), ("two", "2")]
    assert "Nothing changed since the last page" in (tmp_path / "out" / "index.html").read_text()


def rows(outcome: str, rules: dict[str, int], tmp_path: Path, **more: Any) -> list[table.Row]:
    """One cell's row, with the expectation that Debian's kernel breaks L4."""
    store = Store(str(tmp_path / "store")).open()
    cell = Cell(Kernel("debian", "k"), Test("tour", "tour"))
    if outcome:
        store.name(Result(cell.key, cell.axes(), outcome, more.get("status", 1), 1.0, "a <summary>", rules))
    expected = Expectation({"kernel": "debian"}, ("L4",), "known in 6.18")
    return table.rows([cell], store, [expected, Expectation({"granule": "64k"}, ("K2",), "another")])


@pytest.mark.parametrize(
    ("outcome", "rules", "state", "word", "status"),
    [
        ("fail", {"L4": 3, "I-eligible": 2}, "known", "known L4", 0),
        ("fail", {"L4": 3, "K2": 1}, "fail", "fail K2", 1),
        ("fail", {"K2": 1}, "fail", "fail K2 no L4", 1),
        ("fail", {}, "fail", "fail no L4", 1),
        ("pass", {"I-eligible": 2}, "gone", "gone no L4", 1),
        ("unjudged", {"L4": 3}, "unjudged", "unjudged", 2),
        ("", {}, "not run", "not run", 2),
    ],
)
def test_a_cell_is_judged_by_what_is_expected(
    outcome: str, rules: dict[str, int], state: str, word: str, status: int, tmp_path: Path
) -> None:
    """An error that is known is no failure; one that is not, or a known one that is gone, is."""
    found = rows(outcome, rules, tmp_path)
    assert (found[0].state, table.word(found[0]), table.status(found)) == (state, word, status)
    case = ElementTree.fromstring(table.junit(found)).find(".//testcase")
    assert case is not None
    kinds = {"known": ["system-out"], "fail": ["failure"], "gone": ["failure"]}
    assert [each.tag for each in case] == kinds.get(state, ["error"])
    assert "known in 6.18" not in str(case) or state == "known"


def test_what_changed_since_the_last_page(campaign: Callable[..., Said], tmp_path: Path) -> None:
    """A cell whose state is another is marked and listed, by its place in the matrix: its key may be another."""
    from folioscope.campaign.page import written  # noqa: PLC0415

    before = table.as_json(rows("fail", {"L4": 1}, tmp_path))
    now = rows("fail", {"L4": 1, "K2": 2}, tmp_path)
    page = written(now, before, "m & n")
    assert 'class="fail changed"' in page and "m &amp; n" in page and "a &lt;summary&gt;" in page
    assert "known before, fail K2 now" in page
    assert "changed" not in written(now, None, "m").partition("<body>")[2]


@pytest.mark.browser
def test_the_page_in_a_browser(campaign: Callable[..., Said], tmp_path: Path) -> None:
    """Cells lead to the files of their tests, a changed cell is marked, and nothing comes from elsewhere."""
    words = ("--out", tmp_path / "out")
    soon = MATRIX.replace('"64k"]', '"16k", "64k"]')
    tests = '[tests.mine]\nkind = "pytest"\nselect = ["test_mine.py"]\n\n[axes]'
    mine = soon.replace("[axes]", tests).replace('["soon"]', '["soon", "mine"]').replace('["one", "two"]', '["two"]')
    mine = mine.replace("[kernels.two]", f'[kernels.two]\nimage = "{ROOT}/out/kernel-64k/Image"')
    (tmp_path / "test_mine.py").write_text("def test_one() -> None:\n    assert True\n")
    assert campaign(mine, *words).status == 0
    (tmp_path / "test_mine.py").write_text("def test_one() -> None:\n    assert False\n")
    assert campaign(mine, *words).status == 1
    with browser() as window:
        window.driver.get(f"file://{tmp_path}/out/index.html")
        asked = window.asked()
        assert asked and all(each.startswith("file://") for each in asked)
        assert window.run("return [...document.querySelectorAll('thead th')].map((it) => it.textContent)") == [
            "soon",
            "mine",
        ]
        assert window.text("td.fail.changed") == "fail" and window.text("li").endswith("pass before, fail now")
        colours = "return [...document.querySelectorAll('tbody td')].map((it) => getComputedStyle(it).backgroundColor)"
        assert len(set(window.run(colours))) == 3
        window.click("td.fail a")
        assert window.driver.current_url.endswith("/junit.xml") and "cells/" in window.driver.current_url
        assert "assert False" in window.driver.page_source
        assert not window.said()


def test_a_kernel_is_known_before_it_is_built(tmp_path: Path) -> None:
    """Its key is build.sh's: the pinned kernel is there; a fragment of a configuration makes another kernel."""
    pinned = built("pinned", Source(), "4k")
    assert pinned.files["Image"] == str((ROOT / "out/kernel-4k/Image").resolve())
    (tmp_path / "fragment").write_text("CONFIG_KSM=n\n")
    other = built("other", Source(config=str(tmp_path / "fragment")), "4k")
    assert re.fullmatch(r"4k-[0-9a-f]{20}", other.key) and other.key != pinned.key and not other.files
    with pytest.raises(Refused, match="kernels.none: --source /nonexistent is no Linux tree"):
        built("none", Source(tree="/nonexistent"), "4k")


def test_a_kernel_that_does_not_build_is_a_row(campaign: Callable[..., Said], tmp_path: Path) -> None:
    """Its cells are lost, with the reason; the others have their results."""
    tree = tmp_path / "tree"
    (tree / "arch" / "arm64").mkdir(parents=True)
    (tree / "Makefile").write_text("allnoconfig:\n\tfalse\n")
    (tree / "configure").write_text("not yet")
    text = MATRIX.replace("[kernels.two]", '[kernels.two]\ntree = "tree"').replace('"soon"]', '"soon", "tour"]')
    text = text.replace('["one", "two"]', '["two"]').replace('["4k", "64k"]', '["4k"]')
    ran = campaign(text, "--out", tmp_path / "out")
    assert ran.status == 2 and ran.out.splitlines()[-1] == "2 cells: 1 pass, 1 lost", ran
    (line,) = re.findall(r"^lost: .*", ran.out, re.M)
    assert line.startswith("lost: two 4k max auto 1G 2 tour: its kernel does not build: kernel 4k: could not configure")
    assert "folioscope: building the kernel two" in ran.err


def test_a_commit_of_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key is that of its content, whatever the tree has now and wherever it is; the tree stays as it is."""
    monkeypatch.setenv("FOLIOSCOPE_CACHE", str(tmp_path / "cache"))
    tree = tmp_path / "tree"

    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", "-C", tree, *author, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tree.rglob("*") if path.is_file()}

    (tree / "arch" / "arm64").mkdir(parents=True)
    (tree / "arch" / "arm64" / "Kconfig").write_text("")
    git("init", "--quiet")
    for version in ("one", "two"):
        (tree / "Makefile").write_text(f"# {version}\n")
        git("add", ".")
        git("commit", "--quiet", "-m", version)
    first, second = git("rev-parse", "HEAD~"), git("rev-parse", "HEAD")
    (tree / "Makefile").write_text("# dirty\n")
    before = state()
    keys_of = [built("k", Source(tree=str(tree), commit=commit), "4k").key for commit in (first, "HEAD~", second)]
    assert keys_of[0] == keys_of[1] != keys_of[2]
    assert built("k", Source(tree=str(tree)), "4k").key not in keys_of
    assert state() == before
    clone = tmp_path / "cache" / "trees" / first[:20] / "tree"
    assert (clone / "Makefile").read_text() == "# one\n"
    subprocess.run(["git", "clone", "--quiet", tree, tmp_path / "other"], check=True)
    monkeypatch.setenv("FOLIOSCOPE_CACHE", str(tmp_path / "cache-2"))
    assert built("k", Source(tree=str(tmp_path / "other"), commit=first), "4k").key == keys_of[0]
    for commit, words in (("v9", "no such commit"), ("--all", "no such commit")):
        with pytest.raises(Refused, match=f"kernels.k: expected the commit {commit} in .* and found none: {words}"):
            built("k", Source(tree=str(tree), commit=commit), "4k")


def test_a_kernel_that_is_another_now_is_refused(tmp_path: Path) -> None:
    """Cells would have the key of the kernel as it was."""
    pinned = built("pinned", Source(), "4k")
    builder = Builder(tmp_path)
    assert builder(pinned).keys() == {"Image", "vmlinux"}
    with pytest.raises(Refused, match="^the sources of the kernel pinned changed after the campaign began; start it"):
        builder(replace(pinned, key="4k-other"))


def test_an_image_has_its_own_granule(tmp_path: Path) -> None:
    """Cells with another are left out, with the reason; its key is of its bytes and its vmlinux's."""
    text = MATRIX.replace('image = "one"', f'image = "{ROOT}/out/kernel-64k/Image"').replace('"soon"]', '"tour"]')
    (tmp_path / "m.toml").write_text(text.replace('"one", "two"', '"one"'))
    cells, left_out = cells_of(load(tmp_path / "m.toml"))
    assert [cell.granule for cell in cells] == ["64k"]
    assert left_out == ["the image of one has pages of 64k, not 4k"]
    assert cells[0].kernel.files.keys() == {"Image", "vmlinux"}


def test_the_command_starts_it(tmp_path: Path) -> None:
    """From a checkout; elsewhere one sentence says what to do."""
    (tmp_path / "matrix.toml").write_text(MATRIX)
    words = [COMMAND, "matrix", tmp_path / "matrix.toml", "--dry-run"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300 * SLOWER)
    assert ran.returncode == 0 and "4 cells, 4 to run, 0 kernels to build" in ran.stdout, ran.stderr
    lost = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60 * SLOWER)
    assert lost.returncode == 2 and not lost.stdout
    assert lost.stderr.startswith(
        "folioscope: expected campaigns at vmm/setup/campaign.sh and found none; go to the root"
    )


def test_ctrl_c_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    """Status 130, no process left; the next one runs the rest."""
    text = MATRIX.replace("seconds = 0", "seconds = 0.6").replace('"one", "two"', '"two"')
    (tmp_path / "matrix.toml").write_text(text.replace('"64k"]', '"16k", "64k"]') + 'policy = ["a", "b"]\n')
    words = [sys.executable, "-m", "folioscope.campaign", "matrix", "matrix.toml", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "plugin"), "FOLIOSCOPE": str(COMMAND)}
    with subprocess.Popen(
        words, cwd=tmp_path, env={**environment, command.MARK: str(tmp_path)}, stderr=subprocess.PIPE, text=True
    ) as child:
        assert wait_until(lambda: Store(str(tmp_path / "store")).named(), 30)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20 * SLOWER)
    assert child.returncode == 130, err
    assert err.splitlines()[-1] == "folioscope: interrupted; the same again goes on where this has come to"
    assert wait_until(lambda: not command.marked(str(tmp_path)), 5)
    had = len(Store(str(tmp_path / "store")).named())
    assert 0 < had < 6
    ran = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60 * SLOWER
    )
    assert ran.returncode == 0 and f"6 cells, {had} of them with a result" in ran.stderr
    assert "6 cells: 6 pass" in ran.stdout
