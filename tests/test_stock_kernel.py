"""Kernels that others have built: Debian's own, 4K and 16K, without a vmlinux and without our patches.

Whatever is an error on them is a false alarm.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from folioscope.layout import LAYOUTS

from command import BOOT_SECONDS, OUT, ROOT, folioscope

# What any kernel can play; Debian's cannot make allocations fail, and bring zram and NUMA as modules or not at all.
PLAYED = ["anon", "neighbour", "munmap", "mprotect", "dontneed", "fork", "shmem", "thp", "zeropage", "sizes", "vma"]
PLAYED += ["mlock", "mremap", "free", "populate", "ksm", "hugetlb", "uffd", "hole", "tmpfs"]
MAY_BE_LEFT_OUT = {"allocfail", "swap", "migrate", "compact"}
FETCH_SECONDS = 600


@cache
def stock(granule: str) -> Path:
    """The newest stock kernel of a granule, from the cache or from Debian."""
    script = ROOT / "vmm" / "setup" / "stock.sh"
    fetched = subprocess.run([script, granule], check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
    assert fetched.returncode == 0, fetched.stderr
    return Path(fetched.stdout.strip())


@cache
def tour(granule: str) -> tuple[str, dict[str, Any]]:
    """The whole tour on a stock kernel, which has to find no error: the text and the report."""
    out = OUT / "stock"
    out.mkdir(parents=True, exist_ok=True)
    report = out / f"{granule}.json"
    options = ["--kernel", stock(granule), "--out", out, "--json", report]
    text = folioscope("run", *options, seconds=2 * BOOT_SECONDS).ok()
    return text, json.loads(report.read_text())


@pytest.mark.parametrize("granule", ["4k", "16k"])
def test_no_error(granule: str) -> None:
    """It boots from its vmlinuz, and every checkpoint is judged without an error."""
    text, report = tour(granule)
    assert (report["outcome"], report["totals"]["errors"], report["totals"]["not_judged"]) == ("ok", 0, 0)
    assert report["machine"]["page_size"] == LAYOUTS[granule].page
    assert report["kernel"].get("policy") is None and report["kernel"]["contpte"] is True
    assert "6.12" in report["kernel"]["release"]
    played = [step["workload"] for step in report["steps"]]
    assert [name for name in dict.fromkeys(played) if name not in MAY_BE_LEFT_OUT] == [*PLAYED, "kernel"]
    assert report["steps"][-1]["kernel"]["mapped"]
    assert text.rstrip().endswith("ok no error found (exit status 0)")


@pytest.mark.parametrize("granule", ["4k", "16k"])
def test_what_is_left_out_is_named(granule: str) -> None:
    """The workload that needs a debugging option, and what cannot be judged without the vmlinux."""
    text, report = tour(granule)
    at = text.index("\nallocfail - ")
    assert "left out: the kernel has no CONFIG_FAIL_PAGE_ALLOC" in text[at:].splitlines()[2]
    left_out = set(re.findall(r"^(\w+) - .*\n(?:.*\n){0,2}?.*left out: ", text, re.M))
    played = {step["workload"] for step in report["steps"]}
    assert left_out == MAY_BE_LEFT_OUT - played, "a workload that was not played is not named"
    assert "it has no order policies" in text.splitlines()[0]
    notes = report["steps"][-1]["kernel"]["notes"]
    for what in (
        "order records were not read",
        "vmalloc, vmemmap and fixmap were not judged",
        "linear map was not judged",
    ):
        assert any(what in note for note in notes), what
        assert what in text


@pytest.mark.parametrize("granule", ["4k", "16k"])
def test_blocks_follow_sysfs(granule: str) -> None:
    """With the block's size enabled in sysfs every aligned block of an anonymous area is contiguous."""
    report = tour(granule)[1]
    (anon,) = [step for step in report["steps"] if (step["workload"], step["step"]) == ("anon", "sparse")]
    totals: dict[str, int] = {}
    for process in anon["processes"]:
        for vma in process["vmas"]:
            for state, blocks in vma["blocks"].items():
                totals[state] = totals.get(state, 0) + blocks
    # Forward and backward four blocks each, and every other one of eight.
    assert totals["folded"] == 4 + 4 + 4
    assert totals.get("broken", 0) == 0


def test_policy_needs_the_patches() -> None:
    """POLICY= on a stock kernel: which kernel, and what to do."""
    options = [
        "--kernel",
        stock("4k"),
        "--policy",
        "variable",
        "--only",
        "anon",
        "--out",
        OUT / "stock",
    ]
    sentence = folioscope("run", *options).sentence()
    assert "has no order policies" in sentence and "kernel-patches/" in sentence and "leave POLICY out" in sentence
