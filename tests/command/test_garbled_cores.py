# SPDX-License-Identifier: GPL-2.0-only
"""Cores that hold anything: of a process's tables, of all RAM, and QEMU's own; every command that reads one.

Bits are turned, words copied, numbers put in their place, pages swapped, headers changed, and the file is cut.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from command import COMMAND, GONE_SECONDS, SLOWER, Running, folioscope
from held_guest import LAYOUT, Held
from own_qemu import NONCE, Guest

PAGE, WORD = 4096, 8
# Several times what a command takes of a core that is whole: of a CPU, as the host has other things to do; and memory.
CPU_SECONDS = 20
SECONDS = 10 * CPU_SECONDS * SLOWER
BYTES = 512 << 20
LIMITS = ["prlimit", f"--cpu={CPU_SECONDS}", f"--data={BYTES}"]
# Runs of each core: a sample, and all.
SOME, ALL = 25, 1500
EHDR, PHOFF, PHDR = 64, 32, 56
MEMORY = "192M"
# Where RAM is, by page frame.
FIRST, FRAMES = 0x40000, 0xC000
# Of so many words of a page that are looked at, so many lead to other places: tables, the kernel's structures.
LOOKED_AT, HOT = 64, 4


@dataclass
class Victim:
    """A core, and what its commands are asked about."""

    path: Path
    # As it was.
    whole: Path
    pid: int
    address: int
    # Where pages with something in them are in the file, behind its headers and notes; and those that lead to others.
    pages: list[int]
    hot: list[int]
    notes_end: int
    data: mmap.mmap
    undo: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path, pid: int, address: int) -> Victim:
        """Opens it for writing."""
        whole = path.with_suffix(".whole")
        subprocess.run(["cp", "--sparse=always", path, whole], check=True)
        with path.open("r+b") as file:
            data = mmap.mmap(file.fileno(), 0)
        number = lambda at: int.from_bytes(data[at : at + 8], "little")  # noqa: E731
        # The notes are the first segment of each.
        notes = number(PHOFF)
        first, length, loads = (number(notes + at) for at in (8, 32, PHDR + 8))
        # QEMU has memory right behind the notes, at any byte.
        pages = [at for at in range(loads, len(data) - PAGE + 1, PAGE) if any(data[at : at + PAGE])]
        hot = [at for at in pages if leads(data[at : at + PAGE]) >= HOT]
        assert hot and len(hot) < len(pages)
        return cls(path, whole, pid, address, pages, hot, first + length, data)

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
        """A word of its memory, each second time of what matters most."""
        return chance.choice(chance.choice([self.pages, self.hot])) + WORD * chance.randrange(PAGE // WORD)

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

    def put_numbers(self, chance: random.Random) -> None:
        """Numbers in the place of words: lengths, counts, orders, addresses."""
        for _ in range(chance.choice([1, 10, 1000])):
            self.put(self.place(chance), odd(chance).to_bytes(WORD, "little"))

    def swap_pages(self, chance: random.Random) -> None:
        """Whole pages."""
        for _ in range(chance.choice([1, 10, 100])):
            one, other = (chance.choice(chance.choice([self.pages, self.hot])) for _ in range(2))
            kept = self.data[one : one + PAGE]
            self.put(one, self.data[other : other + PAGE])
            self.put(other, kept)

    def change_headers(self, chance: random.Random) -> None:
        """Bytes of the ELF header, the program headers and the notes, and numbers that are one too many."""
        headers = EHDR + PHDR * 4
        for _ in range(chance.choice([1, 3, 10])):
            at = chance.randrange(chance.choice([headers, self.notes_end]))
            value = chance.choice([bytes([chance.randrange(256)]), odd(chance).to_bytes(WORD, "little")])
            self.put(at, value[: self.notes_end - at])

    def ask(self, chance: random.Random, place: Path) -> list[str]:
        """A command."""
        pid, address, core, whole = str(self.pid), hex(self.address), str(self.path), str(self.whole)
        first = FIRST + chance.randrange(FRAMES)
        frames = f"{first:#x}-{first + chance.choice([1, 16, 0x800, 0x8000]):#x}"
        outputs = [word for name in ("json", "html", "junit", "ktap") for word in (f"--{name}", str(place / name))]
        listing = chance.choice(["text", "json"])
        return chance.choice(
            [
                ["check", core],
                ["check", core, *outputs, "--information", "--all-maps"],
                ["check", core, "--pid", pid, "--format", "json"],
                ["ps", core, "--format", listing],
                ["maps", pid, core, "--format", listing],
                ["page", frames, core, "--format", listing],
                ["explain", address, core, "--pid", pid],
                ["explain", hex(chance.getrandbits(64)), core, "--pid", pid],
                ["explain", address, core, "--pid", pid, "--since", whole],
                ["explain", address, whole, "--pid", pid, "--since", core],
                ["dump", core, "--pid", pid, "--format", listing],
                ["dump", core, "--pid", pid, "--tables", "--findings"],
                ["dump", core, "--kernel", "--contiguous"],
                ["kernel", core, "--format", listing],
                ["diff", core, whole, "--format", listing],
                ["diff", whole, core, "--format", listing],
            ]
        )


def odd(chance: random.Random) -> int:
    """A word that is a bound of something, or next to one."""
    return ((1 << chance.randrange(65)) + chance.choice([-1, 0, 1])) % (1 << 64)


def leads(page: bytes) -> int:
    """How many of some of its words are pointers of the kernel, or descriptors of tables and pages in RAM."""
    words = memoryview(page).cast("Q")[:: PAGE // WORD // LOOKED_AT]
    frames = range(FIRST, FIRST + FRAMES)
    return sum(word >> 48 == 0xFFFF or (word & 3 == 3 and word >> 12 & (1 << 36) - 1 in frames) for word in words)


WAYS = {
    "bits": Victim.turn_bits,
    "words": Victim.copy_words,
    "numbers": Victim.put_numbers,
    "pages": Victim.swap_pages,
    "headers": Victim.change_headers,
    "cut": None,
}


def ours(place: Path, *words: str) -> tuple[Path, int, int]:
    """A core by `save`, the pid of a process, and an address of it."""
    path = place / "victim.core"
    with Running(["boot", "--out", str(place), "--memory", MEMORY]) as running:
        held = Held(running)
        folioscope("save", *words, *held.source, path).ok()
        rows = json.loads(folioscope("dump", *held.source, "--format", "json").ok())
        running.child.send_signal(signal.SIGINT)
        running.child.wait(timeout=GONE_SECONDS)
    return path, int(held.source[-1]), next(int(row["va"], 16) for row in rows if row["level"] == 3)


def theirs(place: Path) -> tuple[Path, int, int]:
    """The same by QEMU's dump-guest-memory."""
    path = place / "victim.core"
    with Guest(place, "-M", "virt", "-m", MEMORY, "-device", "vmcoreinfo") as own:
        spawned = own.command("spawn", name="mine")["spawned"]
        process, where, length = spawned["process"], {"isolated": {"offset": 0}}, 4 * LAYOUT.block
        address = own.op(process, "mmap", length=length, place=where)["mapped"]["address"]
        own.op(process, "touch", address=address, length=length, access="write", order="forward")
        own.command("checkpoint", process=process, nonce=NONCE, smaps=False)
        own.ask("dump-guest-memory", paging=False, protocol=f"file:{path}")
    return path, spawned["pid"], address


MARKS = {"qemu": pytest.mark.qemu}
SEEDS: dict[str, Callable[[Path], tuple[Path, int, int]]] = {
    "tables": ours,
    "full": lambda place: ours(place, "--full"),
    "qemu": theirs,
}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=MARKS.get(name, ())) for name in SEEDS])
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A core of each kind; the guest has ended by then."""
    victim = Victim.of(*SEEDS[request.param](tmp_path_factory.mktemp(request.param)))
    yield victim
    victim.data.close()
    victim.path.unlink()
    victim.whole.unlink()


def played(victim: Victim, seed: str, place: Path) -> int:
    """One run; gives the status. The core of a run that failed stays in ``place``."""
    chance = random.Random(seed)
    way = chance.choice(list(WAYS))
    kept = victim.path
    try:
        if damage := WAYS[way]:
            damage(victim, chance)
        else:
            victim.path = place / "cut.core"
            subprocess.run(["cp", "--sparse=always", victim.whole, victim.path], check=True)
            os.truncate(victim.path, chance.randrange(chance.choice([victim.notes_end, len(victim.data)])))
        words = victim.ask(chance, place)
        try:
            return ended(words, f"seed {seed}: {way}")
        except AssertionError:
            subprocess.run(["cp", "--sparse=always", victim.path, place / f"seed-{seed}.core"], check=True)
            raise
    finally:
        victim.mend()
        victim.path = kept


def ended(words: list[str], told: str) -> int:
    """How a command ends."""
    line, end = [*LIMITS, str(COMMAND), *words], SECONDS
    try:
        ended = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=end, check=False)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{told}: {words} takes more than {end} s") from late
    told += f", {words}, status {ended.returncode}\n{ended.stderr[-2000:]}"
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
    statuses, faults = [], []
    for seed in seeds:
        try:
            statuses.append(played(victim, seed, place))
        except AssertionError as fault:
            faults.append(str(fault))
    assert not faults, "\n".join(faults)
    # What is changed where nobody looks changes nothing; what matters is told.
    assert given or {0, 2} <= set(statuses), statuses


def test_some(victim: Victim, tmp_path: Path) -> None:
    """A sample."""
    play(victim, SOME, tmp_path)


@pytest.mark.long
def test_all(victim: Victim, tmp_path: Path) -> None:
    """Enough of each way and each command."""
    play(victim, ALL, tmp_path)
