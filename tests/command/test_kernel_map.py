# SPDX-License-Identifier: GPL-2.0-only
"""What `folioscope kernel` says against the kernel's own two lists: /proc/vmallocinfo, and its dump of its tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema

from command import folioscope
from held_guest import LAYOUT, Held

DUMP = "/sys/kernel/debug/kernel_page_tables"
KINDS = ["ioremap", "vmalloc", "vmap", "user", "dma-coherent"]
# What the dump calls a size, and whether it has the Contiguous bit.
NAMES = {("PTE", False): "PTE", ("PTE", True): "CONTPTE", ("PMD", False): "PMD", ("PMD", True): "CONTPMD"}


def read(held: Held, path: str) -> str:
    """A file of the guest, whole."""
    text, end = "", False
    while not end:
        asked = {"read_file": {"path": path, "offset": len(text)}}
        piece = held.call("command", command=asked)["file"]
        text, end = text + piece["content"]["text"], piece["end"]
    return text


def listed(*words: str | Path) -> Any:
    """The listing, as its schema has it."""
    said = json.loads(folioscope("kernel", *words, "--format", "json").ok())
    jsonschema.Draft202012Validator(json.loads(folioscope("schema", "kernel").ok())).validate(said)
    assert said["page_size"] == LAYOUT.page and not said["notes"]
    return said


def areas_of(map_: Any) -> list[tuple[int, int, str | None, int, frozenset[str]]]:
    """First address, end, caller, pages and kinds of each area."""
    return [
        (int(area["start"], 16), int(area["end"], 16), area["caller"], area["pages"], frozenset(area["kinds"]))
        for area in map_["areas"]
    ]


def vmallocinfo(held: Held) -> list[tuple[int, int, str | None, int, frozenset[str]]]:
    """The same, as the kernel lists it."""
    areas = []
    for line in read(held, "/proc/vmallocinfo").splitlines():
        start, end, words = re.match(r"0x([0-9a-f]+)-0x([0-9a-f]+) +\d+ (.*)", line).groups()
        if words == "unpurged vm_area":
            continue
        if words == "vm_map_ram":
            areas.append((int(start, 16), int(end, 16), None, 0, frozenset([words])))
            continue
        # The caller is with its function's size.
        caller, *facts = words.split()
        pages = [int(fact.removeprefix("pages=")) for fact in facts if fact.startswith("pages=")]
        kinds = frozenset(fact for fact in facts if fact in KINDS)
        areas.append((int(start, 16), int(end, 16), caller.rpartition("/")[0], sum(pages), kinds))
    return sorted(areas, key=lambda area: area[0])


def test_areas_are_those_of_the_kernels_list(held: Held) -> None:
    """Each with its caller, pages and kinds, and as much mapped as it has pages: all but the guard page."""
    # Else addresses are hashed.
    held.call("command", command={"write_file": {"path": "/proc/sys/kernel/kptr_restrict", "text": "1"}})
    for _ in range(5):
        before, ours, after = vmallocinfo(held), listed("--guest", held.socket), vmallocinfo(held)
        if before == after:
            break
    assert areas_of(ours) == before
    assert len(before) > 20 and any("vmalloc" in kinds for *_, kinds in before)
    for area in ours["areas"]:
        # Per-CPU memory has no pages of its own.
        if "vmalloc" in area["kinds"] and area["pages"]:
            assert sum(area["mapped"].values()) == area["pages"] * LAYOUT.page, area
    said = folioscope("kernel", "--guest", held.socket).ok()
    start, end, caller, *_ = before[0]
    assert re.search(rf"^{start:016x}-{end:016x} +\S+ .* {re.escape(caller)}$", said, re.M), said


def test_parts_have_what_the_kernels_dump_has(held: Held, place: Path) -> None:
    """Linear map, image, vmemmap and vmalloc, by sizes; live and in a core of all RAM."""

    def dumped(parts: list[Any]) -> dict[str, dict[str, int]]:
        sums: dict[str, dict[str, int]] = {}
        for line in read(held, DUMP).splitlines():
            found = re.match(r"0x([0-9a-f]+)-0x([0-9a-f]+)\s+\d+[KMGTPE] (\w+)(.*)", line)
            if not found or not found[4].split():
                continue
            start, end = int(found[1], 16), int(found[2], 16) or 1 << 64
            name = NAMES[found[3], "CON" in found[4].split()]
            # A line of the dump may reach from one part into the next; a part within another comes first.
            while start < end:
                within = [part for part in parts if int(part["range"][0], 16) <= start < int(part["range"][1], 16)]
                part = min(within, key=lambda it: int(it["range"][1], 16) - int(it["range"][0], 16), default=None)
                edges = {int(edge, 16) for it in parts for edge in it["range"]}
                until = min([end, *(edge for edge in edges if edge > start)])
                sizes = sums.setdefault(part["name"] if part else "others", {})
                sizes[name] = sizes.get(name, 0) + until - start
                start = until
        return sums

    full = place / "kernel.core"
    ranges = [part for part in listed("--guest", held.socket)["parts"] if part["range"]]
    assert {part["name"] for part in ranges} == {"linear map", "kernel image", "modules", "vmalloc", "vmemmap"}
    # The kernel maps and unmaps stacks of its own threads whenever it likes: all that is compared was said in between.
    for _ in range(8):
        before = dumped(ranges)
        ours = listed("--guest", held.socket)
        folioscope("save", "--full", *held.source, full).ok()
        saved = listed(full)
        if before == dumped(ranges) and ours["parts"] == saved["parts"]:
            break
    assert [part["name"] for part in ours["parts"]][-1] == "others"
    assert {part["name"]: part["mapped"] for part in ours["parts"] if part["mapped"]} == before
    assert sum(before["linear map"].values()) > 500 << 20 and "CONTPTE" in before["kernel image"]
    assert saved["parts"] == ours["parts"]
    said = folioscope("kernel", full).ok()
    assert re.search(r"^linear map +[0-9a-f]{16}-[0-9a-f]{16} +\S+ CONTPMD ", said, re.M), said


def test_a_core_of_a_process_alone_has_none_of_it(core: Path) -> None:
    """It says what to do."""
    assert "save it with --full" in folioscope("kernel", core).sentence()
