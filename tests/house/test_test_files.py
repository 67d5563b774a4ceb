# SPDX-License-Identifier: GPL-2.0-only
"""Where tests lie: in the folders that tests/README.md names, under names that no other module has."""

from __future__ import annotations

import re
from collections import Counter

from command import ROOT

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
