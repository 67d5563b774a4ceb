# SPDX-License-Identifier: GPL-2.0-only
"""A program of the user's, run in a guest and judged: where it says so, when it ends, or all the time.

It is a static arm64 program of this host, or its source in C, which the compiler for arm64 makes into one. It marks the
places at which it is to be judged with ``folioscope_mark()`` of ``folioscope.h``, which lies beside this package: the
process stops itself there, is read from outside, and goes on.
"""

from __future__ import annotations

import gzip
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .client import CommandFailed
from .model import Program
from .view import NotJudged, View

if TYPE_CHECKING:
    from .guest import Guest

#: Where ``folioscope.h`` is, for ``cc -I``.
INCLUDE = Path(__file__).parent / "include"

Judged = Literal["marks", "exit", "always"]

SHELL = "/bin/sh"
# Names the compiler for arm64 where it is another one.
COMPILER = "FOLIOSCOPE_CC"
COMPILE_SECONDS = 120.0
TICK_SECONDS = 0.05
# Of an octal escape, so that a line of the guest's shell has some KiB.
BYTES_IN_LINE = 1024
LINES_AT_ONCE = 64


@dataclass(frozen=True)
class Mark:
    """A place at which a process of a program was judged. It has an address and a length, as an ``Area`` has."""

    name: str
    pid: int
    address: int
    """What the program named; 0 where that was nothing."""
    length: int
    view: View

    @property
    def pattern(self) -> str:
        """A character per block of what it named, as of ``View.pattern``."""
        return self.view.pattern(self.address, self.length)


@dataclass(frozen=True)
class ProgramRun:
    """What a program of the user's did, and where it was judged."""

    status: int
    """A shell's: 128 and the signal's number where a signal has ended it."""
    signal: str | None
    """The signal's name; None where there was none."""
    stdout: str
    stderr: str
    marks: list[Mark] = field(default_factory=list)

    def mark(self, name: str) -> Mark:
        """The first mark by a name."""
        found = [mark for mark in self.marks if mark.name == name]
        if not found:
            raise KeyError(f"the program has set no mark {name!r}; it has set: {[mark.name for mark in self.marks]}")
        return found[0]


def compiled(source: Path, place: Path) -> Path:
    """Makes a static arm64 program of a source in C."""
    compiler = os.environ.get(COMPILER, "aarch64-linux-gnu-gcc" if os.uname().machine != "aarch64" else "cc")
    made = place / source.stem
    words = [*shlex.split(compiler), "-O2", "-s", "-Wall", "-static", "-I", str(INCLUDE), "-o", str(made), str(source)]
    try:
        told = subprocess.run(words, check=False, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    except FileNotFoundError as error:
        what = f"expected the compiler {compiler} for {source.name} and it is not there"
        raise RuntimeError(
            f"{what}: install it (Debian: gcc-aarch64-linux-gnu), or name another in {COMPILER}"
        ) from error
    if told.returncode != 0:
        raise RuntimeError(f"{source} does not compile:\n{told.stderr}")
    return made


def check_static(program: Path) -> None:
    """Refuses what an arm64 guest cannot start."""
    head = program.read_bytes()[:20]
    if head[:2] == b"#!":
        return
    if head[:4] == b"\x7fELF" and head[18:20] != b"\xb7\x00":
        raise ValueError(f"expected an arm64 program and {program} is one of another machine; build it for arm64")


def put(guest: Guest, file: Path, path: str) -> None:
    """Copies a file of this host into the guest."""
    packed = gzip.compress(file.read_bytes())
    lines = [
        "printf '" + "".join(f"\\{byte:03o}" for byte in packed[at : at + BYTES_IN_LINE]) + "'"
        for at in range(0, len(packed), BYTES_IN_LINE)
    ]
    where = shlex.quote(path)
    _shell(guest, f": >{where}.gz")
    for at in range(0, len(lines), LINES_AT_ONCE):
        script = "{\n" + "\n".join(lines[at : at + LINES_AT_ONCE]) + f"\n}} >>{where}.gz\n"
        _done(Program.read(guest.command("run", seconds=60, argv=[SHELL], input=script)["program"]), file)
    mode = 0o755 if os.access(file, os.X_OK) else 0o644
    _shell(guest, f"zcat {where}.gz >{where} && rm {where}.gz && chmod {mode:o} {where}")


def _shell(guest: Guest, line: str) -> str:
    ran = Program.read(guest.command("run", seconds=60, argv=[SHELL, "-c", line])["program"])
    _done(ran, line)
    return ran.stdout


def _done(ran: Program, what: object) -> None:
    if ran.status != 0:
        raise RuntimeError(f"the guest's shell ended with {ran.status or ran.signal} at {what}: {ran.stderr}")


class Running:
    """A program that runs in a guest, in a directory of its own."""

    def __init__(self, guest: Guest, argv: Sequence[str], input: str | None, at_exit: bool) -> None:
        self._guest = guest
        self.place = _shell(guest, "mktemp -d /tmp/program-XXXXXX").strip()
        self._argv, self._input, self._at_exit = list(argv), input, at_exit
        self._read = 0
        self.seen: set[int] = set()

    def bring(self, files: Sequence[str | os.PathLike[str]], place: Path) -> None:
        """Copies files of this host to its directory; a source in C is compiled in ``place`` first."""
        for each in files:
            file = Path(each)
            if not file.is_file():
                found = f"expected a file at {file.absolute()} and found none"
                raise FileNotFoundError(
                    f"{found}: files= is relative to where pytest was started; give it from the test's own directory: "
                    "Path(__file__).parent / ..."
                )
            if file.suffix == ".c":
                file = compiled(file, place)
            check_static(file)
            put(self._guest, file, f"{self.place}/{file.name}")

    def start(self) -> int:
        """Starts it; gives its pid."""
        for name in ("marks", "status", "pid", "stdin", "stdout", "stderr"):
            text = self._input or "" if name == "stdin" else ""
            self._guest.command("write_file", path=f"{self.place}/{name}", text=text, create=True)
        exports = f"export FOLIOSCOPE_MARKS={self.place}/marks" + (" FOLIOSCOPE_EXIT=1" if self._at_exit else "")
        words = " ".join(shlex.quote(word) for word in self._argv)
        inner = 'echo $$ >pid; exec "$@"'
        script = f"cd {self.place}\n{exports}\n{SHELL} -c {shlex.quote(inner)} sh {words} <stdin >stdout 2>stderr\n"
        script += "echo $? >status\n"
        self._guest.command("write_file", path=f"{self.place}/go", text=script, create=True)
        # In a session of its own: the end of this shell orphans its process group, and the kernel sends SIGHUP to an
        # orphaned group with a stopped process (kernel/exit.c, kill_orphaned_pgrp()), as one at a mark is.
        _shell(self._guest, f"setsid {SHELL} {self.place}/go >/dev/null 2>&1 </dev/null &")
        end = time.monotonic() + 20
        while not (pid := self._guest.read(f"{self.place}/pid").strip()):
            if time.monotonic() > end:
                expected = f"expected the guest's shell to start {self._argv[0]} within 20 s, and it did not"
                raise RuntimeError(f"{expected}: it needs setsid in PATH, and {self.place} writable")
            time.sleep(TICK_SECONDS)
        self.seen.add(int(pid))
        return int(pid)

    def status(self) -> int | None:
        """How it ended; None while it runs."""
        said = self._guest.read(f"{self.place}/status").strip()
        return int(said) if said else None

    def reached(self) -> Iterator[tuple[str, int, int, int]]:
        """The marks at which a process waits that have not been told yet: name, pid, address, length."""
        lines = self._guest.read(f"{self.place}/marks").splitlines()
        for line in lines[self._read :]:
            pid, start, length, name = line.split(" ", 3)
            self.seen.add(int(pid))
            if not self._waits(int(pid)):
                # It is between writing the line and stopping.
                return
            self._read += 1
            yield name, int(pid), int(start, 16), int(length, 16)

    def _waits(self, pid: int) -> bool:
        try:
            stat = self._guest.read(f"/proc/{pid}/stat")
        except CommandFailed:
            # It was killed there.
            self._read += 1
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def signal(self, number: int, pid: int) -> None:
        """Sends a process a signal; that it is gone is well."""
        self._guest.command("run", argv=[SHELL, "-c", f"kill -{number} {pid}"], seconds=20)

    def processes(self) -> list[int]:
        """It, and the processes that it has made and that have not ended."""
        said = self._guest.command("run", argv=[SHELL, "-c", "cat /proc/[0-9]*/stat 2>/dev/null"], seconds=20)
        parent: dict[int, int] = {}
        for line in Program.read(said["program"]).stdout.splitlines():
            # A name may hold anything: what is behind the last parenthesis is a state, and the parent.
            pid, rest = line.partition(" ")[0], line.rpartition(")")[2].split()
            if pid.isdecimal() and len(rest) > 1 and rest[0] not in "ZX":
                parent[int(pid)] = int(rest[1])
        found = {pid for pid in self.seen if pid in parent}
        while more := {pid for pid, by in parent.items() if by in found} - found:
            found |= more
        self.seen |= found
        return sorted(found)

    def ended(self, status: int, marks: list[Mark]) -> ProgramRun:
        """What there was of it; its directory goes."""
        out, err = (self._guest.read(f"{self.place}/{name}") for name in ("stdout", "stderr"))
        _shell(self._guest, f"rm -r {self.place}")
        by = signal.Signals(status - 128).name if status - 128 in set(signal.Signals) else None
        return ProgramRun(status, by, out, err, marks)


def run(
    guest: Guest,
    argv: Sequence[str],
    files: Sequence[str | os.PathLike[str]],
    *,
    input: str | None,
    seconds: float,
    judged: Judged,
    check: bool,
    place: Path,
) -> ProgramRun:
    """Runs a program of this host to its end; see ``Guest.run``."""
    running = Running(guest, argv, input, judged == "exit")
    running.bring(files, place)
    marks: list[Mark] = []
    pid = running.start()
    end = time.monotonic() + seconds
    try:
        while True:
            status = running.status()
            for name, at, address, length in running.reached():
                if judged == "marks" or (judged == "exit" and name == "exit"):
                    marks.append(_judge(guest, name, at, address, length, check))
                running.signal(signal.SIGCONT, at)
            if status is not None:
                break
            if judged == "always":
                for at in running.processes():
                    with_it = _while_it_runs(guest, at, pid, check)
                    marks += [with_it] if with_it else []
            if time.monotonic() > end:
                raise TimeoutError(f"{argv[0]} did not end within {seconds:.0f} s and was killed")
            time.sleep(TICK_SECONDS)
    except BaseException:
        if not guest.session.lost:
            for at in running.processes():
                running.signal(signal.SIGKILL, at)
        raise
    ran = running.ended(status, marks)
    if check and not marks:
        how = {
            "marks": "it has set no mark (folioscope.h)",
            "exit": "it has not come to its end by exit(), with folioscope.h included",
            "always": "it ended before it was looked at",
        }
        said = f"{argv[0]} ended with status {ran.status} and was never judged: {how[judged]}\n{ran.stderr}".rstrip()
        raise NotJudged(None, [said])
    return ran


def _judge(guest: Guest, name: str, pid: int, address: int, length: int, check: bool) -> Mark:
    view = guest.look(pid, check=False)
    if check:
        view.check(f"at the mark {name}")
    return Mark(name, pid, address, length, view)


def _while_it_runs(guest: Guest, pid: int, program: int, check: bool) -> Mark | None:
    """A look at a process that may end at any time."""
    try:
        view = guest.look(pid, check=False)
    except CommandFailed:
        return None
    if check:
        view.check(f"while process {pid} of program {program} ran")
    return Mark("always", pid, 0, 0, view)
