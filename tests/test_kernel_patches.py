"""What the patches promise, checked by a guest of one process and a reader of the ring outside.

kernel-patches/tests/run.sh boots the kernel by itself and speaks TAP; here every line of it counts.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from command import ROOT

CPUS = {"4k": ["max", "cortex-a72", "neoverse-n1"], "16k": ["max"], "64k": ["max", "cortex-a72"]}


@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_policies_reasons_and_ring(granule: str) -> None:
    """No line fails, none is missing, and the ring is as documented."""
    cpus = CPUS[granule]
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
