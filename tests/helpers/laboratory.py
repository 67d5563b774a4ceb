# SPDX-License-Identifier: GPL-2.0-only
"""The laboratory's command in tests, and results as it writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from folioscope.lab.__main__ import main
from folioscope.lab.bench import COUNTED, Bench
from folioscope.lab.schema import FORMAT, VERSION

from command import ROOT, SLOWER

# What builds the plugin and the loads when nothing of them is there.
BUILD_SECONDS = 300
# Pages: tables, a program's data, and what the kernel does meanwhile.
FEW = 1000


def built(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script of the set-up, run to its end."""
    return subprocess.run(
        [ROOT / "vmm" / "setup" / script, *arguments],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS * SLOWER,
        check=False,
    )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Where experiments run; plugin and loads are built where they can be."""
    plugin = built("plugin.sh")
    if "needs Rust 1." in plugin.stderr:
        pytest.skip("the counter's plugin needs a newer Rust")
    assert plugin.returncode == 0, plugin.stderr
    loads = built("loads.sh")
    assert loads.returncode == 0, loads.stderr
    return Bench(Path(loads.stdout.strip()), tmp_path_factory.mktemp("lab"), runs=5)


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The laboratory's command."""
    return subprocess.run(
        [sys.executable, "-m", "folioscope.lab", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300 * SLOWER,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "plugin")},
    )


@dataclass(frozen=True)
class Said:
    """What a command has said, and its status."""

    status: int
    out: str
    err: str


def in_process(
    program: Callable[[], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *words: object,
) -> Said:
    """A command in this process, which spares most of its time."""
    monkeypatch.setattr("sys.argv", list(map(str, words)))
    capsys.readouterr()
    try:
        status = program()
    except SystemExit as ended:
        status = int(ended.code or 0)
    printed = capsys.readouterr()
    return Said(status, printed.out, printed.err)


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """The laboratory's command in this process."""
    return lambda *words: in_process(main, capsys, monkeypatch, "lab", *words)


def measured(name: str, kernel: Sequence[int], interval: str = "fault", **more: Any) -> dict[str, Any]:
    """A setting's results of one interval."""
    counts: dict[str, list[int]] = {kind: [0] * len(kernel) for kind in COUNTED}
    counts |= {"user": [10] * len(kernel), "kernel": list(kernel), "ns": [1_000_000] * len(kernel)}
    return {
        "name": name,
        "missing": None,
        "lost": None,
        "load": {"words": ["/lab/load", "page_fault1", "65536"], "cpus": 1, "memory_mib": 1024, "cpu": "max"},
        "intervals": {interval: counts} if kernel else {},
        "orders": {},
        "blocks": {},
        "memory": None,
        "frames": [],
        "looks": [],
        "entries": {},
        "faults": [],
        "water": [],
        "steps": None,
        **more,
    }


def reported(experiments: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """A lab's results of these experiments, by name, with their settings."""
    all_ = [
        {"name": name, "unit": "page", "units": 1, "settings": list(settings)} for name, settings in experiments.items()
    ]
    by = {"commit": "c0ffee", "command": "lab run", "date": "2026-11-27", "machine": "a machine"}
    return {"format": FORMAT, "version": VERSION, "key": "k", "measured": by, "runs": 5, "experiments": all_}
