# SPDX-License-Identifier: GPL-2.0-only
"""Wrong edits of features that break no rule: the tests of the feature see them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from table import FEATURES, Feature

from command import ROOT, module

KERNEL = ROOT / "out" / "kernel-mutants"


def ran(feature: Feature, number: int) -> dict[str, int]:
    """How many of the feature's tests passed and failed, on a kernel with an edit; 0 is none."""
    kernel = [f"--guest-kernel={KERNEL / 'Image'}", f"--guest-vmlinux={KERNEL / 'vmlinux'}"]
    command = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "--rootdir", "tests", "-p", "no:cacheprovider"]
    words = ["-q", "--machine", "tcg", *kernel, f"--guest-append=mutant.number={number}", "-k", feature.selected]
    done = subprocess.run(
        [*command, *words, module(feature.file)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    last = done.stdout.strip().rpartition("\n")[2]
    found = {how: int(count) for count, how in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}
    assert done.returncode == (1 if "failed" in found else 0), done.stdout
    return found


@pytest.mark.qemu
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: str(feature.number))
def test_feature(feature: Feature) -> None:
    """All that are selected pass without the edit and fail with it, and there is one at least."""
    without, edited = ran(feature, 0), ran(feature, feature.number)
    assert without.keys() == {"passed"} and edited == {"failed": without["passed"]}, (without, edited)
