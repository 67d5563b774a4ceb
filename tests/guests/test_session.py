# SPDX-License-Identifier: GPL-2.0-only
"""The session's protocol: its schema, its version, its errors, and several clients of one guest."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from folioscope import Area, Guest, GuestLost, Process, client
from folioscope.client import Attached, CommandFailed, VersionMismatch

from command import BOOT_SECONDS, GONE_SECONDS, Running, folioscope, wait_until

# More than a socket buffers, so that who does not read it stops its writer.
MANY_WORDS = 1 << 18


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the guest's files; its socket's path is short enough there."""
    return tmp_path_factory.mktemp("s")


@dataclass
class Boot:
    """A guest of ``folioscope boot``."""

    running: Running
    socket: str


@pytest.fixture(scope="module")
def boot(place: Path) -> Iterator[Boot]:
    """One guest for all."""
    with Running(["boot", "--out", str(place), "--memory", "512M"]) as running:
        assert running.child.stdout is not None
        lines = []
        for line in running.child.stdout:
            lines.append(line)
            if line.startswith("end:"):
                break
        found = re.search(r"--guest (\S+)", "".join(lines))
        assert found, lines
        yield Boot(running, found[1])
        running.child.send_signal(signal.SIGINT)
        running.child.wait(timeout=GONE_SECONDS)
        running.nothing_left()


@pytest.fixture
def guest(boot: Boot) -> Iterator[Guest]:
    """A client of it."""
    session = Attached(boot.socket)
    yield Guest(session, "4k")
    session.close()


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """What the command prints."""
    printed: dict[str, Any] = json.loads(folioscope("schema", "session").ok())
    jsonschema.validators.validator_for(printed).check_schema(printed)
    return printed


class Raw:
    """Lines on a socket, as they are."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(BOOT_SECONDS)
        self.socket.connect(path)
        self.file = self.socket.makefile("rw")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, line: str | dict[str, Any]) -> None:
        """One line, as it is or as JSON."""
        self.file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        self.file.flush()

    def read(self) -> dict[str, Any]:
        """The next line."""
        answer: dict[str, Any] = json.loads(self.file.readline())
        return answer


def sample(value: Any) -> Any:
    """The same with the ends of long lists alone: a kernel's tables have 100,000 entries, each of one shape."""
    if isinstance(value, list):
        ends = value if len(value) <= 100 else value[:50] + value[-50:]
        return [sample(item) for item in ends]
    return {name: sample(item) for name, item in value.items()} if isinstance(value, dict) else value


def valid(schema: dict[str, Any], part: str, line: dict[str, Any]) -> None:
    """A line against its part of the schema."""
    # jsonschema.validate() would judge the schema itself each time.
    part_of_it = schema["properties"][part] | {"$defs": schema["$defs"]}
    jsonschema.validators.validator_for(part_of_it)(part_of_it).validate(sample(line))


def test_every_line_is_in_the_schema(boot: Boot, schema: dict[str, Any]) -> None:
    """Greeting, requests and answers of each kind; what the schema does not know is refused."""
    with Raw(boot.socket) as raw:
        greeting = raw.read()
        valid(schema, "greeting", greeting)
        assert greeting["ready"]["version"] == client.VERSION

        def ask(method: str, **params: Any) -> Any:
            request = {"id": 5, "method": method, "deadline_ms": 20000, "params": params}
            valid(schema, "request", request)
            raw.send(request)
            answer = raw.read()
            assert answer["id"] == 5
            valid(schema, "answer", answer)
            return answer

        def op(name: str, **params: Any) -> Any:
            return ask("command", command={"op": {"process": process, "op": {name: params}}})["ok"]

        process = ask("command", command={"spawn": {"name": "schema"}})["ok"]["spawned"]["process"]
        mapped = op("mmap", length=1 << 17)["mapped"]
        op("madvise", advice="hugepage", **mapped)
        op("touch", access="write", order="backward", **mapped)
        expected = [{"start": mapped["address"], "end": mapped["address"] + mapped["length"], "what": "written"}]
        look = ask("look", process=process, expectations=expected, again=True)["ok"]
        assert look["records"] and look["entries"] and "again" in look
        ask("hold", process=process)
        address = look["entries"][0]["address"]
        judged = ask("judge", process=process, pokes=[{"address": address, "word": "0x0"}])
        assert "verdict" in judged["ok"]
        ask("translate", process=process, addresses=[mapped["address"], 0])
        ask("kernel_half", process=process)
        assert (
            ask("words", address=address, count=2)["ok"]["words"][0] == f"{int(look['entries'][0]['word'], 16):#018x}"
        )
        ask("release", process=process)
        assert ask("machine")["ok"]["kind"]
        refused = ask("command", command={"read_file": {"path": "/nothing"}})["error"]
        assert refused["kind"] == "errno" and refused["guest"]["errno"]["name"] == "ENOENT"
        ask("command", command={"kill": {"process": process}})
        with pytest.raises(jsonschema.ValidationError):
            valid(schema, "request", {"id": 1, "method": "dance", "params": {}})
        with pytest.raises(jsonschema.ValidationError):
            valid(schema, "answer", {"id": 1, "error": {"kind": "sulking", "message": "", "lost": False}})


@pytest.mark.parametrize(
    "line,number,words",
    [
        ("good morning", None, "expected a request as one JSON object"),
        ('{"id": 3, "method": "dance"}', 3, 'no method "dance"'),
        ('{"id": 3, "method": "look"}', 3, "expected either process or pid, to say what to look at"),
        ('{"id": 3, "method": "machine", "params": {"more": 1}}', 3, "unknown field `more`"),
        ('{"id": 3, "method": "poke", "params": {"pokes": [{"address": "x", "word": "0"}]}}', 3, "hexadecimal"),
    ],
    ids=["text", "method", "missing", "unknown", "word"],
)
def test_nonsense_is_answered(boot: Boot, line: str, number: int | None, words: str) -> None:
    """With the request's id where it has one; the connection stays."""
    with Raw(boot.socket) as raw:
        raw.read()
        raw.send(line)
        answer = raw.read()
        assert answer["id"] == number
        assert answer["error"]["kind"] == "bad_request"
        assert words in answer["error"]["message"]
        raw.send({"id": 4, "method": "machine"})
        assert "ok" in raw.read()


def test_another_version_is_refused(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both versions and what to do."""
    monkeypatch.setattr(client, "VERSION", 99)
    with pytest.raises(VersionMismatch, match=r"version 1 of the session and this package version 99: take both from"):
        Attached(boot.socket)


def folded(process: Process) -> Area:
    """A block of it, written."""
    area = process.blocks(1)
    area.write()
    assert process.look().pattern(area) == "C"
    return area


def test_clients_side_by_side(boot: Boot, guest: Guest) -> None:
    """Two that ask at the same time each get their own answers, and what one states is not held against the other."""
    other = Guest(Attached(boot.socket), "4k")
    mine, theirs = guest.spawn("mine"), other.spawn("theirs")
    for process in (mine, theirs):
        area = folded(process)
    area.must_not_fold("the other client says so")
    assert not mine.look().errors
    assert theirs.look(check=False).rules() == {"C2"}
    mine.kill()
    theirs.kill()
    other.session.close()


def test_who_does_not_read_holds_up_nobody(boot: Boot, guest: Guest) -> None:
    """A client whose answer is larger than a socket takes, and that does not read it; and one that is half a line."""
    with Raw(boot.socket) as slow, Raw(boot.socket) as half:
        slow.read()
        slow.send({"id": 1, "method": "words", "params": {"address": "0x40000000", "count": MANY_WORDS}})
        half.file.write('{"id": 1, "method"')
        half.file.flush()
        time.sleep(1)
        process = guest.spawn()
        folded(process)
        process.kill()
        assert len(slow.read()["ok"]["words"]) == MANY_WORDS


def test_what_one_holds_is_its_own(boot: Boot, guest: Guest) -> None:
    """Another client may not let it go on; when its holder goes away, in the middle of a line too, it goes on."""
    process = folded(guest.spawn()).process
    other = Attached(boot.socket)
    other.call("hold", process=process.id)
    for ask in (process.look, lambda: guest.call("release", process=process.id), lambda: process.op("exit")):
        with pytest.raises(CommandFailed, match=f"another client of this guest holds process {process.id}"):
            ask()
    other._send(b'{"id": 7, "meth')
    other.close()

    def free() -> bool:
        try:
            return not process.look(check=False).errors
        except CommandFailed:
            return False

    assert wait_until(free, 20)
    process.kill()


def test_an_endless_line_ends_its_connection(boot: Boot, guest: Guest) -> None:
    """And nobody's memory grows."""
    with Raw(boot.socket) as raw:
        raw.read()
        with pytest.raises(OSError):
            for _ in range(64):
                raw.socket.sendall(b"x" * (1 << 16))
    assert guest.call("machine")["status"] == "Running"


def test_a_guest_that_ends_is_lost_for_all(place: Path) -> None:
    """Each client is told, and none hangs."""
    with Running(["boot", "--out", str(place / "b"), "--memory", "256M"]) as running:
        assert running.child.stdout is not None
        line = next(line for line in running.child.stdout if "--guest" in line)
        path = re.search(r"--guest (\S+)", line)
        assert path
        assert wait_until(lambda: Path(path[1]).is_socket(), BOOT_SECONDS)
        one, two = Attached(path[1]), Attached(path[1])
        running.child.kill()
        for each in (one, two):
            with pytest.raises(GuestLost):
                each.call("machine")
            each.close()
