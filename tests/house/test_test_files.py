# SPDX-License-Identifier: GPL-2.0-only
"""Where tests lie: in the folders that tests/README.md names, under names that no other module has; and their skips."""

from __future__ import annotations

import re
import tomllib
from collections import Counter

import pytest

from command import ROOT
from skips import LIST

TESTS = ROOT / "tests"
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \|", re.MULTILINE)


def test_each_module_lies_in_a_folder_of_the_map() -> None:
    """`tests/README.md` has a row for each folder with tests, and for no other."""
    modules = [path for path in TESTS.rglob("test_*.py") if "plugin" not in path.relative_to(TESTS).parts]
    assert modules
    mapped = {name for row in ROW.findall((TESTS / "README.md").read_text()) for name in re.findall(r"\w+", row)}
    assert {path.parent.relative_to(TESTS).as_posix() for path in modules} == mapped
    twice = [name for name, count in Counter(path.name for path in modules).items() if count > 1]
    assert not twice, f"expected each name once, as pytest.sh finds a module by it, and found {twice} twice"


@pytest.mark.parametrize(
    ("helper", "fixture", "reason"),
    [
        ("recorder", "plugin", "the recorder's plugin needs a newer Rust"),
        ("laboratory", "bench", "the counter's plugin needs a newer Rust"),
    ],
)
def test_a_test_of_a_plugin_may_be_left_out(helper: str, fixture: str, reason: str) -> None:
    """By an old Rust it is skipped, so the list of skips has each module that takes the fixture."""
    entries = tomllib.loads(LIST.read_text())["skip"]
    allowed = [re.compile(entry["test"]) for entry in entries if re.fullmatch(entry["reason"], reason)]
    imports = re.compile(rf"^from {helper} import .*\b{fixture}\b", re.MULTILINE)
    modules = [path for path in TESTS.glob("*/test_*.py") if imports.search(path.read_text())]
    assert modules
    names = {
        path.relative_to(TESTS).as_posix(): re.findall(r"^def (test_\w+)", path.read_text(), re.M) for path in modules
    }
    unlisted = [
        name
        for name, tests in names.items()
        if not any(each.fullmatch(f"{name}::{test}") for each in allowed for test in tests)
    ]
    assert not unlisted
