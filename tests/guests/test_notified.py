# SPDX-License-Identifier: GPL-2.0-only
"""A KVM guest whose memory moves: large folios that write faults put in are told to it, all of them.

kernel-patches/tests/notified.c is a KVM guest and its monitor in one program. It runs on the patched kernel, which is
the host here: in a carrier, where the guest's stage 2 is the kernel's own. A wrong kernel, whose notifiers tell of one
page only, leaves the guest with the folio that was there before.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest
from folioscope import machines

from command import COMMAND, ROOT

SECONDS = 60.0
HOW = ("over zero pages", "copied", "reused")


@pytest.mark.skipif(platform.machine() == "aarch64", reason="the kernel of this host is not the patched one")
@pytest.mark.parametrize("machine", machines.CARRIED)
def test_a_guest_sees_where_its_memory_went(machine: str, logs: Path, tmp_path: Path) -> None:
    """Each of the three, begun by the monitor's write and by the guest's own."""
    program = tmp_path / "notified"
    compiler = os.environ.get("CROSS_COMPILE", "aarch64-linux-gnu-") + "gcc"
    source = ROOT / "kernel-patches/tests/notified.c"
    options = ["-static", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *options, str(source), "-o", str(program)], check=True)
    carriers = machines.Carriers(logs)
    try:
        environment = {"PATH": "/usr/bin:/bin", **carriers.environment(machine, "max")}
        words = [str(COMMAND), "carrier", "exec", "--", str(program)]
        ended = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    finally:
        carriers.close()
    wanted = [f"ok - {how}, by {who}" for who in ("us", "the guest") for how in HOW]
    assert ended.stdout.splitlines() == wanted, ended.stdout + ended.stderr
    assert ended.returncode == 0, ended.stderr
