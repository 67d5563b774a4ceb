# SPDX-License-Identifier: GPL-2.0-only
"""`run --record` and `record` play one list of workloads: what one names of a kernel's sequences, the other does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command import folioscope
from recorder import Found, plugin, record
from test_stock_kernel import Kernel, stock
from test_voice import WARNING

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin")]
__all__ = ["plugin"]

# Those about sequences, which a plain `run` leaves out unless they are named.
SEQUENCES = ["unfolded", "hugecow", "reuse"]
# Debian's 7.3.4 folds a block anew by set_ptes() before the TLBI for what was there (docs/recorder.md, Found).
UNFOLDED = ("S2", "the Contiguous bit differs", "contpte_get_and_clear_full_ptes", "__set_ptes_anysz")


def causes(said: str) -> set[tuple[str, ...]]:
    """What is wrong, and by which functions."""
    found = set()
    for each in Found.all(said):
        places = re.findall(
            r"^  (?:broken|made) +CPU \d+ at ([\w.]+?)(?:\.constprop\.\d+)?\+", "\n".join(each.lines), re.M
        )
        found.add((each.rule, each.sentence.partition(":")[0], *places))
    return found


@pytest.mark.network
@pytest.mark.parametrize(
    "words", [["--only", "unfolded"], pytest.param([], marks=pytest.mark.long)], ids=["unfolded", "all"]
)
def test_both_name_what_mprotect_leaves_out(tmp_path: Path, words: list[str]) -> None:
    """A block that is present and not folded changes its rights: S2 on Debian's newest 7.x, on a CPU without BBML3."""
    guest = ["--kernel", str(stock(Kernel("4k", "7"))), "--cpu", "cortex-a72", "--out", str(tmp_path), *words]
    place = tmp_path / "report.json"
    ran = folioscope("run", "--machine", "tcg", "--record", "--json", place, *guest, seconds=300)
    recorded = record(*guest)
    assert (ran.status, recorded.status) == (1, 1), ran.err + recorded.err
    assert UNFOLDED in causes(ran.out) & causes(recorded.out)
    assert causes(ran.out) == causes(recorded.out)
    steps = json.loads(place.read_text())["steps"]
    told = [f for step in steps for f in (step.get("kernel") or {}).get("findings", []) if f.get("process")]
    # Each has ended by the time it is told of.
    assert told and {f["process"]["name"] for f in told} <= set(SEQUENCES), told
    played = [step["workload"] for step in steps if step["workload"] in SEQUENCES]
    assert played == (["unfolded"] if words else SEQUENCES)
    # By their states nothing is wrong with them.
    assert not [
        f for step in steps for process in step["processes"] for f in process["findings"] if f["rule"][0] == "A"
    ]


@pytest.mark.parametrize("granule", ["4k"])
def test_without_the_recorder_their_states_are_judged_by_name(granule: str, tmp_path: Path) -> None:
    """They are workloads as any other: right on the pinned kernel, each with its checkpoint."""
    place = tmp_path / "report.json"
    words = ["--granule", granule, "--only", ",".join(SEQUENCES), "--json", place, "--out", tmp_path]
    folioscope("run", "--machine", "tcg", *words).ok()
    steps = json.loads(place.read_text())["steps"]
    assert [step["workload"] for step in steps] == [*SEQUENCES, "kernel"]


@pytest.mark.parametrize("granule", ["4k"])
def test_a_program_with_which_the_kernel_warns(granule: str, tmp_path: Path) -> None:
    """What the kernel reports of itself (V1) while a program is recorded is an error, with its lines."""
    program, place = tmp_path / "warns", tmp_path / "report.json"
    lines = "".join(f"echo '{line}' >/kmsg\n" for line in WARNING)
    program.write_text(f"#!/bin/sh\nbusybox mknod /kmsg c 1 11\n{lines}")
    program.chmod(0o755)
    ended = record("--granule", granule, "--json", place, "--out", tmp_path, "--", program)
    assert ended.status == 1 and f"V1 the kernel reports: {WARNING[1]}" in ended.out, ended.out
    report = json.loads(place.read_text())
    assert [step["step"] for step in report["steps"]] == ["console", "sequences"]
    assert report["totals"]["rules"] == {"V1": 1}
    right = record("--granule", granule, "--out", tmp_path, "--", "true").ok()
    quiet = record("--granule", granule, "--append", "quiet", "--out", tmp_path, "--", "true").ok()
    assert ["a WARNING of the kernel (V1) was not judged" in said for said in (right, quiet)] == [False, True]
