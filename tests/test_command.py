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
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from folioscope.layout import LAYOUTS

from command import BOOT_SECONDS, GONE_SECONDS, Running, children, folioscope, wait_until
from test_reports import COLUMNS

LAYOUT = LAYOUTS["4k"]
CONTIGUOUS = 1 << 52


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for --out; its path is short, as a Unix socket's has to be."""
    return tmp_path_factory.mktemp("cli")


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


# A guest that stays, and what is saved of it.


class Held:
    """A guest that `folioscope boot` holds."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.lines = []
        assert running.child.stdout is not None
        for line in running.child.stdout:
            self.lines.append(line)
            if line.startswith("end:"):
                break
        else:
            raise AssertionError(f"boot ended: {self.lines} {running.child.stderr.read()}")
        text = "".join(self.lines)
        self.socket = re.search(r"--guest (\S+)", text)[1]
        self.pid = int(re.search(r"^process (\d+)", text, re.MULTILINE)[1])
        self.source = ["--guest", self.socket, "--pid", str(self.four_blocks())]

    def call(self, method: str, **params: Any) -> Any:
        """A line to its socket, and the answer."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(BOOT_SECONDS)
            stream.connect(self.socket)
            stream.sendall(json.dumps({"id": 7, "method": method, "params": params}).encode() + b"\n")
            lines = stream.makefile()
            assert "ready" in json.loads(lines.readline())
            answer = json.loads(lines.readline())
        assert answer["id"] == 7 and "ok" in answer, answer
        return answer["ok"]

    def op(self, process: int, name: str, **params: Any) -> Any:
        """An operation of a process of the guest."""
        return self.call("command", command={"op": {"process": process, "op": {name: params}}})

    def area(self, name: str, length: int, written: int, offset: int = 0) -> tuple[dict[str, Any], int]:
        """A process with one hinted area, written from its start, and the area's address."""
        spawned = self.call("command", command={"spawn": {"name": name}})["spawned"]
        process, where = spawned["process"], {"isolated": {"offset": offset}}
        address = self.op(process, "mmap", length=length, place=where)["mapped"]["address"]
        self.op(process, "madvise", address=address, length=length, advice="hugepage")
        self.op(process, "touch", address=address, length=written, access="write", order="forward")
        return spawned, address

    def four_blocks(self) -> int:
        """The pid of a process that has written four blocks and given one page of the second away."""
        spawned, address = self.area("four", 4 * LAYOUT.block, 4 * LAYOUT.block)
        page = address + LAYOUT.block + 3 * LAYOUT.page
        self.op(spawned["process"], "madvise", address=page, length=LAYOUT.page, advice="dontneed")
        return spawned["pid"]


@pytest.fixture(scope="module")
def held(place: Path) -> Iterator[Held]:
    """`folioscope boot`."""
    with Running(["boot", "--out", str(place), "--memory", "512M"]) as running:
        held = Held(running)
        yield held
        running.child.send_signal(signal.SIGINT)
        running.child.wait(timeout=GONE_SECONDS)
        running.nothing_left()


@pytest.fixture(scope="module")
def core(held: Held, place: Path) -> Path:
    """A snapshot of its process."""
    path = place / "saved.core"
    said = folioscope("save", *held.source, path).ok()
    assert re.fullmatch(rf"{path}: 2 CPUs, \d+ KiB of guest memory, 1 process\(es\)\n", said)
    return path


def rows(text: str) -> list[dict[str, Any]]:
    """The entries of a dump in JSON, with the numbers as numbers."""
    found = json.loads(text)
    for row in found:
        for name in ("va", "table", "word", "group"):
            row[name] = int(row[name], 16) if row[name] else None
    return found


def folded(core: Path) -> list[dict[str, Any]]:
    """The contiguous level-3 entries of a saved process."""
    return rows(folioscope("dump", core, "--contiguous", "--level", "3", "--format", "json").ok())


def test_boot_says_how_to_attach(held: Held) -> None:
    """The lines that it prints work when pasted."""
    assert Path(held.socket).is_socket()
    printed = [line for line in held.lines if "folioscope check" in line]
    arguments = printed[0].split("folioscope ", 1)[1].split()
    assert "no error found" in folioscope(*arguments).ok()
    processes = held.call("command", command={"processes": {}})["processes"]["processes"]
    assert held.pid in [process["pid"] for process in processes]


def test_save_full(held: Held, core: Path, place: Path) -> None:
    """All RAM, of which what is zero takes no room: the same process has the same entries in it.

    A refusal leaves what was there."""
    path, pid = place / "full.core", held.source[-1]
    said = folioscope("save", "--full", *held.source, path).ok()
    room = r"all 512 MiB of guest memory, of which (\d+) MiB take room"
    found = re.fullmatch(rf"{path}: 2 CPUs, {room}, process {pid} in user mode\n", said)
    assert found and 10 < int(found[1]) < 256
    assert path.stat().st_size > 512 << 20
    assert folded(path) == folded(core)
    assert "no error found" in folioscope("check", path).ok()
    before = path.stat().st_ino
    folioscope("save", "--full", "--guest", held.socket, "--pid", "99999", path).sentence()
    assert path.stat().st_ino == before and not list(place.glob(".folioscope-*"))


def listed(*words: str | Path) -> Any:
    """A listing in JSON, as its schema has it."""
    said = json.loads(folioscope(*words, "--format", "json").ok())
    jsonschema.Draft202012Validator(json.loads(folioscope("schema", str(words[0])).ok())).validate(said)
    return said


def test_ps_and_maps(held: Held, core: Path, place: Path) -> None:
    """Live and in a core of all RAM alike: every task, and what a process that does not run has in each VMA."""
    guest, pid = ["--guest", held.socket], held.source[-1]
    full = place / "listed.core"
    folioscope("save", "--full", *held.source, full).ok()
    tasks = {task["pid"]: task for task in listed("ps", *guest)["tasks"]}
    assert tasks[1]["name"] == "init" and tasks[1]["threads"][0] == 1 and tasks[2]["mm"] is None
    assert tasks[int(pid)]["name"] == "four" and tasks[int(pid)]["table"]
    text = folioscope("ps", *guest).ok()
    assert re.search(r"^ +2 +1 +\S+ - +\[kthreadd\]$", text, re.M) and re.search(rf"^ +{pid} .* four$", text, re.M)
    maps = listed("maps", pid, *guest)
    assert maps["vmas"] == listed("maps", pid, full)["vmas"] and maps["task"] == tasks[int(pid)]
    (area,) = (vma for vma in maps["vmas"] if "hg" in vma["flags"])
    assert area["mapped"] == 4 * LAYOUT.block - LAYOUT.page and area["contiguous"] == 3 * LAYOUT.block
    assert area["blocks"] == {"folded": 3, "partial": 1} and area["permissions"] == "rw-p"
    smaps = held.call("command", command={"read_file": {"path": f"/proc/{pid}/smaps", "offset": 0}})
    words = re.findall(r"^VmFlags: (.*?) *$", smaps["file"]["content"]["text"], re.M)
    assert [" ".join(vma["flags"]) for vma in maps["vmas"]] == words
    said = folioscope("maps", pid, full).ok()
    assert (
        f"four ({pid})" in said
        and "3 folded" in said
        and re.search(r"252K of 256K mapped, 192K contiguous \(76%\)", said)
    )
    # init, which no CPU need run just now.
    init = listed("maps", "1", *guest)
    assert init["task"]["name"] == "init" and sum(vma["mapped"] for vma in init["vmas"]) > 0
    for words, expected in [
        (("maps", "2", *guest), "kthreadd) has no memory of its own"),
        (("maps", "99999", full), "the guest has no process 99999"),
        (("ps", core), "save it with --full"),
        (("maps", pid, core), "save it with --full"),
    ]:
        assert expected in folioscope(*words).sentence()


def test_page(held: Held, core: Path, place: Path) -> None:
    """A page of a folded block, in words and by the schema: its folio, its counts, and the process that maps it."""
    full, pid = place / "pages.core", held.source[-1]
    folioscope("save", "--full", *held.source, full).ok()
    row = folded(full)[LAYOUT.cont_pages + 1]
    pfn = (row["word"] & ((1 << 48) - 1)) >> 12
    said = listed("page", f"{pfn:#x}-{pfn + 2:#x}", full)
    assert [frame["pfn"] for frame in said["pages"]] == [pfn, pfn + 1] and said["page_size"] == LAYOUT.page
    for at, frame in enumerate(said["pages"]):
        page, (place_,) = frame["page"], frame["mapped"]
        assert (page["order"], page["head"], page["mapcount"]) == (LAYOUT.cont_order, pfn - 1, 1)
        assert (place_["pid"], place_["name"], int(place_["va"], 16)) == (
            int(pid),
            "four",
            row["va"] + at * LAYOUT.page,
        )
    text = folioscope("page", f"{pfn:#x}", full).ok()
    assert f"order 4 (64K), page 1 of it, from page frame {pfn - 1:#x}: anonymous" in text
    assert f"mapped   at {row['va']:#014x} in four ({pid}) by level 3 entry {row['word']:#018x}" in text
    assert "is no memory of the guest's" in folioscope("page", "1", full).ok()
    assert "saved with --full" in folioscope("page", "0x40000", core).sentence()


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
