# SPDX-License-Identifier: GPL-2.0-only
"""What a message advises about a guest is done: another process, another socket, another moment, another QEMU."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from folioscope import Session

from command import CACHE, ROOT, Running, folioscope
from own_qemu import INITRAMFS, KERNEL, MEMFD, NONCE, Guest, Qemu
from test_bad_input import DEVTMPFS, PORT, script
from test_exit_status import LACKS
from test_record_program import STATIC

pytestmark = [pytest.mark.qemu, pytest.mark.only_machine("tcg")]

SHARES = ROOT / "tests" / "programs" / "shares.c"
MACHINE = ("-M", "virt,memory-backend=ram", "-object", MEMFD)


def with_program(place: Path, source: Path) -> Path:
    """The guest's initramfs, with a program of this source in its root."""
    (root := place / "root").mkdir()
    subprocess.run([*STATIC, source, "-o", root / source.stem], check=True, capture_output=True)
    archive = ["cpio", "--create", "--format=newc", "--quiet"]
    packed = subprocess.run(archive, cwd=root, input=f"{source.stem}\n".encode(), capture_output=True, check=True)
    made = place / "initramfs.cpio"
    made.write_bytes(INITRAMFS.read_bytes() + packed.stdout)
    return made


def test_a_thread_and_a_vfork(tmp_path: Path) -> None:
    """A thread is none of the processes; one that has another's tables is judged as that."""
    (place := tmp_path / "own").mkdir()
    with Guest(place, *MACHINE, "-initrd", str(with_program(tmp_path, SHARES))) as guest:
        said = guest.command("run", argv=["sh", "-c", "/shares & echo $!"])["program"]["stdout"]["text"]
        process = int(said)
        words = guest.command("run", argv=["sh", "-c", f"sleep 0.3; ls /proc/{process}/task"])["program"]["stdout"]
        (thread,) = {int(word) for word in words["text"].split()} - {process}
        # The child has its parent's name as long as it has its memory.
        named = re.findall(r"^ *(\d+) .* shares$", guest.attach("ps").ok(), re.M)
        (child,) = {int(pid) for pid in named} - {process}
        va = "0x400000"
        said = guest.attach("explain", va, "--pid", thread).sentence()
        assert f"{thread} is a thread of process {process} (shares); give that" in said, said
        said = guest.attach("save", tmp_path / "core", "--pid", child).sentence()
        assert f"process {child} has the tables of process {process} (shares), as after vfork(); give that" in said, (
            said
        )
        guest.attach("explain", va, "--pid", process).ok()
        guest.attach("save", tmp_path / "core", "--pid", process).ok()


def test_a_machine_without_memory(tmp_path: Path) -> None:
    """QEMU's machine `none` has none; the options that are advised give it some."""
    for name in ("none", "some"):
        (tmp_path / name).mkdir()
    with Qemu(tmp_path / "none", "-M", "none", "-cpu", "max", "-S") as qemu:
        said = qemu.attach("check").sentence()
    assert "no RAM of a memory backend" in said, said
    words = said.partition("start QEMU with ")[2].replace("...", "virt").replace("SIZE", "64M").split()
    assert words[0] == "-machine", said
    with Qemu(tmp_path / "some", "-m", "64M", "-S", "-cpu", "max", *words) as qemu:
        assert "kernel half was not judged" in qemu.attach("check").out


PROXY = """
import socket, sys, threading
def copy(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1]); listener.listen(); print("listens", flush=True)
while True:
    one, _ = listener.accept()
    other = socket.socket(socket.AF_UNIX); other.connect(sys.argv[2])
    for pair in ((one, other), (other, one)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest with a memfd, in which nothing is done."""
    with Guest(tmp_path_factory.mktemp("plain"), *MACHINE) as guest:
        yield guest


def test_a_socket_that_qemu_did_not_open(plain: Guest, tmp_path: Path) -> None:
    """Another process speaks for QEMU: the guest's memory is not that process's. QEMU has its own socket."""
    place = tmp_path / "proxy.sock"
    words = ["python3", "-c", PROXY, str(place), str(plain.qmp)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None and proxy.stdout.readline() == "listens\n"
            said = folioscope("attach", place, "check").sentence()
        finally:
            proxy.kill()
    assert "give a socket that QEMU opened (-qmp unix:PATH,server=on,wait=off)" in said, said
    assert plain.attach("check").status == 0


def test_a_stub_that_cannot_be_used(plain: Guest, tmp_path: Path) -> None:
    """Somebody has taken away the name of its socket; the monitor's command is the one that is advised."""
    stub = tmp_path / "gdb.sock"
    plain.ask("human-monitor-command", **{"command-line": f"gdbserver unix:{stub},server=on,wait=off"})
    try:
        stub.unlink()
        said = plain.attach("check").sentence()
        found = re.search(r"which cannot be used .* free it with the monitor command `([^`]+)`", said)
        assert found, said
        plain.ask("human-monitor-command", **{"command-line": found[1]})
    finally:
        plain.ask("human-monitor-command", **{"command-line": "gdbserver none"})
        plain.ask("cont")
    assert plain.attach("check").status == 0


def test_a_program_that_is_no_agent(tmp_path: Path) -> None:
    """It answers before it has said who it is; the initramfs that `make rootfs` builds does not."""
    run = ["run", "--only", "munmap", "--machine", "tcg", "--memory", "256M", "--out", tmp_path]
    reply = '{"event":{"process_ended":{"process":1,"pid":1,"how":{"exit":{"status":0}}}}}'.replace('"', r"\042")
    said = folioscope(
        *run, *script(f"{DEVTMPFS}; printf '{reply}\\n' > {PORT}; sleep 999"), "--boot-timeout", 9
    ).sentence()
    assert "as the guest's first line" in said and "make rootfs" in said, said
    folioscope(*run, "--initrd", INITRAMFS).ok()


def test_symbols_that_the_kernel_does_not_say(tmp_path: Path) -> None:
    """Its own table of symbols is unreadable; its vmlinux has them."""
    vmlinux, image = KERNEL / "vmlinux", bytearray((KERNEL / "Image").read_bytes())
    symbols = subprocess.run(["nm", vmlinux], capture_output=True, text=True, check=True).stdout
    at = {
        name: int(re.search(rf"^([0-9a-f]+) \w {name}$", symbols, re.M)[1], 16)
        for name in ("_text", "kallsyms_token_table")
    }
    start = at["kallsyms_token_table"] - at["_text"]
    digits = image.index(b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\0", start)
    image[digits : digits + 20] = image[digits : digits + 20].replace(b"0\x001", b".\x00.")
    (changed := tmp_path / "Image").write_bytes(image)
    run = ["run", "--only", "munmap", "--kernel", changed, "--memory", "256M", "--out", tmp_path]
    said = folioscope(*run)
    assert "order records were not read" in said.out and "give its vmlinux (--vmlinux)" in said.out, said
    said = folioscope(*run, "--vmlinux", vmlinux)
    assert "order records were not read" not in said.out, said


def test_a_process_that_is_not_seen(tmp_path: Path) -> None:
    """Without the kernel's types a process is seen in user mode alone; one that waits at a checkpoint is."""
    (no_types,) = (lack for lack in LACKS if lack.name == "no BTF")
    (image := tmp_path / "Image").write_bytes(no_types.made((KERNEL / "Image").read_bytes()))
    (place := tmp_path / "own").mkdir()
    with Guest(place, *MACHINE, kernel=image) as guest:
        spawned = guest.command("spawn", name="asleep")["spawned"]
        one, two = tmp_path / "one.core", tmp_path / "two.core"
        save = ["save", "--full", one, "--pid", spawned["pid"]]
        said = guest.attach(*save).sentence()
        assert "looks; leave out --pid" in said, said
        guest.attach(*save[:3]).ok()
        said = folioscope("dump", one).sentence()
        assert "the snapshot holds no process; take it at a checkpoint" in said, said
        guest.command("checkpoint", process=spawned["process"], nonce=NONCE, smaps=False)
        guest.attach("save", two, "--pid", spawned["pid"]).ok()
    folioscope("dump", two).ok()


def test_cores_that_are_saved_again(tmp_path: Path) -> None:
    """One whose process no CPU runs, one that is damaged: as it was saved it can be read."""
    good, moved, damaged = (tmp_path / name for name in ("good", "moved", "damaged"))
    session = Session(["--memory", "128M", "--out", str(tmp_path)], log=tmp_path / "session.log")
    process = session.call("command", command={"spawn": {"name": "one"}})["spawned"]["process"]
    session.call("hold", process=process)
    session.call("save", process=process, path=str(good))
    session.close()
    data = good.read_bytes()
    nonce = re.search(rb'"nonce":"(0x[0-9a-f]+)"', data)
    assert nonce, "a core says which nonce its process has"
    digit = b"1" if nonce[1][-1:] != b"1" else b"2"
    moved.write_bytes(data[: nonce.end(1) - 1] + digit + data[nonce.end(1) :])
    # e_phoff, of no alignment.
    damaged.write_bytes(data[:32] + b"\3" + data[33:])
    assert "save the snapshot at a checkpoint" in folioscope("dump", moved).sentence()
    assert "the snapshot is damaged: " in folioscope("dump", damaged).sentence()
    folioscope("dump", good).ok()


@pytest.mark.skipif(platform.machine() == "aarch64", reason="a host with KVM needs no carrier")
def test_a_carrier(tmp_path: Path) -> None:
    """None serves; then one does, as the message says, and runs a program that has few arguments."""
    socket, here = tmp_path / "carrier.sock", {"FOLIOSCOPE_CARRIER": str(tmp_path / "carrier.sock")}
    busybox = next(CACHE.glob("busybox-*/busybox"))
    words = ["carrier", "exec", "--", busybox, "echo", "carried"]
    said = folioscope(*words, **here).sentence()
    assert f"start it with: folioscope carrier serve --socket {socket}" in said, said
    with Running(said.partition("start it with: folioscope ")[2].split()) as serving:
        assert serving.child.stdout is not None and "ready" in serving.child.stdout.readline()
        # Six bytes each on the way: a host takes no longer arguments than a carrier, but for what is escaped.
        said = folioscope(*words, *["\1" * (1 << 16)] * 12, **here).sentence()
        assert "of arguments and environment" in said and "run it with fewer" in said, said
        assert folioscope(*words, "it", **here).ok() == "carried it\n"
