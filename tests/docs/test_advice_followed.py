# SPDX-License-Identifier: GPL-2.0-only
"""What a message advises is done, and the message is gone. `advice_table.py` says which test follows which message."""

from __future__ import annotations

import gzip
import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folioscope import CommandFailed, Session
from folioscope.client import Attached

import advice_table
from advice import advising
from command import ROOT, Running, folioscope, module
from own_qemu import Lines, Qemu
from recorder import plugin
from test_bad_input import AT_ONCE, KERNEL, altered, is_arm64, other_build, stripped, zboot
from test_record_program import SOURCE as PROTECTS
from test_record_program import STATIC

__all__ = ["plugin"]

OUT = ROOT / "out"
SOURCE = ROOT / "tests" / "programs" / "protects.c"
# No guest begins: what is refused first is of interest, and behind it comes this.
NO_QEMU = ["--qemu", "/nonexistent"]
BEYOND = "/nonexistent was not found"


def test_every_message_that_advises_is_in_the_table() -> None:
    """A new one is either followed by a test, or listed with the reason why it is not."""
    found = [(place, text) for place, text in advising() if not any(part in text for part in advice_table.NO_ADVICE)]
    rows = advice_table.FOLLOWED | advice_table.NOT_FOLLOWED
    missing = [(place, text) for place, text in found if not any(part in text for part in rows)]
    stale = [part for part in rows if not any(part in text for _, text in found)]
    assert not missing and not stale
    assert not advice_table.FOLLOWED.keys() & advice_table.NOT_FOLLOWED.keys() and len(found) > 150


def test_tests_that_the_table_names_are_there() -> None:
    """By file and function; each file has words of what it follows."""
    for test in set(advice_table.FOLLOWED.values()):
        file, _, function = test.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / module(file)).read_text(), re.M), test


def follow(command: list[Any], wrong: list[Any], message: str, *instead: list[Any]) -> None:
    """The message is there with the wrong words, and not with those that it advises: there QEMU is missing."""
    said = folioscope(*command, *NO_QEMU, *wrong, seconds=AT_ONCE).sentence()
    assert message in said, said
    for right in instead:
        ended = folioscope(*command, *NO_QEMU, *right, seconds=AT_ONCE)
        assert ended.status == 2 and message not in ended.err and BEYOND in ended.err, ended


@pytest.mark.usefixtures("plugin")
def test_options(tmp_path: Path) -> None:
    """Those that do not go together, or lead to nothing."""
    run = ["run", "--only", "anon", "--out", tmp_path]
    tcg = [*run, "--machine", "tcg"]
    marks = ["--marks", tmp_path / "marks", "--counter", OUT / "libcounter_plugin.so"]
    single, multi, icount = ["--tcg-thread", "single"], ["--tcg-thread", "multi"], ["--icount"]
    functions = tmp_path / "functions"
    functions.write_text("schedule 0x100\n")
    one = [*marks, "--smp", "1"]
    rows = [
        (tcg, ["--hugepages"], "leave it out, or see --machine", [[]]),
        (tcg, [*icount, *multi], "leave one of them out", [icount, multi]),
        (tcg, [*marks, *single], "leave one of them out", [marks, single]),
        (tcg, [*marks, *single], "thread for each CPU or --icount", [[*marks, *icount]]),
        (tcg, [*marks[:2], "--counter", tmp_path / "none"], "vmm/setup/plugin.sh", [marks]),
        (tcg, [*marks, "--entries", "--smp", "2"], "say --smp 1, or leave it out", [[*one, "--entries"], marks]),
        (tcg, [*one, "--functions", tmp_path / "none"], "check --functions", [[*one, "--functions", functions]]),
        (tcg, ["--kernel", tmp_path / "none"], "check the path given with --kernel", [["--kernel", KERNEL / "Image"]]),
        (tcg, ["--vmlinux", "/none"], "check the path given with --vmlinux", [["--vmlinux", KERNEL / "vmlinux"]]),
        (tcg, ["--initrd", "/none"], "make rootfs", [["--initrd", OUT / "initramfs.cpio"]]),
        (
            tcg,
            ["--granule", "16k", "--cpu", "cortex-a72"],
            "choose another CPU (max, neoverse-n1) or granule (4k, 64k)",
            [["--granule", "16k", "--cpu", cpu] for cpu in ("max", "neoverse-n1")]
            + [["--granule", granule, "--cpu", "cortex-a72"] for granule in ("4k", "64k")],
        ),
        (["record", "--out", tmp_path], icount, "leave that out", [[]]),
        (["record", "--out", tmp_path], single, "leave that out", [[]]),
        (
            ["record", "--out", tmp_path],
            ["--machine", "kvm"],
            "leave --machine out or say --machine tcg",
            [[], ["--machine", "tcg"]],
        ),
        (
            ["record", "--out", tmp_path],
            ["--plugin", tmp_path / "none"],
            "vmm/setup/plugin.sh",
            [["--plugin", OUT / "librecorder_plugin.so"]],
        ),
    ]
    if not is_arm64():
        rows.append((run, ["--machine", "kvm"], "use --machine kvm-in-tcg, which", [["--machine", "tcg"]]))
    for command, wrong, message, instead in rows:
        follow(command, wrong, message, *instead)


def test_kernels_and_symbols(tmp_path: Path) -> None:
    """What is no kernel, or cut short, or packed in a way that is not unpacked; what is no vmlinux."""
    run = ["run", "--only", "anon", "--machine", "tcg", "--out", tmp_path]
    image, vmlinux = (KERNEL / "Image").read_bytes(), KERNEL / "vmlinux"
    made = {
        "text": b"no kernel" * 999,
        "cut": image[: len(image) // 10],
        "packed": zboot(gzip.compress(image, 1), b"lzo"),
        "zboot": zboot(gzip.compress(image, 1)),
        "zboot-cut": zboot(gzip.compress(image, 1))[:-9],
        "gzip": gzip.compress(image, 1),
    }
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    whole = [["--kernel", KERNEL / "Image"]]
    both = [["--kernel", KERNEL / "Image", "--vmlinux", vmlinux]]
    unpacked = [["--kernel", tmp_path / name] for name in ("zboot", "gzip")]
    other = shutil.which("true")
    for wrong, message, instead in (
        (
            ["--kernel", tmp_path / "text"],
            "give arch/arm64/boot/Image of an arm64 build, or an arm64 vmlinuz",
            [*whole, *unpacked],
        ),
        (["--kernel", vmlinux], "give the Image that was built from it", both),
        (["--kernel", tmp_path / "cut"], "copy or unpack it again", whole),
        (
            ["--kernel", tmp_path / "packed"],
            "unpack it first, or build the kernel with gzip or zstd",
            [*whole, *unpacked],
        ),
        (["--kernel", tmp_path / "zboot-cut"], "cut short: copy it again", unpacked[:1]),
        (["--vmlinux", ROOT / "Makefile"], "give the ELF file `vmlinux`", both),
        (["--vmlinux", altered(tmp_path / "stripped", stripped)], "give the vmlinux before it was stripped", both),
        *([] if is_arm64() else [(["--vmlinux", other], "give the arm64 one", both)]),
    ):
        follow(run, wrong, message, *instead)
    assert "give the Image file itself" in folioscope("image", KERNEL).sentence()
    folioscope("image", KERNEL / "Image").ok()


@pytest.mark.usefixtures("plugin")
def test_programs(tmp_path: Path) -> None:
    """Compiled for another machine, or linked dynamically."""
    command = ["record", "--out", tmp_path]
    arm64 = ["aarch64-linux-gnu-gcc", "-Os", "-nostdlib", "-ffreestanding", SOURCE]
    built = {
        "static": [*arm64, "-static"],
        "dynamic": [*arm64, "-pie", "-Wl,-dynamic-linker,/lib/ld-linux-aarch64.so.1", "-lc"],
    }
    for name, words in built.items():
        subprocess.run([*words, "-o", tmp_path / name], check=True, capture_output=True)
    data = (tmp_path / "static").read_bytes()
    (tmp_path / "other").write_bytes(data[:18] + b"\x3e\0" + data[20:])
    static = ["--", tmp_path / "static"]
    follow(command, ["--", tmp_path / "other"], "compile it with: aarch64-linux-gnu-gcc -static", static)
    given = ["--initrd", OUT / "initramfs.cpio", "--", tmp_path / "dynamic"]
    follow(command, ["--", tmp_path / "dynamic"], "link it with -static, or give an initramfs", static, given)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A guest with two workload processes."""
    place = tmp_path_factory.mktemp("advice")
    made = Session(["--memory", "128M", "--out", str(place)], log=place / "session.log")
    yield made
    made.close()


@pytest.fixture(scope="module")
def processes(session: Session) -> list[dict[str, Any]]:
    """Both of them."""
    return [session.call("command", command={"spawn": {"name": name}})["spawned"] for name in ("one", "two")]


@pytest.fixture(scope="module")
def core(session: Session, processes: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of one of them, and of the kernel half."""
    path = tmp_path_factory.mktemp("advice-core") / "core"
    session.call("hold", process=processes[0]["process"])
    session.call("save", process=processes[0]["process"], kernel=True, path=str(path))
    session.call("release", process=processes[0]["process"])
    return path


def refused(session: Session, message: str, method: str, **params: Any) -> None:
    """It is answered with this sentence."""
    with pytest.raises(CommandFailed, match=re.escape(message)):
        session.call(method, **params)


@pytest.mark.qemu
def test_requests(session: Session, processes: list[dict[str, Any]], tmp_path: Path) -> None:
    """Less at a time; another process; without what cannot be had."""
    ram, process = 0x4000_0000, processes[0]["process"]
    refused(session, "ask for them in several", "words", address=hex(ram), count=(1 << 18) + 1)
    assert len(session.call("words", address=hex(ram), count=16)["words"]) == 16
    refused(session, "ask for them in several", "translate", process=process, addresses=[0] * 4097)
    session.call("hold", process=process)
    assert session.call("translate", process=process, addresses=[0] * 2)
    session.call("release", process=process)
    refused(session, "leave them out", "look", pid=1, getters=True)
    assert session.call("look", pid=1)["verdict"]
    refused(session, "leave in_place out", "save_full", path=str(tmp_path / "full"), in_place=True)
    assert session.call("save_full", path=str(tmp_path / "full"))["ram_bytes"] == 128 << 20
    # The core of all memory has several processes.
    pids = [str(each["pid"]) for each in processes]
    said = folioscope("explain", "0x1000", tmp_path / "full").sentence()
    assert "choose one with --pid" in said or "--pid" in said, said
    assert "--pid" not in folioscope("explain", "0x1000", tmp_path / "full", "--pid", pids[0]).err


@pytest.mark.qemu
def test_snapshots(core: Path, session: Session, processes: list[dict[str, Any]], tmp_path: Path) -> None:
    """Cut, damaged, too little in it; options that a snapshot has no use for."""
    data = core.read_bytes()
    for name, bad in (("cut", data[: len(data) // 2]), ("damaged", data.replace(b"FOLIOSCOPE", b"FOLIOSCOPF"))):
        (tmp_path / name).write_bytes(bad)
    assert "save it again" in folioscope("check", tmp_path / "cut").sentence()
    session.call("hold", process=processes[1]["process"])
    session.call("save", process=processes[1]["process"], path=str(tmp_path / "cut"))
    session.call("release", process=processes[1]["process"])
    assert "cut" not in folioscope("check", tmp_path / "cut").err
    assert "save it with --full" in folioscope("ps", core).sentence()
    session.call("save_full", path=str(tmp_path / "full"))
    assert "init" in folioscope("ps", tmp_path / "full").ok()
    kernel, user = "0xffff800080000000", "0x200000"
    explain = ["explain", kernel, core]
    assert "leave --since out" in folioscope(*explain, "--since", core).sentence()
    assert "--since" not in folioscope(*explain).err
    assert "--since" not in folioscope("explain", user, core, "--since", core).err
    assert "leave --vmlinux out" in folioscope("check", core, "--vmlinux", KERNEL / "vmlinux").sentence()
    folioscope("check", core).ok()
    assert "compare two of them by folioscope diff" in folioscope("watch", processes[0]["pid"], core).sentence()
    assert folioscope("diff", core, core).status == 0
    assert "give it another name" in folioscope("check", core, "--json", core).sentence()
    folioscope("check", core, "--json", tmp_path / "json").ok()
    with core.open("ab") as output, Running(["check", str(core)], output=output) as running:
        assert "print to another file" in running.end(AT_ONCE).sentence()
    with (tmp_path / "printed").open("ab") as output, Running(["check", str(core)], output=output) as running:
        assert running.end(AT_ONCE).status == 0
    attach = ["attach", tmp_path / "none", "check"]
    assert "leave out --guest" in folioscope(*attach, "--guest", tmp_path / "none").sentence()
    assert "leave out --guest" in folioscope(*attach, core).sentence()
    assert "leave out" not in folioscope(*attach).sentence()


@pytest.mark.qemu
def test_qemus(tmp_path: Path) -> None:
    """Another socket of QEMU's, a second one where the first is taken, and the very memory that is advised."""
    monitor, second = tmp_path / "hmp.sock", tmp_path / "second.sock"
    private = ["-m", "64M", "-S", "-M", "virt", "-monitor", f"unix:{monitor},server=on,wait=off"]
    assert "that of a QEMU with -qmp unix:PATH" in folioscope("attach", tmp_path / "qmp.sock").sentence()
    with Qemu(tmp_path, *private, "-qmp", f"unix:{second},server=on,wait=off") as qemu:
        assert "give the one of QEMU's option -qmp" in folioscope("attach", monitor).sentence()
        with Lines(qemu.qmp):
            assert "give QEMU a second one with -qmp" in folioscope("attach", qemu.qmp).sentence()
            said = folioscope("attach", second, "check").sentence()
        assert "is private to QEMU" in said and "QEMU serves one client" not in said
        advised = said.partition("Start QEMU with: ")[2].replace("...", "virt").split()
    assert advised[0] == "-machine", said
    with Qemu(tmp_path, "-m", "64M", "-S", *advised) as qemu:
        said = qemu.attach("check").sentence()
    assert "Start QEMU with" not in said and "private" not in said, said


@pytest.mark.qemu
def test_vmlinux_of_that_very_build(tmp_path: Path) -> None:
    """Another build's, then the kernel's own."""
    run = ["run", "--only", "munmap", "--memory", "256M", "--out", tmp_path, "--vmlinux"]
    told = folioscope(*run, altered(tmp_path / "vmlinux", other_build)).sentence()
    assert "give the vmlinux of that very build" in told
    folioscope(*run, KERNEL / "vmlinux").ok()


@pytest.mark.only_machine("tcg")
@pytest.mark.usefixtures("plugin")
def test_a_program_and_a_trace(tmp_path: Path) -> None:
    """More time for a program; the file that a recording is in."""
    trace = tmp_path / "trace"
    record = ["record", "--out", tmp_path, "--trace", trace]
    assert "give it more time with --deadline" in folioscope(*record, "--deadline", 1, "--", "sleep", 3).err
    ended = folioscope(*record, "--deadline", 60, "--", "sleep", 3)
    assert ended.status == 0 and "--deadline" not in ended.err, ended
    assert "check the file's name" in folioscope("record", "--judge", KERNEL / "Image").err
    assert "check the file's name" not in folioscope("record", "--judge", trace).err


def booted(running: Running) -> str:
    """The control socket that `boot` prints."""
    assert running.child.stdout is not None
    lines = "".join(itertools.takewhile(lambda line: not line.startswith("end:"), running.child.stdout))
    found = re.search(r"--guest (\S+)", lines)
    assert found, lines
    return found[1]


@pytest.mark.qemu
def test_which_guest(tmp_path: Path) -> None:
    """None, one, and two of them; and a guest of which several processes wait."""
    words, here = ["boot", "--machine", "tcg", "--memory", "128M", "--out", str(tmp_path)], ["--out", tmp_path]
    assert "boot one with: folioscope boot" in folioscope("check", *here).sentence()
    with Running(words) as running:
        socket = booted(running)
        folioscope("check", *here).ok()
        with Running(words) as second:
            other = booted(second)
            said = folioscope("check", *here).sentence()
            assert "choose one with --guest" in said and socket in said and other in said, said
            for each in (socket, other):
                folioscope("check", "--guest", each).ok()
        client = Attached(socket)
        info = client.call("command", command={"spawn": {"name": "second"}})["spawned"]
        said = folioscope("check", *here).sentence()
        named = re.search(
            r"expected one workload process .* choose one of (\d+) \(boot\), (\d+) \(second\) with --pid", said
        )
        assert named and int(named[2]) == info["pid"], said
        for pid in named.groups():
            folioscope("check", *here, "--pid", pid).ok()
        with pytest.raises(CommandFailed, match="boot it with --record"):
            client.call("record_begin")
        client.close()


@pytest.mark.qemu
def test_a_console_without_a_socket(tmp_path: Path) -> None:
    """`boot --console` says that the guest cannot be looked into; without it there is a socket to look in by."""
    words = ["boot", "--machine", "tcg", "--memory", "128M", "--out", str(tmp_path)]
    with Running([*words, "--console"]) as running:
        assert running.child.stderr is not None
        assert "with --console this guest cannot be looked into; leave it out" in running.child.stderr.readline()
    with Running(words) as running:
        folioscope("check", "--guest", booted(running)).ok()


@pytest.mark.only_machine("tcg")
@pytest.mark.usefixtures("plugin")
def test_a_guest_that_is_recorded(tmp_path: Path) -> None:
    """What needs the recorder, in a guest that was booted with it."""
    words = ["--record", "--machine", "tcg", "--memory", "128M", "--out", str(tmp_path)]
    recorded = Session(words, log=tmp_path / "session.log")
    recorded.call("record_begin")
    assert "findings" in recorded.call("record_end")
    recorded.close()


@pytest.mark.only_machine("tcg")
@pytest.mark.usefixtures("plugin")
def test_explaining_a_trace(tmp_path: Path) -> None:
    """A trace has no earlier instant, and processes of its own."""
    trace, va = tmp_path / "trace", "0x70000000"
    subprocess.run([*STATIC, PROTECTS, "-o", tmp_path / "protects"], check=True, capture_output=True)
    folioscope("record", "--out", tmp_path, "--trace", trace, "--", tmp_path / "protects", va)
    explain = ["explain", va, trace]
    said = folioscope(*explain, "--since", trace).sentence()
    assert "found a trace, which has all that happened; leave --since out" in said
    folioscope(*explain).ok()
    said = folioscope(*explain, "--pid", 999_999).sentence()
    assert "leave --pid out, or name one of these" in said, said
    named = re.search(r" was written and found ([\d, ]+); ", said)
    assert named, said
    for pid in named[1].split(", "):
        assert f"process {pid}" in folioscope(*explain, "--pid", pid).ok()
