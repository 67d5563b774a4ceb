# SPDX-License-Identifier: GPL-2.0-only
"""A kernel that hangs in every workload is judged in two minutes: they share the time that a run has for that."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from command import BOOT_SECONDS, ROOT, folioscope

pytestmark = [pytest.mark.parametrize("granule", ["4k"]), pytest.mark.only_machine("tcg")]

SOURCE = Path(__file__).resolve().parents[1] / "programs" / "hangs.c"
GCC = ["aarch64-linux-gnu-gcc", "-Os", "-static", "-nostdlib", "-ffreestanding"]
DEADLINE = 2
# Four deadlines in all, as the deadline is one that is not made shorter.
MOST = 4


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """The guest's initramfs, with a program before its init that makes each workload hang as it maps its memory."""
    place = tmp_path / "own"
    place.mkdir()
    subprocess.run([*GCC, SOURCE, "-o", place / "hangs"], check=True, capture_output=True)
    archive = ["cpio", "--create", "--format=newc", "--quiet"]
    packed = subprocess.run(archive, cwd=place, input=b"hangs\n", capture_output=True, check=True).stdout
    made = tmp_path / "initramfs.cpio"
    made.write_bytes((ROOT / "out" / "initramfs.cpio").read_bytes() + packed)
    return made


def test_a_run_in_which_all_workloads_hang(hanging: Path, tmp_path: Path, granule: str) -> None:
    """Those that were played have their sentence each, the others one in all; no time is spent on them."""
    place = tmp_path / "report.json"
    words = [
        "--initrd",
        hanging,
        "--append",
        "rdinit=/hangs",
        "--deadline",
        DEADLINE,
        "--out",
        tmp_path,
        "--json",
        place,
    ]
    ended = folioscope("run", "--machine", "tcg", "--granule", granule, *words, seconds=300)
    assert ended.status == 2, ended.out + ended.err
    said = [it["reason"] for it in json.loads(place.read_text())["not_judged"]]
    late = [found[1] for why in said if (found := re.match(r"workload (\w+): .* not done after 2000 ms$", why))]
    (rest,) = [why for why in said if "were not played" in why]
    found = re.fullmatch(
        r"workloads ([\w, ]+) were not played: (\d+) before them hung, for 8 s and more in all; play them "
        r"by themselves with --only, or give them more time with --deadline",
        rest,
    )
    assert found, rest
    assert 1 <= len(late) == int(found[2]) <= MOST
    # All of the tour, in its order.
    plain = folioscope("run", "--only", "none").sentence()
    names = plain.partition("it has ")[2].split(", ")
    assert late + found[1].split(", ") == [name for name in names if name not in ("unfolded", "hugecow", "reuse")]
    # As it advises: one that was not played has the time for itself.
    alone = found[1].split(", ")[0]
    run = ["run", "--machine", "tcg", "--granule", granule, "--only", alone]
    ended = folioscope(*run, *words, seconds=BOOT_SECONDS)
    said = [it["reason"] for it in json.loads(place.read_text())["not_judged"]]
    assert ended.status == 2 and not [why for why in said if "were not played" in why], said
    assert [why for why in said if why.startswith(f"workload {alone}: ")], said
