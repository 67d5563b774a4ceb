# SPDX-License-Identifier: GPL-2.0-only
"""The host command at the other end of a line: one JSON object in, one out.

``folioscope session`` boots a guest and obeys; it ends when its standard input closes, and the
guest ends with it, so nothing outlives the interpreter however that ends. A guest of ``folioscope boot``
obeys several clients on its socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from .locate import CommandNotFound, command
from .model import Finding
from .voice import Heard

# The version of the session's protocol that is spoken here (vmm/folioscope/src/control/mod.rs).
VERSION = 1
# Beyond the guest's own deadline: the host must have answered by then, or it is at fault itself.
HOST_MARGIN_SECONDS = 30.0


class GuestLost(RuntimeError):
    """The guest (or the command that holds it) is gone or hung: another thing than a failed operation. ``findings`` are
    what is wrong, for certain, with its tables."""

    def __init__(self, message: str, findings: list[Finding] | None = None) -> None:
        super().__init__(message)
        self.findings = findings or []


class VersionMismatch(RuntimeError):
    """The command and this package are not of one version."""


class CommandFailed(RuntimeError):
    """The guest lives and says no. ``kind`` names the failure; ``detail`` holds its fields where it is the agent's;
    ``findings`` are what is wrong with a process that does not get on."""

    def __init__(self, error: dict[str, Any], findings: list[Finding] | None = None) -> None:
        super().__init__(error.get("message", str(error)))
        self.kind: str = error.get("kind", "unknown")
        guest: dict[str, dict[str, Any]] = error.get("guest") or {}
        self.detail: dict[str, Any] = next(iter(guest.values()), {})
        self.findings = findings or []

    @property
    def errno(self) -> str | None:
        """The errno's name, where the failure is one."""
        return self.detail.get("name") if self.kind == "errno" else None


def end_with_input(child: subprocess.Popen[bytes]) -> None:
    """Closes a child's standard input, which ends it; one that does not end is killed."""
    if child.stdin:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout:
        child.stdout.close()


class Client:
    """Asks whoever holds a guest, one request at a time."""

    def __init__(self, descriptor: int, greeting_seconds: float) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._next = 1
        self.lost: str | None = None
        # Whether the guest's kernel has reported a fault of its own.
        self.faulty = False
        self.ready: dict[str, Any] = {}
        line = self._line(greeting_seconds)
        if not isinstance(line.get("ready"), dict):
            refused = line.get("error")
            message = refused.get("message") if isinstance(refused, dict) else None
            self.close()
            raise GuestLost(message or f"expected folioscope to say that a guest is ready and found {str(line)[:200]}")
        if (version := line["ready"].get("version")) != VERSION:
            self.close()
            raise VersionMismatch(
                f"the command folioscope speaks version {version} of the session and this package version {VERSION}: "
                "take both from one checkout (pip install tests/plugin, make build)"
            )
        self.ready = line["ready"]

    def _send(self, line: bytes) -> None:
        raise NotImplementedError

    def _ended(self) -> str:
        """Says why nothing more comes."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the connection."""
        raise NotImplementedError

    def _line(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        # An answer can have tens of MiB, and comes in pieces of a pipe's size: each is searched and taken in once.
        searched = 0
        while (at := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                self.lost = f"folioscope did not answer within {max(seconds, 0):.0f} s"
                raise GuestLost(self.lost)
            piece = b""
            with contextlib.suppress(ConnectionResetError):
                piece = os.read(self._descriptor, 1 << 20)
            if not piece:
                self.lost = self._ended()
                raise GuestLost(self.lost)
            self._buffer += piece
        line = self._buffer[:at]
        del self._buffer[: at + 1]
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.lost = f"expected a line of JSON from folioscope and found {bytes(line[:120])!r}"
            raise GuestLost(self.lost)
        self.faulty |= Heard.take_in(answer)
        return answer

    def call(self, method: str, *, seconds: float = 20.0, **params: object) -> dict[str, Any]:
        """Asks for ``method``; ``seconds`` is the guest's deadline where the guest is asked. Returns the answer, as
        ``folioscope schema session`` has it.

        Raises ``CommandFailed`` where the answer is no, ``GuestLost`` where there is none, or the guest is gone.
        """
        if self.lost:
            raise GuestLost(self.lost)
        number = self._next
        self._next += 1
        request = {"id": number, "method": method, "deadline_ms": int(seconds * 1000), "params": params}
        try:
            self._send(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as error:
            self.lost = f"folioscope is gone: {error}"
            raise GuestLost(self.lost) from error
        end = time.monotonic() + seconds + HOST_MARGIN_SECONDS
        answer = self._line(end - time.monotonic())
        # Whoever asked before may have been interrupted: a test whose deadline has passed.
        while (answer.get("id") or number) < number:
            answer = self._line(end - time.monotonic())
        if answer.get("id") != number or not any(isinstance(answer.get(part), dict) for part in ("ok", "error")):
            raise GuestLost(f"expected the answer to request {number} and found {str(answer)[:200]}")
        if said := answer.get("error"):
            found = [Finding.read(raw) for raw in answer.get("findings", [])]
            if said.get("lost"):
                self.lost = said["message"]
                raise GuestLost(said["message"], found)
            raise CommandFailed(said, found)
        result: dict[str, Any] = answer["ok"]
        return result


class Session(Client):
    """One guest, booted by ``folioscope session``. Paths among ``arguments`` have to be absolute: the command runs in
    the directory that its ``out/`` is in."""

    def __init__(
        self,
        arguments: list[str],
        *,
        log: Path,
        boot_seconds: float = 120.0,
        environment: dict[str, str] | None = None,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab")
        found = command()
        self.command_line = [str(found.path), "session", *arguments]
        try:
            self._child = subprocess.Popen(
                self.command_line,
                cwd=found.directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
            )
        except OSError as error:
            self._log.close()
            what = f"expected the command folioscope at {found.path} and could not start it"
            raise CommandNotFound(f"{what}: {error.strerror}") from error
        assert self._child.stdout is not None
        super().__init__(self._child.stdout.fileno(), boot_seconds)

    @property
    def pid(self) -> int:
        """The process that holds the guest."""
        return self._child.pid

    def _send(self, line: bytes) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(line)
        self._child.stdin.flush()

    def _ended(self) -> str:
        return f"folioscope ended with status {self._child.wait()}; its words are in {self._log.name}"

    def close(self) -> None:
        """Ends the guest: closing its input is all that it takes."""
        end_with_input(self._child)
        self._log.close()


def connect(stream: socket.socket, path: str | Path) -> None:
    """Connects to a Unix socket, whose path may be longer than the 107 bytes of a socket's address."""
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        stream.connect(f"/proc/self/fd/{opened}")
    finally:
        os.close(opened)


class Attached(Client):
    """A client of a guest that ``folioscope boot`` holds, by the control socket that it prints; it can have several."""

    def __init__(self, path: str | Path, *, seconds: float = 20.0) -> None:
        self.command_line = ["folioscope", "boot"]
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        connect(self._socket, path)
        super().__init__(self._socket.fileno(), seconds)

    def _send(self, line: bytes) -> None:
        self._socket.sendall(line)

    def _ended(self) -> str:
        return f"the guest at {self._path} is gone"

    def close(self) -> None:
        """Leaves; the guest stays, and goes on with what this client held."""
        self._socket.close()
