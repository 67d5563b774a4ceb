# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope series`: a range, an mbox and a Maildir in, a row for each patch out, and the user's tree untouched."""

from __future__ import annotations

import gzip
import hashlib
import json
import mailbox
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import kcidb_io
import pytest
from folioscope.campaign import __main__, mail
from folioscope.campaign.errors import Refused
from folioscope.campaign.kernels import NOT_BUILT
from folioscope.campaign.patches import SCHEMA, Error, Patch, Row, as_json, errors, status, text
from folioscope.campaign.result import Result
from folioscope.campaign.series import of_mail
from folioscope.campaign.store import Store
from folioscope.campaign.trees import Tree

import command
from command import COMMAND, ROOT, SLOWER, wait_until
from kernel_trees import BROKEN, SmallTree
from laboratory import Said, in_process


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallTree:
    """A small tree with a branch of three patches, the second of which does not build."""
    made = SmallTree(tmp_path)
    monkeypatch.setenv("FOLIOSCOPE_CACHE", str(made.cache))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    made.git("checkout", "--quiet", "-b", "topic")
    made.commit("mm: change a line", made.line(10, "another line"))
    return made


@pytest.fixture
def mbox(tree: SmallTree, tmp_path: Path) -> Path:
    """The branch as mail, with a cover letter; the tree is at its base again."""
    tree.commit("mm: break the build", {"Makefile": BROKEN})
    tree.commit("mm: mend it", {"Makefile": "# no kernel\n"})
    words = ["format-patch", "--stdout", "--cover-letter", "--base=main", "-v2", "main..topic"]
    sent = tree.git(*words).replace("*** SUBJECT HERE ***", "mm: three changes").replace("*** BLURB HERE ***", "Why.")
    tree.git("checkout", "--quiet", "main")
    (tmp_path / "series.mbox").write_text(f"{sent}\n\n")
    return tmp_path / "series.mbox"


def messages(mbox: Path) -> list[bytes]:
    """The messages of an mbox."""
    box = mailbox.mbox(mbox)
    return [b"From a@b Thu Jan  1 00:00:00 2026\n" + box.get_bytes(key) + b"\n" for key in box.keys()]  # noqa: SIM118


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Said]:
    """The command in this process."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: in_process(__main__.main, capsys, monkeypatch, "campaign", *words)


def test_an_mbox_is_read(mbox: Path, tmp_path: Path) -> None:
    """Cover letter, numbers and base; in any order, with answers and an older version among them; gzip, Maildir."""
    found = mail.read(mbox)
    assert [patch.subject for patch in found.patches] == ["mm: change a line", "mm: break the build", "mm: mend it"]
    assert found.cover and found.cover.subject == "mm: three changes" and "Why." in found.cover.text
    assert re.fullmatch("[0-9a-f]{40}", found.base) and not found.notes
    cover, one, two, three = messages(mbox)
    answer = b"From a@b Thu Jan  1 00:00:00 2026\nSubject: Re: [PATCH v2 1/3] mm: change\n\n> diff --git a/b c/d\n\n"
    older = one.replace(b"PATCH v2 1/3", b"PATCH 1/3").replace(b"another line", b"a line of v1")
    shuffled = b"".join([three, answer, older, cover, two, one, one])
    (tmp_path / "thread.mbox.gz").write_bytes(gzip.compress(shuffled))
    thread = mail.read(tmp_path / "thread.mbox.gz")
    # The same message twice is once there only where it has an ID.
    assert [patch.subject for patch in thread.patches] == [patch.subject for patch in found.patches]
    assert thread.notes == ["version 1 of the series is left out; version 2 is there"]
    box = mailbox.Maildir(tmp_path / "Maildir")
    for each in (three, cover, one, two):
        box.add(each.partition(b"\n")[2])
    assert mail.is_mail(tmp_path / "Maildir")
    assert [patch.number for patch in mail.read(tmp_path / "Maildir").patches] == [1, 2, 3]


def test_bad_mail_is_refused(mbox: Path, tmp_path: Path) -> None:
    """The number of a missing patch is said."""
    cover, one, two, three = messages(mbox)
    for parts, wanted in (
        ([cover, one, three], "lacks patch 2 of 3; fetch the whole series"),
        ([one], "lacks patches 2, 3 of 3;"),
        ([cover], "has no patch: expected messages with [PATCH] in the subject"),
        ([one, two, two.replace(b"Makefile", b"Makefile2"), three], "has patch 2 of 3 twice"),
    ):
        (tmp_path / "bad").write_bytes(b"".join(parts))
        with pytest.raises(Refused, match=re.escape(wanted)):
            mail.read(tmp_path / "bad")


def test_patches_are_applied_the_same_each_time(tree: SmallTree, mbox: Path) -> None:
    """In a repository of its own; the commits have the same names, so that kernels that are built are found again."""
    before = tree.state()
    with Tree(tree.place).own("4k") as own:
        once = of_mail(Tree(tree.place), own, mbox, None)
        again = of_mail(Tree(tree.place), own, mbox, "main")
        names = own.kernel("k", once.patches[0].commit).key
    assert [patch.commit for patch in once.patches] == [patch.commit for patch in again.patches]
    assert once.base == tree.base and once.notes == [f"the base is {tree.base[:12]}, which the series names"]
    assert once.cover.startswith("mm: three changes") and names.startswith("4k-")
    assert tree.state() == before


BAD = [
    (["main..main"], "the range main..main has no commit; write it as BASE..TIP, the older one first"),
    (["topic"], "expected a range BASE..TIP, an mbox or a Maildir and found 'topic', which is no file; for the"),
    (["main..none"], "has no range 'main..none'; write it as BASE..TIP, of commits that it has"),
    (["main..topic", "--base", "v9"], "has no commit 'v9'; check the name, or fetch it"),
    (["cache"], "cache is no Maildir: it has neither cur nor new; name an mbox, a Maildir or a range"),
    (["main..merged"], "; choose a range of patches only"),
]


@pytest.mark.parametrize(("words", "wanted"), BAD)
def test_bad_words_are_refused(words: list[str], wanted: str, tree: SmallTree, run: Callable[..., Said]) -> None:
    """One sentence with what to do, status 2, and the tree as it was."""
    tree.git("checkout", "--quiet", "-b", "merged", "main")
    tree.git("merge", "--quiet", "--no-ff", "-m", "a merge", "topic")
    tree.git("checkout", "--quiet", "main")
    tree.cache.mkdir()
    before = tree.state()
    ended = run("series", *words, "--tree", tree.place, "--store", "store")
    assert (ended.status, ended.out) == (2, ""), ended
    (line,) = ended.err.splitlines()
    assert wanted in line
    assert tree.state() == before


def test_a_tree_that_is_dirty_or_none_is_refused(tree: SmallTree, run: Callable[..., Said], tmp_path: Path) -> None:
    """Its changes would not be judged."""
    (tree.place / "Makefile").write_text("# changed\n")
    said = run("series", "main..topic", "--tree", tree.place)
    assert said.status == 2 and "has changes that no commit has (M Makefile); commit or stash them" in said.err
    for place, wanted in ((tmp_path / "none", "found no directory"), (tmp_path, "found none: fatal: not a git rep")):
        said = run("series", "main..topic", "--tree", place)
        assert said.status == 2 and f"expected a git tree of the kernel at {place} (--tree) and {wanted}" in said.err


def test_a_patch_that_does_not_apply(tree: SmallTree, mbox: Path, run: Callable[..., Said]) -> None:
    """File and hunk are said; what is applied before it is left in no tree."""
    tree.commit("another base", tree.line(11, "moved on"))
    tree.commit("and more", tree.line(10, "something else"))
    before = tree.state()
    said = run("series", mbox, "--tree", tree.place, "--base", "HEAD", "--store", "store")
    head = tree.git("rev-parse", "HEAD")[:12]
    wanted = f"patch 1 of 3 (mm: change a line) does not apply on {head}: mm/memory.c, the hunk at line 7; name the"
    assert said.status == 2 and wanted in said.err
    assert tree.state() == before


def result(rules: dict[str, int], status_: int, **figures: float) -> Result:
    """What came of a tour."""
    outcome = {0: "pass", 1: "fail", 2: "unjudged"}[status_]
    return Result("k", {}, outcome, status_, 3.0, f"9 checkpoints, 80 entries: {len(rules)} errors", rules, figures)


def test_an_error_is_put_down_to_the_first_patch_that_has_it() -> None:
    """Information is none; what the base has is not the series'; a kernel that does not build is a row."""
    costs = result({}, 0, **{"sysfs instructions": 812.0, "sysfs faults": 4096.0})
    error = "mm/x.c:1:1: error: no"
    rows = [
        Row(Patch(0, "base", "b"), "k0", "c0", result({"L4": 2, "I-eligible": 9}, 1, coverage=0.5), costs, "", None),
        Row(Patch(1, "mm: one", "1"), "k1", "c1", result({"L4": 2}, 1, coverage=0.25), costs, "", []),
        Row(Patch(2, "mm: two", "2"), "k2", "c2", None, None, f"{NOT_BUILT}: {error}", ["a.c: warning: w"]),
        Row(Patch(3, "mm: three", "3"), "k3", "c3", result({"L4": 2, "C1": 1}, 1), None, "", []),
        Row(Patch(4, "mm: four", "4"), "k4", "c4", result({"C1": 3}, 1), costs, "", []),
    ]
    assert errors(rows) == [Error("L4", 0, [""], False, []), Error("C1", 3, [""], False, [2])]
    shown = list(text(rows, "4k"))
    assert "C1: 1 error, first with 0003 mm: three, or with what has no verdict before it: 0002 mm: two" in shown
    assert "L4: 2 errors, in the base already" in shown
    assert "new warning with 0002 mm: two: a.c: warning: w" in shown
    assert shown[3].split()[3:12] == ["25.0", "%", "812", "4096", "-", "-", "0", "6s", "1"]
    assert shown[4].endswith(f"does not build: {error}")
    assert len({line.index("tour") for line in shown[:1]} | {shown[3].index("1 errors (status 1)")}) == 1
    assert status(rows) == 1 and status(rows[:2]) == 0 and status([rows[0], rows[2]]) == 1
    # The same rule elsewhere is another error: what the base has hides none of a patch.
    two, three = frozenset({"fork child"}), frozenset({"fork child", "vma read-only"})
    at = [replace(rows[0], steps={"L4": two}), replace(rows[1], steps={"L4": three})]
    assert errors(at)[1:] == [Error("L4", 1, ["vma read-only"], True, [])] and status(at) == 1
    assert "L4: 2 errors, at 1 more checkpoint first with 0001 mm: one" in list(text(at, "4k"))
    # Without a verdict on the base it may be the base's.
    unknown = [replace(rows[0], tour=None, why="the guest was lost"), rows[1]]
    assert errors(unknown) == [Error("L4", 1, [""], False, [0])] and status(unknown) == 2
    lost = replace(rows[1], tour=None, why="the guest was lost")
    assert status([rows[0], lost]) == 2 and list(text([lost], "4k"))[2].endswith("lost: the guest was lost")


@pytest.mark.qemu
def test_an_mbox_of_three_patches(tree: SmallTree, mbox: Path, run: Callable[..., Said]) -> None:
    """Kernels that are prebuilt, but one that does not build; then again from the store, and by the range."""
    with Tree(tree.place).own("4k") as own:
        applied = of_mail(Tree(tree.place), own, mbox, None)
        ids = [applied.base, *(patch.commit for patch in applied.patches)]
        tree.git("fetch", "--quiet", str(own.tree), ids[-1])
    tree.git("branch", "sent", ids[-1])
    warnings = ["a.c: warning: old\n", "a.c: warning: old\nb.c: warning: new\n", "", "a.c: warning: old\n"]
    for commit, warned in zip(ids, warnings, strict=True):
        if commit != ids[2]:
            tree.prebuilt(commit, ROOT / "out/kernel-4k/Image", warned)
    before = tree.state()
    words = ["--tree", tree.place, "--store", "store", "--only", "anon", "--machine", "tcg", "--jobs", "1"]
    words += ["--out", "out", "--no-costs"]
    said = run("series", mbox, *words, "--kcidb", "kcidb.json")
    assert said.status == 1, said
    sent = json.loads(Path("kcidb.json").read_text())
    kcidb_io.schema.LATEST.validate(sent)
    assert [each["status"] for each in sent["builds"]] == ["PASS", "PASS", "FAIL", "PASS"]
    assert {each["git_commit_hash"] for each in sent["checkouts"]} == {tree.base}
    patches = "".join(f"{hashlib.sha256(each.raw).hexdigest()}\n" for each in mail.read(mbox).patches[:2])
    assert sent["checkouts"][2]["patchset_hash"] == hashlib.sha256(patches.encode()).hexdigest()
    assert sent["checkouts"][0]["patchset_hash"] == ""
    table = said.out.splitlines()
    assert [line.split()[0] for line in table[2:6]] == ["base", "0001", "0002", "0003"]
    assert all(line.endswith("0 errors, 0 remarks, 0 not judged") for line in (table[2], table[3], table[5]))
    assert "does not build: mm/memory.c:7:1: error: expected a kernel; kernel 4k: could not configure" in table[4]
    assert re.fullmatch(r"base +\d+\.\d % +(- +){5}\d+s  .*", table[2]), table[2]
    assert re.fullmatch(r"0001 mm: change a line +\d+\.\d % +(- +){4}1 +\d+s  .*", table[3]), table[3]
    assert table[7] == "new warning with 0001 mm: change a line: b.c: warning: new"
    assert tree.state() == before
    store = Store("store")
    (record,) = store.records().values()
    jsonschema.validate(record, SCHEMA)
    assert [row["state"] for row in record["rows"]] == ["pass", "pass", "not built", "pass"]
    assert record["cover"].startswith("mm: three changes\n")
    assert record["about"]["words"][:2] == ["series", str(mbox)]
    again = run("series", "main..sent", *words)
    assert "4 cells, 3 of them with a result" in again.err
    (record,) = store.records().values()
    assert record["about"]["words"][:2] == ["series", f"{ids[1][:12]}^..{ids[3][:12]}"]
    assert re.sub(" {2,}", " ", again.out) == re.sub(" {2,}", " ", said.out)
    assert Path("out/series.txt").read_text() == again.out
    assert json.loads(Path("out/matrix.json").read_text())["totals"] == {"pass": 3, "lost": 1}


@pytest.mark.qemu
def test_without_an_option_that_the_series_adds(tree: SmallTree, tmp_path: Path, run: Callable[..., Said]) -> None:
    """A row more for each; one whose kernel is that of the last patch all the same is not judged; what is built is
    listed; and what has a verdict can be judged again."""
    tree.git("checkout", "--quiet", "topic")
    names = ("ADDED", "ADDED_MENU", "SELECTED", "UNSET")
    added = "".join(f'{"menu" * ("MENU" in name)}config {name}\n\tbool "A question"\n\n' for name in names)
    files = {"mm/Kconfig": f"{added}config HIDDEN\n\tbool\n", "mm/memory.c": "config NONE\n"}
    tip = tree.commit("mm: add options", files)
    tree.git("checkout", "--quiet", "main")
    words = ["series", "main..topic", "--tree", tree.place, "--off"]
    image = ROOT / "out/kernel-4k/Image"
    tree.prebuilt(tree.base, image)
    listed = run(*words, "--list")
    place = f"{tree.cache}/kernels/{tree.key(tree.base)}/Image"
    assert listed.status == 0 and listed.out.splitlines() == [
        f"0\tbase\t{place}",
        "1\t0001 mm: change a line\t-",
        "2\t0002 mm: add options\t-",
        *(f"{number}\tall, without {name}\t-" for number, name in enumerate(names, 3)),
    ]
    tree.prebuilt(tree.git("rev-parse", "topic^"), image)
    tree.prebuilt(tip, image, "a.c: warning: of the last patch\n", options=names[:3])
    for name in names:
        fragment = tmp_path / name
        fragment.write_text(f"\n# CONFIG_{name} is not set\n")
        warned = "b.c: warning: alone\n" if name == "ADDED_MENU" else "a.c: warning: of the last patch\n"
        tree.prebuilt(tip, image, warned, fragment, ["SELECTED"])
    words += ["--store", "store", "--only", "anon", "--machine", "tcg", "--jobs", "1", "--out", "out", "--no-costs"]
    said = run(*words)
    assert said.status == 2, said
    ends = {name: line for name in names for line in said.out.splitlines() if line.startswith(f"all, without {name} ")}
    good = r" +\d+\.\d %  .* \d+s .* 0 errors, 0 remarks, 0 not judged"
    assert re.search(f"ADDED{good}$", ends["ADDED"]) and re.search(f"ADDED_MENU{good}$", ends["ADDED_MENU"])
    assert ends["SELECTED"].endswith("; not judged without it: SELECTED stays on, as another option selects it")
    off = "UNSET is off in the last patch's kernel too; --config switches it on"
    assert ends["UNSET"].endswith(f"; not judged without it: {off}")
    assert "new warning without ADDED_MENU: b.c: warning: alone" in said.out
    store = Store("store")
    (record,) = store.records().values()
    jsonschema.validate(record, SCHEMA)
    assert [row.get("without") for row in record["rows"]] == [None, None, None, *names]
    assert [row["state"] for row in record["rows"]] == ["pass"] * 5 + ["unjudged"] * 2
    answer = run("reply", "store").out
    assert answer.startswith("2 patches on top of ") and "2/2 mm: add options\n" in answer
    assert "\nall, without ADDED\n" in answer and not re.search("^3/", answer, re.M)
    assert "7 cells, 7 of them with a result" in run(*words).err
    # What is judged again and is lost has no verdict, though it had one.
    (tree.cache / "kernels" / tree.key(tip) / "Image").unlink()
    (tree.cache / "kernels" / tree.key(tip) / "Image").write_bytes(b"no kernel")
    again = run(*words, "--again")
    assert "7 cells, 0 of them with a result" in again.err and again.status == 2
    (lost,) = (line for line in again.out.splitlines() if line.startswith("0002 "))
    assert "  lost: " in lost, again


@pytest.mark.qemu
@pytest.mark.long
def test_what_a_fault_costs(tree: SmallTree, run: Callable[..., Said]) -> None:
    """The pinned kernel has both policies; with the variable one faults are few, for their folios are large."""
    tip = tree.git("rev-parse", "topic")
    for commit in (tree.base, tip):
        tree.prebuilt(commit, ROOT / "out/kernel-4k/Image")
    tree.git("checkout", "--quiet", "main")
    words = ["--tree", tree.place, "--store", "store", "--only", "anon", "--machine", "tcg", "--out", "out"]
    said = run("series", "main..topic", *words)
    assert said.status == 0, said
    (record,) = Store("store").records().values()
    for row in record["rows"]:
        costs = row["costs"]
        assert costs["sysfs faults"] == 4096 > 16 * costs["variable faults"] > 0
        assert costs["sysfs instructions"] > costs["variable instructions"] > 0
    assert record["rows"][0]["costs"] == record["rows"][1]["costs"]


def test_killed_it_leaves_the_tree_as_it_was(tree: SmallTree, tmp_path: Path) -> None:
    """While it builds: the build ends too, and the next one begins anew."""
    tree.git("checkout", "--quiet", "main")
    tree.commit("slow", {"Makefile": "allnoconfig:\n\tcp $(KCONFIG_ALLCONFIG) $(O)/.config\nImage:\n\tsleep 600\n"})
    before = tree.state()
    words = [sys.executable, "-m", "folioscope.campaign", "series", "HEAD~..HEAD", "--tree", str(tree.place)]
    words += ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "plugin"), "FOLIOSCOPE": str(COMMAND)}
    environment |= {command.MARK: str(tmp_path)}

    def sleeps() -> bool:
        return any(command.program(pid) == "sleep" for pid in command.marked(str(tmp_path)))

    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as child:
        assert wait_until(sleeps, 60 * SLOWER)
        second = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, timeout=60 * SLOWER
        )
        assert second.returncode == 2 and "another series or bisect works with" in second.stderr
        child.kill()
    assert wait_until(lambda: not command.marked(str(tmp_path)), 20)
    assert tree.state() == before
    with Tree(tree.place).own("4k") as own:
        own.checkout(tree.base)
        assert (own.tree / "Makefile").read_text() == "# no kernel\n"
    assert tree.state() == before


def test_a_reply_is_text_for_a_mail(tmp_path: Path, run: Callable[..., Said]) -> None:
    """At most 70 columns; each patch, each finding with its words and the patch that it came with, and the command."""
    store = Store(str(tmp_path / "store")).open()
    message = "entry 0x00e800007aa91f43 has the Contiguous bit and its neighbour has not, " + "which is long " * 9
    finding = {"rule": "A4", "message": message}
    step = {"workload": "anon", "step": "forward", "processes": [{"findings": [finding]}]}
    (tmp_path / "report.json").write_text(json.dumps({"steps": [step]}))
    files = {"report.json": store.put(tmp_path / "report.json")}
    store.name(replace(result({"A4": 2}, 1), key="c2" * 10, files=files))
    costs = [result({}, 0, **{"sysfs instructions": value, "sysfs faults": 4096.0}) for value in (812.0, 900.0)]
    subject = "mm: change the order of anonymous folios that a fault gets, and say why it was chosen in a long subject"
    rows = [
        Row(Patch(0, "base", "b" * 40), "k0", "c0" * 10, result({}, 0, coverage=0.5), costs[0], "", None),
        Row(Patch(1, "mm: one", "1" * 40), "k1", "c1" * 10, None, None, f"{NOT_BUILT}: x.c:1:1: error: no", []),
        Row(
            Patch(2, subject, "2" * 40),
            "k2",
            "c2" * 10,
            result({"A4": 2}, 1, coverage=0.25),
            costs[1],
            "",
            ["w.c: w"],
            {"A4": frozenset({"anon forward"})},
        ),
    ]
    about = {"base": "b" * 40, "granule": "4k", "cpu": "max", "only": "", "seconds": 1.0}
    words = ["series", "a series.mbox", "--tree", "/home/a.developer/src/linux", "--base", "v6.12"]
    for key, time, cover in (("aa", 1.0, "older"), ("bb", 2.0, "mm: two changes\n\nWhy.")):
        told = as_json(rows, cover, {**about, "time": time, "words": words})
        jsonschema.validate(told, SCHEMA)
        store.record(key, told)
    said = run("reply", tmp_path / "store")
    lines = said.out.splitlines()
    assert said.status == 0 and max(map(len, lines)) <= 70
    assert lines[0] == "[mm: two changes]" and lines[2].startswith("2 patches on top of bbbbbbbbbbbb (4k pages)")
    whole = " ".join(said.out.split())
    assert f"2/2 {subject}" in whole and " ".join(message.split()) in whole
    assert "A4, first with patch 2 or with patch 1, without a verdict, 2 times (anon forward):" in whole
    assert "25.0 % of pages contiguous (base 50.0 %); sysfs instructions 900 (base 812); new warning: w.c: w" in whole
    assert "does not build: x.c:1:1: error: no" in whole and "sysfs faults 4096 (base" not in whole
    command_ = said.out.partition("checkout of folioscope:\n\n")[2].replace("\\\n", "")
    assert shlex.split(command_) == ["out/folioscope", *words]
    assert run("reply", tmp_path / "store", "--series", "aa").out.startswith("[older]")
    for bad, wanted in ((["--series", "cc"], "there is no series 'cc' in the store; there are aa, bb"),):
        refused = run("reply", tmp_path / "store", *bad)
        assert refused.status == 2 and wanted in refused.err
    Store(str(tmp_path / "empty")).open()
    refused = run("reply", tmp_path / "empty")
    assert refused.status == 2 and "found none; run folioscope series first" in refused.err
