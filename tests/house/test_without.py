# SPDX-License-Identifier: GPL-2.0-only
"""Each test of a feature sees it: without the feature's switch it fails, or it is known to end alike."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from command import ROOT, module
from without import INDIFFERENT, SWITCHES

#: What is about each switch. A test may take what others take of a guest; these are a minute each.
TESTS = {
    "adaptive": ["test_adaptive.py"],
    "align": ["test_map_align.py"],
    "contpte": ["test_counts.py"],
    "copy": ["test_copied_folios.py", "test_write_faults_pressed.py"],
    "lru_batch": ["test_roadmap.py", "test_reused_folios.py"],
    "madvise_split": ["test_roadmap.py"],
    "page_cache": ["test_ramfs.py", "test_ramfs_faults.py", "test_ramfs_modes.py"],
    "percpu_pagelist_high_order": ["test_pcp.py"],
    "reuse": ["test_reused_folios.py", "test_copied_folios.py"],
    "shmem_enabled": ["test_shmem_accepted.py", "test_paths.py"],
    "zap_batch": ["test_roadmap.py"],
    "zero_page": ["test_zero_page.py", "test_write_faults_pressed.py"],
}


def without(switch: str, *words: str) -> str:
    """What pytest says of tests whose writes to a switch are dropped."""
    tests = [module(name) for name in TESTS[switch]]
    command = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "--rootdir", "tests", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, "-q", "--without", switch, *words, *tests], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_switches_have_their_tests() -> None:
    """None is left out, and each list of what ends alike is of one of them."""
    assert TESTS.keys() == SWITCHES.keys() >= INDIFFERENT.keys()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("switch", sorted(SWITCHES))
def test_a_feature_that_is_off(switch: str) -> None:
    """Every test that switches it on fails then, and there are some."""
    said = without(switch, "--machine", "tcg", "--granule", "4k")
    passed = re.search(r"^(\d+) passed", said, re.MULTILINE)
    assert passed and int(passed[1]) > 1, said
