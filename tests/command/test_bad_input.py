# SPDX-License-Identifier: GPL-2.0-only
"""Input that makes no sense, and guests that misbehave: one sentence, status 2, nothing left running.

A sentence says what was found and what to do; the words that matter are written down here.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import re
import shutil
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command import BOOT_SECONDS, ROOT, Ended, Running, folioscope, wait_until

KERNEL = ROOT / "out" / "kernel-4k"
# What is wrong with the input is found before anything boots.
AT_ONCE = 20.0
ARM64, X86 = 0xAA64, 0x8664
# Where the agent speaks: its port, or the second UART, which needs nothing mounted.
DEVTMPFS, PORT = "mount -t devtmpfs dev /dev", "/dev/vport0p1"
UART = "/dev/ttyAMA1"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ended]:
    """`folioscope run`, with the options of the test."""

    def run(*options: Any, out: Path | str = tmp_path, only: str = "munmap", seconds: float = AT_ONCE) -> Ended:
        return folioscope("run", "--only", only, "--memory", "256M", "--out", out, *options, seconds=seconds)

    return run


@pytest.fixture(scope="module")
def image() -> bytes:
    """The pinned kernel."""
    return (KERNEL / "Image").read_bytes()


def told(ended: Ended, *words: str) -> None:
    """Each of the words is in the one sentence."""
    sentence = ended.sentence()
    missing = [word for word in words if word not in sentence]
    assert not missing, f"{missing} not in: {sentence}"


# Kernels.


def pe(machine: int, size: int = 4096) -> bytes:
    """An EFI program with no arm64 Image header."""
    head = bytearray(size)
    head[:2] = b"MZ"
    struct.pack_into("<I", head, 0x3C, 0x80)
    head[0x80:0x84] = b"PE\0\0"
    struct.pack_into("<H", head, 0x84, machine)
    return bytes(head)


def bzimage() -> bytes:
    """The header of an x86 kernel (Documentation/arch/x86/boot.rst)."""
    head = bytearray(4096)
    head[0x1FE:0x200] = b"\x55\xaa"
    head[0x202:0x206] = b"HdrS"
    return bytes(head)


def zboot(payload: bytes, name: bytes = b"gzip") -> bytes:
    """As drivers/firmware/efi/libstub/zboot-header.S lays it out."""
    head = bytearray(64)
    head[:8] = b"MZ\0\0zimg"
    struct.pack_into("<II", head, 8, len(head), len(payload))
    head[24 : 24 + len(name)] = name
    return bytes(head) + payload


NOT_ARM64 = ["not an arm64 kernel image", "arch/arm64/boot/Image"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", ["is empty", *NOT_ARM64], id="empty"),
        pytest.param(b"\0" * 100_000, ["no format that is known", *NOT_ARM64], id="zeros"),
        pytest.param(bzimage(), ["x86 kernel (bzImage)", *NOT_ARM64], id="bzimage"),
        pytest.param(pe(X86), ["EFI program for x86", *NOT_ARM64], id="pe-x86"),
        pytest.param(pe(ARM64), ["EFI program for arm64", *NOT_ARM64], id="pe-no-kernel"),
        pytest.param(gzip.compress(b"no kernel" * 999), ["a gzip file around", *NOT_ARM64], id="gzip-no-kernel"),
        pytest.param(gzip.compress(b"no kernel" * 999)[:-9], ["gzip data cannot be unpacked"], id="gzip-cut"),
        pytest.param(zboot(b"x" * 99)[:-9], ["EFI zboot", "cut short", "copy it again"], id="zboot-cut"),
        pytest.param(zboot(b"x" * 99, b"zip"), ["EFI zboot", "compressed with", "zip"], id="zboot-unknown"),
        pytest.param(b"!<arch>\ndebian-binary", ["Debian package", "dpkg-deb -x"], id="deb"),
    ],
)
def test_no_kernel(run: Callable[..., Ended], tmp_path: Path, data: bytes, words: list[str]) -> None:
    """What the file is, and what to give instead."""
    path = tmp_path / "kernel"
    path.write_bytes(data)
    told(run("--kernel", path), str(path), *words)


def test_kernel_is_missing(run: Callable[..., Ended], tmp_path: Path) -> None:
    """Neither a file nor one that can be: the path, and which option named it."""
    told(run("--kernel", "/nonexistent"), "a kernel at /nonexistent", "No such file", "--kernel", "KERNEL=")
    told(run("--kernel", tmp_path), str(tmp_path), "no regular file", "KERNEL=")


def test_vmlinux_is_no_kernel(run: Callable[..., Ended]) -> None:
    """It belongs into the other option."""
    told(run("--kernel", KERNEL / "vmlinux"), "probably a vmlinux", "VMLINUX=", "arch/arm64/boot/Image")


def test_image_is_cut_short(run: Callable[..., Ended], tmp_path: Path, image: bytes) -> None:
    """A tenth of it is seen from its header; half of it never starts, and that is said in time."""
    path = tmp_path / "Image"
    path.write_bytes(image[: len(image) // 10])
    told(run("--kernel", path), str(path), "cut short", "again")
    path.write_bytes(image[: len(image) // 2])
    ended = run("--kernel", path, "--boot-timeout", 2)
    told(ended, "did not speak within 2 s", "console is empty", "cut short", "bundles/")


@pytest.mark.parametrize("pack", [lambda data: gzip.compress(data, 1), lambda data: zboot(gzip.compress(data, 1))])
def test_packed_kernel_boots(run: Callable[..., Ended], tmp_path: Path, image: bytes, pack: Any) -> None:
    """As a whole by gzip, and as an EFI zboot image: unpacked by us, judged as ever."""
    path = tmp_path / "vmlinuz"
    path.write_bytes(pack(image))
    said = run("--kernel", path, "--vmlinux", KERNEL / "vmlinux", seconds=BOOT_SECONDS).ok()
    assert "no error found" in said and "order records were not read" not in said


def test_16k_needs_a_cpu_with_16k(run: Callable[..., Ended]) -> None:
    """The kernel would print nothing and hang."""
    ended = run("--machine", "tcg", "--granule", "16k", "--cpu", "cortex-a72")
    told(ended, "16K pages", "cortex-a72 has no 16K granule", "neoverse-n1")


# Symbols.


def altered(to: Path, change: Callable[[bytearray], None]) -> Path:
    """A copy of the vmlinux, changed."""
    data = bytearray((KERNEL / "vmlinux").read_bytes())
    change(data)
    to.write_bytes(data)
    return to


def other_build(data: bytearray) -> None:
    """Another build id: each note GNU of type 3 with twenty bytes, the vDSO's as well."""
    at, note = -1, struct.pack("<III", 4, 20, 3) + b"GNU\0"
    while (at := data.find(note, at + 1)) >= 0:
        data[at + len(note)] ^= 1


def stripped(data: bytearray) -> None:
    """Without section headers there is no symbol table."""
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HH", data, 60, 0, 0)


def without_contpte(data: bytearray) -> None:
    """As if of a kernel without CONFIG_ARM64_CONTPTE: the symbol that tells has another name."""
    name = b"\0contpte_set_ptes\0"
    while (at := data.find(name)) >= 0:
        data[at + 1] = ord("x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_build, ["is not the kernel that runs", "build id", "the vmlinux of that very build"]),
        (stripped, ["has no symbol table", "before it was stripped"]),
        (
            without_contpte,
            ["without CONFIG_ARM64_CONTPTE", "is not the kernel that runs", "the vmlinux of that very build"],
        ),
    ],
)
def test_vmlinux_of_another_kernel(run: Callable[..., Ended], tmp_path: Path, change: Any, words: list[str]) -> None:
    """The tables would be read by wrong addresses, or what cannot be there be asked for."""
    told(run("--vmlinux", altered(tmp_path / "vmlinux", change), seconds=BOOT_SECONDS), *words)


def test_vmlinux_of_another_granule(run: Callable[..., Ended]) -> None:
    """Two builds of one source: the build ids tell them apart."""
    other = ROOT / "out" / "kernel-16k" / "vmlinux"
    assert other.is_file(), "build it with: make build GRANULE=16k"
    told(run("--vmlinux", other, seconds=BOOT_SECONDS), str(other), "is not the kernel that runs", "build id")


def test_vmlinux_is_missing_or_no_vmlinux(run: Callable[..., Ended]) -> None:
    """The path, and what a vmlinux is."""
    told(run("--vmlinux", "/nonexistent"), "a vmlinux at /nonexistent", "--vmlinux", "VMLINUX=")
    told(run("--vmlinux", ROOT / "Makefile"), "not a usable vmlinux", "the kernel build left beside the Image")
    told(run("--vmlinux", shutil.which("true")), "another architecture" if not is_arm64() else "vmlinux")


def is_arm64() -> bool:
    """Whether this host's own programs are arm64's."""
    return struct.unpack_from("<H", Path("/proc/self/exe").read_bytes()[:20], 18)[0] == 183


# QEMU and numbers.


def test_qemu_is_missing(run: Callable[..., Ended]) -> None:
    """Which package has it."""
    ended = run("--machine", "tcg", "--qemu", "/nonexistent")
    told(ended, "/nonexistent was not found", "qemu-system-arm", "version 10")


def test_qemu_is_too_old(run: Callable[..., Ended], tmp_path: Path) -> None:
    """It does not know all options and ends, and its version says why."""
    stub = tmp_path / "qemu"
    version = "echo 'QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7)'"
    stub.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {version} && exit\nexit 1\n')
    stub.chmod(0o755)
    ended = run("--machine", "tcg", "--qemu", stub)
    told(ended, "QEMU 7.2.19 is too old", "version 10.0 or later", "bookworm-backports")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--memory", "0", ["0 bytes of memory makes no sense", "expected", "memory of this host"]),
        ("--memory", "1K", ["1024 bytes of memory makes no sense"]),
        ("--memory", "1024G", ["makes no sense", "memory of this host"]),
        ("--memory", "65M", ["a multiple of 2 MiB"]),
        ("--memory", "much", ["'--memory <SIZE>'", "such as 1G", "much"]),
        ("--memory", "99999999999999999999G", ["'--memory <SIZE>'", "such as 1G"]),
        ("--smp", "0", ["0 CPUs makes no sense", "1 to 512"]),
        ("--smp", "100000", ["100000 CPUs makes no sense", "1 to 512"]),
        ("--smp", "two", ["'--smp <N>'", "two"]),
        ("--granule", "8k", ["'--granule <GRANULE>'", "4k, 16k, 64k"]),
        ("--machine", "z80", ["'--machine <MACHINE>'", "tcg"]),
        ("--boot-timeout", "0", ["'--boot-timeout <SECONDS>'", "0 is not in 1"]),
        pytest.param(
            *("--cpu", "z80", ["QEMU ended before the guest started", "unable to find CPU model 'z80'"]),
            marks=pytest.mark.qemu,
        ),
        ("--only", "waltz", ['no workload "waltz"', "it has anon, neighbour"]),
        ("--initrd", "/nonexistent", ["initramfs at /nonexistent", "make rootfs"]),
        ("--out", "/proc/nowhere", ["a directory in /proc/nowhere", "full, or read-only"]),
        ("--out", ROOT / "Makefile", ["Makefile", "Not a directory"]),
    ],
)
def test_option_makes_no_sense(tmp_path: Path, option: str, value: Any, words: list[str]) -> None:
    """Refused before anything boots, with what would make sense. Usage errors are clap's, with a hint of its own.

    What KVM refuses is in test_kvm.py."""
    where = [] if option == "--out" else ["--out", tmp_path]
    where += [] if option == "--machine" else ["--machine", "tcg"]
    only = [] if option == "--only" else ["--only", "munmap"]
    ended = folioscope("run", *where, *only, option, value, seconds=AT_ONCE)
    if ended.err.startswith("error: "):
        assert ended.status == 2
        assert all(word in ended.err for word in words), ended.err
        assert ended.err.strip().endswith("For more information, try '--help'.")
    else:
        told(ended, *words)


def test_policy_that_is_not_there(run: Callable[..., Ended]) -> None:
    """It is the kernel that knows its policies."""
    told(
        run("--policy", "generous", seconds=BOOT_SECONDS),
        'no order policy "generous"',
        "it has sysfs, baseline, simple, variable",
    )


# Guests that misbehave. The kernel starts a shell with a script of ours; a double quote cannot be in it.


def script(text: str, init: str = "/bin/sh") -> list[str]:
    """Options that let a script be the guest's first process."""
    assert '"' not in text
    return [f'--append=rdinit={init} -- -c "{text}"']


def bundle(sentence: str) -> Path:
    """The directory that a sentence names."""
    found = re.search(r"what there was of it is in (\S+)", sentence)
    assert found, sentence
    return Path(found[1])


WHOLE = {"why.txt", "command.txt", "console.log", "registers.txt", "findings.txt", "tables.core"}


def hello(protocol: int) -> str:
    """A shell's words for a first line of the agent's."""
    return rf"printf '{{\042hello\042:{{\042protocol\042:{protocol}}}}}\n' > {UART}"


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"echo good morning > {UART}; sleep 999", ["garbage on the channel", "good morning"]),
        (f"{DEVTMPFS}; printf 'x\\377\\376\\n' > {PORT}; sleep 999", ["garbage on the channel", "not UTF-8", "xff"]),
        (f"{DEVTMPFS}; tr '\\000' x < /dev/zero > {PORT}", ["bytes without a line end", "xxxx", "garbage"]),
        (f"{hello(99)}; sleep 999", ["protocol version 99", "build the initramfs anew"]),
        ("sleep 999", ["did not speak within 5 s", "the last line of its console is"]),
    ],
    ids=["text", "bytes", "endless", "version", "silence"],
)
def test_agent_speaks_nonsense(run: Callable[..., Ended], text: str, words: list[str]) -> None:
    """What came is shown, and what there is of the guest is kept."""
    ended = run("--machine", "tcg", *script(text), "--boot-timeout", 5, seconds=BOOT_SECONDS)
    told(ended, *words)
    kept = bundle(ended.sentence())
    assert {path.name for path in kept.iterdir()} >= WHOLE
    assert "Linux version" in (kept / "console.log").read_text(errors="replace")


def test_initrd_is_garbage(run: Callable[..., Ended], tmp_path: Path) -> None:
    """The kernel panics: its own words are in the sentence, the whole console in the bundle."""
    garbage = tmp_path / "initrd"
    garbage.write_bytes(random.Random(1).randbytes(100_000))
    ended = run("--initrd", garbage, seconds=BOOT_SECONDS)
    told(ended, "the guest's kernel panicked", "Kernel panic - not syncing: VFS")
    kept = bundle(ended.sentence())
    assert {path.name for path in kept.iterdir()} >= WHOLE
    assert "CPU 0 at EL1" in (kept / "registers.txt").read_text()
    assert "Unable to mount root fs" in (kept / "console.log").read_text(errors="replace")


def test_panic_during_the_tour(run: Callable[..., Ended], tmp_path: Path) -> None:
    """The report has what was judged before, says which workload was not, and what the kernel said; the bundle has the
    tables."""
    crash = "(until pidof tour; do :; done; sleep 0.3; echo c > /proc/sysrq-trigger) & exec /init"
    names = "anon,neighbour,munmap,mprotect,dontneed,fork,shmem,thp,allocfail,zeropage"
    options = [*script(f"mount -t proc proc /proc; {crash}"), "--json", tmp_path / "report.json"]
    ended = run(*options, only=names, seconds=BOOT_SECONDS)
    assert ended.status == 1, ended.out
    assert re.search(r"not judged: workload \w+: the guest's kernel panicked", ended.out), ended.out
    assert "V1 the kernel reports: Kernel panic - not syncing: sysrq triggered crash" in ended.out
    report = json.loads((tmp_path / "report.json").read_text())
    totals = report["totals"]
    assert (report["outcome"], report["exit_status"], totals["errors"], totals["rules"]["V1"]) == ("errors", 1, 1, 1)
    kept = bundle(ended.out)
    assert {path.name for path in kept.iterdir()} >= WHOLE
    assert "sysrq" in (kept / "console.log").read_text(errors="replace")


@pytest.mark.qemu
def test_what_was_judged_is_kept(tmp_path: Path) -> None:
    """QEMU is killed after the first workload, whose checkpoints stay in every form of the report."""
    files = {name: tmp_path / name for name in ("json", "junit", "ktap")}
    options = [str(word) for name, path in files.items() for word in (f"--{name}", path)]
    command = ["run", "--machine", "tcg", "--memory", "256M", "--out", str(tmp_path), *options]
    command += ["--only", "munmap,mprotect,fork,dontneed"]
    with Running(command) as running:
        assert running.child.stdout is not None
        seen = list(itertools.takewhile(lambda line: "ok munmap: partial" not in line, running.child.stdout))
        (qemu,) = running.qemus()
        os.kill(qemu, signal.SIGKILL)
        ended = running.end(BOOT_SECONDS)
    assert any("ok munmap: populated" in line for line in seen)
    assert (ended.status, ended.err) == (2, "")
    assert "the guest is lost: QEMU ended with signal: 9" in ended.out
    report = json.loads(files["json"].read_text())
    assert [step["step"] for step in report["steps"]][:2] == ["populated", "partial"]
    assert "QEMU ended" in report["not_judged"][0]["reason"]
    assert "ok 1 munmap" in files["ktap"].read_text() and "not ok" in files["ktap"].read_text()
    assert 'name="munmap"' in files["junit"].read_text() and "QEMU ended" in files["junit"].read_text()
    assert (bundle(ended.out) / "command.txt").is_file()


@pytest.mark.qemu
def test_what_a_workload_was_seen_to_do_is_kept(tmp_path: Path) -> None:
    """QEMU is killed between a workload's steps: those that were judged stay, and what kept it from its end is said."""
    report = tmp_path / "report.json"
    words = ["run", "--machine", "tcg", "--out", str(tmp_path), "--only", "hugetlb", "--json", str(report)]
    with Running(words) as running:

        def checkpoints() -> int:
            logs = [log.read_text(errors="replace") for log in tmp_path.glob("guests/*/channel.log")]
            return sum(log.count('"checkpoint":{') for log in logs)

        assert wait_until(lambda: checkpoints() >= 3, BOOT_SECONDS)
        (qemu,) = running.qemus()
        os.kill(qemu, signal.SIGKILL)
        ended = running.end(BOOT_SECONDS)
    assert (ended.status, ended.err) == (2, "")
    kept = json.loads(report.read_text())
    steps = [(step["workload"], step["step"]) for step in kept["steps"]]
    assert steps[0] == ("hugetlb", "64K") and {workload for workload, _ in steps} == {"hugetlb"}
    assert all(process["entries"]["pages"] for step in kept["steps"] for process in step["processes"])
    assert "workload hugetlb: " in kept["not_judged"][-1]["reason"]


# Snapshots.
