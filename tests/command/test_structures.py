# SPDX-License-Identifier: GPL-2.0-only
"""The commands that read the kernel's own structures, live and from a core of all RAM."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
from folioscope import Program

from command import folioscope
from held_guest import LAYOUT, Held, folded, rows


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
    said = folioscope("check", path).ok()
    assert "no error found" in said and "0 not judged" in said
    # Not the one that waited alone: every process, by the kernel's own structures, and what holds for all is told once.
    found = re.search(r"check: (\d+) processes$", said, re.M)
    assert found and int(found[1]) >= 3 and said.count("at one instant") == 1
    assert "check: pid" in folioscope("check", path, "--pid", pid).ok()
    before = path.stat().st_ino
    folioscope("save", "--full", "--guest", held.socket, "--pid", "99999", path).sentence()
    assert path.stat().st_ino == before and not list(place.glob(".folioscope-*"))


def test_save_full_while_others_fork(held: Held, place: Path) -> None:
    """An instant is waited for at which nobody changes an address space: what is counted then has its entries.

    A process that forks all the time, and children that end or exec, are in the middle of that in one instant of five.
    """

    def run(*argv: str) -> Program:
        return Program.read(held.call("command", command={"run": {"argv": ["/bin/busybox", *argv]}})["program"])

    path, full = place / "forks.core", ["save", "--full", *held.source]
    forks = "(while :; do (:); /bin/busybox true; done) </dev/null >/dev/null 2>&1 & echo $!"
    forker = run("sh", "-c", forks).stdout.strip()
    try:
        for _ in range(12):
            folioscope(*full, path).ok()
            said = folioscope("check", path).ok()
            assert "no error found" in said and "0 not judged" in said, said
    finally:
        assert run("kill", "-9", forker).status == 0


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
    # The page that was given away is still its folio's.
    assert area["folios"] == {"4": area["mapped"]}
    smaps = held.call("command", command={"read_file": {"path": f"/proc/{pid}/smaps", "offset": 0}})
    words = re.findall(r"^VmFlags: (.*?) *$", smaps["file"]["content"]["text"], re.M)
    assert [" ".join(vma["flags"]) for vma in maps["vmas"]] == words
    said = folioscope("maps", pid, full).ok()
    assert (
        f"four ({pid})" in said
        and "3 folded" in said
        and re.search(r"252K of 256K mapped, 192K contiguous \(76%\), folios 252K of order 4", said)
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
        assert frame["memcg"] == {"css": 1, "inode": 1, "path": "/"}
        (belongs,) = frame["belongs"]
        assert (belongs["pid"], belongs["name"], belongs["va"]) == (place_["pid"], place_["name"], place_["va"])
    # A live guest says the same, as its process has done nothing since.
    live = listed("page", f"{pfn:#x}-{pfn + 2:#x}", "--guest", held.socket)
    assert live == said
    text = folioscope("page", f"{pfn:#x}", full).ok()
    assert f"order 4 (64K), page 1 of it, from page frame {pfn - 1:#x}: anonymous" in text
    assert f"mapped   at {row['va']:#014x} in four ({pid}) by level 3 entry {row['word']:#018x}" in text
    assert "belongs" not in text and "\n  memcg    / (css 1, inode 1)\n" in text
    # The page that was given away is of its folio still, and mapped nowhere.
    given = row["va"] - LAYOUT.block + 2 * LAYOUT.page
    dump = rows(folioscope("dump", full, "--pid", pid, "--level", "3", "--format", "json").ok())
    before = next(row for row in dump if row["va"] == given - LAYOUT.page)
    text = folioscope("page", hex(((before["word"] & ((1 << 48) - 1)) >> 12) + 1), full).ok()
    assert f"belongs  at {given:#014x} in four ({pid}), by its reverse mapping, and is not mapped there" in text
    assert "mapped   by no process" in text
    # A frame that is no memory is not judged, and what was asked with it is told all the same.
    ended = folioscope("page", f"1,{pfn:#x}", full)
    assert ended.status == 2 and "is no memory of the guest's" in ended.out and f"page frame {pfn:#x}" in ended.out
    assert "save it with --full" in folioscope("page", "0x40000", core).sentence()
