# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's release is found by whatever says it, also before a kernel protects its text, or where it never does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import BOOT_SECONDS, folioscope, wait_until
from own_qemu import KERNEL, LAYOUT, MEMFD, NONCE, Guest, Qemu, checked, errors
from test_stock_kernel import Kernel, stock

pytestmark = pytest.mark.qemu

MACHINE = ("-M", "virt,memory-backend=ram", "-object", MEMFD)
STOCK = [pytest.mark.long, pytest.mark.network]


@pytest.fixture(scope="module", params=[None, pytest.param(Kernel("4k", "7"), marks=STOCK)], ids=str)
def unprotected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest whose read-only data can be written to, and a process in user mode."""
    kernel = stock(request.param) if request.param else KERNEL / "Image"
    with Guest(tmp_path_factory.mktemp("own"), *MACHINE, kernel=kernel, append="rodata=off") as own:
        spawned = own.command("spawn", name="mine")["spawned"]
        own.process, own.pid = spawned["process"], spawned["pid"]
        where = {"isolated": {"offset": 0}}
        own.area = own.op(own.process, "mmap", length=LAYOUT.block, place=where)["mapped"]["address"]
        own.op(own.process, "touch", address=own.area, length=LAYOUT.block, access="write", order="forward")
        own.command("checkpoint", process=own.process, nonce=NONCE, smaps=False)
        yield own


def test_release_of_a_kernel_that_protects_nothing(unprotected: Guest, tmp_path: Path) -> None:
    """By `linux_banner`, as `uname -r` has it; and Linux's own rules are in force: L8 names a fault behind a VMA."""
    file = unprotected.command("read_file", path="/proc/sys/kernel/osrelease")["file"]
    release = file["content"]["text"].strip()
    assert f"kernel   Linux {release}, 4 KiB pages, by linux_banner\n" in unprotected.attach().ok()
    status, report = checked(unprotected, tmp_path)
    assert (status, errors(report), report["kernel"]["release"]) == (0, [], release)
    known = report["steps"][0]["basis"]["kernel"]
    assert known == {"release": release, "recognised_by": "linux_banner", "linux_rules": True}
    rows = unprotected.rows("--pid", str(unprotected.pid))
    behind = unprotected.area + LAYOUT.block
    row = next(row for row in rows if row["va"] == behind - LAYOUT.page)
    core = tmp_path / "full.core"
    with unprotected.planted(row["table"] + 8 * (row["index"] + 1)):
        status, report = checked(unprotected, tmp_path)
        unprotected.attach("save", "--full", core)
    assert (status, errors(report)) == (1, [("A7", behind), ("L8", behind)])
    ended = folioscope("check", core)
    assert ended.status == 1 and re.search(r"^ +L8 ", ended.out, re.M), ended.out


def test_release_of_a_kernel_that_has_not_come_so_far(tmp_path: Path) -> None:
    """Without a file system it panics before it protects its text: there is no process yet, but a release."""
    place = tmp_path / "qemu"
    place.mkdir()
    console = place / "console.log"
    line = ("-kernel", str(KERNEL / "Image"), "-append", "console=ttyAMA0", "-serial", f"file:{console}")
    with Qemu(place, *MACHINE, "-cpu", "max", "-smp", "2", "-m", "512M", *line) as own:
        panicked = lambda: console.exists() and "Kernel panic - not syncing: VFS" in console.read_text()  # noqa: E731
        assert wait_until(panicked, BOOT_SECONDS), console.read_text()
        release = (KERNEL / "release").read_text().strip()
        assert f"kernel   Linux {release}, 4 KiB pages, by linux_banner\n" in own.attach().ok()
        assert checked(own, tmp_path)[1]["kernel"]["release"] == release
