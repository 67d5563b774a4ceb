"""What drgn reads in a core of all of a guest's RAM, by the DWARF of the kernel's vmlinux, against what the rig reads.

drgn (https://github.com/osandov/drgn) shares no code with the rig, and no debug information: what the rig knows of the
kernel it finds in the guest's own memory. Whatever differs is a fault.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest, Layout, Process, View

from command import ROOT

# PyPI has it for x86-64 alone.
drgn = pytest.importorskip("drgn", reason="there is no drgn for this host")
linux = pytest.importorskip("drgn.helpers.linux", reason="there is no drgn for this host")

pytestmark = pytest.mark.only_machine("tcg")

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
        try:
            theirs = linux.mm.follow_phys(mm, va).value_()
        except drgn.FaultError:
            theirs = None
        at = ours.get(va & -page)
        assert theirs == (None if at is None else at + va % page), hex(va)
        mapped += theirs is not None
    assert mapped > 500 and len(addresses) - mapped > 50
