# SPDX-License-Identifier: GPL-2.0-only
"""Cores of other programs: QEMU's dump-guest-memory, with the kernel's VMCOREINFO and without it, plain and compressed.

They hold general registers and memory alone. What each command says of one is what it says of our own full core, which
has the CPUs' system registers, of the same guest at the same instant.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command import folioscope
from own_qemu import LAYOUT, MEMFD, NONCE, PLANTED, Guest, errors

pytestmark = pytest.mark.qemu

PLACE = {"isolated": {"offset": 0}}
MACHINE = ("-M", "virt,memory-backend=ram", "-object", MEMFD)
BLOCKS = 4
PT_LOAD = 1
# Elf64_Ehdr.e_phoff, e_phnum; an Elf64_Phdr: type, flags, place in the file, two addresses, bytes there and in all.
PHOFF, PHNUM, PHDR = 32, 56, struct.Struct("<IIQQQQQQ")
# Pages of zeros that are left out are at least so many here, for the sake of few headers.
RUN = 16
ZLIB = ("kdump-zlib", "kdump-raw-zlib")


@dataclass
class Cores:
    """One guest at one instant, by us and by QEMU."""

    ours: Path
    theirs: Path
    # The same as theirs, by the name of its format.
    compressed: dict[str, Path]
    # A process that sleeps, and where its memory begins.
    asleep: int
    area: int
    # Behind its memory, where a reserved descriptor is.
    planted: int
    pfns: list[int]

    def both(self, *words: str) -> tuple[Any, Any]:
        """A listing of each."""
        return tuple(json.loads(folioscope(*words, core, "--format", "json").ok()) for core in (self.ours, self.theirs))


def dumped(own: Guest, path: Path, form: str = "elf") -> Path:
    """QEMU's own dump."""
    own.ask("dump-guest-memory", paging=False, protocol=f"file:{path}", format=form)
    return path


def formats(own: Guest) -> list[str]:
    """Those that are compressed and that it can write: flattened, and from 9.0 on as they are."""
    known = own.ask("query-dump-guest-memory-capability")["formats"]
    return [form for form in ZLIB if form in known]


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cores]:
    """A process in user mode, one that sleeps with a child, with memory folded, in pages and shared; and a fault."""
    place = tmp_path_factory.mktemp("cores")
    with Guest(tmp_path_factory.mktemp("qemu"), *MACHINE, "-device", "vmcoreinfo") as own:
        size = f"/sys/kernel/mm/transparent_hugepage/hugepages-{LAYOUT.block >> 10}kB/enabled"
        own.command("write_file", path=size, text="always")
        asleep = own.command("spawn", name="asleep")["spawned"]
        length = BLOCKS * LAYOUT.block
        area = own.op(asleep["process"], "mmap", length=length, place=PLACE)["mapped"]["address"]
        own.op(asleep["process"], "touch", address=area, length=length, access="write", order="forward")
        own.op(asleep["process"], "mprotect", address=area + LAYOUT.page, length=LAYOUT.page, prot=["read"])
        own.op(asleep["process"], "fork", name="child")
        mine = own.command("spawn", name="mine")["spawned"]
        own.command("checkpoint", process=mine["process"], nonce=NONCE, smaps=False)
        rows = {row["va"]: row for row in own.rows("--pid", str(asleep["pid"]))}
        last = rows[area + length - LAYOUT.page]
        pfns = [rows[area + at]["word"] >> 12 & (1 << 36) - 1 for at in range(0, length, LAYOUT.page)]
        with own.planted(last["table"] + 8 * (last["index"] + 1), PLANTED):
            own.ask("stop")
            theirs = dumped(own, place / "theirs.core")
            compressed = {form: dumped(own, place / f"{form}.core", form) for form in formats(own)}
            own.attach("save", "--full", place / "ours.core").ok()
            own.ask("cont")
        yield Cores(place / "ours.core", theirs, compressed, asleep["pid"], area, area + length, pfns)
    theirs.unlink()


def report(core: Path, place: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Status and report of a check."""
    path = place / "report.json"
    ended = folioscope("check", core, "--json", path, *words)
    assert path.exists(), ended.err
    return ended.status, json.loads(path.read_text())


def judged(report: dict[str, Any]) -> dict[int, Any]:
    """What is known of each process."""
    (step,) = report["steps"]
    kept = ("entries", "vmas", "findings", "folios", "not_judged")
    return {p["process"]["pid"]: {name: p[name] for name in kept} for p in step["processes"]}


def test_it_is_none_of_ours(cores: Cores) -> None:
    """So that what follows is of such a core."""
    data = cores.theirs.read_bytes()[: 1 << 16]
    assert b"VMCOREINFO" in data and b"FOLIOSCOPE" not in data
    assert b"FOLIOSCOPE" in cores.ours.read_bytes()[: 1 << 16]


def test_listings_are_the_same(cores: Cores) -> None:
    """Tasks, VMAs, pages, the kernel's own map, the entries."""
    pid, pfns = str(cores.asleep), ",".join(map(hex, cores.pfns))
    for words in (("ps",), ("maps", pid), ("page", pfns), ("kernel",), ("dump", "--pid", pid)):
        ours, theirs = cores.both(*words)
        assert ours == theirs, words
        assert ours


def test_a_compressed_dump_is_the_same(cores: Cores, tmp_path: Path) -> None:
    """Packed by zlib, flattened and as it is: every listing and the verdict; the flattened one at least is there."""
    assert "kdump-zlib" in cores.compressed
    pid, pfns = str(cores.asleep), ",".join(map(hex, cores.pfns))
    for path in cores.compressed.values():
        assert path.stat().st_size < cores.theirs.stat().st_size // 4
        for words in (("ps",), ("maps", pid), ("page", pfns), ("kernel",), ("dump", "--pid", pid)):
            ours, theirs = (json.loads(folioscope(*words, it, "--format", "json").ok()) for it in (cores.ours, path))
            assert ours == theirs, (path.name, words)
        status, found = report(path, tmp_path)
        assert status == 1 and errors(found) == [("A7", cores.planted), ("L8", cores.planted)]
        assert judged(found) == judged(report(cores.theirs, tmp_path)[1])


def test_verdicts_are_the_same(cores: Cores, tmp_path: Path) -> None:
    """The same processes, by the same rules, with the same fault."""
    (status, ours), (their_status, theirs) = (report(core, tmp_path) for core in (cores.ours, cores.theirs))
    assert status == their_status == 1
    assert errors(ours) == errors(theirs) == [("A7", cores.planted), ("L8", cores.planted)]
    assert judged(ours) == judged(theirs) and cores.asleep in judged(ours)
    kernels = [found["steps"][0]["kernel"] for found in (ours, theirs)]
    assert kernels[0]["mapped"] == kernels[1]["mapped"]


@pytest.mark.parametrize("at", [0, LAYOUT.page, BLOCKS * LAYOUT.block], ids=["folded", "read-only", "fault"])
def test_explanations_are_the_same(cores: Cores, at: int) -> None:
    """Every word."""
    texts = [
        folioscope("explain", hex(cores.area + at), core, "--pid", cores.asleep) for core in (cores.ours, cores.theirs)
    ]
    assert texts[0].status == texts[1].status
    assert texts[0].out == texts[1].out


def test_registers_that_were_worked_out_are_told(cores: Cores, tmp_path: Path) -> None:
    """Where they come from."""
    assert "worked out from the kernel's VMCOREINFO (its note)" in folioscope("check", cores.theirs).out


def test_without_a_note(cores: Cores, tmp_path: Path) -> None:
    """QEMU without its device: the kernel's own page of it is found in memory."""
    data = bytearray(cores.theirs.read_bytes())
    at = data.index(b"VMCOREINFO\0")
    data[at : at + 10] = b"SOMETHINGX"
    (tmp_path / "core").write_bytes(data)
    assert folioscope("ps", tmp_path / "core").ok() == folioscope("ps", cores.ours).ok()
    ended = folioscope("check", tmp_path / "core")
    assert ended.status == 1 and "(found in memory)" in ended.out


def filtered(core: Path, path: Path, unwanted: set[int]) -> int:
    """Writes it as makedumpfile does: without zeros and what a process has in these pages; gives how many are left out.

    What is left out is at the end of a segment: p_filesz is below p_memsz.
    """
    data = core.read_bytes()
    (start,), (count,) = struct.unpack_from("<Q", data, PHOFF), struct.unpack_from("<H", data, PHNUM)
    headers = [PHDR.unpack_from(data, start + index * PHDR.size) for index in range(count)]
    page, zeros = LAYOUT.page, bytes(LAYOUT.page)
    kept: list[tuple[int, bytearray, int]] = []
    left_out = 0
    for kind, _, offset, _, address, held, *_ in headers:
        if kind != PT_LOAD:
            continue
        empty = [data[offset + at : offset + at + page] == zeros for at in range(0, held, page)]
        kept.append((address, bytearray(), 0))
        at = 0
        while at < len(empty):
            run = next((end for end in range(at, len(empty)) if not empty[end]), len(empty)) - at
            run = run if run >= RUN else int(address // page + at in unwanted)
            if run:
                first, body, missing = kept[-1]
                kept[-1] = (first, body, missing + run * page)
                left_out += run
            else:
                if kept[-1][2]:
                    kept.append((address + at * page, bytearray(), 0))
                kept[-1][1].extend(data[offset + at * page : offset + (at + 1) * page])
            at += max(run, 1)
    notes = next(header for header in headers if header[0] != PT_LOAD)
    notes_data = data[notes[2] : notes[2] + notes[5]]
    out = bytearray(data[:64])
    struct.pack_into("<Q", out, PHOFF, 64)
    struct.pack_into("<H", out, PHNUM, len(kept) + 1)
    place = 64 + PHDR.size * (len(kept) + 1)
    out += PHDR.pack(notes[0], notes[1], place, 0, 0, len(notes_data), len(notes_data), notes[7])
    place += len(notes_data)
    for first, body, missing in kept:
        out += PHDR.pack(PT_LOAD, 7, place, 0, first, len(body), len(body) + missing, 0)
        place += len(body)
    path.write_bytes(out + notes_data + b"".join(body for _, body, _ in kept))
    return left_out


def test_pages_that_are_left_out(cores: Cores, tmp_path: Path) -> None:
    """What is left out is no memory of zeros and no memory that is not there: the tables are judged as before."""
    path = tmp_path / "filtered.core"
    left_out = filtered(cores.theirs, path, set(cores.pfns))
    assert left_out > len(cores.pfns) and path.stat().st_size < cores.theirs.stat().st_size // 2
    pid = str(cores.asleep)
    for words in (("ps",), ("maps", pid), ("dump", "--pid", pid)):
        ours, filtered_ = (json.loads(folioscope(*words, core, "--format", "json").ok()) for core in (cores.ours, path))
        assert ours == filtered_, words
    status, found = report(path, tmp_path)
    assert status == 1 and errors(found) == [("A7", cores.planted), ("L8", cores.planted)]
