# SPDX-License-Identifier: GPL-2.0-only
"""KVM as its user meets it: by default where it is; hosts and input that it cannot serve; guests that die on it.

What cannot be served ends in one sentence and status 2, with nothing left running. On a host without KVM of its own
the commands run in a carrier, which is such a host.
"""

from __future__ import annotations

import json
import os
import platform
import pty
import random
import re
import select
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from folioscope import machines

from command import BOOT_SECONDS, CACHE, COMMAND, ROOT, Ended, Running, folioscope, wait_until

KERNEL = ROOT / "out" / "kernel-4k"
AT_ONCE = 30.0
CARRIED = platform.machine() != "aarch64"

Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def carrier(logs: Path) -> Iterator[dict[str, str]]:
    """The environment of commands on a host with KVM: this one, or a carrier's."""
    if not CARRIED:
        yield {}
        return
    carriers = machines.Carriers(logs)
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTEST_XDIST_WORKER"):
            # These tests change the host, which others may use at the same time.
            patch.delenv("FOLIOSCOPE_CARRIER_VHE", raising=False)
        environment = carriers.environment("kvm-in-tcg", "max")
    yield environment
    carriers.close()


@pytest.fixture
def run(carrier: dict[str, str], tmp_path: Path) -> Run:
    """`folioscope run` on KVM, with the options of the test."""

    def run(*options: Any, memory: str = "256M", seconds: float = AT_ONCE) -> Ended:
        machine = "kvm-in-tcg" if CARRIED else "kvm"
        words = ("run", "--machine", machine, "--only", "munmap", "--memory", memory, "--out", tmp_path, *options)
        return folioscope(*words, seconds=seconds, **carrier)

    return run


@pytest.fixture(scope="module")
def inside(carrier: dict[str, str]) -> Callable[[str], str]:
    """A shell's words on the host that has KVM; in a carrier only, where they do no harm."""
    if not CARRIED:
        pytest.skip("it changes /dev, which is the carrier's to change")
    busybox = next(CACHE.glob("busybox-*/busybox"), None)
    assert busybox, "there is no busybox for the carrier"

    def inside(words: str) -> str:
        arguments = [str(COMMAND), "carrier", "exec", "--", str(busybox), "sh", "-c", words]
        environment = {"PATH": "/usr/bin:/bin", **carrier}
        return subprocess.check_output(arguments, cwd=ROOT, env=environment, text=True, timeout=60)

    return inside


def told(ended: Ended, *words: str) -> None:
    """Each of the words is in the one sentence."""
    sentence = ended.sentence()
    missing = [word for word in words if word not in sentence]
    assert not missing, f"{missing} not in: {sentence}"


def test_kvm_is_the_default_where_it_is(carrier: dict[str, str], tmp_path: Path) -> None:
    """On an arm64 host with /dev/kvm, `auto` means our own monitor."""
    report = tmp_path / "report.json"
    words = ["run", "--only", "munmap", "--memory", "256M", "--out", str(tmp_path), "--json", str(report)]
    if CARRIED:
        words = ["carrier", "exec", "--", str((ROOT / "out" / "folioscope-arm64").resolve()), *words]
    assert folioscope(*words, seconds=BOOT_SECONDS, **carrier).status == 0
    assert json.loads(report.read_text())["machine"]["kind"] == "kvm"


@pytest.mark.skipif(not CARRIED, reason="an arm64 host has KVM, or may have")
def test_a_host_that_is_not_arm64(tmp_path: Path) -> None:
    """It is told what it can do instead."""
    ended = folioscope("run", "--machine", "kvm", "--out", tmp_path, seconds=AT_ONCE)
    told(ended, "--machine kvm needs an arm64 host", platform.machine(), "kvm-in-tcg")


def test_no_kvm(run: Run, inside: Callable[[str], str]) -> None:
    """The device is not there: what it takes, and what works without."""
    inside("mv /dev/kvm /dev/kvm.away")
    try:
        told(run(), "there is no /dev/kvm", "started at EL2", "kvm-in-tcg or tcg")
    finally:
        inside("mv /dev/kvm.away /dev/kvm")


@pytest.mark.parametrize("cpus", [0, 9, 4096])
def test_cpus_that_no_guest_has(run: Run, cpus: int) -> None:
    """The number, and how many there may be."""
    told(run("--cpus", cpus), f"a guest with {cpus} CPU", "8")


@pytest.mark.parametrize("memory", ["1M", "4096G"])
def test_memory_that_the_host_does_not_have(run: Run, memory: str) -> None:
    """The size in bytes, and what it may be."""
    size = {"1M": 1 << 20, "4096G": 1 << 42}[memory]
    told(run(memory=memory), str(size), "memory of this host")


def test_huge_pages_that_the_host_does_not_have(run: Run, inside: Callable[[str], str]) -> None:
    """None are reserved: where to reserve them."""
    assert inside("cat /proc/sys/vm/nr_hugepages").strip() == "0"
    told(run("--hugepages"), "nr_hugepages")


def test_a_directory_to_write_in_that_is_not_there(run: Run, tmp_path: Path) -> None:
    """The option and the directory, before the guest is booted."""
    told(run("--writable", tmp_path / "none"), "--writable", str(tmp_path / "none"), "make it first")


def test_a_32_bit_kernel(run: Run, tmp_path: Path) -> None:
    """An Arm zImage is recognised (Documentation/arch/arm/booting.rst): its magic is at 0x24."""
    path = tmp_path / "zImage"
    path.write_bytes(bytes(0x24) + bytes.fromhex("18286f01") + bytes(4096))
    told(run("--kernel", path), str(path), "32-bit")


def test_a_kernel_that_never_starts(run: Run, tmp_path: Path) -> None:
    """Half a kernel: nothing on the console, and where the CPUs stand."""
    path, image = tmp_path / "Image", (KERNEL / "Image").read_bytes()
    path.write_bytes(image[: len(image) // 2])
    ended = run("--kernel", path, "--boot-timeout", 5, seconds=BOOT_SECONDS)
    told(ended, "did not speak within 5 s", "console is empty", "bundles/")
    assert "CPU 0 at EL1: PC 0x" in ended.err


def test_a_kernel_that_dies_early(run: Run, tmp_path: Path) -> None:
    """Its own last words, and where it stands by symbol; the bundle has the rest."""
    garbage = tmp_path / "initrd"
    garbage.write_bytes(random.Random(1).randbytes(100_000))
    ended = run("--initrd", garbage, seconds=BOOT_SECONDS)
    told(ended, "the guest's kernel panicked", "Kernel panic - not syncing: VFS")
    assert "CPU 0 at EL1: PC 0xffff8000" in ended.err and "+0x" in ended.err, ended.err
    kept = next((tmp_path / "bundles").iterdir())
    assert {path.name for path in kept.iterdir()} >= {"why.txt", "command.txt", "console.log", "registers.txt"}
    assert "Unable to mount root fs" in (kept / "console.log").read_text(errors="replace")
    assert "folioscope boot --machine kvm" in (kept / "command.txt").read_text()


def test_a_guest_leaves_nothing(
    run: Run, inside: Callable[[str], str], carrier: dict[str, str], tmp_path: Path
) -> None:
    """After one that was judged, one that was not, and one that was killed, no process of ours is left, nor memory
    of theirs."""

    def ours() -> int:
        # One at a time: Debian 12's busybox takes no more.
        links = inside("for link in /proc/[0-9]*/exe; do readlink $link; done; true")
        return links.split().count(str(program))

    program = (ROOT / "out" / "folioscope-arm64").resolve()
    words = ["boot", "--machine", "kvm-in-tcg", "--memory", "256M", "--out", str(tmp_path / "killed")]
    with Running(words, carrier) as running:
        assert wait_until(lambda: ours() == 1, BOOT_SECONDS), (
            "a guest that runs is not seen: nor would one that is left"
        )
        running.child.kill()
    assert wait_until(lambda: ours() == 0, AT_ONCE)
    assert run(seconds=BOOT_SECONDS).status == 0
    assert run("--cpus", "9").status == 2
    assert ours() == 0


def test_every_thread_is_confined(inside: Callable[[str], str], carrier: dict[str, str], tmp_path: Path) -> None:
    """The main thread by the process's two filters, those that serve the guest by one of their own besides."""
    program = (ROOT / "out" / "folioscope-arm64").resolve()
    look = f"""for exe in /proc/[0-9]*/exe; do
        [ "$(readlink $exe)" != {program} ] || cat ${{exe%exe}}task/*/status
    done; true"""

    def threads() -> dict[str, tuple[str, int]]:
        found = {}
        for text in inside(look).split("Name:")[1:]:
            fields = dict(line.split(":", 1) for line in ("Name:" + text).splitlines())
            found[fields["Name"].strip()] = (fields["Seccomp"].strip(), int(fields["Seccomp_filters"]))
        return found

    main, serving = ("2", 2), ("2", 3)
    expected = {program.name[:15]: main, "console": serving, "io": serving, "vcpu0": serving, "vcpu1": serving}
    words = ["boot", "--machine", "kvm-in-tcg", "--console", "--memory", "256M", "--out", str(tmp_path), "--smp", "2"]
    with Running(words, carrier):
        # While it starts it has not all of them, and they are not all confined.
        assert wait_until(lambda: threads() == expected, BOOT_SECONDS), threads()


def test_a_monitor_by_itself(carrier: dict[str, str], tmp_path: Path) -> None:
    """`boot --console` shows the guest's console and ends with the guest. The command line is the user's."""
    machine = "kvm-in-tcg" if CARRIED else "kvm"
    words = ["boot", "--machine", machine, "--console", "--out", str(tmp_path), "--cpus", "1"]
    words += ["--append", "rdinit=/bin/busybox -- poweroff -f"]
    with Running(words, carrier) as running:
        ended = running.end(BOOT_SECONDS)
    assert ended.status == 0, ended.err
    assert "Linux version" in ended.out and "reboot: Power down" in ended.out
    assert "cannot be looked into; leave it out, or start QEMU yourself and use `folioscope attach`" in ended.err
    said = re.search("Kernel command line: (.*?)\r?\n", ended.out)
    assert said and said[1].split(" ", 2)[2] == "rdinit=/bin/busybox -- poweroff -f", ended.out


@pytest.mark.parametrize("where", [pytest.param("tcg", marks=pytest.mark.qemu), "kvm"])
def test_keys_on_a_terminal(where: str, carrier: dict[str, str], tmp_path: Path) -> None:
    """The guest's shell gets what is typed; Ctrl-A x ends the monitor, and the terminal is as it was."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(ours)
    machine = "kvm-in-tcg" if where == "kvm" and CARRIED else where
    words = ["boot", "--machine", machine, "--console", "--out", str(tmp_path), "--cpus", "1"]
    words += ["--append", "quiet rdinit=/bin/busybox -- sh"]
    shown = bytearray()

    def shows(text: bytes) -> bool:
        while select.select([ours], [], [], 0)[0]:
            shown.extend(os.read(ours, 1 << 16))
        return text in shown

    try:
        with Running(words, carrier, output=theirs, input=theirs) as running:
            assert wait_until(lambda: shows(b"# "), BOOT_SECONDS), shown
            # Ctrl-A twice is one for the guest, whose line editor goes to the line's start.
            os.write(ours, b"$((6 * 7))-typed\x01\x01echo \r")
            assert wait_until(lambda: shows(b"\n42-typed"), AT_ONCE), shown
            os.write(ours, b"\x01x")
            assert running.end(AT_ONCE).status == 0
        assert termios.tcgetattr(ours) == before
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.long
@pytest.mark.skipif(not CARRIED, reason="there is no carrier")
def test_a_carrier_that_ends(tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose carrier goes away is lost with a sentence, and does not hang."""
    monkeypatch.delenv("FOLIOSCOPE_CARRIER_VHE", raising=False)
    carriers = machines.Carriers(logs)
    environment = carriers.environment("kvm-in-tcg", "max")
    try:
        words = [str(COMMAND), "session", "--machine", "kvm-in-tcg", "--out", str(tmp_path), "--memory", "256M"]
        with subprocess.Popen(
            words,
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as session:
            assert session.stdout and session.stderr
            assert "ready" in json.loads(session.stdout.readline())
            carriers.close()
            assert session.wait(timeout=20) == 2
            assert b"carrier" in session.stderr.read()
    finally:
        carriers.close()
