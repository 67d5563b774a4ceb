# SPDX-License-Identifier: GPL-2.0-only
"""Six wrong edits, each hidden at a random place in 64 harmless commits of mm and arm64: a bisect finds each."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from folioscope.campaign.found import SCHEMA

from hidden_edits import COMMITS, EDITS, MOST_BUILDS, Edit, Tree, find

pytestmark = [pytest.mark.qemu, pytest.mark.long, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The tree. What is built of it is kept in the cache, by its path, until `make cache` prunes it."""
    return Tree(tmp_path_factory.mktemp("hidden") / "tree")


@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
def test_a_hidden_edit_is_found(edit: Edit, hidden: Tree, tmp_path: Path) -> None:
    """By a rule, or by the map alone, in as many builds as 64 commits need."""
    found, wrong = find(hidden, edit, tmp_path)
    jsonschema.validate(found, SCHEMA)
    assert [each["commit"] for each in found["first"]] == [wrong]
    assert found["builds"] <= MOST_BUILDS and 2 ** found["steps"] <= COMMITS
    rules = [each["what"] for each in found["verdicts"] if each["what"].startswith("rule ") and each["before"] == "-"]
    assert bool(rules) is (edit.name != "around"), rules
