# SPDX-License-Identifier: GPL-2.0-only
"""A guest with memory of every kind, as a core of all of its RAM, and drgn over that core.

Of a kernel with a vmlinux drgn takes the debug information. A distribution's kernel has its types in BTF alone,
which drgn does not read: `pahole` makes a header of them, the cross compiler an object with the same types in DWARF.
"""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import drgn
from drgn.helpers.linux import cpumask, kallsyms, mm, pid, xarray
from folioscope import Guest, Layout, Process, View
from folioscope.model import bytes_of

from command import folioscope

# include/linux/mm.h: what smaps calls the bits of vm_flags.
FLAGS = {
    "rd": 0x1, "wr": 0x2, "ex": 0x4, "sh": 0x8, "mr": 0x10, "mw": 0x20, "me": 0x40, "ms": 0x80, "gd": 0x100,
    "um": 0x200, "pf": 0x400, "uw": 0x1000, "lo": 0x2000, "io": 0x4000, "sr": 0x8000, "rr": 0x1_0000,
    "dc": 0x2_0000, "de": 0x4_0000, "lf": 0x8_0000, "ac": 0x10_0000, "nr": 0x20_0000, "ht": 0x40_0000,
    "sf": 0x80_0000, "wf": 0x200_0000, "dd": 0x400_0000, "mm": 0x1000_0000, "hg": 0x2000_0000,
    "nh": 0x4000_0000, "mg": 0x8000_0000,
}  # fmt: skip

# What drgn's helpers ask for by name: BTF has the types of no variable that is not per CPU.
VARIABLES = {
    "init_pid_ns": "struct pid_namespace",
    "init_task": "struct task_struct",
    "init_uts_ns": "struct uts_namespace",
    "__cpu_online_mask": "struct cpumask",
    "nr_cpu_ids": "unsigned int",
    "saved_command_line": "char *",
}
FUNCTION = "special_mapping_name"

# include/linux/page-flags.h: PGTY_hugetlb.
HUGETLB = 0xF4
THP = "/sys/kernel/mm/transparent_hugepage"
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

    def mm_of(self, wanted: int) -> Any:
        """The address space of a process."""
        return pid.find_task(self.program, wanted).mm

    def outputs(self) -> dict[int, int]:
        """Where each page of the process is, by our decoding of its tables."""
        page, found = self.layout.page, {}
        for entry in self.view.entries:
            if entry.output_address is not None:
                length = page * (page // 8) ** (3 - entry.level)
                found |= {entry.va + at: entry.output_address + at for at in range(0, length, page)}
        return found

    def ours(self, *words: str) -> Any:
        """A listing of ours, of the core."""
        return json.loads(folioscope(*words, self.core, "--format", "json").ok())


def furnish(process: Process) -> int:
    """Memory of every kind: folded, in pages, with holes, not accessible, of the zero page, read-only, of a file,
    shared, with a child that wrote a part; gives the address of the mark."""
    layout, guest = process.guest.layout, process.guest
    whole = process.blocks(4)
    whole.write()
    whole.poke(0, [MARK])
    process.blocks(1, hint="nohugepage").write()
    # Folios of several orders, on kernels without policies too: what does not fill a block has the next smaller size.
    guest.write(f"{THP}/hugepages-{layout.block >> 11}kB/enabled", "always")
    process.map(2 * layout.block, offset=3 * layout.page).write()
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
    return whole.address


def scene_of(guest: Guest, process: Process, vmlinux: Path | None, place: Path) -> Scene:
    """A guest as it is when it is furnished."""
    marked, core = furnish(process), place / "full.core"
    with process.hold() as held:
        view = held.judge()
        answer = guest.call("save_full", path=str(core), pid=process.pid, seconds=60)
        smaps = process.smaps()
    program = drgn.Program()
    program.set_core_dump(core)
    if vmlinux:
        program.load_debug_info([vmlinux])
    else:
        by_btf(program, btf_of(guest), place)
    release = guest.hello.kernel_release
    return Scene(core, program, guest.layout, release, process.pid, view, smaps, marked, answer)


def btf_of(guest: Guest) -> bytes:
    """The kernel's BTF, as its own sysfs gives it."""
    found = b""
    while True:
        piece = guest.command("read_file", path="/sys/kernel/btf/vmlinux", offset=len(found))["file"]["content"]
        if not (more := bytes_of(piece)):
            return found
        found += more


def by_btf(program: Any, btf: bytes, place: Path) -> None:
    """Gives drgn the types of the kernel's BTF, the symbols of its kallsyms, and the variables that are asked for."""
    (place / "vmlinux.btf").write_bytes(btf)

    def pahole(*words: str) -> str:
        said = subprocess.run(
            ["pahole", "-F", "btf", *words, place / "vmlinux.btf"], check=True, capture_output=True, text=True
        )
        return said.stdout

    # No structure has a member of that enumeration.
    header = pahole("--compile") + pahole("-C", "pageflags")
    # pahole 1.24 cannot write a pointer to a volatile function.
    header = re.sub(r"volatile \w+ \(\)\(.*\) +\* (\w+);", r"void * \1;", header)
    (place / "types.c").write_text(header)
    keep = ["-fno-eliminate-unused-debug-types", "-fno-eliminate-unused-debug-symbols"]
    compile_ = ["aarch64-linux-gnu-gcc", "-g", *keep, "-w", "-c", "types.c", "-o", "types.o"]
    subprocess.run(compile_, check=True, capture_output=True, cwd=place)
    program.register_symbol_finder("kallsyms", kallsyms.load_vmlinux_kallsyms(program), enable_index=0)
    program.extra_module("types", create=True).try_file(place / "types.o", force=True)

    def variable(prog: Any, name: str, *_: object) -> Any:
        kind = VARIABLES.get(name)
        if name == "vmemmap":
            found = re.search(rb"^SYMBOL\(vmemmap\)=([0-9a-f]+)$", prog["VMCOREINFO"].string_(), re.M)
            return drgn.Object(prog, "struct page *", value=int(found[1], 16)) if found else None
        if name == FUNCTION:
            kind = prog.function_type(prog.type("char *"), [drgn.TypeParameter(prog.type("struct vm_area_struct *"))])
        return drgn.Object(prog, kind, address=prog.symbol(name).address) if kind else None

    program.register_object_finder("variables", variable, enable_index=0)


def phys(space: Any, va: int) -> int | None:
    """Where drgn's walk of the tables leads."""
    try:
        found: int = mm.follow_phys(space, va).value_()
    except drgn.FaultError:
        return None
    return found


def task_of(leader: Any, threads: list[int]) -> dict[str, Any]:
    """A process as drgn has it, in the words of our listing."""
    space = leader.mm
    # include/linux/sched.h: PF_KTHREAD.
    ended = leader.exit_state.value_() != 0 and not space
    return {
        "pid": leader.tgid.value_(),
        "name": leader.comm.string_().decode(),
        "started_ns": leader.start_boottime.value_(),
        "threads": threads,
        "is_kernel": bool(leader.flags.value_() & 0x20_0000),
        "has_ended": ended,
        "mm": f"{space.value_():#018x}" if space else None,
        "table": f"{mm.virt_to_phys(space.pgd).value_():#018x}" if space else None,
    }


def tasks_of(program: Any) -> dict[int, dict[str, Any]]:
    """All processes as drgn has them, by their id."""
    groups = defaultdict(list)
    for task in pid.for_each_task(program):
        groups[task.tgid.value_()].append(task)
    found = {}
    for tgid, tasks in groups.items():
        (leader,) = (task for task in tasks if task.pid.value_() == tgid)
        found[tgid] = task_of(leader, sorted(task.pid.value_() for task in tasks))
    return found


def vma_of(vma: Any, page: int) -> dict[str, Any]:
    """A VMA as drgn has it, in the words of our listing."""
    bits, file = vma.vm_flags.value_(), vma.vm_file
    inode = file.f_inode if file else None
    return {
        "start": vma.vm_start.value_(),
        "end": vma.vm_end.value_(),
        "flags": sum(bit for bit in FLAGS.values() if bits & bit),
        "offset": vma.vm_pgoff.value_() * page if file else 0,
        "inode": inode.i_ino.value_() if file else 0,
        "device": divmod(inode.i_sb.s_dev.value_(), 1 << 20) if file else (0, 0),
        "name": name_of(vma),
    }


def name_of(vma: Any) -> str:
    """A VMA's name as drgn has it, in the kernel's words."""
    name, space = mm.vma_name(vma), vma.vm_mm
    text = name.decode() if isinstance(name, bytes) else name or ""
    # To the kernel (vma_is_initial_heap(), include/linux/mm.h) what ends where the heap starts is none of it.
    if text == "[heap]" and not (vma.vm_start < space.brk and vma.vm_end > space.start_brk):
        return ""
    # A file in no directory, as of memfd_create(2): drgn has no path of it.
    if vma.vm_file and text == f"[{vma.vm_file.f_inode.i_sb.s_type.name.string_().decode()}]":
        return "/" + str(vma.vm_file.f_path.dentry.d_name.name.string_().decode())
    return text


def cache_of(vma: Any, page: int) -> dict[str, Any] | None:
    """The page cache of a regular file as drgn has it, in the words of our listing."""
    file = vma.vm_file
    if not file or not stat.S_ISREG(file.f_inode.i_mode.value_()):
        return None
    entries = [entry for _, entry in xarray.xa_for_each(file.f_mapping.i_pages.address_of_())]
    folios = {entry.value_(): entry for entry in entries if not xarray.xa_is_value(entry)}
    heads = [drgn.cast("struct page *", entry) for entry in folios.values()]
    pages = sum(1 << mm.compound_order(head).value_() for head in heads)
    assert pages == file.f_mapping.nrpages.value_()
    return {"mapping": f"{file.f_mapping.value_():#018x}", "bytes": pages * page}


def page_of(program: Any, pfn: int) -> dict[str, Any]:
    """A page and its folio as drgn has them, in the words of our listing; None is what we say nothing of."""
    page = mm.pfn_to_page(program, pfn)
    head = mm.compound_head(page)
    folio, order = drgn.cast("struct folio *", head), mm.compound_order(head).value_()
    # What is no folio has another meaning in these words (`enum pagetype`).
    typed = head._mapcount.counter.value_() < -1
    mapping = folio.mapping.value_()
    # A page without a mapping has no index (include/linux/mm_types.h: the word is another's in a slab, a table, a page
    # pool), nor has a driver's, which is marked by bit 1 alone.
    owned = not typed or (head._mapcount.counter.value_() & 0xFFFF_FFFF) >> 24 == HUGETLB
    owned = bool(mapping) and owned
    return {
        "pfn": pfn,
        "head": mm.page_to_pfn(head).value_(),
        "order": order,
        "flags": flags_of(page),
        "folio_flags": flags_of(head),
        "refcount": head._refcount.counter.value_(),
        "mapcount": None if typed else page._mapcount.counter.value_() + 1,
        "entire": folio._entire_mapcount.counter.value_() + 1 if order and not typed else None,
        "large": folio._large_mapcount.counter.value_() + 1 if order and not typed else None,
        "mapping": mapping & ~3 if owned else None,
        "index": folio.index.value_() if owned and mapping & 3 != 2 else None,
    }


def flag_bits(program: Any) -> dict[str, int]:
    """The bit of each name: of `enum pageflags`, of a slab's (mm/slub.c) and of a table's (include/linux/mm.h)."""
    named = {name.removeprefix("PG_"): int(bit) for name, bit in program.type("enum pageflags").enumerators}
    # A folio's order in its second page has no name.
    return named | {
        "pfmemalloc": named["active"],
        "partial": named["workingset"],
        "kernel": named["referenced"],
    }


def bits_of(program: Any, names: list[str]) -> set[int]:
    """The bits with these names; where two fit, they are joined by a bar and of one bit."""
    bits = flag_bits(program)
    found = [{bits[name] for name in both.split("|")} for both in names]
    assert all(len(each) == 1 for each in found), names
    return set().union(*found) if found else set()


def bits(program: Any, flags: int) -> set[int]:
    """The bits that are set, of those with a name."""
    return {bit for bit in flag_bits(program).values() if flags >> bit & 1}


def flags_of(page: Any) -> int:
    """A number, since 6.18 in a structure of its own (memdesc_flags_t)."""
    flags = page.flags
    return int((flags.f if flags.type_.kind in (drgn.TypeKind.STRUCT, drgn.TypeKind.TYPEDEF) else flags).value_())


def our_vma(vma: dict[str, Any]) -> dict[str, Any]:
    """The same of our listing."""
    return {
        "start": int(vma["start"], 16),
        "end": int(vma["end"], 16),
        "flags": sum(FLAGS[flag] for flag in vma["flags"]),
        "offset": vma["offset"],
        "inode": vma["inode"],
        "device": tuple(vma["device"]),
        "name": vma["name"].removesuffix(" (deleted)"),
    }


__all__ = ["MARK", "Scene", "cpumask", "mm", "our_vma", "page_of", "phys", "pid", "scene_of", "task_of", "vma_of"]
