"""Cores that hold anything: of a process's tables and of all RAM, with bits turned, words copied, pages swapped,
headers changed, and cut; every command that reads one.

Whatever is in them: a verdict, or one sentence and status 2, in bounded time, and never a panic. The whole number of
runs is in `make test-long`; each run has a seed of its own, which a failure names.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from command import COMMAND, GONE_SECONDS, SLOWER, Running, folioscope
from held_guest import Held

PAGE, WORD = 4096, 8
# Several times what a command takes of a core that is whole: of a CPU, as the host has other things to do; and memory.
CPU_SECONDS = 20
SECONDS = 10 * CPU_SECONDS * SLOWER
BYTES = 512 << 20
LIMITS = ["prlimit", f"--cpu={CPU_SECONDS}", f"--data={BYTES}"]
# Runs of each core: a sample, and all.
SOME, ALL = 30, 1500
EHDR, PHDR = 64, 56


@dataclass
class Victim:
    """A core, and what its commands are asked about."""

    path: Path
    pid: int
    address: int
    # Where pages with something in them are in the file: those that are not headers and notes.
    pages: list[int]
    notes_end: int
    pfns: str
    data: mmap.mmap
    undo: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path, pid: int, address: int, pfns: str) -> Victim:
        """Opens it for writing."""
        with path.open("r+b") as file:
            data = mmap.mmap(file.fileno(), 0)
            first = int.from_bytes(data[EHDR + 8 : EHDR + 16], "little")
            notes_end = first + int.from_bytes(data[EHDR + 32 : EHDR + 40], "little")
            pages, at = [], notes_end
            while at < len(data):
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                pages += range(-(-max(at, notes_end) // PAGE) * PAGE, end - PAGE + 1, PAGE)
                at = end
        return cls(path, pid, address, pages, notes_end, pfns, data)

    def put(self, at: int, data: bytes) -> None:
        """Writes there, to be undone."""
        self.undo.append((at, self.data[at : at + len(data)]))
        self.data[at : at + len(data)] = data

    def mend(self) -> None:
        """As it was."""
        for at, data in reversed(self.undo):
            self.data[at : at + len(data)] = data
        self.undo.clear()

    def place(self, chance: random.Random) -> int:
        """A word of its memory."""
        return chance.choice(self.pages) + WORD * chance.randrange(PAGE // WORD)

    def turn_bits(self, chance: random.Random) -> None:
        """Some bits of memory."""
        for _ in range(chance.choice([1, 10, 1000])):
            at = self.place(chance) + chance.randrange(WORD)
            self.put(at, bytes([self.data[at] ^ 1 << chance.randrange(8)]))

    def copy_words(self, chance: random.Random) -> None:
        """Words to where others are: pointers that lead elsewhere, descriptors of other tables."""
        for _ in range(chance.choice([1, 10, 1000])):
            start = self.place(chance)
            self.put(self.place(chance), self.data[start : start + WORD])

    def swap_pages(self, chance: random.Random) -> None:
        """Whole pages."""
        for _ in range(chance.choice([1, 10, 100])):
            one, other = chance.choice(self.pages), chance.choice(self.pages)
            kept = self.data[one : one + PAGE]
            self.put(one, self.data[other : other + PAGE])
            self.put(other, kept)

    def change_headers(self, chance: random.Random) -> None:
        """Bytes of the ELF header, the program headers and the notes, and numbers that are one too many."""
        headers = EHDR + PHDR * 4
        for _ in range(chance.choice([1, 3, 10])):
            at = chance.randrange(chance.choice([headers, self.notes_end]))
            number = (1 << chance.randrange(64)) + chance.choice([-1, 0, 1])
            value = chance.choice([bytes([chance.randrange(256)]), (number % (1 << 64)).to_bytes(8, "little")])
            self.put(at, value[: self.notes_end - at])

    def ask(self, chance: random.Random, place: Path) -> list[str]:
        """A command."""
        pid, address = str(self.pid), hex(self.address)
        core = str(self.path)
        return chance.choice(
            [
                ["check", core],
                ["check", core, "--json", str(place / "report.json"), "--html", str(place / "report.html")],
                ["check", core, "--pid", pid],
                ["ps", core],
                ["maps", pid, core],
                ["page", self.pfns, core],
                ["explain", address, core, "--pid", pid],
                ["explain", hex(chance.getrandbits(48)), core, "--pid", pid],
                ["explain", address, core, "--pid", pid, "--since", core],
                ["dump", core, "--pid", pid],
                ["dump", core, "--pid", pid, "--format", "json"],
                ["kernel", core],
                ["diff", core, core],
            ]
        )


WAYS = {
    "bits": Victim.turn_bits,
    "words": Victim.copy_words,
    "pages": Victim.swap_pages,
    "headers": Victim.change_headers,
    "cut": None,
}


@pytest.fixture(scope="module", params=["tables", "full"])
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A core of each kind; the guest has ended by then."""
    place = tmp_path_factory.mktemp(request.param)
    path = place / "victim.core"
    with Running(["boot", "--out", str(place), "--memory", "192M"]) as running:
        held = Held(running)
        pid = held.source[-1]
        full = ["--full"] if request.param == "full" else []
        folioscope("save", *full, *held.source, path).ok()
        rows = json.loads(folioscope("dump", *held.source, "--format", "json").ok())
        running.child.send_signal(signal.SIGINT)
        running.child.wait(timeout=GONE_SECONDS)
    address = next(int(row["va"], 16) for row in rows if row["level"] == 3)
    victim = Victim.of(path, int(pid), address, "0x40000-0x40800")
    yield victim
    victim.data.close()
    path.unlink()


def played(victim: Victim, seed: str, place: Path) -> int:
    """One run; gives the status."""
    chance = random.Random(seed)
    way = chance.choice(list(WAYS))
    kept = victim.path
    try:
        if damage := WAYS[way]:
            damage(victim, chance)
        else:
            victim.path = place / "cut.core"
            subprocess.run(["cp", "--sparse=always", kept, victim.path], check=True)
            os.truncate(victim.path, chance.randrange(chance.choice([victim.notes_end, len(victim.data)])))
        words = victim.ask(chance, place)
        ended = subprocess.run(
            [*LIMITS, str(COMMAND), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"seed {seed}: {way}, {late.cmd} takes more than {SECONDS} s") from late
    finally:
        victim.mend()
        victim.path = kept
    told = f"seed {seed}: {way}, {words}, status {ended.returncode}\n{ended.stderr[-2000:]}"
    assert ended.returncode in (0, 1, 2) and "panicked" not in ended.stderr, told
    if ended.returncode == 2 and not ended.stdout:
        # `dump` has a sentence for each table that cannot be read.
        lines = ended.stderr.splitlines()
        assert lines and all(line.startswith("folioscope: ") for line in lines), told
        assert len(lines) == 1 or words[0] == "dump", told
    assert not any(character < " " and character not in "\n\t" for character in ended.stdout + ended.stderr), told
    return ended.returncode


def play(victim: Victim, runs: int, place: Path) -> None:
    """Runs with the seeds 0, 1, ..., or the one of FOLIOSCOPE_TEST_SEED."""
    given = os.environ.get("FOLIOSCOPE_TEST_SEED")
    seeds = [given] if given else map(str, range(runs))
    statuses = [played(victim, seed, place) for seed in seeds]
    # What is changed where nobody looks changes nothing; what matters is told.
    assert given or {0, 2} <= set(statuses), statuses


def test_some(victim: Victim, tmp_path: Path) -> None:
    """A sample."""
    play(victim, SOME, tmp_path)


@pytest.mark.long
def test_all(victim: Victim, tmp_path: Path) -> None:
    """Enough of each way and each command."""
    play(victim, ALL, tmp_path)
