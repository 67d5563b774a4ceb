# SPDX-License-Identifier: GPL-2.0-only
"""The campaign of `make test-long`: what pytest leaves to it is in a cell, by the same ids."""

from __future__ import annotations

import subprocess
import sys

import pytest
from folioscope.campaign.kinds import KINDS

from command import OUT, ROOT
from long_campaign import campaign

TESTS = campaign().tests
CELLS = [values for values in campaign().cells if TESTS[values["test"]].kind == "pytest"]


def collected(*words: object) -> set[str]:
    """Ids of tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in listed.splitlines() if "::" in line}


@pytest.mark.qemu
@pytest.mark.parametrize("values", CELLS, ids=lambda values: f"{values['machine']}-{values['granule']}")
def test_a_cell_runs_what_is_left_to_it(values: dict[str, str]) -> None:
    """What has the mark `cell` on its machine and granule, which `make test-long` leaves out of pytest."""
    settings = TESTS[values["test"]].settings
    paths = [ROOT / "tests" / word for word in settings["select"]]
    guest = f"[{values['machine']}-max-{values['granule']}-"
    left = {name for name in collected("-m", "cell", *paths) if guest in name}
    words = [f"--folioscope-machine={values['machine']}", "-k", settings.get("keyword", "")]
    words += ["--folioscope-kernel", OUT / f"kernel-{values['granule']}" / "Image"]
    assert left and left <= collected(*paths, *words)


def test_cells_of_each_kind() -> None:
    """All cells of the crossing in each process, several operations in a row, tours, and tests of pages."""
    chosen = [TESTS[values["test"]] for values in campaign().cells]
    assert {test.kind for test in chosen} == {"tour", "crossing", "pytest"}
    settings = [dict(test.settings) for test in chosen if test.kind == "crossing"]
    assert {"record": True, "least": 0.5} in settings
    deep = [each for each in settings if "depth" in each]
    assert len(deep) == 11 and all(each["least"] > 0 for each in deep)
    for test in chosen:
        KINDS[test.kind].parts({**test.settings, "record": False}, ROOT / "tests")
