# SPDX-License-Identifier: GPL-2.0-only
"""Programs that folioscope starts and that are not there, no programs, or end at once: the cause, in one sentence."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from folioscope import CommandNotFound, GuestLost, Session

from command import ROOT, Ended, folioscope
from recorder import plugin
from test_bad_input import AT_ONCE, KERNEL, told

__all__ = ["plugin"]

# What boots a guest on QEMU, each in its own way.
COMMANDS: dict[str, list[Any]] = {
    "run": ["run", "--only", "munmap", "--machine", "tcg"],
    "boot": ["boot", "--machine", "tcg"],
    "boot --console": ["boot", "--console", "--machine", "tcg"],
    "session": ["session", "--machine", "tcg"],
}
RECORDED: dict[str, list[Any]] = {
    "record": ["record"],
    "record --bare": ["record", "--bare", KERNEL / "Image"],
    "run --record": ["run", "--only", "munmap", "--record", "--machine", "tcg"],
    "session --record": ["session", "--record", "--machine", "tcg"],
}
# A file in QEMU's place: its content and mode, and what is found.
FILES: dict[str, tuple[bytes, int, str]] = {
    "text": (b"text", 0o644, "a file that this user may not execute (mode 0644)"),
    "interpreter": (b"#!/no/such/shell -e\n", 0o755, "a script whose interpreter /no/such/shell is not there"),
    "killed": (b"#!/bin/sh\nkill -9 $$\n", 0o755, "with signal: 9 (SIGKILL), and is no QEMU by its --version"),
    "refuses": (b"#!/bin/sh\nprintf 'no\\033[2J\\nmore' >&2\nexit 3\n", 0o755, "exit status: 3, and is no QEMU"),
    "empty": (b"", 0o755, "exit status: 0, and is no QEMU by its --version; it said: nothing"),
}


def of_session(ended: Ended) -> Ended:
    """A session's refusal is a line of JSON on standard output."""
    if ended.arguments[0] == "session":
        assert ended.status == 2 and not ended.err and ended.out.count("\n") == 1, ended
        ended.err = "folioscope: " + ended.out.split('"message":"')[1].split('","lost"')[0]
    return ended


def in_place_of_qemu(tmp_path: Path, words: list[Any]) -> None:
    """Each file, and what is no file."""
    expected = {str(tmp_path): "a directory", "/dev/null": "a device", "/nonexistent": "/nonexistent was not found"}
    for name, (content, mode, found) in FILES.items():
        path = tmp_path / name
        path.write_bytes(content)
        path.chmod(mode)
        expected[str(path)] = found
    for qemu, found in expected.items():
        ended = of_session(folioscope(*words, "--out", tmp_path / "out", "--qemu", qemu, seconds=AT_ONCE))
        told(ended, qemu, found)
        # Nothing is said of what never began.
        assert "trace" not in ended.err and "\x1b" not in ended.err and "0 findings" not in ended.out
    # Another one, as is advised, is QEMU: it refuses what QEMU refuses.
    ended = of_session(folioscope(*words, "--out", tmp_path / "out", "--cpu", "z80", seconds=AT_ONCE))
    told(ended, "QEMU ended before the guest started", "unable to find CPU model 'z80'")
    assert "name another one" not in ended.err


@pytest.mark.parametrize("name", COMMANDS)
def test_no_qemu(tmp_path: Path, name: str) -> None:
    """By each command that boots a guest."""
    in_place_of_qemu(tmp_path, COMMANDS[name])


@pytest.mark.usefixtures("plugin")
@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("name", RECORDED)
def test_no_qemu_to_record(tmp_path: Path, name: str) -> None:
    """The same where the recorder waits for a trace; a plugin that is none is QEMU's to refuse."""
    in_place_of_qemu(tmp_path, RECORDED[name])
    if name.startswith("record"):
        words = [*RECORDED[name], "--out", tmp_path / "out"]
        none = tmp_path / "text"
        told(
            folioscope(*words, "--plugin", none), "QEMU ended before the guest started", "Could not load plugin", "text"
        )
        told(folioscope(*words, "--plugin", tmp_path), "expected the recorder's plugin at", "found no file there")


@pytest.mark.usefixtures("plugin")
@pytest.mark.only_machine("tcg")
def test_an_earlier_trace_stays_where_no_guest_starts(tmp_path: Path) -> None:
    """A file is emptied when there is something to write; one that was made for it goes again."""
    trace = tmp_path / "trace"
    for wrong in (
        ["--qemu", "/nonexistent"],
        ["--kernel", "/nonexistent"],
        ["--bare", KERNEL / "Image", "--qemu", "/dev/null"],
    ):
        words = ["record", "--out", tmp_path / "out", "--trace", trace, *wrong]
        told(folioscope(*words, seconds=AT_ONCE))
        assert not trace.exists()
        trace.write_bytes(b"earlier")
        told(folioscope(*words, seconds=AT_ONCE))
        assert trace.read_bytes() == b"earlier"
        trace.unlink()


@pytest.mark.usefixtures("plugin")
@pytest.mark.only_machine("tcg")
def test_a_plugin_of_another_kind(tmp_path: Path) -> None:
    """One that QEMU loads, and that writes no trace or another: it is not the name of a file that is wrong."""
    source = tmp_path / "other.c"
    source.write_text(
        "#include <stdio.h>\n#include <string.h>\n"
        "int qemu_plugin_version = 4;\n"
        "int qemu_plugin_install(unsigned long id, const void *info, int argc, char **argv) {\n"
        "    for (int i = 0; i < argc; i++)\n"
        '        if (!strncmp(argv[i], "trace=", 6)) {\n'
        '            FILE *trace = fopen(argv[i] + 6, "w");\n'
        "            if (TEXT[0] && trace) fwrite(TEXT, 1, 12, trace);\n"
        "            if (trace) fclose(trace);\n"
        "        }\n"
        "    return 0;\n}\n"
    )
    words = ["record", "--bare", ROOT / "out" / "litmus", "--smp", 1, "--memory", "64M", "--out", tmp_path / "out"]
    kinds = (("", "found []"), (r"FOLIOREC\x63\0\0\0", "found version 99"), ("SOMETHINGELSE", "found [53, 4f"))
    for text, found in kinds:
        made = tmp_path / "other.so"
        subprocess.run(["cc", "-shared", "-fPIC", f'-DTEXT="{text}"', "-o", made, source], check=True)
        ended = folioscope(*words, "--plugin", made)
        told(ended, "from the recorder's plugin", found, "build it anew with: vmm/setup/plugin.sh")
        assert "findings" not in ended.out, ended
    # As is advised: the one that was built for this test.
    ended = folioscope(*words)
    assert re.search(r"^[1-9]\d* stores to descriptors", ended.out, re.M) and not ended.err, ended


def lost(monkeypatch: pytest.MonkeyPatch, program: Path, log: Path) -> str:
    """What the plugin says of such a command."""
    monkeypatch.setenv("FOLIOSCOPE", str(program))
    with pytest.raises((GuestLost, CommandNotFound)) as raised:
        Session([], log=log, boot_seconds=AT_ONCE)
    return str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"#!/no/such/shell\n", "could not start it: No such file or directory"),
        (b"\x7fELF", "could not start it: Exec format error"),
        (b"#!/bin/sh\nexit 7\n", "folioscope ended with status 7; its words are in"),
        (b"#!/bin/sh\nkill -9 $$\n", "folioscope ended with status -9"),
        (b"#!/bin/sh\necho hello\n", "expected a line of JSON from folioscope and found b'hello'"),
        (b"#!/bin/sh\necho 7\n", "expected a line of JSON from folioscope and found b'7'"),
        (b"#!/bin/sh\nprintf '\\377\\n'\n", "expected a line of JSON from folioscope and found b'\\xff'"),
        (
            b"#!/bin/sh\necho '{\"ready\": 7}'\n",
            "expected folioscope to say that a guest is ready and found {'ready': 7}",
        ),
        (
            b"#!/bin/sh\necho '{\"error\": 7}'\n",
            "expected folioscope to say that a guest is ready and found {'error': 7}",
        ),
    ],
)
def test_no_folioscope(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, said: str) -> None:
    """What the pytest plugin says of a command that is none."""
    program = tmp_path / "folioscope"
    program.write_bytes(content)
    assert "found no program there" in lost(monkeypatch, program, tmp_path / "log")
    program.chmod(0o755)
    assert said in lost(monkeypatch, program, tmp_path / "log")
