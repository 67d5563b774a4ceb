# SPDX-License-Identifier: GPL-2.0-only
"""The patched kernel with its own checks (config/debug.config): KASAN, lockdep, page_table_check say nothing.

The tour under each policy, the series' own test, the kernel's mm selftests and stress-ng, each judged as on the quick
kernel. What the tour's kernel says is a finding of ours (V1); of the others the console is read here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from command import OUT, ROOT, folioscope, module
from own_qemu import Foreign
from selftests import SELFTESTS
from test_selftests import WRITE_FAULTS
from test_selftests import works as selftests_work
from test_stress import works as stress_works
from test_tour import POLICIES

pytestmark = [pytest.mark.qemu, pytest.mark.long]

KERNEL = OUT / "kernel-debug"
# How checks begin what they say: lockdep's frame has its name in it, the others theirs.
SPLAT = re.compile(
    r"WARNING: CPU: |BUG: |Oops|KASAN: |INFO: (?:task .* blocked|rcu_|possible )|soft lockup"
    r"|list_(?:add|del) corruption|Bad (?:page|rss-counter)|={40}"
)
STRESS_SECONDS = 1800
#: Guests that share the selftests, one after the other.
PARTS = 4


def splats(said: str) -> list[str]:
    """Lines of a console that a check of the kernel has written."""
    return [line for line in said.splitlines() if SPLAT.search(line)]


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keeps what each guest of somebody else's has said when it ends."""
    kept: list[str] = []
    end = Foreign.__exit__

    def told(self: Foreign, *error: object) -> None:
        kept.append(self.said())
        end(self, *error)

    monkeypatch.setattr(Foreign, "__exit__", told)
    return kept


def test_it_is_that_kernel() -> None:
    """And what a splat is, is known here."""
    config = (KERNEL / "config").read_text()
    options = (ROOT / "kernel-patches" / "config" / "debug.config").read_text()
    wanted = re.findall(r"^CONFIG_\w+=.*$", options, re.MULTILINE)
    assert len(wanted) > 20 and not [line for line in wanted if line not in config.splitlines()]
    bad = ["BUG: KASAN: slab-use-after-free in x", "WARNING: CPU: 0 PID: 1 at mm/memory.c:1 x+0x1/0x2"]
    good = ["WARNING: Unprivileged eBPF is enabled, data leaks possible via Spectre v2 BHB attacks!"]
    good += ["Lock dependency validator: Copyright (c) 2006 Red Hat, Inc.", "Memory failure: 0x1: recovery action"]
    assert splats("\n".join([*good, *bad])) == bad


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cpu", ["max", "cortex-a72"])
def test_tour(tmp_path: Path, policy: str, cpu: str) -> None:
    """All workloads: no finding, and nothing is left unjudged."""
    words = ["--kernel", KERNEL / "Image", "--vmlinux", KERNEL / "vmlinux", "--cpu", cpu, "--policy", policy]
    ended = folioscope("run", *words, "--out", tmp_path, seconds=600)
    assert ended.status == 0, ended.out[-3000:] + ended.err
    assert re.search(r"^\d+ checkpoints, \d+ entries: 0 errors, \d+ remarks, 0 not judged", ended.out, re.MULTILINE)


def test_series() -> None:
    """What the series promises, asked by its own test."""
    command = ["kernel-patches/tests/run.sh", KERNEL]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0 and re.search(r"^1\.\.\d+$", run.stdout, re.MULTILINE), run.stdout[-3000:] + run.stderr
    assert not re.search(r"^not ok", run.stdout, re.MULTILINE)
    assert not splats(run.stdout)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "names,least",
    [
        (["numa_hints"], 7),
        (["zero_page", "copied_folios", "reused_folios", "write_faults_pressed"], 54),
        (["paths", "adaptive", "order_records", "counts", "map_align", "ramfs"], 63),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_path(names: list[str], least: int) -> None:
    """The exact tests of the series' paths; a splat is a finding there."""
    options = ["--guest-kernel", KERNEL / "Image", "--guest-vmlinux", KERNEL / "vmlinux", "--machine", "tcg", "-n", "0"]
    chosen = ["-m", "long" if names == ["numa_hints"] else "not long"]
    words = [sys.executable, "-m", "pytest", *(module(f"test_{name}.py") for name in names), *chosen, *options]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert int(re.findall(r"\b(\d+) passed\b", run.stdout)[-1]) >= least, run.stdout[-1000:]


@pytest.mark.network
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_selftests(tmp_path: Path, silent: list[str], part: int) -> None:
    """The kernel's own mm selftests, with all that the patches do at write faults; in parts, as it takes hours."""
    some = SELFTESTS[len(SELFTESTS) * (part - 1) // PARTS : len(SELFTESTS) * part // PARTS]
    selftests_work(tmp_path, f"debug-{part}", KERNEL / "Image", some, "2G", WRITE_FAULTS)
    assert silent and not splats("\n".join(silent))


@pytest.mark.network
@pytest.mark.timeout(2 * STRESS_SECONDS)
def test_stress(tmp_path: Path, silent: list[str]) -> None:
    """stress-ng's memory stressors with fixed seeds."""
    stress_works(tmp_path, KERNEL / "Image", STRESS_SECONDS)
    assert silent and not splats("\n".join(silent))
