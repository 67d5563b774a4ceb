# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's own structures, damaged on purpose in a core of all RAM.

An error in a sentence or a finding, soon, in little memory, and never a panic.
"""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command import GONE_SECONDS, ROOT, Running, folioscope
from held_guest import LAYOUT, Held
from own_qemu import MEMFD, Guest

# PyPI has it for x86-64 alone.
drgn = pytest.importorskip("drgn", reason="there is no drgn for this host")
from drgn.helpers.linux import mm, percpu  # noqa: E402

from damage import NO_ADDRESS, NOWHERE, Core, Writes, at, word  # noqa: E402

pytestmark = pytest.mark.qemu

KERNEL_4K = ROOT / "out" / "kernel-4k"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    """A guest of its own, which has ended by then."""
    place = tmp_path_factory.mktemp("whole")
    with Running(["boot", "--out", str(place), "--memory", "512M"]) as running:
        held = Held(running)
        folioscope("save", "--full", *held.source, place / "full.core").ok()
        running.child.send_signal(signal.SIGINT)
        running.child.wait(timeout=GONE_SECONDS)
    core = Core(place / "full.core", KERNEL_4K / "vmlinux", int(held.source[-1]))
    yield core
    core.close()
    core.path.unlink()


def hinted(core: Core) -> Any:
    """The VMA of the four blocks."""
    return next(vma for vma in mm.for_each_vma(core.mm) if vma.vm_flags.value_() & 0x2000_0000)


def tail(core: Core) -> Any:
    """A page within a folded block's folio."""
    return core.page(hinted(core).vm_start.value_() + 5 * LAYOUT.page)


def folio(core: Core) -> Any:
    """Its folio."""
    return drgn.cast("struct folio *", mm.compound_head(tail(core)))


def free_list(core: Core) -> Any:
    """A list of free pages that has some."""
    lists = (free for area in core.zone().free_area for free in area.free_list)
    return next(free for free in lists if free.next.value_() != at(free))


def root_node(core: Core) -> Any:
    """The root of the tree of VMAs."""
    encoded = core.mm.mm_mt.ma_root.value_()
    return drgn.Object(core.program, "struct maple_node *", value=encoded & ~0xFF)


def dentry(core: Core) -> Any:
    """The name of the process's program."""
    return next(vma.vm_file.f_path.dentry for vma in mm.for_each_vma(core.mm) if vma.vm_file)


def cache_node(core: Core) -> Any:
    """The root of the tree of the page cache of a file that the process maps."""
    # A file of one page has no node.
    roots = (vma.vm_file.f_mapping.i_pages.xa_head.value_() for vma in mm.for_each_vma(core.mm) if vma.vm_file)
    encoded = next(root for root in roots if root & 3 == 2)
    return drgn.Object(core.program, "struct xa_node *", value=encoded & ~3)


def variable(name: str, value: int, size: int = 8) -> Callable[[Core], Writes]:
    """A variable of the kernel."""
    return lambda core: [(core.program.symbol(name).address, word(value, size))]


LIST = r"the list of tasks at 0x\w+ (makes no sense: it does not come back to its head|could not be read)"
TREE = r"a maple tree's node at 0x\w+ (makes no sense: it is deeper than any tree|could not be read)"
VMA = r"a VMA at 0x\w+ makes no sense: it reaches from 0x\w+ to 0x\w+, and the tree has it for"

# What is damaged, how, what then is asked, with which status, and what it says of that.
CASES: dict[str, tuple[Callable[[Core], Writes], str, int, str]] = {
    "tasks-loop": (lambda c: [(at(c.tasks()[9].tasks.next), word(at(c.tasks()[2].tasks)))], "ps", 2, LIST),
    "tasks-itself": (lambda c: [(at(c.tasks()[9].tasks.next), word(at(c.tasks()[9].tasks)))], "ps", 2, LIST),
    "tasks-nowhere": (lambda c: [(at(c.tasks()[9].tasks.next), word(NOWHERE))], "ps", 2, LIST),
    "threads-nowhere": (lambda c: [(at(c.task.signal.thread_head.next), word(NOWHERE))], "ps", 2, "list of threads"),
    "mm-nowhere": (lambda c: [(at(c.task.mm), word(NO_ADDRESS))], "ps", 2, "an address space at 0x6b"),
    "pgd-nowhere": (
        lambda c: [(at(c.mm.pgd), word(NOWHERE))],
        "maps",
        2,
        r"first table at 0x\w+ could not be read: 0x",
    ),
    "name": (lambda c: [(at(c.task.comm), b"\xff\x1b[31m\n\rxyz")], "ps", 0, r"\\u001b\[31m\\n\\rxyz"),
    "tree-nowhere": (lambda c: [(at(c.mm.mm_mt.ma_root), word(NOWHERE | 0x1E))], "maps", 2, TREE),
    "tree-itself": (lambda c: [(at(root_node(c).ma64.slot[0]), c.mm.mm_mt.ma_root.to_bytes_())], "maps", 2, TREE),
    "vma-backwards": (lambda c: [(at(hinted(c).vm_end), word(LAYOUT.page))], "maps", 2, VMA),
    "vma-unaligned": (lambda c: [(at(hinted(c).vm_start), word(hinted(c).vm_start.value_() + 5))], "maps", 2, VMA),
    "vma-numbering": (lambda c: [(at(hinted(c).vm_pgoff), word(-1))], "check", 1, r"^  L7 "),
    "file-nowhere": (
        lambda c: [(at(dentry(c).d_name.name), word(NOWHERE))],
        "maps",
        2,
        "a file's name at 0xffff8000dead",
    ),
    "file-parents": (lambda c: [(at(dentry(c).d_parent.d_parent), word(dentry(c).value_()))], "maps", 0, "mapped"),
    "head-nowhere": (lambda c: [(at(tail(c).compound_head), word(NOWHERE | 1))], "check", 1, r"^  L\d"),
    "head-of-another": (
        lambda c: [(at(tail(c).compound_head), word(at(folio(c)._flags_1) | 1))],
        "check",
        1,
        r"^  L\d",
    ),
    "order-63": (lambda c: [(at(folio(c)._flags_1), word(63, 1))], "check", 1, r"^  L\d"),
    "mapcount": (lambda c: [(at(tail(c)._mapcount), word(1 << 31, 4))], "check", 1, r"^  L9 "),
    "mapcount-max": (lambda c: [(at(tail(c)._mapcount), word((1 << 31) - 2, 4))], "check", 1, r"^  L9 "),
    "large-mapcount": (lambda c: [(at(folio(c)._large_mapcount), word(1 << 31, 4))], "check", 1, r"^  L9 "),
    "entire-mapcount": (lambda c: [(at(folio(c)._entire_mapcount), word((1 << 31) - 2, 4))], "check", 1, r"^  L9 "),
    "references": (lambda c: [(at(folio(c).page._refcount), word(1 << 31, 4))], "check", 1, r"^  L9 "),
    "index": (lambda c: [(at(folio(c).index), word(-1))], "check", 1, r"^  L7 "),
    "rss": (lambda c: [(at(c.mm.rss_stat[1].count), word(1 << 63))], "check", 1, r"^  L9 "),
    "rss-of-cpus": (lambda c: [(at(c.mm.rss_stat[1].counters), word(NO_ADDRESS))], "check", 0, "RSS was not judged"),
    "table-bytes": (lambda c: [(at(c.mm.pgtables_bytes.counter), word(1 << 63))], "check", 1, r"^  L9 "),
    "free-loop": (lambda c: [(at(free_list(c).next.next), free_list(c).next.to_bytes_())], "check", 1, r"^  L14 "),
    "free-nowhere": (lambda c: [(at(free_list(c).next), word(NOWHERE))], "check", 1, r"^  L14 "),
    "cache-loop": (
        lambda c: [(at(cache_node(c).slots[0]), word(cache_node(c).value_() | 2))],
        "check",
        2,
        r"L18 was not judged for 1 files: the page cache of a file at 0x\w+ makes no sense",
    ),
    "cache-nowhere": (
        lambda c: [(at(cache_node(c).slots[0]), word(NOWHERE & ~3 | 2))],
        "check",
        2,
        r"L18 was not judged for 1 files: .* could not be read",
    ),
    "cache-of-nothing": (lambda c: [(at(cache_node(c).slots[1]), word(NOWHERE & ~3))], "check", 1, r"^  L18 "),
    "cache-count": (
        lambda c: [(at(next(v.vm_file for v in mm.for_each_vma(c.mm) if v.vm_file).f_mapping.nrpages), word(1 << 63))],
        "check",
        1,
        r"^  L18 ",
    ),
    "pcp-nowhere": (
        lambda c: [(at(c.zone().per_cpu_pageset), word(NO_ADDRESS))],
        "check",
        2,
        "L14 was not judged of zone",
    ),
    "no-cpus": (variable("nr_cpu_ids", 0, 4), "check", 2, "nr_cpu_ids at 0x.* makes no sense: it is 0"),
    "many-cpus": (
        variable("nr_cpu_ids", 1 << 31, 4),
        "check",
        2,
        "nr_cpu_ids at 0x.* makes no sense: it is 2147483648",
    ),
    "no-nodes": (
        lambda c: [(at(c.program["node_data"]), bytes(drgn.sizeof(c.program["node_data"])))],
        "check",
        2,
        "node_data at 0x.* makes no sense: no node has memory",
    ),
    "cpus-elsewhere": (variable("__per_cpu_offset", NO_ADDRESS), "check", 2, "L12 was not judged"),
    "symbols": (variable("kallsyms_num_syms", 1 << 31, 4), "ps", 2, "the kernel's symbols were not found"),
    "types": (variable("__start_BTF", 0), "ps", 2, "the kernel's types were not found in its memory"),
    "about": (variable("vmcoreinfo_size", -1), "check", 2, "VMCOREINFO at 0x.* makes no sense"),
}


@pytest.mark.parametrize("what", CASES)
def test_damaged(core: Core, what: str) -> None:
    """Each is named, and the other commands come to an end as well."""
    writes, asked, status, said = CASES[what]
    frame = str(mm.page_to_pfn(tail(core)).value_())
    with core.damaged(*writes(core)):
        ended = core.ask(asked)
        for command in {"ps", "maps", "check"} - {asked}:
            core.ask(command)
        core.tell("page", frame)
    assert ended.status == status and re.search(said, ended.out + ended.err, re.M), ended.out + ended.err


def nodes(core: Core) -> Any:
    """The lists of vmalloc's areas."""
    return core.program["vmap_nodes"]


def used_node(core: Core) -> Any:
    """One that has areas."""
    return next(
        node
        for node in nodes(core)[0 : core.program["nr_vmap_nodes"].value_()]
        if node.busy.head.next.value_() != at(node.busy.head)
    )


def first(core: Core) -> Any:
    """Its first area, as the list has it."""
    return used_node(core).busy.head.next[0]


AREAS = r"^note: the areas of vmalloc are not known: "
LOOP = AREAS + "a vmalloc area at .* makes no sense: it does not come back to its head"
COUNT = AREAS + r"a vmalloc area at .* makes no sense: {} lists are said to be there, and 1 to 1024 can be"

# What is damaged, and what `kernel` says of that.
KERNEL: dict[str, tuple[Callable[[Core], Writes], str]] = {
    "list-itself": (lambda c: [(at(first(c).next), word(at(first(c))))], LOOP),
    "list-nowhere": (
        lambda c: [(at(used_node(c).busy.head.next), word(NOWHERE))],
        AREAS + "a vmalloc area at .* could not be read",
    ),
    "list-locked": (
        lambda c: [(at(used_node(c).busy.lock), word(1, 4))],
        AREAS + "a vmalloc area at .* the lock of its list was held",
    ),
    "no-lists": (variable("nr_vmap_nodes", 0, 4), COUNT.format(0)),
    "many-lists": (variable("nr_vmap_nodes", 1 << 31, 4), COUNT.format(1 << 31)),
}


@pytest.mark.parametrize("what", KERNEL)
def test_damaged_areas(core: Core, what: str) -> None:
    """The parts of the kernel's half are there nevertheless, and why the areas are not."""
    writes, said = KERNEL[what]
    whole = core.tell("kernel").out
    parts, areas = whole.split("\n\n")
    assert "note:" not in whole and re.match(r"\d+ areas of vmalloc", areas)
    with core.damaged(*writes(core)):
        ended = core.tell("kernel")
    assert ended.status == 0 and ended.out.startswith(parts + "\nnote:") and re.search(said, ended.out, re.M), ended.out
    assert "areas of vmalloc, modules" not in ended.out
    assert core.tell("kernel").out == whole


def test_caller_in_a_module(core: Core) -> None:
    """It is no function of the image, however near the last one is."""
    area = drgn.container_of(first(core).address_of_(), "struct vmap_area", "list")
    start = f"^{area.va_start.value_():016x}-.*"
    named = re.search(rf"{start} (\S+)\+0x\w+$", core.tell("kernel").out, re.M)
    assert named and named[1] in core.program.symbol(area.vm.caller.value_()).name
    module = core.program.symbol("_end").address + (8 << 20)
    with core.damaged((at(area.vm.caller), word(module))):
        said = re.search(start, core.tell("kernel").out, re.M)
    assert said and "+0x" not in said[0]


def test_table_that_leads_nowhere(core: Core) -> None:
    """What it maps is missing, and that is said."""
    program, va = core.program, core.page(hinted(core).vm_start.value_()).value_()
    table = mm.follow_phys(program["init_mm"].address_of_(), program.symbol("swapper_pg_dir").address).value_()
    # 52 bits of address, five levels: the last descriptor that leads to a table.
    for shift in (48, 39, 30, 21):
        here = table + 8 * (va >> shift & (1 << min(9, 52 - shift)) - 1)
        descriptor = program.read_u64(here, physical=True)
        if descriptor & 3 != 3:
            break
        last, table = here, descriptor & 0xFFFF_FFFF_F000
    whole = core.tell("kernel").out
    vmemmap = re.search(r"^vmemmap .*", whole, re.M)
    with core.damaged((mm.phys_to_virt(program, last).value_(), word(0x8000_DEAD_B003))):
        said = core.tell("kernel").out
    note = "descriptors that lead to no memory or back to a table above: 1\n"
    assert re.search(f"^note: not all tables could be read, .*: {note}", said, re.M)
    assert vmemmap and vmemmap[0].endswith(" 8M PMD") and vmemmap[0] not in said and "note:" not in whole


def test_tables_that_stand_everywhere(core: Core) -> None:
    """Each entry of the upper levels leads to the same table: 2^36 pages, of which some are looked at. That is said."""
    program, va = core.program, hinted(core).vm_start.value_()
    table = mm.follow_phys(program["init_mm"].address_of_(), core.mm.pgd.value_()).value_()
    writes = []
    for shift in (48, 39, 30, 21):
        entry = program.read_u64(table + 8 * (va >> shift & 511), physical=True)
        assert entry & 3 == 3
        # The first table is shorter than a page.
        if shift < 48:
            writes.append((mm.phys_to_virt(program, table).value_(), word(entry) * 512))
        table = entry & 0xFFFF_FFFF_F000
    pfns = "0x40000-0x48000"
    assert "note:" not in core.tell("page", pfns).out
    with core.damaged(*writes):
        said = core.tell("page", pfns).out
    assert re.search(r"^note: the tables of all processes have more than \d+ entries: ", said, re.M), said[-2000:]


def test_whole(core: Core) -> None:
    """What was damaged is whole again: every process is judged, with its folios."""
    said = core.tell("check")
    assert said.status == 0 and "0 not judged" in said.out and ": 3 processes" in said.out, said.out


def test_damaged_anywhere(core: Core) -> None:
    """Words of the structures themselves, by chance."""
    chance = random.Random(9)
    vma, node = hinted(core), core.mm.mm_mt.ma_root.value_() & ~0xFF
    structures = [(value.value_(), drgn.sizeof(value[0])) for value in (core.task, core.mm, core.task.signal, vma)]
    structures += [(node, 256), (folio(core).value_(), 16 * 64), (at(core.zone()), drgn.sizeof(core.zone()))]
    words, statuses = [["ps"], ["maps", str(core.pid)], ["check"]], []
    for index in range(150):
        start, size = structures[index % len(structures)]
        va = start + chance.randrange(size // 8) * 8
        here = core.data[core.place(va) : core.place(va) + 8]
        values = [word(0), word(-1), word(NOWHERE), word(NO_ADDRESS), word(va), word(1 << 31), here[4:] + here[:4]]
        value = chance.choice([value for value in values if value != here])
        with core.damaged((va, value)):
            statuses.append(core.tell(*chance.choice(words)).status)
    # Most of these words nobody reads; of those that are read it is said.
    assert {0, 1, 2} == set(statuses), statuses


def test_counters_where_the_first_address_space_is_locked(tmp_path: Path) -> None:
    """Without an agent: nothing is said of the VMAs that somebody may be changing, and all of it of the counters.

    That this release lacks a commit, too.
    """
    path, place = tmp_path / "whole.core", tmp_path / "qemu"
    place.mkdir()
    with Guest(place, "-M", "virt,memory-backend=ram", "-object", MEMFD) as own:
        own.attach("save", "--full", path).ok()
    core = Core(path, KERNEL_4K / "vmlinux", 1)
    try:
        stats = percpu.per_cpu(core.program["mthp_stats"], 0).stats
        counter = stats[4][core.program.constant("MTHP_STAT_NR_ANON")]
        writes = [(at(counter), word(counter.value_() + 1)), (at(core.mm.mmap_lock.count), word(1))]
        assert core.tell("check").status == 0
        with core.damaged(*writes):
            ended = core.tell("check")
    finally:
        core.close()
        path.unlink()
    said = " ".join(ended.out.split())
    assert ended.status == 1 and "whose VMAs are not known: its mmap_lock is held" in said
    assert re.search(r"L12 .*\(nr_anon\), and there are only \d+ of that order .* upstream has mended: ", said), said
