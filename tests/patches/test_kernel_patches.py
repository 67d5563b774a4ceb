# SPDX-License-Identifier: GPL-2.0-only
"""What the patches promise, checked by a guest of one process and a reader of the ring outside.

kernel-patches/tests/run.sh boots the kernel by itself and speaks TAP; here every line of it counts.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from command import ROOT

CPUS = ["max", "cortex-a72", "neoverse-n1"]


# The tour asks the same of every granule, from outside.
@pytest.mark.qemu
@pytest.mark.parametrize(
    "granule,cpus",
    [
        ("4k", CPUS[:1]),
        pytest.param("4k", CPUS[1:], marks=pytest.mark.long),
        pytest.param("16k", CPUS[:1], marks=pytest.mark.long),
        pytest.param("64k", CPUS[:2], marks=pytest.mark.long),
    ],
)
def test_policies_reasons_and_ring(granule: str, cpus: list[str]) -> None:
    """No line fails, none is missing, and the ring is as documented."""
    command = ["kernel-patches/tests/run.sh", f"out/kernel-{granule}", *cpus]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    failed = [line for line in run.stdout.splitlines() if line.startswith("not ok")]
    assert not failed, failed
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    plans = [int(plan) for plan in re.findall(r"^1\.\.(\d+)$", run.stdout, re.MULTILINE)]
    passed = len(re.findall(r"^ok \d+", run.stdout, re.MULTILINE))
    assert len(plans) == len(cpus), "a guest ended before its plan"
    assert passed == sum(plans)
    assert min(plans) >= 40, "the guest's own test has shrunk"
    assert run.stdout.count("# rings:") == len(cpus), "the ring was not read from outside"
