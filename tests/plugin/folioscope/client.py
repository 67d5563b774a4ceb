"""The host command as a child process: one JSON object a line, in and out.

``folioscope session`` boots a guest and obeys; it ends when its standard input closes, and the
guest ends with it, so nothing outlives the interpreter however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
# FOLIOSCOPE_BIN names another build of the command than the one that make puts in out/.
COMMAND = Path(os.environ.get("FOLIOSCOPE_BIN") or ROOT / "out" / "folioscope")
# FOLIOSCOPE_OUT keeps the logs and bundles of a run apart from those of another one at the same time.
OUT = Path(os.environ.get("FOLIOSCOPE_OUT") or ROOT / "out")
# Beyond the guest's own deadline: the host must have answered by then, or it is at fault itself.
HOST_MARGIN_SECONDS = 30.0


class GuestLost(RuntimeError):
    """The guest (or the command that holds it) is gone or hung: another thing than a failed operation."""


class CommandFailed(RuntimeError):
    """The guest lives and says no. ``kind`` names the failure, ``detail`` holds its fields."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error.get("message", str(error)))
        self.kind: str = error.get("kind", "unknown")
        self.detail: dict[str, Any] = error.get("detail") or {}

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


class Session:
    """One guest, booted by ``folioscope session``."""

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
        self.command_line = [str(COMMAND), "session", *arguments]
        self._child = subprocess.Popen(
            self.command_line,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._buffer = b""
        self._next = 1
        self.lost: str | None = None
        self.ready: dict[str, Any] = {}
        line = self._line(boot_seconds)
        if "ready" not in line:
            message = line.get("error", {}).get("message", str(line))
            self.close()
            raise GuestLost(message)
        self.ready = line["ready"]

    @property
    def pid(self) -> int:
        """The process that holds the guest."""
        return self._child.pid

    def _line(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._child.stdout], [], [], left)[0]:
                self.lost = f"folioscope did not answer within {max(seconds, 0):.0f} s"
                raise GuestLost(self.lost)
            assert self._child.stdout is not None
            piece = os.read(self._child.stdout.fileno(), 1 << 20)
            if not piece:
                status = self._child.wait()
                self.lost = f"folioscope ended with status {status}; its words are in {self._log.name}"
                raise GuestLost(self.lost)
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def call(self, method: str, *, seconds: float = 20.0, **params: Any) -> Any:
        """Asks for ``method``; ``seconds`` is the guest's deadline where the guest is asked."""
        if self.lost:
            raise GuestLost(self.lost)
        number = self._next
        self._next += 1
        request = {"id": number, "method": method, "deadline_ms": int(seconds * 1000), "params": params}
        try:
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            self.lost = f"folioscope is gone: {error}"
            raise GuestLost(self.lost) from error
        end = time.monotonic() + seconds + HOST_MARGIN_SECONDS
        answer = self._line(end - time.monotonic())
        # Whoever asked before may have been interrupted: a test whose deadline has passed.
        while (answer.get("id") or number) < number:
            answer = self._line(end - time.monotonic())
        if answer.get("id") != number:
            raise GuestLost(f"expected the answer to request {number} and found {str(answer)[:200]}")
        if said := answer.get("error"):
            if said.get("lost"):
                self.lost = said["message"]
                raise GuestLost(self.lost)
            raise CommandFailed(said)
        return answer["ok"]

    def close(self) -> None:
        """Ends the guest: closing its input is all that it takes."""
        end_with_input(self._child)
        self._log.close()
