# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope bisect`: git bisect finds the commit with which a condition on the verdict begins to hold."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from folioscope.campaign import __main__, side
from folioscope.campaign.asked import Asker, question
from folioscope.campaign.condition import UNKNOWN, AtLeast, Condition, Counts, sample
from folioscope.campaign.errors import Refused
from folioscope.campaign.found import SCHEMA
from folioscope.campaign.result import Result
from folioscope.campaign.store import Store
from folioscope.campaign.trees import Tree

import command
from command import COMMAND, ROOT, SLOWER, wait_until
from kernel_edits import edit, never_contiguous, sets_contiguous
from kernel_trees import BROKEN, SmallTree
from laboratory import Said, in_process

RULES = ("A1", "C1", "C2", "L4", "I-eligible")
#: Of the branch, which has as many commits; the one from which on it is wrong.
COMMITS, WRONG = 8, 6


@dataclass
class Branch:
    """A small tree with a branch of commits, and a store in which their verdicts can be put."""

    tree: SmallTree
    commits: list[str]
    store: Store

    @property
    def place(self) -> Path:
        """Of the tree."""
        return self.tree.place

    def judged(self, number: int, when: str, only: str = "anon", repeat: int = 0, **of: Any) -> None:
        """Puts a verdict into the store, as if the commit had been judged."""
        told = argparse.Namespace(granule="4k", cpu="max", machine="tcg", config=None)
        tree = Tree(self.place)
        with tree.own("4k") as own:
            asker = Asker(tree, own, self.store, question(when, only, False), told, self.place)
            cell = asker.cell(own.kernel("k", self.commits[number]), repeat)
        report = of.pop("report", None)
        if report is not None:
            path = self.place.parent / "report.json"
            path.write_text(json.dumps(report))
            of["files"] = {"report.json": self.store.put(path)}
        status = of.pop("status", 0)
        outcome = {0: "pass", 1: "fail", 2: "unjudged"}[status]
        self.store.name(Result(cell.key, cell.axes(), outcome, status, 1.0, "9 checkpoints", **of))


@pytest.fixture
def branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Branch:
    """Eight commits above the base; the fourth does not build."""
    tree = SmallTree(tmp_path)
    monkeypatch.setenv("FOLIOSCOPE_CACHE", str(tree.cache))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    commits = [tree.base]
    for number in range(1, COMMITS + 1):
        files = tree.line(number, f"changed by {number}")
        files["Makefile"] = BROKEN if number == 4 else "# no kernel\n"
        commits.append(tree.commit(f"mm: change {number}", files))
    return Branch(tree, commits, Store(str(tmp_path / "store")).open())


@pytest.fixture
def run(
    branch: Branch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Said]:
    """The command in this process, on the branch."""
    more = ["--tree", branch.place, "--store", "store", "--out", "out", "--machine", "tcg"]
    monkeypatch.chdir(tmp_path)
    return lambda *words: in_process(__main__.main, capsys, monkeypatch, "campaign", "bisect", *words, *more)


def found(store: Store) -> dict[str, Any]:
    """The one note on a bisect in a store, by its schema."""
    (record,) = store.records("bisect").values()
    jsonschema.validate(record, SCHEMA)
    assert isinstance(record, dict)
    return record


def found_rules(record: dict[str, Any]) -> set[str]:
    """The rules of which only the commit that was found has a finding."""
    return {each["rule"] for each in record["findings"] if each["is_after"]}


def verdict(**of: Any) -> dict[str, Any]:
    """A verdict that conditions are tried on."""
    return {**sample(RULES), **of}


def test_a_condition_is_understood() -> None:
    """Names, rules by count and at a checkpoint, numbers, `and`, `or`, `not`."""
    rules = Counts({"C1": 3, "I-eligible": 9}, RULES, "rule")
    of = verdict(
        rules=rules, order=Counts({4: 32}), coverage=0.75, status=1, errors=3,
        blocks=Counts({"folded": 2}, ("folded", "empty")),
        steps={"C1": frozenset({"fork child"})}, checkpoints=("fork child", "fork parent"),
    )  # fmt: skip
    for text, wanted in {
        'rule("C1")': True,
        'rule("L4")': False,
        'rules["C1"] > 3 or rules["C1"] == 3': True,
        'rule("C1", "fork child") and not rule("C1", "fork parent")': True,
        "coverage < 0.9": True,
        "0.5 < coverage < 0.7": False,
        "order[4] == 0": False,
        "order[2] == 0 and order[4] / 2 >= 16 - 1 + 1": True,
        'outcome == "fail" and status == 1 and errors > -1': True,
        'blocks["folded"] != 2': False,
    }.items():
        assert Condition(text, RULES).holds(of) is wanted, text


def test_what_was_not_judged_makes_no_answer() -> None:
    """What was found is there; what was not found may be."""
    least = verdict(
        rules=Counts({"C1": 3}, RULES, "rule", is_least=True), errors=AtLeast(3), coverage=UNKNOWN,
        order=Counts({}, unknown=lambda _: True), steps={"C1": frozenset({"a"})}, checkpoints=("a", "b"),
    )  # fmt: skip
    for text, wanted in {
        'rule("C1")': True,
        'rule("L4")': None,
        'not rule("C1")': False,
        'not rule("L4")': None,
        'rule("C1", "a")': True,
        'rule("C1", "b")': None,
        'rule("C1", "c")': None,
        'rule("C1") or coverage < 0.5': True,
        'rule("L4") and status == 7': False,
        "coverage < 0.5": None,
        "order[4] == 0": None,
        'rules["C1"] == 2': False,
        'rules["C1"] == 3': None,
        'rules["C1"] != 2': True,
        'rules["C1"] < 3': False,
        'rules["C1"] <= 3': None,
        'rules["C1"] >= 3': True,
        "2 < errors": True,
        "3 < errors": None,
        "errors + 1 > 2": None,
        "-coverage < 0": None,
        "1 / (status - 1) > 0": None,
    }.items():
        assert Condition(text, RULES).holds(least) is wanted, text


BAD = [
    ("coverag < 0.9", "column 1: there is no name 'coverag'; did you mean 'coverage'? There are status, outcome,"),
    ('rule("C1") and statu == 1', "column 16: there is no name 'statu'; did you mean 'status'?"),
    ('rule("C9")', "column 6: there is no rule 'C9'; there are A1, C1, C2, L4, I-eligible"),
    ('rules["A9"] > 0', "column 7: there is no rule 'A9'"),
    ('rule("C1", 4)', 'column 1: expected rule("C1") or rule("C1", "fork child"), which names a checkpoint'),
    ("order['4'] > 0", "column 7: expected an order, such as order[4], and found '4'"),
    ('blocks["foldd"] > 1', "column 8: there is no state 'foldd'; did you mean 'folded'?"),
    ("status = 1", "column 8: this is no expression (invalid syntax); write a condition such as rule("),
    ("", "column 1: this is no expression"),
    ("rules > 0", "column 9: counts, of which one is chosen by [...] and 0 cannot be compared"),
    ('status == "x"', "column 11: 1 and 'x' cannot be compared"),
    ("coverage", "column 1: expected a condition and found the value 0.5"),
    ("not status", "column 5: expected a condition and found the value 1; compare it, as in x > 0"),
    ("coverage['a'] > 0", "column 1: 0.5 has no parts"),
    ("outcome + 1 > 0", "column 1: expected a number and found 'fail'"),
    ("status in [1, 2]", "column 11: '[1, 2]' may not be said here"),
    ("status in outcome", "column 11: 'status in outcome' may not be said here"),
    ('__import__("os").system("true")', "column 1: there is no function \"__import__('os').system\"; there is rule"),
    ("status.real == 1", "column 1: 'status.real' may not be said here"),
    ("9 ** 9 ** 9 > 1", "column 1: '9 ** 9 ** 9' may not be said here"),
    ("~status == 1", "column 1: '~status' may not be said here"),
    ("None", "column 1: 'None' may not be said here"),
    ("-" * 900 + "1 > 0", "column 1: it is nested too deeply"),
    ("(" * 300, "this is no expression"),
    ("1 > 0" + " " * 2000 + "or 1 > 0", "has 2013 characters; use at most 1000"),
]


@pytest.mark.parametrize(("text", "wanted"), BAD)
def test_a_condition_that_is_none_is_refused(text: str, wanted: str) -> None:
    """The column, and what may be said."""
    with pytest.raises(Refused) as refused:
        Condition(text, RULES)
    assert wanted in str(refused.value) and str(refused.value).startswith("--when")


def test_bad_words_are_refused(branch: Branch, run: Callable[..., Said]) -> None:
    """One sentence with what to do, status 2, and the tree as it was."""
    branch.tree.git("checkout", "--quiet", "-b", "aside", "main~3")
    branch.tree.commit("another way")
    branch.tree.git("checkout", "--quiet", "main")
    base = branch.commits[5][:12]
    before = branch.tree.state()
    for words, wanted in (
        (["main", "main~8", "--when", "status == 1"], "main~8 is an ancestor of main: the range is reversed; name the"),
        (
            ["aside", "main", "--when", "status == 1"],
            f"aside is no ancestor of main; name their merge base, {base}, in",
        ),
        (["main", "HEAD", "--when", "status == 1"], "main and HEAD are the same commit, "),
        (["v9", "main", "--when", "status == 1"], "has no commit 'v9'; check the name, or fetch it"),
        (["main~8", "main", "--when", "covrage < 1"], "--when, column 1: there is no name 'covrage'; did you mean 'co"),
        (["main~8", "main", "--when", "none.py"], "expected tests at "),
        (
            ["main~8", "main", "--when", "a.py::test_b", "--only", "anon"],
            "and a.py::test_b is a pytest file; leave --o",
        ),
    ):
        said = run(*words)
        assert (said.status, said.out) == (2, ""), said
        (line,) = said.err.splitlines()
        assert wanted in line
    assert branch.tree.state() == before
    (branch.place / "Makefile").write_text("# changed\n")
    said = run("main~8", "main", "--when", "status == 1")
    assert said.status == 2 and "has changes that no commit has (M Makefile); commit or stash them" in said.err


def test_ends_that_do_not_differ_are_refused(branch: Branch, run: Callable[..., Said]) -> None:
    """Nothing is built between them. An end without an answer is none either."""
    when = 'rule("L4")'
    report = {"steps": [{"workload": "anon", "step": "a", "processes": [], "basis": {"in_force": ["L4"]}}]}
    for number in (0, 8):
        branch.judged(number, when, report=report)
    said = run("main~8", "main", "--when", when, "--only", "anon")
    assert said.status == 2 and "does not hold for GOOD and for BAD alike; name other commits, or another" in said.err
    # No checkpoint has judged C1: that it has no error says nothing.
    said = run("main~8", "main", "--when", 'rule("C1")', "--only", "anon")
    assert said.status == 2 and "gives no answer: its verdict does not tell, for a part that matters was" in said.err
    said = run("main~8", "main", "--when", 'rule("C1")', "--only", "anon", "--unjudged", "take")
    assert said.status == 2 and "does not hold for GOOD and for BAD alike" in said.err
    said = run("main~8", "main", "--when", 'rule("L4", "anon b")', "--only", "anon")
    assert said.status == 2 and "for it has no checkpoint 'anon b'; did you mean 'anon a'?" in said.err
    said = run("main~4", "main", "--when", when, "--only", "anon")
    assert said.status == 2 and "gives no answer: its kernel does not build: mm/memory.c:7:1: error: " in said.err


def test_git_bisect_finds_it_and_its_log_can_be_replayed(branch: Branch, run: Callable[..., Said]) -> None:
    """What does not build is skipped; what is in the store is not run; the log leads git to the same commit."""
    when = "coverage < 0.5"
    before = branch.tree.state()
    for number in (0, 1, 2, 3, 5, 6, 7, 8):
        process = {
            "process": {"name": "tour"}, "page_size": 4096, "findings": [], "folios": {"4": 65536},
            "entries": {"pages": 16}, "vmas": [vma(number < WRONG)],
        }  # fmt: skip
        step = {"workload": "anon", "step": "forward", "processes": [process]}
        branch.judged(number, when, report={"steps": [step]}, figures={"coverage": 1.0 if number < WRONG else 0.0})
    said = run("main~8", "main", "--when", when, "--only", "anon")
    assert said.status == 0, said
    record = found(branch.store)
    assert record["first"] == [{"commit": branch.commits[WRONG], "subject": f"mm: change {WRONG}"}]
    assert record["before"]["commit"] == branch.commits[WRONG - 1]
    assert record["steps"] == len(record["asked"]) - 2 <= 4 and record["builds"] <= 1
    assert record["about"]["words"][:3] == ["bisect", branch.commits[0][:12], branch.commits[8][:12]]
    assert f"first with {branch.commits[WRONG]}\n  mm: change {WRONG}\n" in said.out
    assert {"what": "contiguous pages", "before": "100.0 %", "after": "0.0 %"} in record["verdicts"]
    assert f"{'  contiguous pages':28} {'100.0 %':>24} {'0.0 %':>24}" in said.out.splitlines()
    shown = said.out.partition("the maps of tour at anon forward, VMAs that differ\n")[2].splitlines()
    assert shown[1:4] == [
        "rw-p [heap]",
        " 64 KiB, 64 contiguous, orders 4 x1              | 64 KiB, 0 contiguous, orders 4 x1",
        " fffff7800000 [================]                 | fffff7800000 (----------------)",
    ]
    assert Path("out/bisect.txt").read_text() == said.out
    assert json.loads(Path("out/bisect.json").read_text()) == record
    assert branch.tree.state() == before
    clone = branch.place.parent / "clone"
    subprocess.run(["git", "clone", "--quiet", branch.place, clone], check=True)
    git = ["git", "-C", str(clone), "bisect"]
    subprocess.run([*git, "replay", Path("out/bisect.log").absolute()], check=True, capture_output=True)
    log = subprocess.run([*git, "log"], check=True, capture_output=True, text=True).stdout
    assert f"# first bad commit: [{branch.commits[WRONG]}]" in log and "no-checkout" not in log
    # The other way round: the commit with which it ends.
    said = run("main~8", "main", "--when", f"not {when}", "--only", "anon")
    assert said.status == 0 and f"no longer with {branch.commits[WRONG]}" in said.out


def vma(is_folded: bool) -> dict[str, Any]:
    """A VMA of a report: one block."""
    row = {"va": "0x0000fffff7800000", "end": "0x0000fffff7810000", "blocks": 1}
    row |= {"state": "folded" if is_folded else "eligible", "pages": ("=" if is_folded else "-") * 16}
    return {
        "permissions": "rw-p", "name": "[heap]", "mapped": 65536, "contiguous": 65536 * is_folded,
        "orders": {"4": 1}, "rows": [row],
    }  # fmt: skip


def test_maps_that_differ_in_a_mark_alone() -> None:
    """A block that is broken has the same pages, and another frame; the checkpoint is that of the error."""
    finding = {"rule": "L6", "severity": "error", "message": "m"}
    good, bad = vma(True), vma(True)
    bad["rows"][0]["state"] = "broken"
    pages, named = {"pages": 16}, {"name": "tour"}
    before, after = (
        {"steps": [{"workload": "anon", "step": name, "processes": [
            {"process": named, "entries": pages, "findings": found if name == "b" else [], "vmas": [of]}
        ]} for name, of in (("a", good), ("b", one))]}
        for one, found in ((good, []), (bad, [finding]))
    )  # fmt: skip
    at = side.place(before, after)
    assert at == ("anon b", "tour")
    assert (
        side.lines(before, after, at)[2]
        == " fffff7800000 [================]                 | fffff7800000 !================!"
    )
    assert side.place(before, before) is None


def test_commits_that_give_no_answer_are_said(branch: Branch, run: Callable[..., Said]) -> None:
    """The fourth does not build, and it is the first with the fifth, or the fourth: both are named, status 2."""
    for number in (0, 2, 3, 5, 6, 8):
        branch.judged(number, "status == 1", status=int(number >= 5))
    said = run("main~8", "main", "--when", "status == 1", "--only", "anon")
    assert said.status == 2, said
    record = found(branch.store)
    assert {each["commit"] for each in record["first"]} == set(branch.commits[4:6])
    assert "first with one of 2 commits, for some gave no answer:" in said.out
    assert "      its kernel does not build: mm/memory.c:7:1: error: expected a kernel; " in said.out


def test_a_verdict_that_is_not_whole(branch: Branch, run: Callable[..., Said]) -> None:
    """What it found holds; what it did not find makes no answer, unless the verdict is taken as it is."""
    basis = {"in_force": ["L4"]}
    step = {"workload": "anon", "step": "a", "processes": [], "basis": basis}
    for number in (0, 1, 2, 3, 5, 6, 7, 8):
        is_bad = number >= WRONG
        report = {"steps": [step], "totals": {"not_judged": int(number in (5, 8))}}
        branch.judged(number, 'rule("L4")', report=report, status=int(is_bad), rules={"L4": 1} if is_bad else {})
    words = ["main~8", "main", "--when", 'rule("L4")', "--only", "anon"]
    said = run(*words)
    assert said.status == 2 and "first with one of 3 commits, for some gave no answer:" in said.out
    assert "its verdict does not tell, for a part that matters was not judged (9 checkpoints)" in said.out
    said = run(*words, "--unjudged", "take")
    assert said.status == 0 and f"first with {branch.commits[WRONG]}" in said.out


def test_a_flaky_answer_is_asked_again(branch: Branch, run: Callable[..., Said]) -> None:
    """Once of three times is enough, and that they disagree is said."""
    for number in (0, 1, 2, 3, 5, 6, 7, 8):
        for repeat in range(3):
            is_bad = number >= WRONG and (repeat == 1 or number == 8)
            branch.judged(number, "status == 1", repeat=repeat, status=int(is_bad))
    said = run("main~8", "main", "--when", "status == 1", "--only", "anon", "--repeat", 3)
    assert said.status == 0, said
    record = found(branch.store)
    assert record["first"][0]["commit"] == branch.commits[WRONG]
    asked = {each["commit"]: each for each in record["asked"]}
    assert asked[branch.commits[WRONG]]["said"] == [False, True, False]
    assert f"the answers for {branch.commits[WRONG][:12]} disagree: yes 1 of 3 times" in said.out.splitlines()
    assert "yes (1/3)" in said.out
    # Asked once, it is not seen.
    assert "does not hold" not in said.err and len({cell for each in asked.values() for cell in each["cells"]}) > 8


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_ended_it_leaves_the_tree_as_it_was(how: signal.Signals, branch: Branch, tmp_path: Path) -> None:
    """While git bisect waits for a build: git and the build end too, and the next one goes on."""
    slow = {"Makefile": "allnoconfig:\n\tcp $(KCONFIG_ALLCONFIG) $(O)/.config\nImage:\n\tsleep 600\n"}
    commits = [branch.commits[8], branch.tree.commit("slow", slow), branch.tree.commit("last", {"Makefile": "#\n"})]
    branch.commits = commits
    for number in (0, 2):
        branch.judged(number, "status == 1", status=int(number == 2))
    before = branch.tree.state()
    words = [sys.executable, "-m", "folioscope.campaign", "bisect", commits[0], commits[2], "--when", "status == 1"]
    words += ["--tree", str(branch.place), "--store", "store", "--out", "out", "--only", "anon", "--machine", "tcg"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "plugin"), "FOLIOSCOPE": str(COMMAND)}
    environment |= {command.MARK: str(tmp_path)}

    def names() -> set[str]:
        return {command.program(pid) for pid in command.marked(str(tmp_path))}

    with subprocess.Popen(words, env=environment, cwd=tmp_path, stderr=subprocess.PIPE) as child:
        assert wait_until(lambda: {"sleep", "git"} <= names(), 60 * SLOWER), names()
        child.send_signal(how)
        assert child.wait(20 * SLOWER) == (-how if how == signal.SIGKILL else 130)
    assert wait_until(lambda: not command.marked(str(tmp_path)), 20), names()
    assert branch.tree.state() == before
    with Tree(branch.place).own("4k") as own:
        assert not (own.tree / ".git" / "BISECT_LOG").exists()


def prebuilt(branch: Branch, tmp_path: Path) -> None:
    """Kernels of all commits but the fourth: from the sixth on they make no block contiguous."""
    kernel = ROOT / "out" / "kernel-4k"
    wrong = tmp_path / "Image"
    assert edit(kernel, "contpte_set_ptes", sets_contiguous, never_contiguous, wrong) == 1
    for number, commit in enumerate(branch.commits):
        if number != 4:
            branch.tree.prebuilt(commit, wrong if number >= WRONG else kernel / "Image")


@pytest.mark.qemu
def test_a_bisect_of_eight_commits(branch: Branch, run: Callable[..., Said], tmp_path: Path) -> None:
    """By a rule; then by the map's coverage, for which no guest has to run again; then by a test of the user's own."""
    prebuilt(branch, tmp_path)
    before = branch.tree.state()
    words = ["main~8", "main", "--only", "anon", "--jobs", 1]
    said = run(*words, "--when", 'rule("C1") or rule("C2")')
    assert said.status == 0, said
    record = found(branch.store)
    assert [each["commit"] for each in record["first"]] == [branch.commits[WRONG]]
    assert record["builds"] <= 1 and record["steps"] <= 4
    assert any(each["what"].startswith("rule C") and each["before"] == "-" for each in record["verdicts"])
    assert record["map"]["process"] and any("[====" in line for line in record["map"]["lines"])
    again = run(*words, "--when", "coverage < 0.01 and order[4] > 0")
    assert again.status == 0 and f"first with {branch.commits[WRONG]}" in again.out
    assert found_rules(record) == {"C1"} and "C1 in " + branch.commits[WRONG][:12] in said.out
    (second,) = (
        each for each in branch.store.records("bisect").values() if each["about"]["when"] != record["about"]["when"]
    )
    assert second["ran"] == 0 < record["ran"]
    # But for the commit that does not build.
    assert again.err.count("1 cells, 0 of them with a result") == 1
    (tmp_path / "test_mine.py").write_text(
        "def test_a_block_folds(folioscope_process):\n"
        "    area = folioscope_process.blocks(1)\n"
        "    area.write()\n"
        "    area.must_fold()\n"
        "    folioscope_process.look()\n"
    )
    own = run("main~3", "main", "--jobs", 1, "--when", "test_mine.py")
    assert own.status == 0 and f"first with {branch.commits[WRONG]}" in own.out
    assert "the maps do not differ, or are in no report" in own.out
    assert branch.tree.state() == before
