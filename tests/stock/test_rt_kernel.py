# SPDX-License-Identifier: GPL-2.0-only
"""PREEMPT_RT: Debian's -rt kernels in a QEMU of one's own, whose locks are all built on `struct rt_mutex_base`.

Every process that the guest itself names is judged, live and of a core; a fault in one is found. They have neither THP
nor CONTPTE; hugetlb sets the contiguous bit on its own.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import BOOT_SECONDS, Running, folioscope
from own_qemu import LAYOUT, MEMFD, NONCE, RAM, Guest, checked, errors
from test_stock_kernel import Kernel, stock

pytestmark = [pytest.mark.network, pytest.mark.qemu]

CONT = 1 << 52
PLACE = {"isolated": {"offset": 0}}
# Each process's name and parent, and the size of its memory if it has some. A command of the agent for each takes long.
STATUS = "exec busybox grep -E '^(Name|PPid|VmSize):' /proc/[0-9]*/status"
KERNELS = [Kernel("rt", "6.12"), *(pytest.param(Kernel("rt", each), marks=pytest.mark.long) for each in ("7.2", "7"))]


@pytest.fixture(scope="module", params=KERNELS, ids=str)
def rt(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest with two processes more: one in user mode, with a hugetlb page of a block's size, and one that sleeps."""
    machine = ["-M", "virt,memory-backend=ram", "-object", MEMFD]
    with Guest(tmp_path_factory.mktemp("rt"), *machine, kernel=stock(request.param)) as own:
        pool = f"/sys/kernel/mm/hugepages/hugepages-{LAYOUT.block // 1024}kB/nr_hugepages"
        own.command("write_file", path=pool, text="4")
        asleep = own.command("spawn", name="asleep")["spawned"]
        own.asleep = asleep["pid"]
        own.behind = written(own, asleep["process"], "anonymous") + LAYOUT.block
        spawned = own.command("spawn", name="mine")["spawned"]
        own.process, own.pid = spawned["process"], spawned["pid"]
        own.area = written(own, own.process, {"hugetlb": {"size_kib": LAYOUT.block // 1024}})
        own.command("checkpoint", process=own.process, nonce=NONCE, smaps=False)
        yield own


def written(own: Guest, process: int, backing: Any) -> int:
    """A block of memory that the process has written to, with nothing mapped behind it."""
    area = own.op(process, "mmap", length=LAYOUT.block, backing=backing, place=PLACE)["mapped"]["address"]
    own.op(process, "touch", address=area, length=LAYOUT.block, access="write", order="forward")
    return int(area)


def processes(own: Guest) -> dict[int, str]:
    """By the guest's own /proc, which lists no threads: the processes with memory of their own, and their names."""
    ended = own.command("run", argv=["/bin/sh", "-c", STATUS])["program"]
    assert not ended["truncated"]
    lines = re.findall(r"^/proc/(\d+)/status:(\w+):(.*)$", ended["stdout"]["text"], re.M)
    fields: dict[int, dict[str, str]] = {}
    for pid, name, value in lines:
        fields.setdefault(int(pid), {})[name] = value.strip()
    # The program that lists them and the agent's process that waits for it have ended.
    gone = {ended["pid"], int(fields[ended["pid"]]["PPid"])}
    return {pid: each["Name"] for pid, each in fields.items() if "VmSize" in each and pid not in gone}


def judged(report: dict[str, Any]) -> dict[int, str]:
    """The processes of a report with Linux's own rules on them: VMAs, folios and counts are known."""
    (step,) = report["steps"]
    found = {}
    for process in step["processes"]:
        assert process["vmas"] and process["folios"], process
        assert not process["not_judged"], process["not_judged"]
        found[process["process"]["pid"]] = process["process"]["name"]
    return found


def test_every_process_is_judged(rt: Guest, tmp_path: Path) -> None:
    """As many as the guest's own /proc has, by the same names, with nothing wrong."""
    status, report = checked(rt, tmp_path)
    assert errors(report) == [] and status == 0
    assert "-rt-" in report["kernel"]["release"]
    of_guest = processes(rt)
    assert {1, rt.pid, rt.asleep} <= of_guest.keys()
    assert judged(report) == of_guest


def test_fault_in_a_process_that_sleeps(rt: Guest, tmp_path: Path) -> None:
    """A reserved descriptor behind its memory, where no VMA is: live, and in a core of all RAM."""
    core = tmp_path / "full.core"
    rows = rt.rows("--pid", str(rt.asleep))
    row = next(row for row in rows if row["va"] == rt.behind - LAYOUT.page)
    with rt.planted(row["table"] + 8 * (row["index"] + 1)):
        status, report = checked(rt, tmp_path)
        rt.attach("save", "--full", core)
    assert (status, errors(report)) == (1, [("A7", rt.behind), ("L8", rt.behind)])
    assert checked(rt, tmp_path)[0] == 0
    of_core = tmp_path / "core.json"
    assert folioscope("check", core, "--json", of_core).status == 1
    report = json.loads(of_core.read_text())
    assert errors(report) == [("A7", rt.behind), ("L8", rt.behind)]
    assert judged(report) == processes(rt)


def test_hugetlb_block(rt: Guest, tmp_path: Path) -> None:
    """Without CONTPTE the kernel folds nothing, and a hugetlb page of 64K is a contiguous block all the same."""
    status, report = checked(rt, tmp_path, "--pid", str(rt.pid))
    assert (status, errors(report)) == (0, [])
    (process,) = report["steps"][0]["processes"]
    assert process["entries"]["contiguous_pages"] == LAYOUT.cont_pages
    (vma,) = (vma for vma in process["vmas"] if int(vma["start"], 16) == rt.area)
    assert vma["blocks"] == {"folded": 1}
    rows = {row["va"]: row for row in rt.rows("--pid", str(rt.pid))}
    block = [rows[rt.area + page * LAYOUT.page] for page in range(LAYOUT.cont_pages)]
    assert all(row["word"] & CONT for row in block)
    # One entry without the bit, as Arm forbids it (R_QTRPM) and hugetlb never has it.
    place = block[3]["table"] + 8 * block[3]["index"] - RAM
    with rt.ram() as memory:
        memory[place : place + 8] = (block[3]["word"] & ~CONT).to_bytes(8, "little")
        status, report = checked(rt, tmp_path, "--pid", str(rt.pid))
        memory[place : place + 8] = block[3]["word"].to_bytes(8, "little")
    assert status == 1 and ("A4", rt.area) in errors(report)
    assert checked(rt, tmp_path, "--pid", str(rt.pid))[0] == 0


def test_maps_and_kernel(rt: Guest) -> None:
    """Each VMA that the guest's own `maps` has, and the kernel's areas: no lock keeps them from being read."""
    text = rt.command("read_file", path=f"/proc/{rt.pid}/maps")["file"]["content"]["text"]
    theirs = [tuple(int(each, 16) for each in line.split()[0].split("-")) for line in text.splitlines()]
    ours = json.loads(rt.attach("maps", "--format", "json", rt.pid).ok())
    assert [(int(vma["start"], 16), int(vma["end"], 16)) for vma in ours["vmas"]] == theirs
    assert ours["notes"] == []
    half = json.loads(rt.attach("kernel", "--format", "json").ok())
    assert half["areas"] and half["notes"] == []


def test_guest_that_works(rt: Guest, tmp_path: Path) -> None:
    """No false alarm while a process maps, writes, forks and unmaps: its locks are held, also by a task that waits."""
    process = rt.command("spawn", name="busy")["spawned"]["process"]
    over = threading.Event()

    def work() -> None:
        length = 32 * LAYOUT.block
        while not over.is_set():
            address = rt.op(process, "mmap", length=length, place=PLACE)["mapped"]["address"]
            rt.op(process, "touch", address=address, length=length, access="write", order="forward")
            child = rt.op(process, "fork", name="child")["spawned"]["process"]
            rt.op(child, "exit", status=0)
            rt.op(process, "munmap", address=address, length=length)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            status, report = checked(rt, tmp_path)
            assert errors(report) == [], report
            assert status == 0 or report["totals"]["not_judged"]
    finally:
        over.set()
        worker.join()
    rt.op(process, "exit", status=0)


def tour_on(kernel: Kernel, tmp_path: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """The tour on a kernel of others: the status, the text and the report."""
    report = tmp_path / "tour.json"
    options = ("--kernel", str(stock(kernel)), "--out", str(tmp_path), "--json", str(report), *options)
    ended = folioscope("run", *options, seconds=4 * BOOT_SECONDS)
    return ended.status, ended.out, json.loads(report.read_text())


def folds_hugetlb_alone(report: dict[str, Any]) -> None:
    """Each workload expects what such a kernel does, and finds it."""
    expected: dict[str, set[str]] = {}
    for step in report["steps"]:
        kinds = {each["what"] for each in step["expectations"]}
        expected.setdefault(step["workload"], set()).update(kinds & {"contiguous", "not-contiguous"})
        for process in step["processes"]:
            assert step["workload"] == "hugetlb" or process["entries"]["contiguous_pages"] == 0, step
    assert {name for name, kinds in expected.items() if "contiguous" in kinds} == {"hugetlb"}
    assert {"anon", "mprotect", "fork"} <= {name for name, kinds in expected.items() if kinds == {"not-contiguous"}}
    assert report["kernel"]["contpte"] is False and report["totals"]["errors"] == 0


def test_tour_plays_what_applies(tmp_path: Path) -> None:
    """Without THP and CONTPTE a tour is played all the same: hugetlb alone makes blocks contiguous."""
    status, text, report = tour_on(KERNELS[0], tmp_path, "--only", "anon,mprotect,fork,thp,hugetlb,hole")
    assert status == 0 and report["totals"]["not_judged"] == 0, text
    folds_hugetlb_alone(report)
    assert "has no CONFIG_ARM64_CONTPTE, which needs CONFIG_TRANSPARENT_HUGEPAGE" in text
    assert "left out: the kernel has no CONFIG_TRANSPARENT_HUGEPAGE" in text and "512 MiB" not in text


@pytest.mark.long
@pytest.mark.parametrize("kernel", [Kernel("rt", "6.12"), Kernel("rt", "7"), Kernel("4k", "6.1")], ids=str)
def test_whole_tour(kernel: Kernel, tmp_path: Path) -> None:
    """Nothing fails; 6.1, whose software bits are others, is judged by the architecture's rules and says so."""
    status, text, report = tour_on(kernel, tmp_path)
    folds_hugetlb_alone(report)
    old = kernel.series == "6.1"
    assert ("is older than 6.9, which brought CONFIG_ARM64_CONTPTE" in text) == old
    assert ("lays its software bits out differently" in text) == old
    assert status == (2 if old else 0), text


def test_boot_is_looked_into_as_it_says(tmp_path: Path) -> None:
    """Each command that `boot` prints for a look is run as it stands there."""
    words = ["boot", "--kernel", str(stock(KERNELS[0])), "--out", str(tmp_path)]
    with Running(words) as running:
        lines = []
        for line in running.child.stdout:
            lines.append(line)
            if line.startswith("end:"):
                break
        said = [shlex.split(line.removeprefix("look:")) for line in lines if " folioscope " in line]
        assert [command[:2] for command in said] == [["folioscope", name] for name in ("check", "dump", "save")], lines
        for command in said:
            place = [str(tmp_path / word) if word.endswith(".core") else word for word in command[1:]]
            assert folioscope(*place).status == 0, command
