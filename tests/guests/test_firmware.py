# SPDX-License-Identifier: GPL-2.0-only
"""Guests in which no Linux runs: firmware at EL1 and EL2, CPUs that were never started, and machines with odd RAM.

No word is said of a kernel or of user mode, and the tables of TTBR0_EL1 are dumped and judged by the architecture's
rules.
"""

from __future__ import annotations

import json
import mmap
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from command import BOOT_SECONDS, ROOT, Ended, folioscope, wait_until
from own_qemu import MEMFD, RAM, Guest, Qemu, checked, errors

pytestmark = pytest.mark.qemu

FETCH_SECONDS = 600
CONT = 1 << 52
# Words of a kernel that is there and shows too little.
FALSE = ("release that is not known", "user mode", "--vmlinux", "trampoline", "CONFIG_")


@cache
def firmware(name: str) -> Path:
    """Debian's firmware, from the cache or from Debian."""
    script = ROOT / "vmm" / "setup" / "firmware.sh"
    fetched = subprocess.run([script, name], check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
    assert fetched.returncode == 0, fetched.stderr
    return Path(fetched.stdout.strip())


class Board(Guest):
    """A machine that runs firmware, or nothing."""

    def __init__(self, place: Path, *arguments: str, machine: str = "virt", memfd: str = MEMFD) -> None:
        memory = memfd.split("size=")[1].split(",")[0]
        line = ("-M", f"{machine},memory-backend=ram", "-object", memfd, "-m", memory)
        Qemu.__init__(self, place, *line, *arguments)

    __enter__ = Qemu.__enter__


@pytest.fixture(
    scope="module",
    params=["u-boot", pytest.param("edk2", marks=pytest.mark.long)],
)
def board(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """Firmware that waits: for a command, or for something to boot."""
    place = tmp_path_factory.mktemp("board")
    line = ("-cpu", "max", "-smp", "2", "-bios", str(firmware(request.param)), "-serial", "file:console.log")
    with Board(place, *line) as own:
        waits = "=> " if request.param == "u-boot" else "Shell"
        console = place / "console.log"
        up = lambda: console.exists() and waits in console.read_text(errors="replace")  # noqa: E731
        assert wait_until(up, BOOT_SECONDS), console.read_text(errors="replace")
        yield own


def said(own: Qemu, *words: Any) -> Ended:
    """What a command says, in which nothing is false."""
    ended = own.attach(*words)
    for word in FALSE:
        assert word not in ended.out + ended.err, (words, ended)
    return ended


def leaves(memory: mmap.mmap, table: int, level: int = 0, va: int = 0) -> dict[int, int]:
    """Blocks and pages below a table of 512 words (Arm ARM D8.3), by address."""
    found = {}
    for index in range(512):
        word = int.from_bytes(memory[table - RAM + 8 * index : table - RAM + 8 * index + 8], "little")
        at = va + (index << (39 - 9 * level))
        if word & 1 and level < 3 and word & 2:
            found |= leaves(memory, word & 0xFFFF_FFFF_F000, level + 1, at)
        elif word & 1:
            found[at] = word
    return found


@pytest.mark.network
def test_words(board: Board) -> None:
    """Each command says what the CPUs are at."""
    bare = said(board).ok()
    (kernel,) = re.findall(r"^kernel   (.*)$", bare, re.M)
    assert re.fullmatch(
        r"no Linux was found at EL1: CPU 0 is at EL1 with the MMU on, TTBR0_EL1 0x\w+, TTBR1_EL1 not in use; "
        r"CPU 1 is at EL1 with the MMU off",
        kernel,
    )
    assert re.search(r"^judge .*; TTBR0_EL1 of CPU 0: ", bare, re.M)
    assert re.search(r"^CPU 1 +EL1 MMU off PC ", bare, re.M) and "symbols" not in bare
    for words in (
        ("ps",),
        ("kernel",),
        ("maps", "1"),
        ("page", "0x40000000"),
        ("dump", "--kernel"),
        ("dump", "--pid", "7"),
    ):
        ended = said(board, *words)
        assert ended.status == 2 and kernel in ended.err, ended


@pytest.mark.network
def test_tables_are_dumped_and_judged(board: Board, tmp_path: Path) -> None:
    """Every block of TTBR0_EL1's tables, and a broken contiguous group among them; in a core of all RAM as well."""
    root = int(re.search(r"^CPU 0 .* TTBR0_EL1 (0x\w+)", said(board).ok(), re.M)[1], 16) & 0xFFFF_FFFF_F000
    with board.ram() as memory:
        expected = leaves(memory, root)
        rows = json.loads(said(board, "dump", "--format", "json").ok())
        assert {int(row["va"], 16): int(row["word"], 16) for row in rows} == expected and len(expected) > 100
        status, report = checked(board, tmp_path)
        assert (status, errors(report)) == (2, [])
        assert report["totals"]["entries"] == len(expected) and "release" not in report["kernel"]
        # One entry with the bit in a group without it (R_QTRPM).
        group = {int(row["va"], 16): row for row in rows if row["level"] == 2 and row["index"] // 16 == 1}
        first = min(va for va in group if va % (32 << 20) == 0)
        row = group[first + (2 << 20)]
        place = int(row["table"], 16) + 8 * row["index"] - RAM
        before = memory[place : place + 8]
        memory[place : place + 8] = (int(row["word"], 16) | CONT).to_bytes(8, "little")
        status, report = checked(board, tmp_path)
        core = tmp_path / "full.core"
        said(board, "save", "--full", core)
        memory[place : place + 8] = before
    assert status == 1 and errors(report)[0] == ("A4", first)
    of_core = tmp_path / "core.json"
    assert folioscope("check", core, "--json", of_core).status == 1
    assert errors(json.loads(of_core.read_text())) == errors(report)
    assert checked(board, tmp_path)[0] == 2


@pytest.mark.network
def test_firmware_at_el2(tmp_path: Path) -> None:
    """EL1's MMU is off then: there is nothing to judge."""
    place = tmp_path / "qemu"
    place.mkdir()
    line = ("-cpu", "max", "-smp", "2", "-bios", str(firmware("u-boot")), "-serial", "file:console.log")
    with Board(place, *line, machine="virt,virtualization=on") as own:
        console = place / "console.log"
        assert wait_until(lambda: console.exists() and "=> " in console.read_text(), BOOT_SECONDS)
        why = "no Linux was found at EL1: CPUs 0-1 are at EL2, with EL1's MMU off"
        assert f"\nkernel   {why}\n" in said(own).ok()
        for words in (("check",), ("dump",), ("ps",)):
            ended = said(own, *words)
            assert ended.status == 2 and why in ended.out + ended.err, ended


def test_ram_in_parts_of_pages(tmp_path: Path) -> None:
    """`raspi3b` has devices smaller than a page in the midst of its RAM: the rest of their pages is left out."""
    place = tmp_path / "qemu"
    place.mkdir()
    memfd = "memory-backend-memfd,id=ram,size=1G,share=on"
    with Board(place, "-S", machine="raspi3b", memfd=memfd) as own:
        tree = own.ask("human-monitor-command", **{"command-line": "info mtree -f"})
        view = next(view for view in tree.split("FlatView #") if '\n AS "memory"' in view)
        places = re.findall(r"\n  (\w{16})-(\w{16}) \(prio \d+, ram\): ram[ \r\n]", view)
        parts = [(int(first, 16), int(last, 16) + 1) for first, last in places]
        whole = [(-(-first // 4096) * 4096, last // 4096 * 4096) for first, last in parts]
        whole = [(first, last) for first, last in whole if first < last]
        left = sum(last - first for first, last in parts) - sum(last - first for first, last in whole)
        assert left > 0
        bare = said(own).ok()
        found = re.findall(r"^RAM +0x(\w+)\.\.0x(\w+), ", bare, re.M)
        assert [(int(first, 16), int(last, 16)) for first, last in found] == whole
        assert f"\nleft out {left} bytes of RAM in " in bare
        assert "\nkernel   no Linux was found at EL1: CPUs 0-3 are at EL3, with EL1's MMU off\n" in bare
        core = tmp_path / "full.core"
        assert said(own, "save", "--full", core).status == 0
        assert said(own, "check").status == folioscope("check", core).status == 2
