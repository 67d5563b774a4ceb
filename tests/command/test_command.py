# SPDX-License-Identifier: GPL-2.0-only
"""The command line: what each subcommand prints, writes and answers, and that its guest ends with it."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from command import BOOT_SECONDS, GONE_SECONDS, Running, children, folioscope, wait_until
from held_guest import LAYOUT, Held, folded, rows
from test_reports import COLUMNS

CONTIGUOUS = 1 << 52


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A pseudo terminal: our end and the command's."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        with contextlib.suppress(OSError):
            os.close(end)


def on_terminal(terminal: tuple[int, int], *arguments: Any, **environment: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = terminal
    with Running([str(word) for word in arguments], environment, output=theirs) as running:
        os.close(theirs)
        out = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(ours, 1 << 16):
                out += piece
        assert running.end(BOOT_SECONDS).status == 0
    return out.decode()


def test_boot_says_how_to_attach(held: Held) -> None:
    """The lines that it prints work when pasted."""
    assert Path(held.socket).is_socket()
    printed = [line for line in held.lines if "folioscope check" in line]
    arguments = printed[0].split("folioscope ", 1)[1].split()
    assert "no error found" in folioscope(*arguments).ok()
    processes = held.call("command", command={"processes": {}})["processes"]["processes"]
    assert held.pid in [process["pid"] for process in processes]


def test_live_is_as_saved(held: Held, core: Path) -> None:
    """The same process, untouched: what is read live is what was saved, entry by entry and in the verdict."""
    assert folioscope("dump", *held.source).ok() == folioscope("dump", core).ok()
    live, saved = folioscope("check", *held.source).ok(), folioscope("check", core).ok()

    def of_process(text: str) -> str:
        return text[: text.index("linear map:")]

    assert of_process(live) == of_process(saved)


def test_dump_in_each_form(core: Path) -> None:
    """Text, JSON and CSV hold the same entries."""
    text = folioscope("dump", core).ok().splitlines()
    as_json = json.loads(folioscope("dump", core, "--format", "json").ok())
    as_csv = list(csv.DictReader(io.StringIO(folioscope("dump", core, "--format", "csv").ok())))
    assert len(text) == len(as_json) == len(as_csv) > 100
    for line, row, cells in zip(text, as_json, as_csv, strict=True):
        assert {key: str(value if value is not None else "") for key, value in row.items()} == cells
        va, level, _ = line.split(maxsplit=2)
        assert (int(va, 16), level) == (int(row["va"], 16), f"L{row['level']}")
        assert row["descriptor"] in line
    assert [int(row["va"], 16) for row in as_json] == sorted(int(row["va"], 16) for row in as_json)


def test_dump_filters(core: Path) -> None:
    """Each filter takes away what it says, and nothing else."""

    def dump(*options: Any) -> list[dict[str, Any]]:
        return rows(folioscope("dump", core, "--format", "json", *options).ok())

    everything = dump()
    contiguous = dump("--contiguous")
    assert contiguous == [row for row in everything if row["word"] & CONTIGUOUS]
    # Four blocks were written, and one has lost a page since.
    groups = {row["group"] for row in contiguous}
    assert len(contiguous) == 3 * LAYOUT.cont_pages and len(groups) == 3
    first = min(groups)
    assert groups == {first, first + 2 * LAYOUT.block, first + 3 * LAYOUT.block}

    ranged = dump("--va", f"{first:#x}-{first + LAYOUT.block:#x}")
    assert ranged == [row for row in contiguous if row["group"] == first]
    assert dump("--level", 2) == []
    tables = dump("--level", 2, "--tables")
    assert tables and all(row["level"] == 2 and row["descriptor"].startswith("table ") for row in tables)
    # 52-bit addresses with 4K pages: LPA2, which begins at level -1.
    assert {row["level"] for row in dump("--tables")} == {-1, 0, 1, 2, 3}
    assert dump("--findings") == []
    kernel = dump("--kernel", "--level", 2)
    assert kernel and all(row["va"] >> 55 & 1 and row["level"] == 2 for row in kernel)


def corrupted(core: Path, to: Path, row: dict[str, Any], word: int) -> Path:
    """A copy of a core with another word in the place of an entry."""
    shutil.copy(core, to)
    with to.open("r+b") as file:
        head = file.read(64)
        assert head[:4] == b"\x7fELF"
        (table,) = struct.unpack_from("<Q", head, 32)
        (count,) = struct.unpack_from("<H", head, 56)
        for index in range(count):
            file.seek(table + 56 * index)
            kind, _, offset, _, physical, size, _, _ = struct.unpack("<IIQQQQQQ", file.read(56))
            if kind == 1 and physical <= row["table"] < physical + size:
                file.seek(offset + row["table"] - physical + 8 * row["index"])
                assert struct.unpack("<Q", file.read(8)) == (row["word"],)
                file.seek(-8, os.SEEK_CUR)
                file.write(struct.pack("<Q", word))
                return to
    raise AssertionError(f"no segment of {core} holds the table {row['table']:#x}")


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("A4", lambda word: word & ~CONTIGUOUS),
        ("A3", lambda word: word ^ LAYOUT.page),
        ("A5", lambda word: word ^ 1 << 54),
        ("L1", lambda word: 0),
    ],
)
def test_errors_end_with_status_1(core: Path, tmp_path: Path, rule: str, change: Any) -> None:
    """A word of a folded block, changed in the file: the rule is named, with the address and the words."""
    row = folded(core)[5]
    word = change(row["word"])
    path = corrupted(core, tmp_path / "broken.core", row, word)
    ended = folioscope("check", path, "--junit", tmp_path / "junit.xml", "--ktap", tmp_path / "ktap")
    assert (ended.status, ended.err) == (1, "")
    assert re.search(rf"^  {rule} four \(\d+\) VA 0x\w+ level 3: ", ended.out, re.MULTILINE), ended.out
    assert f"{word:016x}" in ended.out and "(exit status 1)" in ended.out
    assert list(ElementTree.parse(tmp_path / "junit.xml").iter("failure"))
    assert "not ok 1 check" in (tmp_path / "ktap").read_text()
    shown = rows(folioscope("dump", path, "--findings", "--format", "json").ok())
    assert row["va"] - row["va"] % LAYOUT.block in {entry["va"] for entry in shown}


def test_colour_is_for_terminals(core: Path, tmp_path: Path, terminal: tuple[int, int]) -> None:
    """The same words with and without; NO_COLOR turns it off."""
    shown = on_terminal(terminal, "check", core)
    plain = folioscope("check", core).ok()
    assert "\x1b[" in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n") == plain
    assert max(len(line) for line in plain.splitlines() if not line.startswith("  not")) <= COLUMNS


def test_colour_can_be_refused(core: Path, terminal: tuple[int, int]) -> None:
    """https://no-color.org"""
    assert "\x1b" not in on_terminal(terminal, "check", core, NO_COLOR="1")


def test_readelf_opens_the_core(core: Path) -> None:
    """A core like any other: two threads, the regions as segments."""
    tool = shutil.which("readelf") or shutil.which("aarch64-linux-gnu-readelf")
    assert tool, "readelf is missing; install binutils"
    read = subprocess.run([tool, "-hlnW", core], capture_output=True, text=True, check=True, timeout=30)
    assert "CORE (Core file)" in read.stdout and "AArch64" in read.stdout
    assert read.stdout.count("NT_PRSTATUS") == 2
    assert len(re.findall(r"^  LOAD ", read.stdout, re.MULTILINE)) > 3
    assert not re.search("warning|error", read.stderr, re.IGNORECASE), read.stderr


def test_gdb_opens_the_core(core: Path) -> None:
    """Registers and memory, in the debugger that everybody has."""
    assert shutil.which("gdb-multiarch"), "gdb-multiarch is missing; vmm/setup/packages.sh test installs it"
    row = folded(core)[0]
    script = ["-ex", "set architecture aarch64", "-ex", f"core-file {core}"]
    script += ["-ex", "info registers pc", "-ex", f"x/1gx {row['table'] + 8 * row['index']:#x}"]
    command = ["gdb-multiarch", "-nx", "-q", "-batch", *script]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert f"0x{row['word']:016x}" in said.stdout
    assert re.search(r"^pc +0x", said.stdout, re.MULTILINE)


# Why an address is as it is.


@pytest.fixture(scope="module")
def ends(held: Held, place: Path) -> tuple[Path, int]:
    """A process that has written half a block, a block and half a block of an area, and a snapshot of it."""
    block = LAYOUT.block
    spawned, address = held.area("ends", 4 * block, 2 * block, offset=block // 2)
    assert address % block == block // 2
    path = place / "ends.core"
    folioscope("save", "--guest", held.socket, "--pid", str(spawned["pid"]), path).ok()
    held.call("command", command={"kill": {"process": spawned["process"]}})
    return path, address


def test_explain_a_folded_block(core: Path) -> None:
    """The policy, what it preferred, what it chose, and the entry."""
    row = folded(core)[5]
    said = folioscope("explain", hex(row["va"]), core).ok()
    order = LAYOUT.cont_order
    assert re.search(rf"^  VMA +{row['group']:#x}-{row['group'] + 4 * LAYOUT.block:#x} rw-p", said, re.MULTILINE), said
    assert re.search(rf"^  policy +variable, preferred order {order}$", said, re.MULTILINE), said
    assert f"chosen   order {order}: a folio of {LAYOUT.block // 1024} KiB at {row['group']:#x}" in said
    assert re.search(r"mapped +to .* level 3 entry .* Contiguous", said)
    assert "hinted by MADV_HUGEPAGE" in said


def test_explain_what_is_behind_it(held: Held, core: Path, place: Path) -> None:
    """The block, the folio, who else maps it, and whether the record is of it."""
    row = folded(core)[5]
    said = folioscope("explain", hex(row["va"]), core).ok()
    assert re.search(r"^0x\w+ in process \d+ \(four\), started \d+\.\d\d s after boot$", said, re.M), said
    assert re.search(r"^  flags    rd wr mr mw me ac .*hg", said, re.M), said
    assert "  block    folded\n" in said
    pfn = (row["word"] & ((1 << 48) - 1)) >> 12
    assert f"  folio    order 4 (64K), page 5 of it, from page frame {pfn - 5:#x}: anonymous\n" in said
    assert "  counts   references 16, mapped: page 1, whole folio 0, any part 16\n" in said
    assert "  also     mapped nowhere else\n" in said
    assert "earlier folio" not in said and "  since" not in said
    # In a core of all RAM the same lies elsewhere.
    full = place / "explained.core"
    folioscope("save", "--full", *held.source, full).ok()
    again = folioscope("explain", hex(row["va"]), full).ok()
    assert again == said
    # The hole: a block in part, and a page that the record speaks of and that is gone.
    block = row["group"] + LAYOUT.block
    hole = folioscope("explain", hex(block + 3 * LAYOUT.page), core).ok()
    assert re.search(r"^  block    in part: only 15 pages are present$", hole, re.M), hole
    assert "  now      nothing: the record speaks of an earlier folio\n" in hole
    assert (
        "  partly   not all of its 16 pages are mapped: they have 15 mappings in all\n"
        in folioscope("explain", hex(block), core).ok()
    )


def test_explain_what_has_happened_since(held: Held, place: Path) -> None:
    """Since the look before, or an earlier snapshot: a child, a copy, and a folio that the record does not speak of."""
    spawned, address = held.area("since", LAYOUT.block, LAYOUT.block)
    process = spawned["process"]
    source = ["--guest", held.socket, "--pid", str(spawned["pid"])]
    cores = [place / name for name in ("since-1.core", "since-2.core")]
    folioscope("save", *source, cores[0]).ok()
    assert (
        "  since    the look before: nothing has happened here\n" in folioscope("explain", hex(address), *source).ok()
    )
    fork = {"process": process, "op": {"fork": {"name": "child"}}}
    child = held.call("command", command={"op": fork})["spawned"]
    held.op(process, "touch", address=address, length=LAYOUT.page, access="write", order="forward")
    said = folioscope("explain", hex(address), *source).ok()
    assert f"  since    the look before: copy-on-write {address:#x}-{address + LAYOUT.page:#x}  " in said, said
    assert "  now      order 0: the record speaks of an earlier folio\n" in said
    beside = folioscope("explain", hex(address + LAYOUT.page), *source).ok()
    assert f"  also     mapped at {address + LAYOUT.page:#x} in child ({child['pid']})\n" in beside, beside
    folioscope("save", *source, cores[1]).ok()
    said = folioscope("explain", hex(address), cores[1], "--since", cores[0]).ok()
    assert f"  since    {cores[0]}: copy-on-write " in said
    for each in (child["process"], process):
        held.call("command", command={"kill": {"process": each}})


def test_explain_where_the_vma_ends(ends: tuple[Path, int]) -> None:
    """Each larger order was looked at and rejected for the VMA's start."""
    core, address = ends
    said = folioscope("explain", hex(address), core).ok()
    half = LAYOUT.cont_order - 1
    assert f"preferred order {LAYOUT.cont_order}" in said
    assert re.search(rf"^  order {LAYOUT.cont_order} +.*start.*VMA", said, re.MULTILINE), said
    assert f"chosen   order {half}:" in said
    assert "Contiguous" not in said


def test_explain_what_never_faulted(ends: tuple[Path, int]) -> None:
    """Inside the VMA, and nobody has been there."""
    core, address = ends
    said = folioscope("explain", hex(address + 3 * LAYOUT.block), core).ok()
    assert re.search(rf"^  VMA +{address:#x}-", said, re.MULTILINE)
    assert re.search(r"^  mapped +no: level", said, re.MULTILINE)
    assert "no record of this address" in said


def test_explain_outside_of_any_vma(ends: tuple[Path, int]) -> None:
    """Nothing may be mapped there."""
    core, address = ends
    said = folioscope("explain", hex(address - LAYOUT.block), core).ok()
    assert re.search(r"^  VMA +none: nothing may be mapped here$", said, re.MULTILINE)
    assert re.search(r"^  mapped +no", said, re.MULTILINE)


# The command itself.


@pytest.mark.parametrize("command", [["schema"], ["completions", "bash"], ["dump", "CORE"], ["check", "CORE"]])
@pytest.mark.parametrize("sink", ["full", "head"])
def test_output_that_cannot_be_written(command: list[str], sink: str, core: Path) -> None:
    """A full disk is told in a sentence; that `head` has read enough is nobody's trouble."""
    arguments = [str(core) if word == "CORE" else word for word in command]
    if sink == "full":
        with open("/dev/full", "w") as full, Running(arguments, output=full) as running:
            assert "could not write to standard output: No space left" in running.end(30).sentence()
        return
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe, Running(arguments, output=pipe) as running:
        pipe.close()
        ended = running.end(30)
    assert (ended.status in (0, 2), ended.err) == (True, "")


@pytest.mark.qemu
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("command", ["boot", "run"])
def test_the_guest_ends_with_the_command(tmp_path: Path, command: str, how: signal.Signals) -> None:
    """However it ends: no QEMU is there two seconds later."""
    with Running([command, "--machine", "tcg", "--out", str(tmp_path), "--memory", "256M"]) as running:
        assert wait_until(running.qemus, BOOT_SECONDS), "QEMU did not start"
        (qemu,) = running.qemus()
        assert qemu in children(running.child.pid)
        running.child.send_signal(how)
        assert running.child.wait(timeout=GONE_SECONDS) == -how
        running.nothing_left()
        assert not Path(f"/proc/{qemu}/exe").exists()


def test_two_runs_side_by_side(place: Path) -> None:
    """In one directory, and neither hears of the other."""
    arguments = ["run", "--only", "munmap", "--out", str(place), "--memory", "256M"]
    with Running(arguments) as one, Running(arguments) as other:
        for running in (one, other):
            assert "no error found" in running.end(2 * BOOT_SECONDS).ok()
