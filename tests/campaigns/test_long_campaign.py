# SPDX-License-Identifier: GPL-2.0-only
"""The campaign of `make test-long`: all of what its modules of tests leave to it is in a cell."""

from __future__ import annotations

import subprocess
import sys

from folioscope.campaign.kinds import KINDS

from command import ROOT
from long_campaign import campaign, modules


def test_each_test_of_a_cell_is_known_by_its_machine_and_granule() -> None:
    """The cells name both, and tests with both are there that pytest leaves to them."""
    assert modules() and all(path.is_file() for path, _, _ in modules())
    for path in {path for path, _, _ in modules()}:
        words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", "cell", path]
        listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _, machine, granule in (each for each in modules() if each[0] == path):
            assert f"[{machine}-max-{granule}" in listed, (machine, granule)


def test_cells_of_each_kind() -> None:
    """All cells of the crossing in each process, several operations in a row, tours, and tests of pages."""
    tests_of = campaign().tests
    chosen = [tests_of[values["test"]] for values in campaign().cells]
    assert {test.kind for test in chosen} == {"tour", "crossing", "pytest"}
    settings = [dict(test.settings) for test in chosen if test.kind == "crossing"]
    assert {"record": True} in settings
    assert sum("depth" in each for each in settings) > 10
    for test in chosen:
        KINDS[test.kind].parts({**test.settings, "record": False}, ROOT / "tests")
