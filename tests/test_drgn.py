"""What drgn reads in a core of all of a guest's RAM, by the DWARF of the kernel's vmlinux, against what the rig reads.

drgn (https://github.com/osandov/drgn) shares no code with the rig, and no debug information: what the rig knows of the
kernel it finds in the guest's own memory. Whatever differs is a fault.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest, Layout, Process, View

from command import ROOT, folioscope

# PyPI has it for x86-64 alone.
drgn = pytest.importorskip("drgn", reason="there is no drgn for this host")
linux = pytest.importorskip("drgn.helpers.linux", reason="there is no drgn for this host")

pytestmark = pytest.mark.only_machine("tcg")

# include/linux/mm.h of 6.12: what smaps calls the bits of vm_flags.
FLAGS = {
    "rd": 0x1, "wr": 0x2, "ex": 0x4, "sh": 0x8, "mr": 0x10, "mw": 0x20, "me": 0x40, "ms": 0x80, "gd": 0x100,
    "um": 0x200, "pf": 0x400, "uw": 0x1000, "lo": 0x2000, "io": 0x4000, "sr": 0x8000, "rr": 0x1_0000,
    "dc": 0x2_0000, "de": 0x4_0000, "lf": 0x8_0000, "ac": 0x10_0000, "nr": 0x20_0000, "ht": 0x40_0000,
    "sf": 0x80_0000, "wf": 0x200_0000, "dd": 0x400_0000, "mm": 0x1000_0000, "hg": 0x2000_0000,
    "nh": 0x4000_0000, "mg": 0x8000_0000,
}  # fmt: skip

# In the word that a process wrote into its memory.
MARK = 0x0F01_1005_C0DE


@dataclass
class Scene:
    """A guest, as a core and as it was when that was saved."""

    core: Path
    program: Any
    layout: Layout
    release: str
    # What the process that waited had in its tables and in its VMAs.
    pid: int
    view: View
    smaps: str
    # Where it wrote the mark.
    marked: int
    # What the session answered.
    answer: dict[str, Any]


def furnish(process: Process) -> tuple[Process, int]:
    """Memory of every kind: folded, in pages, with holes, not accessible, of the zero page, read-only, of a file,
    shared, with a child; gives that and where the mark is."""
    layout, guest = process.guest.layout, process.guest
    whole = process.blocks(4)
    whole.write()
    whole.poke(0, [MARK])
    process.blocks(1, hint="nohugepage").write()
    holes = process.blocks(4)
    for page in range(0, holes.pages, layout.cont_pages + 3):
        holes.write(page, 1)
    holes.madvise("dontneed", 1, 1)
    none = process.blocks(2)
    none.write()
    none.mprotect([], 3, 7)
    process.blocks(2).read()
    path = "/run/drgn-file"
    process.file_create(path, 4 * layout.block)
    file = process.map_file(path, 3 * layout.block, offset=layout.page)
    file.write(0, layout.cont_pages)
    file.mprotect(["read"], 2, 1)
    process.map_memfd(2 * layout.block).write()
    if guest.layout.granule == "4k":
        process.map(layout.pmd).write()
    child = process.fork("drgn child")
    whole.in_process(child).write(1, 2)
    return child, whole.address


SCENES: dict[str, Scene] = {}


@pytest.fixture
def scene(guest: Guest, process: Process, granule: str, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """One for all tests of a granule."""
    if granule not in SCENES:
        _, marked = furnish(process)
        core = tmp_path_factory.mktemp("drgn") / "full.core"
        with process.hold() as held:
            view = held.judge()
            answer = guest.call("save_full", path=str(core), pid=process.pid, seconds=60)
        program = drgn.Program()
        program.set_core_dump(core)
        program.load_debug_info([ROOT / "out" / f"kernel-{granule}" / "vmlinux"])
        release = guest.hello.kernel_release
        smaps = process.smaps()
        SCENES[granule] = Scene(core, program, guest.layout, release, process.pid, view, smaps, marked, answer)
    return SCENES[granule]


def outputs(view: View) -> dict[int, int]:
    """Where each page of the process is, by our decoding of its tables."""
    page, found = view.layout.page, {}
    for entry in view.entries:
        if entry.output_address is not None:
            length = page * (page // 8) ** (3 - entry.level)
            found |= {entry.va + at: entry.output_address + at for at in range(0, length, page)}
    return found


def listing(*words: str | Path) -> Any:
    """A listing of ours."""
    return json.loads(folioscope(*words, "--format", "json").ok())


def phys(mm: Any, va: int) -> int | None:
    """Where drgn's walk of the tables leads."""
    try:
        found: int = linux.mm.follow_phys(mm, va).value_()
    except drgn.FaultError:
        return None
    return found


def mm_of(scene: Scene, pid: int) -> Any:
    """The address space of a process."""
    return linux.pid.find_task(scene.program, pid).mm


def test_it_is_a_kernels_core(scene: Scene) -> None:
    """drgn takes it for one, with the CPUs that the guest had; what is zero takes no room."""
    program = scene.program
    assert program.flags & drgn.ProgramFlags.IS_LINUX_KERNEL
    assert program["init_uts_ns"].name.release.string_().decode() == scene.release
    assert len(list(linux.cpumask.for_each_online_cpu(program))) == scene.answer["cpus"]
    about = scene.core.stat()
    assert scene.answer["without_vmcoreinfo"] is None and scene.answer["pid"] == scene.pid
    assert about.st_size > scene.answer["ram_bytes"] > 2 * 512 * about.st_blocks


def test_memory_is_that_of_the_instant(scene: Scene) -> None:
    """What the process had written, by the address space and by the physical address that our walk gives."""
    mm = mm_of(scene, scene.pid)
    found = linux.mm.access_remote_vm(mm, scene.marked, 8)
    assert int.from_bytes(found, "little") == MARK
    assert scene.program.read_u64(outputs(scene.view)[scene.marked], physical=True) == MARK


def test_translations(scene: Scene) -> None:
    """Each page of each VMA, and addresses around: mapped where we say, or nowhere."""
    mm, page = mm_of(scene, scene.pid), scene.layout.page
    found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ", scene.smaps, re.M)
    ranges = [(int(start, 16), int(end, 16)) for start, end in found]
    draw = random.Random(7)
    addresses = [va for start, end in ranges for va in range(start - page, end + page, page)]
    addresses += [va + draw.randrange(page) for va in draw.sample(addresses, 200)]
    ours, mapped = outputs(scene.view), 0
    for va in addresses:
        theirs = phys(mm, va)
        at = ours.get(va & -page)
        assert theirs == (None if at is None else at + va % page), hex(va)
        mapped += theirs is not None
    assert mapped > 500 and len(addresses) - mapped > 50


def test_tasks(scene: Scene) -> None:
    """Every process and thread: ids, name, start, address space, first table."""
    groups = defaultdict(list)
    for task in linux.pid.for_each_task(scene.program):
        groups[task.tgid.value_()].append(task)
    theirs = {}
    for tgid, tasks in groups.items():
        (leader,) = (task for task in tasks if task.pid.value_() == tgid)
        mm = leader.mm
        theirs[tgid] = {
            "pid": tgid,
            "name": leader.comm.string_().decode(),
            "started_ns": leader.start_boottime.value_(),
            "threads": sorted(task.pid.value_() for task in tasks),
            "mm": f"{mm.value_():#018x}" if mm else None,
            "table": f"{linux.mm.virt_to_phys(mm.pgd).value_():#018x}" if mm else None,
        }
    said = listing("ps", scene.core)
    ours = {task["pid"]: task | {"threads": sorted(task["threads"])} for task in said["tasks"]}
    assert said["kernel"] == scene.release
    assert ours == theirs
    assert {1, 2, scene.pid} <= set(ours) and len([task for task in ours.values() if task["mm"]]) >= 3


def vma_of(scene: Scene, vma: Any) -> dict[str, Any]:
    """A VMA as drgn has it, in the words of our listing."""
    bits, file = vma.vm_flags.value_(), vma.vm_file
    inode = file.f_inode if file else None
    return {
        "start": vma.vm_start.value_(),
        "end": vma.vm_end.value_(),
        "flags": sum(bit for bit in FLAGS.values() if bits & bit),
        "offset": vma.vm_pgoff.value_() * scene.layout.page if file else 0,
        "inode": inode.i_ino.value_() if file else 0,
        "device": divmod(inode.i_sb.s_dev.value_(), 1 << 20) if file else (0, 0),
        "name": named(vma),
    }


def named(vma: Any) -> str:
    """A VMA's name as drgn has it, in the kernel's words."""
    name, mm = linux.mm.vma_name(vma), vma.vm_mm
    text = name.decode() if isinstance(name, bytes) else name or ""
    # To the kernel (vma_is_initial_heap(), include/linux/mm.h) what ends where the heap starts is none of it.
    if text == "[heap]" and not (vma.vm_start < mm.brk and vma.vm_end > mm.start_brk):
        return ""
    # A file in no directory, as of memfd_create(2): drgn has no path of it.
    if vma.vm_file and text == f"[{vma.vm_file.f_inode.i_sb.s_type.name.string_().decode()}]":
        return "/" + str(vma.vm_file.f_path.dentry.d_name.name.string_().decode())
    return text


def test_vmas(scene: Scene) -> None:
    """Those of every process: range, flags, offset, file; and what is mapped in them, summed up."""
    processes, seen = [task for task in listing("ps", scene.core)["tasks"] if task["mm"]], 0
    for process in processes:
        said = listing("maps", str(process["pid"]), scene.core)
        assert said["task"] == process
        mm = mm_of(scene, process["pid"])
        theirs = [vma_of(scene, vma) for vma in linux.mm.for_each_vma(mm)]
        ours = [
            {
                "start": int(vma["start"], 16),
                "end": int(vma["end"], 16),
                "flags": sum(FLAGS[flag] for flag in vma["flags"]),
                "offset": vma["offset"],
                "inode": vma["inode"],
                "device": tuple(vma["device"]),
                "name": vma["name"].removesuffix(" (deleted)"),
            }
            for vma in said["vmas"]
        ]
        assert ours == theirs
        for vma in said["vmas"]:
            pages = range(int(vma["start"], 16), int(vma["end"], 16), scene.layout.page)
            assert vma["mapped"] == scene.layout.page * sum(phys(mm, va) is not None for va in pages), vma
        seen += len(ours)
    assert len(processes) >= 3 and seen > 30
