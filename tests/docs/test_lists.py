# SPDX-License-Identifier: GPL-2.0-only
"""Lists in documents that the program, the Makefile or another table has too: rules, variables, wrong kernels."""

from __future__ import annotations

import inspect
import json
import re

from folioscope import Area, Guest, Process

from command import ROOT, folioscope
from own_qemu import LEFT_OUT


def rules(text: str) -> set[str]:
    """The ids that a text names: `L11, C1 to C8`."""
    found: set[str] = set()
    for family, first, last in re.findall(r"\b([A-Z])(\d+)(?:\s+to\s+[A-Z](\d+))?\b", text):
        found |= {f"{family}{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def document(name: str) -> str:
    """The text of one."""
    return (ROOT / name).read_text()


def test_rules_that_are_not_asked() -> None:
    """Of a core that no workload goes with, as it is kept: the verdict's list, and that of the page of statuses."""
    kept = json.loads((ROOT / "tests" / "kept_cores" / "several.json").read_text())
    out = {it["rule"] for it in kept["steps"][0]["basis"]["not_in_force"] if it["because"] == "not-asked"}
    stated = re.search(r"^- `not-asked`:.*?\n(?=- |\n)", document("docs/exit-status.md"), re.M | re.S)
    assert stated and rules(stated[0]) == out
    (shown,) = re.findall(r"^not asked: .*", document("docs/how-to/attach.md"), re.M)
    assert rules(shown) == out


def test_rules_that_need_what_a_process_did() -> None:
    """The note of `attach check` has each rule with expectations among its needs, and L6's half. L5 does without."""
    listed = re.findall(r"^([A-Z]\d+) .*?^ +needs: (.*?)\n(?= *[a-z ]+:|\n)", folioscope("rules").ok(), re.M | re.S)
    needing = {rule for rule, needs in listed if "expectations" in needs}
    assert len(listed) > 40 and rules(LEFT_OUT) == needing - {"L5"}
    assert LEFT_OUT in document("docs/how-to/attach.md")


def test_variables_of_make() -> None:
    """Each that the Makefile has a default for, or its help names, has a row."""
    makefile = document("Makefile")
    named = {*re.findall(r"^([A-Z_]+) \?=", makefile, re.M), *re.findall(r"\b([A-Z_]{2,})=", makefile)}
    rows = re.findall(r"^\| ((?:`[A-Z_]+` ?)+)\|", document("docs/environment.md"), re.M)
    have = {name for row in rows for name in re.findall(r"[A-Z_]+", row)}
    assert len(named) > 15 and named - have == set()


#: Methods that are for the plugin itself.
FOR_THE_PLUGIN = {"call", "defaults", "reset", "op", "state"}


def test_methods_of_guest_process_and_area() -> None:
    """The table of methods has all, and no other; those that state something have a table of their own."""
    text = document("docs/testing.md")
    rows = {name: set(re.findall(r"`(\w+)`", row)) for name, row in re.findall(r"^\| `(\w+)` \| (`.*)\|$", text, re.M)}
    stated = re.findall(r"^\| (`\w+\(.*?) \|", text, re.M)
    rows["Area"] |= {name for row in stated for name in re.findall(r"`(\w+)\(", row)}
    for kind in (Guest, Process, Area):
        methods = {name for name, value in inspect.getmembers(kind, callable) if not name.startswith("_")}
        assert rows[kind.__name__] == methods - FOR_THE_PLUGIN


def test_the_glossary_is_sorted() -> None:
    """Each word once; one with two meanings says of what each is."""
    words = re.findall(r"^\| ([a-z].*?) \|", document("docs/glossary.md"), re.M)[1:]
    assert len(words) > 45 and words == sorted(set(words), key=lambda word: re.sub("[^a-z ]", "", word))
    plain = [word.partition(" (")[0] for word in words]
    assert all(" (" in word for word, name in zip(words, plain, strict=True) if plain.count(name) > 1)


def test_the_number_of_wrong_kernels() -> None:
    """It is near that of the rows: those that rules name, and all with those that tests name."""
    rows = re.findall(r"^\| \d+ \|.*", document("tests/mutants/README.md"), re.M)
    by_tests = [row for row in rows if re.search(r"\| test_\w+\.py: [^|]*\|$", row)]
    (readme,) = re.findall(r"tried by (\d+) \[wrong kernels\]", document("README.md"))
    (page,) = re.findall(r"some (\d+) small wrong edits", document("docs/how-to/run-and-test.md"))
    assert 0.95 < int(readme) / (len(rows) - len(by_tests)) < 1.05 and 0.95 < int(page) / len(rows) < 1.05
