# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope attach` to guests of other kinds: other memory, other monitors, other CPUs, and no Linux at all."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from command import Running, folioscope
from own_qemu import LEFT_OUT, MEMFD, MEMORY, Guest, Qemu, checked

pytestmark = pytest.mark.qemu


def test_numa_of_two_kinds(tmp_path: Path) -> None:
    """Two backends of one size, a memfd and a file with a name: each at its place."""
    file = tmp_path / "node1.ram"
    nodes = [
        *("-object", "memory-backend-memfd,id=m0,size=256M,share=on", "-numa", "node,memdev=m0,cpus=0"),
        *("-object", f"memory-backend-file,id=m1,size=256M,mem-path={file},share=on", "-numa", "node,memdev=m1,cpus=1"),
    ]
    with Guest(tmp_path, "-M", "virt", *nodes) as own:
        said = own.attach().ok()
        assert re.search(r"0x0000040000000\.\.0x0000050000000, 256 MiB of m0: /memfd:", said)
        assert re.search(rf"0x0000050000000\.\.0x0000060000000, 256 MiB of m1: {file}", said)
        (reports := tmp_path.with_suffix(".reports")).mkdir()
        status, report = checked(own, reports)
        assert status == 0
        assert sum(report["steps"][0]["kernel"]["mapped"]["linear"].values()) > 0.9 * MEMORY


@pytest.mark.parametrize(
    "arguments, missing",
    [
        (["-M", "virt"], "-machine ...,memory-backend=ram -object memory-backend-memfd,id=ram,size=64M,share=on"),
        (
            ["-M", "virt,memory-backend=mine", "-object", "memory-backend-memfd,id=mine,size=64M,share=off"],
            "-object memory-backend-memfd,id=mine,size=64M,share=on",
        ),
        (
            ["-M", "virt,memory-backend=mine", "-object", "memory-backend-file,id=mine,size=64M,mem-path=mine.ram"],
            "-object memory-backend-file,id=mine,size=64M,mem-path=mine.ram,share=on",
        ),
    ],
    ids=["none", "memfd", "file"],
)
def test_private_ram(tmp_path: Path, arguments: list[str], missing: str) -> None:
    """The very arguments that are missing are told."""
    with Qemu(tmp_path, "-m", "64M", "-S", *arguments) as qemu:
        said = qemu.attach("check").sentence()
    assert "is private to QEMU" in said and said.endswith(f"Start QEMU with: {missing}")


def test_monitor_for_people(tmp_path: Path) -> None:
    """It greets, and not with QMP."""
    monitor = tmp_path / "hmp.sock"
    with Qemu(tmp_path, "-m", "64M", "-S", "-M", "virt", "-monitor", f"unix:{monitor},server=on,wait=off"):
        said = folioscope("attach", monitor).sentence()
    assert "is no QMP socket" in said and "not -monitor" in said


def test_before_the_kernel(tmp_path: Path) -> None:
    """A guest that has not begun has no tables: not judged, and it stays where it is."""
    machine = ["-M", "virt,memory-backend=ram", "-object", "memory-backend-memfd,id=ram,size=64M,share=on"]
    with Qemu(tmp_path, "-m", "64M", "-S", "-cpu", "max", *machine) as qemu:
        ended = qemu.attach("check")
        assert ended.status == 2 and "kernel half was not judged" in ended.out
        assert qemu.state()[0] == "prelaunch"


def test_kernel_at_el2(tmp_path: Path) -> None:
    """With EL2 a kernel of today runs there, on registers that QEMU's stub does not give: said, and no false alarm."""
    with Guest(tmp_path, "-M", "virt,memory-backend=ram,virtualization=on", "-object", MEMFD) as guest:
        ended = guest.attach("check")
    assert ended.status == 2 and "the kernel runs at EL2" in ended.out


def test_32_bit_cpu(tmp_path: Path) -> None:
    """The same QEMU emulates CPUs that have no such tables; it is left as it was."""
    machine = ["-M", "virt,memory-backend=ram", "-object", "memory-backend-memfd,id=ram,size=64M,share=on"]
    with Qemu(tmp_path, "-m", "64M", "-S", "-cpu", "cortex-a15", *machine) as qemu:
        assert "expected AArch64 CPUs" in qemu.attach("check").sentence()


def test_other_architecture(tmp_path: Path) -> None:
    """Only arm64 tables are read. The other one that Debian's package has is 32-bit Arm."""
    with Qemu(tmp_path, "-m", "64M", "-S", "-M", "virt", binary="qemu-system-arm") as qemu:
        assert "emulates arm: expected aarch64" in qemu.attach("check").sentence()


def test_ours(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The guest that `folioscope boot` holds is looked into by the same words."""
    place = tmp_path_factory.mktemp("ours")
    with Running(["boot", "--out", str(place), "--memory", "512M"]) as running:
        lines = []
        for line in running.child.stdout:
            lines.append(line)
            if line.startswith("end:"):
                break
        found = re.search(r"--guest (\S+) --pid (\d+)", "".join(lines))
        assert "a guest that `folioscope boot` holds" in folioscope("attach", found[1]).ok()
        text = folioscope("attach", found[1], "check", "--pid", found[2]).ok()
        assert "no error found" in text and LEFT_OUT not in text
        running.child.send_signal(signal.SIGINT)
        running.child.wait(timeout=10)
