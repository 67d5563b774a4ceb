# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope attach`: a guest in a QEMU that somebody else has started, without our agent's help.

The guest is the rig's own kernel, and its agent is spoken to by the test alone, over a UART: to have a process in
user mode, and to hear from the kernel what is mapped.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import threading
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from folioscope.model import Entry

from command import folioscope
from own_qemu import KERNEL, LAYOUT, LEFT_OUT, MEMORY, NONCE, PLANTED, RAM, Guest, checked, errors
from test_kernel_half import at, dumped, seen

pytestmark = pytest.mark.qemu


# What is seen.


def test_what_is_there(own: Guest) -> None:
    """Without a subcommand it says what it found, and how to go on."""
    said = own.attach().ok()
    assert re.search(
        rf"^QEMU \d+\.\d+\.\d+, virt-\d+\.\d+, 2 CPU\(s\) by tcg, process {own.child.pid}, running$", said, re.M
    )
    assert re.search(r"^RAM +0x0000040000000\.\.0x0000060000000, 512 MiB of ram: /memfd:", said, re.M)
    assert f"Linux {(KERNEL / 'release').read_text().strip()}, 4 KiB pages" in said
    assert re.search(rf"^CPU \d +EL0 PC 0x0{{8}}.*CONTEXTIDR_EL1 {own.pid}$", said, re.M)
    assert f"the kernel half; process {own.pid} mine" in said
    found = re.search(r"^symbols +(\d+) symbols and its types, in its memory$", said, re.M)
    text = subprocess.run(["nm", KERNEL / "vmlinux"], capture_output=True, text=True, check=True).stdout
    linked = re.findall(r"^[0-9a-f]+ [a-zA-Z] (?!\$|__crc_|\.L)", text, re.M)
    # kallsyms leaves out some that the linker or the assembler made.
    assert 0.9 * len(linked) < int(found[1]) <= len(linked)


def test_tasks(own: Guest) -> None:
    """All that the guest's own `/proc` has, and their tables."""
    said = own.attach("ps").ok().splitlines()
    rows = {int(row[0]): row for row in (line.split(maxsplit=4) for line in said[1:])}
    for pid, row in rows.items():
        status = own.command("read_file", path=f"/proc/{pid}/status")["file"]["content"]["text"]
        field = dict(re.findall(r"^(\w+):\t(.*)$", status, re.M))
        # A worker of the kernel's is called otherwise while it works: /proc adds what it does.
        name = row[4] if "VmSize" in field else row[4][1:-1]
        assert field["Name"].startswith(name.split("/")[0]) and field["Threads"] == row[1], (row, field)
        assert (row[3] == "-") == ("VmSize" not in field), (row, field)
    assert rows[own.pid][4] == "mine" and len(rows) > 10
    listing = own.command("run", argv=["busybox", "ls", "/proc"])["program"]["stdout"]["text"]
    inside = {int(name) for name in listing.split() if name.isdigit()}
    # The kernel starts and ends workers as it likes.
    assert len(inside ^ rows.keys()) <= 4 and {1, 2, own.pid} <= rows.keys() & inside
    cpu = next(line for line in own.attach().ok().splitlines() if f"CONTEXTIDR_EL1 {own.pid}" in line)
    table = int(re.search(r"TTBR0_EL1 (0x\w+)", cpu)[1], 16) & 0xFFFF_FFFF_F000
    assert int(rows[own.pid][3], 16) & ~0xFFF == table


def test_kernel_half_by_sizes_and_areas(own: Guest) -> None:
    """Stacks were asked for by what makes a process; nearly all RAM is in the linear map."""
    said = own.attach("kernel").ok()
    assert re.search(r" 16K PTE +vmalloc +kernel_clone\+0x", said), said
    parts = {
        part["name"]: part["mapped"] for part in json.loads(own.attach("kernel", "--format", "json").ok())["parts"]
    }
    assert sum(parts["linear map"].values()) > 200 << 20, parts


@pytest.mark.parametrize("words", [["attach", "SOCKET", "check"], ["check", "--guest", "SOCKET"]], ids=" ".join)
def test_check(own: Guest, tmp_path: Path, words: list[str]) -> None:
    """Both halves are judged, no error is found, and what was left out is named."""
    files = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "ktap", "html")}
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    before = own.state()
    options += ["--pid", str(own.pid)]
    text = folioscope(*(own.qmp if word == "SOCKET" else word for word in words), *options).ok()
    assert own.state() == before
    assert LEFT_OUT in text and "no error found (exit status 0)" in text
    report = json.loads(files["json"].read_text())
    jsonschema.Draft202012Validator(json.loads(folioscope("schema").ok())).validate(report)
    (step,) = report["steps"]
    assert report["machine"]["kind"] == "tcg" and report["machine"]["memory"] == MEMORY
    assert sum(step["kernel"]["mapped"]["linear"].values()) > 0.9 * MEMORY
    (process,) = step["processes"]
    assert process["process"]["pid"] == own.pid
    assert process["entries"]["pages"] >= 4 * LAYOUT.cont_pages
    assert not list(ElementTree.fromstring(files["junit"].read_text()).iter("error"))
    assert "not ok" not in files["ktap"].read_text()
    (shown,) = json.loads(files["html"].read_text().split('id="data">')[1].split("</script>")[0])["steps"]
    names = [(space.get("pid"), bool(space["words"])) for space in shown["spaces"]]
    assert names == [(own.pid, True), (None, True)]
    assert shown["spaces"][0]["entries"] >= process["entries"]["pages"]


def test_kernel_half_is_what_the_kernel_says(own: Guest) -> None:
    """Byte by byte, but for what changed between two dumps of the kernel's own."""
    before, rows, after = dumped(own), own.rows("--kernel"), dumped(own)
    entries = [
        Entry(
            va=row["va"],
            level=row["level"],
            word=row["word"],
            address=row["table"] + 8 * row["index"],
            # Where it leads to is not compared, only whether it does.
            output_address=0 if row["word"] & 1 else None,
            contiguous=bool(row["word"] >> 52 & 1),
        )
        for row in rows
    ]
    ours = seen(entries, LAYOUT, shareable=False)
    edges = sorted({edge for ranges in (before, ours, after) for start, end, _ in ranges for edge in (start, end)})
    views = [at(ranges, edges[:-1]) for ranges in (before, ours, after)]
    changed = compared = 0
    for (start, end), one, mine, two in zip(pairwise(edges), *views, strict=True):
        if one != two:
            changed += end - start
            continue
        assert mine == one, f"{start:#x}-{end:#x}: the kernel says {one}, the rig {mine}"
        compared += end - start if one else 0
    assert changed <= 64 * LAYOUT.page
    assert compared >= 0.9 * MEMORY


def test_user_half_is_what_the_process_mapped(own: Guest) -> None:
    """Its area page by page, and nothing behind it."""
    rows = own.rows("--pid", str(own.pid))
    mapped = [row["va"] for row in rows if own.area <= row["va"] < own.area + 8 * LAYOUT.block]
    assert mapped == list(range(own.area, own.area + 4 * LAYOUT.block, LAYOUT.page))


def test_save_and_check_the_core(own: Guest, tmp_path: Path) -> None:
    """The core says later what the guest says now."""
    core = tmp_path / "own.core"
    said = own.attach("save", "--pid", own.pid, core).ok()
    assert re.search(r"2 CPUs, \d+ KiB of guest memory, 1 process\(es\)", said)
    assert LEFT_OUT in folioscope("check", core).ok()
    mapped = folioscope("dump", core, "--va", f"{own.area:#x}-{own.area + LAYOUT.block:#x}").ok()
    assert len(mapped.splitlines()) == LAYOUT.cont_pages


def test_maps(own: Guest) -> None:
    """Of the process that runs, and of one that no CPU runs: its first table is the one that its task has."""
    maps = json.loads(own.attach("maps", own.pid, "--format", "json").ok())
    (area,) = (vma for vma in maps["vmas"] if int(vma["start"], 16) == own.area)
    assert area["mapped"] == 4 * LAYOUT.block == int(area["end"], 16) - own.area
    init = json.loads(own.attach("maps", "1", "--format", "json").ok())
    assert init["task"]["name"] == "init" and init["task"]["table"] != maps["task"]["table"]
    text = own.command("read_file", path="/proc/1/maps")["file"]["content"]["text"]
    ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in text.splitlines()]
    assert [(int(vma["start"], 16), int(vma["end"], 16)) for vma in init["vmas"]] == ranges
    assert sum(vma["mapped"] for vma in init["vmas"]) > 20 * LAYOUT.page
    assert "has no memory of its own" in own.attach("maps", "2").sentence()


def ram_taken(own: Guest) -> int:
    """Bytes that the guest's RAM takes of the host's memory."""
    files = Path(f"/proc/{own.child.pid}/fd").iterdir()
    # A connection that QEMU closes meanwhile is none of ours.
    (ram,) = (file for file in files if "memory-backend-memfd" in os.path.realpath(file))
    return ram.stat().st_blocks * 512


def test_save_full(own: Guest, tmp_path: Path) -> None:
    """All RAM, and the process in it as it is. What the guest never wrote to is not read, and so takes no memory."""
    core, before = tmp_path / "full.core", ram_taken(own)
    said = own.attach("save", "--full", "--pid", own.pid, core).ok()
    found = re.fullmatch(rf"{core}: 2 CPUs, all 512 MiB of guest memory, of which (\d+) MiB take room.*\n", said)
    assert found and 10 < int(found[1]) < 256
    assert ram_taken(own) < before + (8 << 20)
    mapped = folioscope("dump", core, "--pid", own.pid, "--va", f"{own.area:#x}-{own.area + 4 * LAYOUT.block:#x}").ok()
    assert len(mapped.splitlines()) == 4 * LAYOUT.cont_pages
    # Its head: in its RAM the kernel has such a note of its own.
    assert b"VMCOREINFO\0\0OSRELEASE=" in core.read_bytes()[: 1 << 14]
    # It is judged as the guest is: every process, with its folios.
    report = tmp_path / "report.json"
    folioscope("check", core, "--json", report).ok()
    (step,) = json.loads(report.read_text())["steps"]
    judged = {process["process"]["pid"]: process for process in step["processes"]}
    tasks = json.loads(folioscope("ps", core, "--format", "json").ok())["tasks"]
    assert set(judged) == {task["pid"] for task in tasks if task["table"]} and len(judged) > 1
    assert sum(judged[own.pid]["folios"].values()) >= 4 * LAYOUT.block and not any(
        one["not_judged"] for one in judged.values()
    )
    assert all("one instant" in one["notes"][-1] for one in judged.values())


def test_explain(own: Guest) -> None:
    """The VMA and the order record, by the kernel's own symbols and by those of a vmlinux."""
    for symbols in ([], ["--vmlinux", KERNEL / "vmlinux"]):
        said = own.attach("explain", hex(own.area), "--pid", own.pid, *symbols).ok()
        assert f"{own.area:#x} in process {own.pid} (mine)" in said
        assert f"VMA      {own.area:#x}-{own.area + 4 * LAYOUT.block:#x} rw-p" in said
        assert "chosen   order" in said


def test_symbols_make_more_rules(own: Guest, tmp_path: Path) -> None:
    """vmalloc and the image can be told apart then."""
    status, report = checked(own, tmp_path, "--vmlinux", str(KERNEL / "vmlinux"))
    assert status == 0
    assert set(report["steps"][0]["kernel"]["mapped"]) == {"linear", "image", "rest"}
    assert "another architecture" in own.attach("check", "--vmlinux", "/bin/true").sentence()


# What is wrong.


def test_error_in_the_kernel_half(own: Guest, tmp_path: Path) -> None:
    """It is found at its place; a core of it says the same; when it is gone nothing is found."""
    text = int(re.search(r"EL1.* PC (0xffff\w+)", own.attach().ok())[1], 16)
    place, va = own.unused(own.rows("--kernel"), text)
    core = tmp_path / "wrong.core"
    with own.planted(place):
        status, report = checked(own, tmp_path)
        own.attach("save", core).ok()
    assert (status, errors(report)) == (1, [("A7", va)])
    assert checked(own, tmp_path)[0] == 0
    later = folioscope("check", core)
    assert later.status == 1 and f"A7 kernel VA {va:#018x}" in later.out


def test_error_in_the_user_half(own: Guest, tmp_path: Path) -> None:
    """Of the process that a CPU runs."""
    behind = own.area + 4 * LAYOUT.block
    (row,) = (row for row in own.rows("--pid", str(own.pid)) if row["va"] == behind - LAYOUT.page)
    with own.planted(row["table"] + 8 * (row["index"] + 1)):
        status, report = checked(own, tmp_path, "--pid", str(own.pid))
    # No VMA is there either.
    assert (status, errors(report)) == (1, [("A7", behind), ("L8", behind)])


def test_error_of_a_process_that_no_cpu_runs(own: Guest, tmp_path: Path) -> None:
    """Its task says where its tables are, and it is judged with all others, whatever the CPUs do."""
    spawned = own.command("spawn", name="asleep")["spawned"]
    where = {"isolated": {"offset": 0}}
    area = own.op(spawned["process"], "mmap", length=LAYOUT.block, place=where)["mapped"]["address"]
    own.op(spawned["process"], "touch", address=area, length=LAYOUT.block, access="write", order="forward")
    status, report = checked(own, tmp_path)
    judged = {process["process"]["name"]: process for process in report["steps"][0]["processes"]}
    assert status == 0 and {"mine", "asleep", "init"} <= judged.keys()
    assert judged["asleep"]["entries"]["pages"] > LAYOUT.cont_pages and judged["asleep"]["folios"]
    pid = str(spawned["pid"])
    row = next(row for row in own.rows("--pid", pid) if row["va"] == area + LAYOUT.block - LAYOUT.page)
    with own.planted(row["table"] + 8 * (row["index"] + 1)):
        for words in ([], ["--pid", pid]):
            status, report = checked(own, tmp_path, *words)
            assert (status, errors(report)) == (1, [("A7", area + LAYOUT.block), ("L8", area + LAYOUT.block)])
    own.op(spawned["process"], "exit", status=0)


def test_rules_of_linux_without_an_agent(own: Guest, tmp_path: Path) -> None:
    """The VMAs come from the kernel's own structures: a hole in a folded block is found, and a page outside them."""
    where = {"isolated": {"offset": 0}}
    size = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"
    own.command("release", process=own.process)
    own.command("write_file", path=size, text="always")
    area = own.op(own.process, "mmap", length=2 * LAYOUT.block, place=where)["mapped"]["address"]
    own.op(own.process, "touch", address=area, length=2 * LAYOUT.block, access="write", order="forward")
    own.command("write_file", path=size, text="never")
    own.command("checkpoint", process=own.process, nonce=NONCE, smaps=False)
    rows = {row["va"]: row for row in own.rows("--pid", str(own.pid))}
    hole, last = rows[area + 3 * LAYOUT.page], rows[area + 2 * LAYOUT.block - LAYOUT.page]
    assert hole["word"] >> 52 & 1, "the block is not folded"
    assert checked(own, tmp_path, "--pid", str(own.pid))[0] == 0
    with own.ram() as memory:
        at = hole["table"] + 8 * hole["index"] - RAM
        memory[at : at + 8] = bytes(8)
        status, report = checked(own, tmp_path, "--pid", str(own.pid))
        memory[at : at + 8] = hole["word"].to_bytes(8, "little")
    assert (status, errors(report)) == (1, [("L1", area)])
    # The page behind the area is in no VMA.
    outside = last["word"] & ~(1 << 52)
    with own.planted(last["table"] + 8 * (last["index"] + 1), outside):
        status, report = checked(own, tmp_path, "--pid", str(own.pid))
    assert status == 1 and ("L8", area + 2 * LAYOUT.block) in errors(report)
    assert checked(own, tmp_path, "--pid", str(own.pid))[0] == 0


def test_what_changes_is_no_error(own: Guest, tmp_path: Path) -> None:
    """A place that looks wrong in each look, and different: an update that is always under way."""
    behind = own.area + 4 * LAYOUT.block
    (row,) = (row for row in own.rows("--pid", str(own.pid)) if row["va"] == behind - LAYOUT.page)
    where = row["table"] + 8 * (row["index"] + 1) - RAM
    over = threading.Event()

    def change() -> None:
        with own.ram() as memory:
            while not over.is_set():
                memory[where : where + 8] = (random.getrandbits(40) << 12 | PLANTED).to_bytes(8, "little")
            memory[where : where + 8] = bytes(8)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        status, report = checked(own, tmp_path, "--pid", str(own.pid))
    finally:
        over.set()
        changing.join()
    assert (status, errors(report)) == (2, [])
    assert "is not known to stay" in report["steps"][0]["not_judged"][0]["reason"]


def test_stopped_stays_stopped(own: Guest, tmp_path: Path) -> None:
    """A guest that its user has stopped is judged at its one instant, where an error cannot be told from an update."""
    behind = own.area + 4 * LAYOUT.block
    (row,) = (row for row in own.rows("--pid", str(own.pid)) if row["va"] == behind - LAYOUT.page)
    own.ask("stop")
    while "EL0" not in own.attach().ok():
        own.ask("cont")
        own.ask("stop")
    try:
        assert "paused" in own.attach().ok()
        assert checked(own, tmp_path, "--pid", str(own.pid))[0] == 0
        with own.planted(row["table"] + 8 * (row["index"] + 1)):
            status, report = checked(own, tmp_path, "--pid", str(own.pid))
        assert (status, errors(report)) == (2, [])
        assert "stood still when it was found" in report["steps"][0]["not_judged"][0]["reason"]
        assert own.state()[0] == "paused"
    finally:
        own.ask("cont")
