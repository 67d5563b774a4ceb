# SPDX-License-Identifier: GPL-2.0-only
"""`guest.run(["./prog"], files=[...])`: a program of the user's, judged at its marks, at its end, or all the time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from folioscope import INCLUDE, Guest, LookFailed, NotJudged, program

pytestmark = pytest.mark.parametrize("granule", ["4k"])

BLOCK = 64 << 10
CONTIGUOUS = 1 << 52
START = f"""
#include <folioscope.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static char *filled(void)
{{
    char *all = mmap(NULL, 4 * {BLOCK}, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *block = (char *)(((uintptr_t)all + {BLOCK} - 1) / {BLOCK} * {BLOCK});
    madvise(block, {BLOCK}, MADV_HUGEPAGE);
    return memset(block, 1, {BLOCK});
}}
"""


def source(place: Path, body: str) -> Path:
    """A source whose `main` does this."""
    made = place / "prog.c"
    made.write_text(f"{START}\nint main(int argc, char **argv)\n{{\n    char *block = filled();\n    {body}\n}}\n")
    return made


def test_marks(guest: Guest, tmp_path: Path) -> None:
    """Words, input and outputs are the program's; each mark has what it named, and where."""
    body = (
        'char word[16] = ""; fgets(word, sizeof word, stdin); printf("%s of %s", word, argv[1]);'
        f'fputs("told", stderr); folioscope_mark("a mark", block, {BLOCK}); folioscope_mark("none", NULL, 0); return 3;'
    )
    ran = guest.run(["./prog", "it's $1"], files=[source(tmp_path, body)], input="some")
    assert (ran.status, ran.signal, ran.stdout, ran.stderr) == (3, None, "some of it's $1", "told")
    assert [mark.name for mark in ran.marks] == ["a mark", "none"]
    mark = ran.mark("a mark")
    assert mark.pattern == "C" and mark.length == BLOCK and mark.view.pid == mark.pid
    with pytest.raises(KeyError, match=r"no mark 'other'; it has set: \['a mark', 'none'\]"):
        ran.mark("other")
    assert not guest.read("/proc/mounts") or guest.run("/bin/busybox", "ls", "/tmp").stdout == ""


def test_it_waits_at_a_mark_before_it_was_seen_to_start(
    guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops before its starting shell ends: the kernel's SIGHUP to an orphaned process group does not reach it."""
    shell, late = program._shell, []

    def slow(guest: Guest, line: str) -> str:
        if line.endswith("&"):
            late.append(line)
            line += " sleep 1"
        return shell(guest, line)

    monkeypatch.setattr(program, "_shell", slow)
    text = source(tmp_path, f'folioscope_mark("at once", block, {BLOCK}); return 0;')
    ran = guest.run(["./prog"], files=[text], seconds=20)
    assert late and ran.status == 0 and [mark.name for mark in ran.marks] == ["at once"]


def test_a_program_that_was_built_elsewhere(guest: Guest, tmp_path: Path) -> None:
    """A static arm64 program, which finds what it reads beside it."""
    made = tmp_path / "mine"
    text = source(tmp_path, 'folioscope_mark("one", block, 1); execl("/bin/busybox", "cat", "data", NULL);')
    gcc = ["aarch64-linux-gnu-gcc", "-static", "-I", str(INCLUDE), "-o", str(made), str(text)]
    subprocess.run(gcc, check=True, timeout=60)
    data = tmp_path / "data"
    data.write_bytes(bytes(range(1, 128)) * 40)
    ran = guest.run(["./mine"], files=[made, data])
    assert ran.status == 0 and ran.stdout.encode() == data.read_bytes()
    assert [mark.name for mark in ran.marks] == ["one"]


def test_an_error_is_raised_at_its_mark(guest: Guest, tmp_path: Path) -> None:
    """What is broken before the second mark; the program is ended with the test's look."""
    text = source(tmp_path, 'for (int n = 0; n < 1000; n++) { folioscope_mark(n ? "later" : "first", block, 4096); }')
    places: list[tuple[int, int]] = []
    look = guest.look

    def breaking(pid: int, *, check: bool = True) -> object:
        view = look(pid, check=check)
        if not places:
            entry = next(entry for entry in view.entries if entry.contiguous)
            places.append((entry.address, entry.word))
            guest.poke([(entry.address, entry.word & ~CONTIGUOUS)])
        return view

    guest.look = breaking  # type: ignore[method-assign, assignment]
    with pytest.raises(LookFailed, match=r"^at the mark later: A4 at 0x") as raised:
        guest.run(["./prog"], files=[text])
    assert raised.value.view.rules() == {"A4"}
    assert "prog" not in guest.run("/bin/busybox", "ps").stdout


@pytest.mark.parametrize(
    "judged,body,why",
    [
        ("marks", "return 0;", "it has set no mark"),
        ("exit", "_exit(0);", r"it has not come to its end by exit\(\)"),
        ("exit", "abort();", r"ended with status 134 and was never judged: it has not come to its end"),
    ],
)
def test_a_program_that_is_never_judged(guest: Guest, tmp_path: Path, judged: str, body: str, why: str) -> None:
    """It does not pass for one in which nothing is wrong, unless the test only wants it to run."""
    file = source(tmp_path, body)
    with pytest.raises(NotJudged, match=why):
        guest.run(["./prog"], files=[file], judged=judged)  # type: ignore[call-overload]
    ran = guest.run(["./prog"], files=[file], judged=judged, check=False)  # type: ignore[call-overload]
    assert not ran.marks and ran.signal == ("SIGABRT" if "abort" in body else None)


def test_at_exit(guest: Guest, tmp_path: Path) -> None:
    """With its memory as it leaves it; marks on the way are passed."""
    text = source(tmp_path, 'folioscope_mark("on the way", block, 1); memset(block, 2, 1); return 7;')
    ran = guest.run(["./prog"], files=[text], judged="exit")
    assert ran.status == 7 and [mark.name for mark in ran.marks] == ["exit"]
    assert any(entry.contiguous for entry in ran.marks[0].view.entries)


def test_all_the_time(guest: Guest, tmp_path: Path) -> None:
    """A program that knows nothing of us, and its child."""
    text = tmp_path / "loop.sh"
    text.write_text("#!/bin/sh\nsleep 6 &\nwait\necho over\n")
    text.chmod(0o755)
    ran = guest.run(["./loop.sh"], files=[text], judged="always")
    assert ran.stdout == "over\n" and len({mark.pid for mark in ran.marks}) == 2


def test_one_that_does_not_end(guest: Guest, tmp_path: Path) -> None:
    """It is killed at its deadline, and the guest serves on."""
    with pytest.raises(TimeoutError, match="./prog did not end within 3 s and was killed"):
        guest.run(["./prog"], files=[source(tmp_path, "for (;;) pause();")], seconds=3)
    assert "prog" not in guest.run("/bin/busybox", "ps").stdout


def test_a_file_that_is_not_there(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is meant where pytest was started, which the message says; by its directory the file is found."""
    made = source(tmp_path, "return 0;")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.raises(FileNotFoundError) as found:
        guest.run(["./prog"], files=[made.name])
    assert f"expected a file at {elsewhere / made.name} and found none: files= is relative" in str(found.value)
    assert guest.run(["./prog"], files=[made], judged="exit", check=False).status == 0


def test_what_cannot_run(guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence each, before anything starts."""
    with pytest.raises(ValueError, match="expected an arm64 program and /bin/true is one of another machine"):
        guest.run(["./true"], files=["/bin/true"])
    with pytest.raises(RuntimeError, match=r"(?s)prog.c does not compile:\n.*no_such_call"):
        guest.run(["./prog"], files=[source(tmp_path, "return no_such_call;")])
    monkeypatch.setenv("FOLIOSCOPE_CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="expected the compiler no-such-compiler for prog.c and it is not there"):
        guest.run(["./prog"], files=[source(tmp_path, "return 0;")])
