# SPDX-License-Identifier: GPL-2.0-only
"""Sockets at whose other end is no QEMU and no holder of a guest, or one that lies: a sentence, in a bounded time."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from command import Ended, folioscope

GREETING = {"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10}, "package": ""}, "capabilities": []}}
READY = {"ready": {"version": 1, "hello": {}, "seconds": 0.1}}
# Longer than each step that is waited for (20 s), shorter than two of them and what is undone afterwards.
SECONDS = 60.0

Talk = Callable[[socket.socket], None]


class Server:
    """Talks to each client in a thread of its own until the client goes."""

    def __init__(self, path: Path, talk: Talk | None) -> None:
        self.path, self.talk = path, talk
        self.listener = socket.socket(socket.AF_UNIX)
        # Through its directory: an address has room for 107 bytes.
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        self.listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)
        self.listener.listen(0 if talk is None else 16)

    def __enter__(self) -> Server:
        if self.talk is not None:
            threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self) -> None:
        """Until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                stream, _ = self.listener.accept()
                threading.Thread(target=self.client, args=[stream], daemon=True).start()

    def client(self, stream: socket.socket) -> None:
        """One client."""
        # It goes when it has had enough.
        with stream, contextlib.suppress(OSError, ValueError):
            self.talk(stream)
            while stream.recv(1 << 16):
                pass


def line(message: Any) -> bytes:
    """A message as QEMU sends it."""
    return json.dumps(message).encode() + b"\r\n"


def says(*pieces: bytes) -> Talk:
    """Says something, and is silent then."""
    return lambda stream: [stream.sendall(piece) for piece in pieces] and None


def again(*pieces: bytes) -> Talk:
    """The last of them without end."""

    def talk(stream: socket.socket) -> None:
        for piece in pieces[:-1]:
            stream.sendall(piece)
        many = pieces[-1] * (65536 // len(pieces[-1]) + 1)
        while True:
            stream.sendall(many)

    return talk


def closes(*pieces: bytes) -> Talk:
    """Says something, and goes."""

    def talk(stream: socket.socket) -> None:
        for piece in pieces:
            stream.sendall(piece)
        stream.shutdown(socket.SHUT_RDWR)

    return talk


def answers(answer: Callable[[dict[str, Any]], Any], seconds: float = 0) -> Talk:
    """A QMP server that gives this to each command; bytes as they are."""

    def talk(stream: socket.socket) -> None:
        stream.sendall(line(GREETING))
        for text in stream.makefile("rb"):
            command = json.loads(text)
            time.sleep(seconds)
            given = answer(command)
            stream.sendall(given if isinstance(given, bytes) else line({"return": given, "id": command["id"]}))

    return talk


EVENT = line({"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}})
SERVERS: dict[str, tuple[Talk | None, str]] = {
    "nothing": (says(), "nobody greeted at"),
    "takes nobody": (None, "cannot connect to"),
    "closes": (closes(), "is no QMP socket"),
    "garbage": (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "SSH-2.0"),
    "binary": (says(bytes(range(256)), b"\n"), "is no QMP socket"),
    "escapes": (says(b"\x1b[2J\x1b]0;title\x07\n"), "is no QMP socket"),
    "half a line": (says(b'{"QMP": {"version"'), "nobody greeted at"),
    "half a line, closes": (closes(b'{"QMP": {"version"'), "is no QMP socket"),
    "100 MB": (says(b"x" * 100_000_000), "is no QMP socket"),
    "bytes without end": (again(b"x"), "is no QMP socket"),
    "lines without end": (again(b"\n"), "is no QMP socket"),
    "events without end": (again(EVENT), "nobody greeted at"),
    "another greeting": (says(line({"hello": 1})), "is no QMP socket"),
    "a version that is none": (says(line({"QMP": {"version": 7}})), "is no QMP socket"),
    "greets, nothing": (says(line(GREETING)), "did not answer qmp_capabilities within"),
    "greets, closes": (closes(line(GREETING)), "closed"),
    "greets, garbage": (says(line(GREETING), b"+OK\n"), "what is no QMP"),
    "greets, half a line": (says(line(GREETING), b'{"return'), "did not answer"),
    "greets, 100 MB": (again(line(GREETING), b"y"), "what is no QMP"),
    "greets, events without end": (again(line(GREETING), EVENT), "QEMU's monitor"),
    "greets, answers without end": (again(line(GREETING), line({"return": {}, "id": 1})), "did not answer"),
    "refuses all": (
        answers(lambda it: line({"error": {"class": "GenericError", "desc": "no"}, "id": it["id"]})),
        "QEMU refused query-target",
    ),
    "refuses in escapes": (
        answers(lambda it: line({"error": {"class": "X", "desc": "\x1b[2Jn\\o\x07\u202e\u200b"}, "id": it["id"]})),
        r"QEMU refused query-target: \u001b[2Jn\\o\u0007\u202e\u200b",
    ),
    "empty answers": (answers(lambda _: {}), "expected aarch64"),
    "lists": (answers(lambda _: []), "expected aarch64"),
    "texts": (answers(lambda _: "\u202e\x1b[31m"), "expected aarch64"),
    "a target in escapes": (answers(lambda _: {"arch": "a\u202e\x1b[31m"}), r"emulates a\u202e\u001b[31m:"),
    "a guest's, garbage": (says(line(READY), b"\xff\xfe\n"), "did not answer as a guest's socket does"),
    "a guest's, closes": (closes(line(READY)), "closed the connection during structures"),
    "a guest's, bytes without end": (again(line(READY), b"z"), "did not answer as a guest's socket does"),
    "a guest's, another answer": (says(line(READY), line({"id": 1, "ok": 7})), "structures-"),
    "a guest's, no reason": (says(line(READY), line({"id": 1, "error": 7})), "said no without a reason"),
    "a guest's, another version": (says(line({"ready": {"version": 2}})), "has version 2, and this one has 1"),
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="folioscope-fake-") as place:
        yield Path(place)


def bounded(*words: Any) -> Ended:
    """The command, which must have ended by then."""
    ended = folioscope(*words, seconds=2 * SECONDS)
    assert ended.seconds < SECONDS + 10, f"{words}: {ended.seconds:.0f} s"
    return ended


def judge_servers(place: Path, servers: dict[str, tuple[Talk | None, str]]) -> None:
    """All at once, as most of the time is waiting. The sentence is one of text, whatever was sent."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(32) as pool:
        running = {}
        for number, (name, (talk, said)) in enumerate(servers.items()):
            server = stack.enter_context(Server(place / f"{number}.sock", talk))
            if talk is None:
                # One waits to be taken, and there is no room for another.
                waits = stack.enter_context(socket.socket(socket.AF_UNIX))
                waits.connect(str(server.path))
            running[name] = pool.submit(bounded, "ps", "--guest", server.path), said
        for name, (ended, said) in running.items():
            sentence = ended.result().sentence()
            assert said in sentence, f"{name}: {sentence}"
            assert sentence.isprintable() and len(sentence) < 1200, f"{name}: {sentence!r}"


PAGES = 4 << 20
BASE = 0x4000_0000


class Liar:
    """A QMP server that answers all as QEMU does, with memory of this process as RAM, up to where it lies."""

    def __init__(self, memory: int, stub: Path, lies: dict[str, Any]) -> None:
        self.memory, self.stub, self.lies = memory, stub, lies
        self.ran: list[str] = []

    def answer(self, command: dict[str, Any]) -> Any:
        """To one command."""
        name = command["execute"]
        words = command["arguments"].get("command-line", "").split()
        key = words[0] + (f" {words[1]}" if words[:1] == ["info"] else "") if words else name
        self.ran.append(key)
        if key in self.lies:
            return self.lies[key]
        mtree = (
            'FlatView #0\n AS "memory", root: system\n Root memory region: system\n'
            f"  {BASE:016x}-{BASE + PAGES - 1:016x} (prio 0, ram): ram\n"
        )
        return {
            "query-target": {"arch": "aarch64"},
            "query-kvm": {"enabled": False},
            "qom-get": "virt-10.0-machine",
            "query-cpus-fast": [{"thread-id": os.getpid()}],
            "query-memdev": [{"id": "ram", "size": PAGES, "share": True}],
            "info mtree": mtree,
            "gpa2hva": f"Host virtual address for {BASE:#x} (ram) is {self.memory:#x}",
            "query-status": {"status": "running"},
            "query-chardev": [{"label": "gdb", "filename": f"disconnected:unix:{self.stub},server=on"}],
        }.get(key, {})


def packet(body: bytes) -> bytes:
    """As gdb's protocol has it."""
    return b"$" + body + b"#%02x" % (sum(body) % 256)


def replies(body: bytes) -> Talk:
    """A stub that gives this to each request."""

    def talk(stream: socket.socket) -> None:
        while asked := stream.recv(1 << 16):
            stream.sendall(packet(body) * asked.count(b"#"))

    return talk


STUBS: dict[str, tuple[Talk, str]] = {
    "closes": (closes(), "closed its gdb stub"),
    "garbage": (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "broke the protocol"),
    "100 MB": (again(b"$", b"0"), "broke the protocol"),
    "parts without end": (replies(b"mx"), "features in at most 2048 parts"),
    "refuses": (again(packet(b"E01")), "cannot be read"),
    "a wrong checksum": (says(b"$OK#00"), "broke the protocol"),
    "a target of includes": (
        replies(b'l<xi:include href="a"/><xi:include href="target.xml"/>'),
        "a target description of at most",
    ),
}
# These are waited for, some at full speed.
SLOW_SERVERS: dict[str, tuple[Talk | None, str]] = {
    "slow": (answers(lambda it: {"arch": "aarch64"} if it["execute"] == "query-target" else [], seconds=7), "QEMU"),
    "a guest's, nothing": (says(line(READY)), "did not answer structures within"),
    "a guest's, 100 MB": (says(line(READY), b"z" * 100_000_000), "did not answer structures within"),
}
SLOW_STUBS: dict[str, tuple[Talk, str]] = {
    "silent": (says(), "debugger is connected"),
    "half a packet": (says(b"$OK"), "debugger is connected"),
    "stop replies without end": (again(packet(b"T05")), "debugger is connected"),
    "acknowledgements without end": (again(b"+"), "debugger is connected"),
}
MTREE = 'FlatView #0\n AS "memory", root: system\n'
LIES: dict[str, tuple[dict[str, Any], str]] = {
    "no map": ({"info mtree": "\x1b[31m"}, "shows no RAM of a memory backend"),
    "a map without end": (
        {
            "info mtree": MTREE
            + "".join(f"  {n << 12:016x}-{(n << 12) + 4095:016x} (prio 0, ram): ram\n" for n in range(1 << 18, 1 << 19))
        },
        "more than 4096 pieces",
    ),
    "all addresses": ({"info mtree": f"{MTREE}  {0:016x}-{'f' * 16} (prio 0, ram): ram\n"}, "shows no RAM"),
    "memory that is not there": ({"gpa2hva": "It is 0xfffffffffffffff8"}, "does not have the guest's RAM"),
    "no address": ({"gpa2hva": "It is 0x"}, "what is no QMP"),
    "CPUs that are none": ({"query-cpus-fast": [7, {}, None] * 1000}, "closed its gdb stub"),
    "a state that is none": ({"query-status": 7}, "what is no QMP"),
    "a socket that is none": (
        {"query-chardev": [{"label": "gdb", "filename": "disconnected:unix:/nonexistent/s,server=on"}]},
        "cannot be used",
    ),
    "another host": (
        {"query-chardev": [{"label": "gdb", "filename": "disconnected:tcp:192.0.2.1:1,server=on"}]},
        "cannot be used",
    ),
}


def judge_liars(place: Path, liars: list[tuple[str, Talk, dict[str, Any], str]]) -> None:
    """Up to the registers it is as QEMU is, and then it is not; the guest that it claims to have is told to go on."""
    ram = os.memfd_create("ram")
    os.truncate(ram, PAGES)
    memory = mmap.mmap(ram, PAGES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(32) as pool:
        running = {}
        for number, (name, talk, lies, said) in enumerate(liars):
            stub = place / f"{number}.gdb"
            stack.enter_context(Server(stub, talk))
            liar = Liar(address, stub, lies)
            server = stack.enter_context(Server(place / f"{number}.qmp", answers(liar.answer)))
            running[name] = pool.submit(bounded, "attach", server.path, "check"), said, liar
        for name, (ended, said, liar) in running.items():
            sentence = ended.result().sentence()
            assert said in sentence, f"{name}: {sentence}"
            assert sentence.isprintable() and len(sentence) < 1200, f"{name}: {sentence!r}"
            if "stop" in liar.ran:
                assert liar.ran[-1] == "cont" and liar.ran.count("stop") == liar.ran.count("cont"), (
                    f"{name}: {liar.ran}"
                )
    os.close(ram)


def test_whoever_is_there(place: Path) -> None:
    """Servers that speak neither protocol, or begin to."""
    judge_servers(place, SERVERS)


def test_a_qemu_that_lies(place: Path) -> None:
    """In an answer, or by its stub."""
    liars = [(f"stub: {name}", talk, {}, said) for name, (talk, said) in STUBS.items()]
    judge_liars(place, liars + [(name, closes(), lies, said) for name, (lies, said) in LIES.items()])


CARRIERS: dict[str, tuple[Talk, str]] = {
    "closes": (closes(), "the carrier is lost"),
    "garbage": (says(b"SSH-2.0-OpenSSH_9.2\r\n" * 10), "the carrier"),
    "100 MB": (again(b"\xff"), "the carrier"),
    "half a frame, closes": (closes(b"\xf0\x02\x00"), "the carrier is lost"),
}


def test_no_carrier(place: Path) -> None:
    """Programs that are to run in one."""
    for number, (name, (talk, said)) in enumerate(CARRIERS.items()):
        with Server(place / f"{number}.sock", talk) as server:
            sentence = bounded("carrier", "exec", "--socket", server.path, "--", "/bin/true").sentence()
            assert said in sentence and sentence.isprintable() and len(sentence) < 1200, f"{name}: {sentence!r}"


def test_a_socket_s_path_may_be_long(place: Path) -> None:
    """Longer than an address has room for: who is there is told as in a short one."""
    deep = place / ("d" * 100) / ("e" * 60)
    deep.mkdir(parents=True)
    with Server(deep / "qmp.sock", says(b"SSH-2.0-OpenSSH_9.2\r\n")) as server:
        for words in (["ps", "--guest", server.path], ["attach", server.path]):
            assert "is no QMP socket" in bounded(*words).sentence()
    with Server(deep / "carrier.sock", closes()) as server:
        sentence = bounded("carrier", "exec", "--socket", server.path, "--", "/bin/true").sentence()
        assert "the carrier is lost" in sentence


@pytest.mark.long
def test_whoever_takes_their_time(place: Path) -> None:
    """The same, where it takes as long as it may."""
    judge_servers(place, SLOW_SERVERS)
    judge_liars(place, [(f"stub: {name}", talk, {}, said) for name, (talk, said) in SLOW_STUBS.items()])
