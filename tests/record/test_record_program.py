# SPDX-License-Identifier: GPL-2.0-only
"""`record -- PROGRAM`: the sequences of one's own program, which this host has and the guest gets."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from command import ROOT, folioscope
from recorder import Found, plugin, record, seen
from test_stock_kernel import Kernel, stock

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin")]
__all__ = ["plugin"]

SOURCE = Path(__file__).resolve().parents[1] / "programs" / "protects.c"
GCC = ["aarch64-linux-gnu-gcc", "-Os", "-Wl,--build-id=none"]
STATIC = [*GCC, "-static", "-nostdlib", "-ffreestanding"]
VA = 0x7000_0000
BLOCK = 64 << 10


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It changes the rights of a block that is present and not folded."""
    made = tmp_path_factory.mktemp("program") / "protects"
    subprocess.run([*STATIC, SOURCE, "-o", made], check=True, capture_output=True)
    return made


def test_a_program_of_ones_own(program: Path, tmp_path: Path) -> None:
    """It runs with its arguments, what it printed and its status are shown, and its own block is in the trace."""
    trace = tmp_path / "trace"
    said = record("--trace", trace, "--out", tmp_path, "--", program, hex(VA), 3).ok()
    # Bytes of control are not sent on.
    assert f"  out: protected \\u001b[31m\nprogram {program} ended with status 3\n" in said
    assert "0 findings" in said and seen(said)[0] > 1000
    assert "workload" not in said
    symbols = ["--vmlinux", ROOT / "out" / "kernel-4k" / "vmlinux"]
    told = folioscope("explain", hex(VA), trace).ok()
    # All who have ended had tables that covered the address; one of them changed the rights there.
    steps = [
        re.findall(r"^  sequence \d+ of \d+, by process (\d+), in mprotect\(\)", said, re.M)
        for pid in set(re.findall(r"process (\d+), which has ended", told))
        for said in [folioscope("explain", hex(VA), trace, "--pid", pid, "--last", 9, *symbols).ok()]
    ]
    (mprotect,) = [each for each in steps if each]
    assert len(mprotect) >= 4, steps


@pytest.mark.network
def test_what_is_wrong_with_its_sequences(program: Path, tmp_path: Path) -> None:
    """S2 of Debian's newest 7.x (docs/recorder.md, Found), at the program's own address."""
    kernel = ["--kernel", stock(Kernel("4k", "7")), "--cpu", "cortex-a72", "--out", tmp_path]
    ended = record(*kernel, "--", program, hex(VA))
    assert ended.status == 1, ended.out + ended.err
    assert f"program {program} ended with status 0" in ended.out
    found = [each for each in Found.all(ended.out) if VA <= each.va < VA + BLOCK]
    assert {each.rule for each in found} == {"S2"}
    # It has ended by the time it is told of.
    assert all(re.fullmatch(r"  process \d+ \(protects\)", each.lines[2]) for each in found), found


def test_programs_of_the_guest(tmp_path: Path) -> None:
    """A name without a slash is the guest's; a script of this host is run by the guest's shell."""
    script = tmp_path / "own script.sh"
    script.write_text('#!/bin/sh\necho "$0 $1" >&2\nkill -9 $$\n')
    said = record("--out", tmp_path, "--", script, "and more").ok()
    assert "  err: /program/own script.sh and more\n" in said
    assert f"program {script} was ended by SIGKILL (9)\n" in said
    assert "  out: 6.12" in record("--out", tmp_path, "--", "uname", "-r").ok()


def test_what_the_guest_does_not_have(program: Path, tmp_path: Path) -> None:
    """A program by its name, and what a script is run by; with what is advised instead both run."""
    assert record("--out", tmp_path, "--", "").sentence().endswith("behind -- and found an empty word")
    said = record("--out", tmp_path, "--", program.name).sentence()
    expected = f"expected a program {program.name} in the guest and found none; give one of this host by a path"
    assert expected in said and "ENOENT" not in said, said
    script = tmp_path / "script"
    script.write_text("#! /no/such/shell -e\necho ran\n")
    said = record("--out", tmp_path, "--", script).sentence()
    expected = f"expected /no/such/shell in the guest, by which {script} is run, and found none; "
    assert expected in said and "take what the guest has, as #!/bin/sh" in said, said
    script.write_text("#!/bin/sh\necho ran\n")
    for instead, printed in (([script], "  out: ran\n"), ([program, hex(VA)], "ended with status 0\n")):
        assert printed in record("--out", tmp_path, "--", *instead).ok()


def test_one_that_does_not_end(program: Path, tmp_path: Path) -> None:
    """It is killed at the deadline, and what it did until then is judged."""
    ended = record("--deadline", 4, "--out", tmp_path, "--", program, hex(VA), "never")
    assert ended.sentence() == (
        f"folioscope: program {program} did not end within 4 s and was killed; give it more time with --deadline"
    )
    assert "0 findings" in ended.out and seen(ended.out)[0] > 1000


def test_what_no_guest_runs(program: Path, tmp_path: Path) -> None:
    """Each is refused in a sentence before a guest is booted."""
    (tmp_path / "text").write_text("no program")
    whole = program.read_bytes()
    (tmp_path / "cut").write_bytes(whole[:40])
    (tmp_path / "x86").write_bytes(whole[:18] + b"\x3e\0" + whole[20:])
    (tmp_path / "object").write_bytes(whole[:16] + b"\1\0" + whole[18:])
    linked = [*GCC, "-nostartfiles", "-ffreestanding", "-pie", "-Wl,-dynamic-linker,/lib/ld-linux-aarch64.so.1", "-lc"]
    subprocess.run([*linked, SOURCE, "-o", tmp_path / "dynamic"], check=True, capture_output=True)
    reasons = {
        "none": r"none \(No such file or directory .*\); a name without a slash is the guest's own",
        ".": "no regular file",
        "text": "neither an ELF file nor the #! of a script",
        "cut": "neither an ELF file nor the #! of a script",
        "x86": r"one for another machine \(ELF class 2, data 1, machine 62\); compile it with: aarch64-.+ -static",
        "object": r"an ELF file that is no program \(type 1\)",
        "dynamic": r"one that is linked dynamically \(for /lib/ld-linux-aarch64\.so\.1\); link it with -static, or .+",
    }
    for name, reason in reasons.items():
        place = f"{tmp_path}/{name}"
        said = record("--out", tmp_path, "--", place).sentence()
        expected = "folioscope: expected a static arm64 program, or a script, at "
        assert re.fullmatch(re.escape(expected + place) + " and found " + reason, said), said
