# SPDX-License-Identifier: GPL-2.0-only
"""What a client of a guest may do to it: nothing that ends it, fills memory or is said falsely; and who may be one.

One guest for all, held under conditions that a user may have: no umask, 64 descriptors, one of them
of somebody else, and a directory whose sockets have longer paths than fit in a socket's address.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest
from folioscope.client import Attached, CommandFailed, GuestLost, connect

from command import BOOT_SECONDS, COMMAND, GONE_SECONDS, Running, folioscope, wait_until

DESCRIPTORS = 64
# A descriptor that the command is started with, and a file that nothing of ours opens.
LEFT_OPEN, LEFT_FILE = 51, "/etc/hostname"
# 256 MiB of RAM from here on, the machine's layout (QEMU's hw/arm/virt.c).
RAM, RAM_END = 0x4000_0000, 0x5000_0000
# What no word can be written to: nothing, ROM, a UART, before and behind RAM, no multiple of 8, and the last addresses.
NO_RAM = [0, 8, 0x900_0000, RAM - 8, RAM + 4, RAM_END - 4, RAM_END, 1 << 48, 1 << 63, (1 << 64) - 8, (1 << 64) - 1]
# Numbers at which arithmetic goes wrong.
ODD = [0, 1, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, 1 << 47, 1 << 52, 1 << 63, (1 << 64) - 1]


class Held:
    """The guest's holder."""

    def __init__(self, running: Running, out: Path, socket: str) -> None:
        self.running, self.out, self.socket = running, out, socket

    def connect(self) -> socket.socket:
        """A connection, nothing read of it."""
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(BOOT_SECONDS)
        connect(stream, self.socket)
        return stream

    def memory(self) -> int:
        """Bytes of its memory that are in use, without the guest's."""
        status = Path(f"/proc/{self.running.child.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10


@pytest.fixture(scope="module")
def held() -> Iterator[Held]:
    """`folioscope boot`."""
    line = f'umask 000; ulimit -n {DESCRIPTORS}; exec {LEFT_OPEN}<{LEFT_FILE}; exec "$@"'
    with tempfile.TemporaryDirectory(prefix="folioscope-hostile-") as place:
        os.chmod(place, 0o755)
        out = Path(place) / ("deep" * 20) / ("deeper" * 10)
        words = ["boot", "--out", str(out), "--memory", "256M"]
        with Running(words, prefix=("bash", "-c", line, "bash")) as running:
            found = None
            for said in running.child.stdout:
                found = found or re.search(r"--guest (\S+)", said)
                if said.startswith("end:"):
                    break
            assert found, running.child.stderr.read()
            assert len(found[1]) > 107
            yield Held(running, out, found[1])
            assert running.child.poll() is None, "the guest was lost"
            running.child.send_signal(signal.SIGINT)
            running.child.wait(timeout=GONE_SECONDS)
            running.nothing_left()


@pytest.fixture
def guest(held: Held) -> Iterator[Guest]:
    """A client that is served, before and after."""
    session = Attached(held.socket)
    yield Guest(session, "4k")
    assert session.call("machine")["status"] == "Running"
    session.close()
    assert not list(held.out.glob("bundles/*")), "a guest that lives was taken for a lost one"


def refusal(guest: Guest, method: str, **params: Any) -> str:
    """What is said to a request that makes no sense."""
    with pytest.raises(CommandFailed) as refused:
        guest.call(method, **params)
    assert refused.value.kind == "bad_request", refused.value
    return str(refused.value)


def test_no_word_is_written_to_what_is_no_ram(guest: Guest) -> None:
    """A sentence with the address, nothing written and nothing lost, by each method that writes."""
    process = guest.spawn()
    with process.hold():
        before = guest.words(RAM_END - 16, 2)
        for address in NO_RAM:
            poke = {"address": hex(address), "word": "0x5a"}
            good = {"address": hex(RAM_END - 8), "word": "0x5a"}
            for method, params in {
                "poke": {},
                "judge": {"process": process.id},
                "translate": {"process": process.id, "addresses": [0]},
                "kernel_half": {"process": process.id},
            }.items():
                said = refusal(guest, method, pokes=[good, poke], **params)
                assert re.search(rf"0x0*{address:x}; nothing was written", said), said
        assert guest.words(RAM_END - 16, 2) == before
    process.kill()


def test_no_number_is_too_odd(guest: Guest) -> None:
    """Addresses, frames, pids and numbers of looks and processes: an answer or a refusal, and never a fault of ours."""
    process = guest.spawn()
    process.look()
    with process.hold():
        calls: list[tuple[str, dict[str, Any]]] = []
        for odd in ODD:
            calls += [(m, {"process": odd}) for m in ("look", "judge", "hold", "release", "allow_allocations")]
            calls += [(m, {"pid": odd}) for m in ("space", "maps", "changes", "snapshot", "save_full", "structures")]
            calls += [
                ("page", {"pfn": odd}),
                ("structures", {"path": "/dev/null", "pfns": [odd]}),
                ("words", {"address": hex(odd), "count": 1}),
                ("words", {"address": hex(RAM), "count": odd}),
                ("translate", {"process": process.id, "addresses": [odd]}),
                ("folio", {"look": 1, "va": odd}),
                ("folio", {"look": odd, "va": 0}),
                ("diff", {"before": odd, "after": 1, "pid": odd}),
                ("fail_allocations", {"process": process.id, "order": odd}),
                ("allow_allocations", {"process": process.id}),
            ]
        answered = 0
        for method, params in calls:
            try:
                guest.call(method, **params)
                answered += 1
            except CommandFailed as refused:
                assert refused.kind != "internal" and len(str(refused)) < 1000, (method, params, refused)
        assert 0 < answered < len(calls)
    process.kill()


def test_what_a_client_asks_for_has_limits(guest: Guest) -> None:
    """An answer of any size could otherwise be had; at the limit it is given, and beyond it the limit is named."""
    assert len(guest.words(RAM, 1 << 18)) == 1 << 18
    assert "at most 262144 words" in refusal(guest, "words", address=hex(RAM), count=(1 << 18) + 1)
    process = guest.spawn()
    with process.hold():
        pairs = guest.call("translate", process=process.id, addresses=list(range(4096)), seconds=60)["pairs"]
        assert len(pairs) == 4096
        said = refusal(guest, "translate", process=process.id, addresses=list(range(4097)))
        assert "at most 4096 addresses" in said
    process.kill()
    assert "at most 86400000" in refusal(guest, "machine", seconds=1e9)


def test_clients_without_number(held: Held, guest: Guest) -> None:
    """More than there are descriptors, and idle: those without a place are told so, and the guest goes on; when they
    have gone the next one is served."""
    idle = [held.connect() for _ in range(100)]
    try:
        told = [json.loads(stream.makefile().readline()) for stream in idle]
        refused = [line["error"] for line in told if "error" in line]
        assert refused and len(told) - len(refused) >= 4
        assert all(error["kind"] == "busy" and not error["lost"] for error in refused)
        assert re.search(r"this guest has \d+ clients, which is as many as it serves", refused[0]["message"])
        process = guest.spawn()
        assert not process.look().errors
        process.kill()
        with pytest.raises(GuestLost, match="as many as it serves"):
            Attached(held.socket)
        assert "as many as it serves" in folioscope("ps", "--guest", held.socket).sentence()
    finally:
        for stream in idle:
            stream.close()
    assert wait_until(lambda: served(held), 10)


def served(held: Held) -> bool:
    """Whether there are places for several more clients."""
    clients = []
    try:
        for _ in range(5):
            clients.append(Attached(held.socket))  # noqa: PERF401
    except GuestLost:
        return False
    finally:
        for client in clients:
            client.close()
    return True


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xfe\x00\n", b"{" * 1000 + b"\n", b"[" * 100_000 + b"\n", b"null\n", b'{"id": 1e99}\n', b"\x1b[31m\n"],
    ids=["binary", "nested", "deep", "null", "number", "escape"],
)
def test_garbage_is_answered(held: Held, guest: Guest, garbage: bytes) -> None:
    """In a line, without an id; the connection stays."""
    with contextlib.closing(held.connect()) as stream:
        lines = stream.makefile()
        assert "ready" in json.loads(lines.readline())
        for _ in range(2):
            stream.sendall(garbage)
            answer = json.loads(lines.readline())
            assert answer["id"] is None and answer["error"]["kind"] == "bad_request"
            assert "expected a request as one JSON object" in answer["error"]["message"]
            assert len(answer["error"]["message"]) < 500
        stream.sendall(b'{"id": 5, "method": "machine"}\n')
        assert json.loads(lines.readline())["id"] == 5


def test_a_line_of_100_mb(held: Held, guest: Guest) -> None:
    """It is refused in a sentence as soon as it is too long, and is kept nowhere."""
    before = held.memory()
    for _ in range(3):
        with contextlib.closing(held.connect()) as stream:
            lines = stream.makefile()
            assert "ready" in json.loads(lines.readline())
            with pytest.raises(OSError):
                for _ in range(100):
                    stream.sendall(b"x" * (1 << 20))
            answer = json.loads(lines.readline())
            assert "to end within 1048576 bytes" in answer["error"]["message"]
    assert held.memory() < before + (32 << 20)


def test_clients_that_go_in_the_middle(held: Held, guest: Guest) -> None:
    """Of a line, of an answer, before the greeting; those that never read: none costs a place or holds up another."""
    many = {"id": 1, "method": "words", "params": {"address": hex(RAM), "count": 1 << 18}}
    for _ in range(40):
        held.connect().close()
        # Where those before have not gone yet, it may find no place.
        with contextlib.closing(held.connect()) as stream, contextlib.suppress(OSError):
            stream.sendall(b'{"id": 1, "meth')
        with contextlib.closing(held.connect()) as stream, contextlib.suppress(OSError):
            stream.sendall(b"x" * 100_000)
    assert wait_until(lambda: served(held), 10)
    silent = [held.connect() for _ in range(4)]
    for stream in silent:
        # The first answer is more than a socket takes.
        stream.sendall((json.dumps(many) + "\n").encode())
        stream.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                stream.send(b'{"id": 2, "method": "machine"}\n' * 100)
    process = guest.spawn()
    assert not process.look().errors
    process.kill()
    for stream in silent:
        stream.close()


def test_a_file_that_comes_along(held: Held, guest: Guest, tmp_path: Path) -> None:
    """All of a guest goes into a file that its client has opened, wherever that is; and into no pipe, no more than one,
    and no file that there is not. None stays open."""
    descriptors = lambda: len(os.listdir(f"/proc/{held.running.child.pid}/fd"))  # noqa: E731
    pipes = os.pipe()
    with (
        (tmp_path / "first").open("wb") as first,
        (tmp_path / "last").open("wb") as last,
        contextlib.closing(held.connect()) as stream,
    ):
        lines = stream.makefile()
        assert "ready" in json.loads(lines.readline())
        before = descriptors()

        def ask(in_place: bool, *files: int) -> dict[str, Any]:
            params = {"path": str(tmp_path / "named"), "in_place": in_place}
            line = json.dumps({"id": 1, "method": "save_full", "params": params}) + "\n"
            socket.send_fds(stream, [line.encode()], files)
            answer: dict[str, Any] = json.loads(lines.readline())
            return answer

        assert "expected an open file along with the request" in ask(True)["error"]["message"]
        assert "is no file that a core could be written to" in ask(True, pipes[1])["error"]["message"]
        saved = ask(True, last.fileno())["ok"]
        assert saved["ram_bytes"] == RAM_END - RAM and not (tmp_path / "named").exists()
        assert (tmp_path / "last").read_bytes()[:4] == b"\x7fELF"
        # The first is taken, and the others are closed.
        many = [first.fileno(), *[pipes[1]] * 30]
        assert "ok" in ask(True, *many) and (tmp_path / "first").stat().st_size == (tmp_path / "last").stat().st_size
        stream.sendall(b'{"id": 2, "method": "machine"}\n')
        assert "ok" in json.loads(lines.readline())
        assert "expected an open file" in ask(True)["error"]["message"]
        assert descriptors() == before
    for fd in pipes:
        os.close(fd)


def test_only_its_user_may_open_what_is_of_a_guest(held: Held, guest: Guest, tmp_path: Path) -> None:
    """Sockets, logs, cores and bundles, without a umask; a report is as the umask has it."""
    own = Path(held.socket).parent
    process = guest.spawn()
    process.look()
    with process.hold():
        guest.call("save", process=process.id, path=str(own / "held.core"))
        guest.call("structures", pid=process.pid, path=str(own / "structures.core"))
    guest.call("snapshot", pid=process.pid, path=str(own / "snapshot.core"))
    guest.call("save_full", pid=process.pid, path=str(own / "full.core"))
    guest.call("bundle", path=str(own / "bundle"), why="to be looked at", looks=True)
    process.kill()
    (tmp_path / "saved.core").touch(0o666)
    bash = ("bash", "-c", 'umask 000; exec "$@"', "bash")
    pid = ["--guest", held.socket, "--pid", str(demonstrated(guest))]
    for words in (["save", *pid], ["save", "--full", *pid]):
        for name in ("saved.core", f"{len(words)}.core"):
            with Running([*words, str(tmp_path / name)], prefix=bash) as running:
                running.end(BOOT_SECONDS).ok()
    # One that takes rights of the user's own leaves them here all the same.
    everything = ("bash", "-c", 'umask 777; exec "$@"', "bash")
    with Running(["save", "--full", *pid, str(tmp_path / "mine.core")], prefix=everything) as running:
        running.end(BOOT_SECONDS).ok()
    with Running(["check", *pid, "--json", str(tmp_path / "report.json")], prefix=bash) as running:
        assert running.end(BOOT_SECONDS).status == 0
    modes = {}
    for path in [own, *own.rglob("*"), *tmp_path.iterdir()]:
        # The mark of a directory of ours, which has nothing of a guest.
        if path.name != ".folioscope":
            modes[path] = stat.S_IMODE(path.lstat().st_mode)
    report = modes.pop(tmp_path / "report.json")
    assert report == 0o666
    assert {path: oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}
    names = {path.name for path in modes}
    assert names >= {"control.sock", "console.log", "channel.log", "qemu.log", "full.core", "tables.core", "look.core"}
    assert names >= {"held.core", "structures.core", "snapshot.core", "saved.core", "mine.core", "registers.txt"}
    for path in own.glob("*.core"):
        path.unlink()


def demonstrated(guest: Guest) -> int:
    """The pid of the process that boot itself has started."""
    return min(process["pid"] for process in guest.command("processes")["processes"]["processes"])


def test_the_machine_inherits_nothing_of_others(held: Held) -> None:
    """A descriptor that a shell left open is not QEMU's, though it is the command's own."""
    files = lambda pid: [os.path.realpath(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: E731
    left = os.path.realpath(LEFT_FILE)
    assert left in files(held.running.child.pid)
    (qemu,) = held.running.qemus()
    assert left not in files(qemu)


def as_other(*words: str) -> subprocess.CompletedProcess[str]:
    """The command as another user, who may not see where it lies. Only root can become another one."""
    program = os.open(COMMAND, os.O_PATH)
    try:
        return subprocess.run(
            ["folioscope", *words],
            executable=f"/proc/self/fd/{program}",
            pass_fds=[program],
            cwd="/",
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=BOOT_SECONDS,
            check=False,
        )
    finally:
        os.close(program)


def test_who_may_not_be_a_client_is_told_why(held: Held, guest: Guest) -> None:
    """What is there, whose it is, and who asks; where its owner has opened the socket, that memory is not."""
    own, socket = Path(held.socket).parent, Path(held.socket)
    root = os.geteuid() == 0
    try:
        if not root:
            # The same refusal of the system, by rights that are missing.
            own.chmod(0)
        ended = as_other("ps", "--guest", held.socket) if root else None
        said = ended.stderr if ended else folioscope("ps", "--guest", held.socket).sentence()
        assert f"{held.socket} may not be connected to: {own} belongs to user {os.geteuid()}, and this is user" in said
        if root:
            own.chmod(0o755)
            socket.chmod(0o666)
            for words in (["ps", "--guest", held.socket], ["attach", held.socket]):
                ended = as_other(*words)
                assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
                assert "is the control socket of a guest of user 0, and this is user 65534" in ended.stderr
    finally:
        own.chmod(0o700)
        socket.chmod(0o600)


def test_a_socket_with_a_long_path_is_used(held: Held) -> None:
    """By its path, and as the only one below --out."""
    for where in (["--guest", held.socket], ["--out", str(held.out)]):
        assert re.search(r" 1 +\d+ +\S+ \S+ +init$", folioscope("ps", *where).ok(), re.MULTILINE)
        assert folioscope("check", *where).status == 0
