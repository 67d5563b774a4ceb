# SPDX-License-Identifier: GPL-2.0-only
"""Snapshots that are damaged, cut short or none at all, and files that cannot be written: one sentence, status 2."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from folioscope import Session

from command import ROOT, Running, folioscope, wait_until
from test_bad_input import AT_ONCE, told


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small snapshot of a process and the kernel."""
    place = tmp_path_factory.mktemp("bad")
    session = Session(["--memory", "128M", "--out", str(place)], log=place / "session.log")
    process = session.call("command", command={"spawn": {"name": "test"}})["spawned"]["process"]
    session.call("hold", process=process)
    session.call("save", process=process, kernel=True, path=str(place / "core"))
    session.close()
    yield place / "core"


def test_snapshot_is_fine(core: Path) -> None:
    """So that what follows is wrong by what was done to it."""
    assert "no error found" in folioscope("check", core).ok()


def test_snapshot_damaged_anywhere(core: Path, tmp_path: Path) -> None:
    """Cut short, or with a byte changed: it is refused in a sentence, or judged; the tool never fails by itself."""
    chance = random.Random(20)
    data = core.read_bytes()
    path = tmp_path / "core"
    statuses = []
    # The headers and notes are a small part of the file, and the most delicate one.
    notes = data.index(b"FOLIOSCOPE") + 16_000
    for index in range(200):
        at = chance.randrange(notes if index % 4 else len(data))
        if index % 2:
            path.write_bytes(data[:at])
        else:
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        ended = folioscope("check", path, seconds=AT_ONCE)
        statuses.append(ended.status)
        assert ended.status in (0, 1, 2), f"byte {at}, cut {index % 2}: {ended.err}"
        if not ended.out:
            ended.sentence()
        assert "panicked" not in ended.err
    assert statuses.count(2) > 100


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda core: b"", ["not an ELF file", "folioscope save"]),
        (lambda core: b"\x7fEL", ["not an ELF file"]),
        (lambda core: core[:4000], ["cut short", "save it again"]),
        (lambda core: core[: len(core) // 2], ["cut short", "save it again"]),
        (lambda core: core[:18] + struct.pack("<H", 62) + core[20:], ["e_machine", "183", "found 62"]),
        (lambda core: core[:16] + struct.pack("<H", 2) + core[18:], ["e_type", "ET_CORE", "found 2"]),
        (lambda core: core.replace(b"FOLIOSCOPE", b"SOMETHINGX"), ["not written by `folioscope save`"]),
    ],
    ids=["empty", "three-bytes", "cut-notes", "cut-memory", "machine", "type", "foreign"],
)
def test_no_snapshot(core: Path, tmp_path: Path, data: Callable[[bytes], bytes], words: list[str]) -> None:
    """Each kind of damage has its own sentence, for each command that reads one."""
    path = tmp_path / "core"
    path.write_bytes(data(core.read_bytes()))
    for command in (["check"], ["dump"], ["explain", "0x400000"]):
        told(folioscope(*command, path, seconds=AT_ONCE), *words)


def test_no_such_guest_or_process(core: Path, tmp_path: Path) -> None:
    """How to get a guest, and which processes there are."""
    told(folioscope("check", "--out", tmp_path), "found neither", "folioscope boot")
    told(folioscope("check", "--guest", tmp_path / "none.sock"), "none.sock", "still running")
    told(folioscope("check", tmp_path / "none.core"), "cannot open the snapshot", "none.core")
    told(folioscope("check", tmp_path), "is not a regular file", "folioscope save")
    told(folioscope("check", core, "--pid", 4_000_000), "no process 4000000", "(test)")
    told(folioscope("save", tmp_path / "x.core", "--out", tmp_path), "found neither", "folioscope boot")


def test_report_that_cannot_be_written(core: Path, tmp_path: Path) -> None:
    """The verdict was printed; the file is missing, and the last line has the status that the command ends with."""
    for path, why in (("/dev/full", "No space left"), (tmp_path / "no" / "such", "No such file")):
        for format in ("json", "junit", "ktap", "html"):
            ended = folioscope("check", core, f"--{format}", path)
            told(ended, f"could not write the report to {path}", why)
            assert ended.out.endswith(
                "\nNOT WRITTEN no error found; 1 output could not be written (exit status 2)\n"
            ), ended.out
            assert "status 0" not in ended.out and "picture: " not in ended.out
    ended = folioscope("check", core, "--junit", "/dev/full", "--format", "json")
    report = json.loads(ended.out)
    assert (ended.status, report["exit_status"], report["outcome"]) == (2, 2, "ok")
    assert [why.split(":")[0] for why in report["not_written"]] == ["could not write the report to /dev/full"]


@pytest.mark.parametrize("failing", ["json", "junit", "ktap", "html"])
def test_one_output_that_fails_takes_no_other_with_it(core: Path, tmp_path: Path, failing: str) -> None:
    """Each is written by itself, and the one that failed is named."""
    formats = ["json", "junit", "ktap", "html"]
    paths = {name: "/dev/full" if name == failing else str(tmp_path / name) for name in formats}
    ended = folioscope("check", core, *(word for name in formats for word in (f"--{name}", paths[name])))
    told(ended, "could not write the report to /dev/full", "No space left")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(formats) - {failing})
    assert all(path.stat().st_size > 50 for path in tmp_path.iterdir())
    if failing != "json":
        assert json.loads((tmp_path / "json").read_text())["exit_status"] == 2


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_input_that_is_no_file(core: Path, tmp_path: Path, kind: str) -> None:
    """A pipe would be waited for without end, and a device read so: each command refuses one by name."""
    path, found = tmp_path / "input", {"fifo": "a FIFO", "socket": "a socket", "device": "a character device"}[kind]
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    for command in (
        *(["check"], ["dump"], ["explain", "0x400000"], ["ps"], ["kernel"], ["maps", 1], ["page", 1], ["image"]),
        *(["diff", core], ["check", "--vmlinux"], ["run", "--kernel"], ["run", "--initrd"], ["boot", "--initrd"]),
        *(["record", "--judge"], ["record", "--plugin"]),
    ):
        told(folioscope(*command, path, seconds=AT_ONCE), f"and found {found}", "is not a regular file", str(path))


def test_output_that_is_no_file(core: Path, tmp_path: Path) -> None:
    """A snapshot is written in any order, so that only a file will do; a FIFO that nobody reads would be waited for."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, found in ((fifo, "a FIFO"), (tmp_path, "a directory"), ("/proc/self/fd/1", "a FIFO")):
        told(folioscope("save", path, "--out", tmp_path, seconds=AT_ONCE), "expected a file to write for FILE", found)
    for option in ("--json", "--junit", "--ktap", "--html"):
        told(
            folioscope("check", core, option, fifo, seconds=AT_ONCE), f"for {option}", "no process reads from this FIFO"
        )
        told(folioscope("check", core, option, tmp_path, seconds=AT_ONCE), f"for {option} and found a directory")
    # Somebody reads: a pipe of a shell, say. It is open for writing until the reader has it, who would wait.
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        with open(os.open(fifo, os.O_RDWR), "rb", buffering=0):
            assert wait_until(lambda: fifo in map(Path.readlink, Path(f"/proc/{reader.pid}/fd").iterdir()), AT_ONCE)
            folioscope("check", core, "--json", fifo).ok()
        assert json.loads(reader.communicate()[0])["outcome"] == "ok"
    assert '"outcome": "ok"' in folioscope("check", core, "--json", "/proc/self/fd/1").ok()


@pytest.mark.parametrize("same", ["itself", "hard link", "symbolic link", "another path"])
def test_output_that_is_an_input_or_another_output(core: Path, tmp_path: Path, same: str) -> None:
    """What a user has is not overwritten, and no output by another one: by whichever path, and for every command."""
    victim, alias = tmp_path / "victim", tmp_path / "alias"
    shutil.copy(core, victim)
    if same == "itself":
        alias = victim
    elif same == "hard link":
        os.link(victim, alias)
    elif same == "symbolic link":
        alias.symlink_to("victim")
    else:
        (tmp_path / "below").mkdir()
        alias = tmp_path / "below" / ".." / "victim"
    before = victim.read_bytes()
    missing = tmp_path / "new"
    for command, what in (
        *((["check", victim, option, alias], "an input") for option in ("--json", "--junit", "--ktap", "--html")),
        (["check", core, "--vmlinux", victim, "--json", alias], "an input"),
        (["run", "--kernel", victim, "--json", alias], "an input"),
        (["run", "--initrd", victim, "--html", alias], "an input"),
        (["record", "--initrd", victim, "--trace", alias], "an input"),
        (["record", "--judge", victim, "--at", "0x1000", "--trace", alias], "an input"),
        (["record", "--judge", victim, "--text", alias], "an input"),
        (["check", core, "--json", victim, "--html", alias], "another output"),
        (["run", "--junit", victim, "--ktap", alias], "another output"),
        (["record", "--trace", victim, "--json", alias], "another output"),
        (["check", core, "--json", missing, "--html", tmp_path / "." / "new"], "another output"),
        (["run", "--json", missing, "--html", missing], "another output"),
    ):
        told(folioscope(*command, seconds=AT_ONCE), f"would overwrite {what}", "give it another name")
        assert victim.read_bytes() == before and not missing.exists(), command
    # A program is read too, or started.
    alias.unlink()
    victim.write_text("#!/bin/sh\n")
    victim.chmod(0o755)
    if same != "itself":
        alias = tmp_path / "program"
        os.link(victim, alias)
    for command in (
        *(["record", option, alias, "--", victim] for option in ("--json", "--html", "--trace")),
        *([command, "--qemu", victim, "--json", alias] for command in ("run", "record")),
    ):
        told(folioscope(*command, seconds=AT_ONCE), "would overwrite an input", "give it another name")
        assert victim.read_text() == "#!/bin/sh\n", command
    shutil.copyfile(core, victim)
    # What is printed goes to a file that is one of them.
    with victim.open("ab") as output, Running(["check", str(victim)], output=output) as running:
        told(running.end(AT_ONCE), "standard output would overwrite an input")
    with missing.open("ab") as output, Running(["check", str(core), "--json", str(missing)], output=output) as running:
        told(running.end(AT_ONCE), "--json would overwrite what is printed")
    assert victim.read_bytes() == before and not missing.read_bytes()
    # What takes all that is written is no file of anybody's.
    folioscope("check", core, "--json", "/dev/null", "--html", "/dev/null").ok()


def test_a_socket_that_is_none(core: Path, tmp_path: Path) -> None:
    """What is no socket is named as what it is: no guest has ended there."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    kinds = {core: "a file", tmp_path: "a directory", fifo: "a FIFO", Path("/dev/null"): "a character device"}
    for path, found in kinds.items():
        for command in (
            *(["check", "--guest", path], ["ps", "--guest", path], ["watch", 1, "--guest", path]),
            *(["save", tmp_path / "x", "--guest", path], ["attach", path, "check"]),
            ["carrier", "exec", "--socket", path, "--", "/bin/true"],
        ):
            said = folioscope(*command, seconds=AT_ONCE).sentence()
            assert f"and found {found}: {path} is none" in said and "running" not in said, said
            assert ("CORE" in said) == (path == core and "--guest" in command), said
    assert folioscope("check", core).status == 0


def test_which_of_two_snapshots_is_none(core: Path, tmp_path: Path) -> None:
    """By its path, and a trace or a core in another place by what it is."""
    none, trace = tmp_path / "none", tmp_path / "trace"
    none.write_bytes(b"text")
    trace.write_bytes(b"FOLIOREC\4\0\0\0")
    cut = tmp_path / "cut"
    cut.write_bytes(core.read_bytes()[:4000])
    for path, words in (
        (none, ["not an ELF file"]),
        (trace, ["a trace of `folioscope record`", "folioscope record --judge"]),
        (cut, ["cut short"]),
    ):
        for command in (["diff", core, path], ["diff", path, core], ["explain", "0x1000", core, "--since", path]):
            told(folioscope(*command, seconds=AT_ONCE), str(path), *words)
    # As is advised.
    assert "not an ELF file" not in folioscope("record", "--judge", trace).err
    for command in (["image", core], ["run", "--machine", "tcg", "--kernel", core]):
        said = folioscope(*command, seconds=AT_ONCE).sentence()
        assert "an ELF core" in said and "vmlinux" not in said, said


def test_help_that_cannot_be_written() -> None:
    """The status is that of what could not be done, for help and version too."""
    for words in (["--help"], ["check", "--help"], ["--version"]):
        with open("/dev/full", "w") as full, Running(words, output=full) as running:
            told(running.end(AT_ONCE), "could not write to standard output", "No space left")
        assert folioscope(*words).ok()


def test_output_named_like_standard_output(core: Path) -> None:
    """`-` makes no file of that name; what the refusal advises instead does what it says."""
    streams = {
        "check": ("--json", "--junit", "--ktap", "--html"),
        "run": ("--json", "--junit", "--ktap", "--html"),
        "record": ("--json", "--junit", "--html", "--trace"),
    }
    commands = [[command, option, "-"] for command, options in streams.items() for option in options]
    commands.append(["record", "--judge", core, "--at", "0x1000", "--text", "-"])
    commands.append(["bench", "--json", "-"])
    for words in commands:
        option = words[words.index("-") - 1]
        told(
            folioscope(*words, *[core] * (words[0] == "check"), seconds=AT_ONCE),
            f"expected a file to write for {option} and found -",
            "give /dev/stdout for standard output, beside what is printed there, or ./- for one of that name",
        )
    for words, expected in (
        (["save", "-"], "a file to write for FILE"),
        (["run", "--marks", "-"], "a file to write for --marks"),
        (["run", "--out", "-"], "a directory for --out"),
        (["boot", "--out", "-"], "a directory for --out"),
    ):
        said = folioscope(*words, seconds=AT_ONCE)
        told(said, f"expected {expected} and found -", "give ./- for one of that name")
        assert "/dev/stdout" not in said.err
    assert not (ROOT / "-").exists()
    both = folioscope("check", core, "--json", "/dev/stdout").ok()
    assert '"outcome": "ok"' in both and "(exit status 0)" in both
    try:
        folioscope("check", core, "--json", "./-").ok()
        assert json.loads((ROOT / "-").read_text())["outcome"] == "ok"
    finally:
        (ROOT / "-").unlink(missing_ok=True)
