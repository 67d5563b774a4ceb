# SPDX-License-Identifier: GPL-2.0-only
"""V1 in a guest whose console is not ours: the kernel's log is read from its memory.

A guest that has panicked is none that is well: live, in a core of its tables, in one of all RAM.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest as folioscope_guest
from folioscope.client import Attached

from command import BOOT_SECONDS, Running, folioscope, wait_until
from own_qemu import MEMFD, Guest, checked
from test_stock_kernel import Kernel, stock

pytestmark = pytest.mark.qemu

MACHINE = ("-M", "virt,memory-backend=ram", "-object", MEMFD)
LONG = [pytest.mark.long, pytest.mark.network]
KERNELS = [None, *(pytest.param(Kernel("4k", each), marks=LONG) for each in ("6.12", "7"))]


def reported(report: dict[str, Any]) -> list[str]:
    """What V1 says, by its first line."""
    (step,) = report["steps"]
    findings = step.get("kernel", {}).get("findings", [])
    return [finding["message"].splitlines()[0] for finding in findings if finding["rule"] == "V1"]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_guest_that_panicked(tmp_path: Path, kernel: Kernel | None) -> None:
    """Before: V1 is in force and silent, whatever a program writes to the log. After: an error, wherever it is read."""
    (place := tmp_path / "own").mkdir()
    of = {"kernel": stock(kernel)} if kernel else {}
    with Guest(place, *MACHINE, **of) as own:
        said = own.console.read_text(errors="replace")
        forged = "WARNING: CPU: 0 PID: 1 at mm/forged.c:1 forged+0x0/0x0"
        own.command("write_file", path="/dev/kmsg", text=f"<4>{forged}\n")
        assert wait_until(lambda: forged in own.console.read_text(errors="replace"), BOOT_SECONDS)
        status, report = checked(own, tmp_path)
        assert (status, reported(report)) == (0, []), report
        assert "V1" in report["steps"][0]["basis"]["in_force"]
        assert "WARNING: CPU" not in said
        crash = "(sleep 1; echo c >/proc/sysrq-trigger) </dev/null >/dev/null 2>&1 &"
        own.command("run", argv=["/bin/busybox", "sh", "-c", crash])
        ended = "end Kernel panic"
        assert wait_until(lambda: ended in own.console.read_text(errors="replace"), BOOT_SECONDS)
        status, report = checked(own, tmp_path)
        panic = ["the kernel reports: Kernel panic - not syncing: sysrq triggered crash"]
        assert (status, reported(report)) == (1, panic), report
        cores = [tmp_path / "tables.core", tmp_path / "full.core"]
        own.attach("save", cores[0]).ok()
        own.attach("save", "--full", cores[1])
    for core in cores:
        of_core = tmp_path / "core.json"
        assert folioscope("check", core, "--json", of_core).status == 1, core
        assert reported(json.loads(of_core.read_text())) == panic, core


@pytest.mark.provokes("BUG: Bad rss-counter state")
def test_guest_that_boot_holds(tmp_path: Path) -> None:
    """What the kernel reports is an error in a live guest of ours too, of whichever process, and in a core of it."""
    with Running(["boot", "--out", str(tmp_path), "--memory", "256M"]) as running:
        assert running.child.stdout is not None
        lines = "".join(itertools.takewhile(lambda line: not line.startswith("end:"), running.child.stdout))
        found = re.search(r"--guest (\S+)", lines)
        assert found, lines
        session = Attached(found[1])
        guest = folioscope_guest(session, "4k")
        held = [info["pid"] for info in guest.command("processes")["processes"]["processes"]]

        def check(*of: Any) -> tuple[int, list[str], dict[str, Any]]:
            report = tmp_path / "report.json"
            status = folioscope("check", *of, "--json", report).status
            told = json.loads(report.read_text())
            return status, reported(told), told["steps"][0]["basis"]

        sources = [("--guest", found[1], "--pid", pid) for pid in (*held, 1)]
        for source in sources:
            status, said, basis = check(*source)
            assert (status, said) == (0, []) and "V1" in basis["in_force"], (source, basis)
        # A page's entry is cleared from outside: the kernel finds out when the process ends (check_mm()).
        process = guest.spawn("lossy")
        area = process.map(4 * guest.layout.page, hint="nohugepage")
        area.write()
        with process.hold() as waits:
            entry = waits.judge().entry(area.address + guest.layout.page)
            assert entry
            guest.poke([(entry.address, 0)])
        process.kill()
        # Another one on its CPU, which lets go of the first one's memory map only then.
        guest.spawn(cpu=process.cpu).kill()
        log = Path(found[1]).parent / "console.log"
        assert wait_until(lambda: "Bad rss-counter" in log.read_text(errors="replace"), BOOT_SECONDS)
        core = tmp_path / "full.core"
        folioscope("save", "--full", "--guest", found[1], core).ok()
        for source in (*sources, (core,)):
            status, said, _ = check(*source)
            assert status == 1 and any("BUG: Bad rss-counter state" in line for line in said), (source, said)
        session.close()
