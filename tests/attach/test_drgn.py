# SPDX-License-Identifier: GPL-2.0-only
"""What drgn reads in a core of all of a guest's RAM, against what the rig reads there, and against the guest itself.

drgn (https://github.com/osandov/drgn) shares no code with the rig. Of the pinned kernel it knows by the DWARF of the
vmlinux, which the rig does not read here. Whatever differs is a fault.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from folioscope.rig import Rig

from command import ROOT
from test_stock_kernel import guest_of

# PyPI has it for x86-64 alone.
drgn = pytest.importorskip("drgn", reason="there is no drgn for this host")
import drgn_scene as scenes  # noqa: E402

# Debian's kernels are read by their BTF.
pytestmark = [
    pytest.mark.only_machine("tcg"),
    pytest.mark.parametrize(
        "granule,series",
        [
            ("4k", "pinned"),
            ("16k", "pinned"),
            pytest.param("64k", "pinned", marks=pytest.mark.long),
            pytest.param("4k", "6.12", marks=pytest.mark.network),
            pytest.param("16k", "6.12", marks=[pytest.mark.network, pytest.mark.long]),
            pytest.param("4k", "7", marks=[pytest.mark.network, pytest.mark.long]),
        ],
    ),
]

SCENES: dict[tuple[str, str], Any] = {}


@pytest.fixture
def scene(rig: Rig, granule: str, series: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One for all tests of a kernel."""
    if (granule, series) not in SCENES:
        pinned = series == "pinned"
        guest = guest_of(rig, granule, series)
        process = guest.spawn("drgn")
        vmlinux = ROOT / "out" / f"kernel-{granule}" / "vmlinux" if pinned else None
        place: Path = tmp_path_factory.mktemp("drgn")
        SCENES[granule, series] = scenes.scene_of(guest, process, vmlinux, place)
        guest.reset()
    return SCENES[granule, series]


def test_it_is_a_kernels_core(scene: Any) -> None:
    """drgn takes it for one, with the CPUs that the guest had; what is zero takes no room."""
    program = scene.program
    assert program.flags & drgn.ProgramFlags.IS_LINUX_KERNEL
    assert program["init_uts_ns"].name.release.string_().decode() == scene.release
    online = list(scenes.cpumask.for_each_online_cpu(program))
    assert len(online) == scene.answer["cpus"]
    about = scene.core.stat()
    assert scene.answer["without_vmcoreinfo"] is None and scene.answer["pid"] == scene.pid
    assert about.st_size > scene.answer["ram_bytes"] > 2 * 512 * about.st_blocks


def test_memory_is_that_of_the_instant(scene: Any) -> None:
    """What the process had written, by the address space and by the physical address that our walk gives."""
    found = scenes.mm.access_remote_vm(scene.mm_of(scene.pid), scene.marked, 8)
    assert int.from_bytes(found, "little") == scenes.MARK
    assert scene.program.read_u64(scene.outputs()[scene.marked], physical=True) == scenes.MARK


def test_translations(scene: Any) -> None:
    """Each page of each VMA, and addresses around: mapped where we say, or nowhere."""
    space, page = scene.mm_of(scene.pid), scene.layout.page
    found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) ", scene.smaps, re.M)
    ranges = [(int(start, 16), int(end, 16)) for start, end in found]
    draw = random.Random(7)
    addresses = [va for start, end in ranges for va in range(start - page, end + page, page)]
    addresses += [va + draw.randrange(page) for va in draw.sample(addresses, 200)]
    ours, mapped = scene.outputs(), 0
    for va in addresses:
        theirs, at = scenes.phys(space, va), ours.get(va & -page)
        assert theirs == (None if at is None else at + va % page), hex(va)
        mapped += theirs is not None
    assert mapped > 500 and len(addresses) - mapped > 50


def test_tasks(scene: Any) -> None:
    """Every process and thread: ids, name, start, address space, first table."""
    theirs = scenes.tasks_of(scene.program)
    said = scene.ours("ps")
    ours = {task["pid"]: task | {"threads": sorted(task["threads"])} for task in said["tasks"]}
    assert said["kernel"] == scene.release
    assert ours == theirs
    assert {1, 2, scene.pid} <= set(ours) and len([task for task in ours.values() if task["mm"]]) >= 3


def test_vmas(scene: Any) -> None:
    """Those of every process: range, flags, offset, file; and what is mapped in them, summed up."""
    processes, seen = [task for task in scene.ours("ps")["tasks"] if task["mm"]], 0
    for process in processes:
        said = scene.ours("maps", str(process["pid"]))
        assert said["task"] == process
        space, page = scene.mm_of(process["pid"]), scene.layout.page
        theirs = [scenes.vma_of(vma, page) for vma in scenes.mm.for_each_vma(space)]
        assert [scenes.our_vma(vma) for vma in said["vmas"]] == theirs
        for vma in said["vmas"]:
            pages = range(int(vma["start"], 16), int(vma["end"], 16), page)
            assert vma["mapped"] == page * sum(scenes.phys(space, va) is not None for va in pages), vma
        seen += len(theirs)
    assert len(processes) >= 3 and seen > 30


def test_page_caches(scene: Any) -> None:
    """Of every regular file that a process maps: which it is, and what is in its page cache, in all."""
    page, seen = scene.layout.page, 0
    for process in (task for task in scene.ours("ps")["tasks"] if task["mm"]):
        said = scene.ours("maps", str(process["pid"]))
        theirs = [scenes.cache_of(vma, page) for vma in scenes.mm.for_each_vma(scene.mm_of(process["pid"]))]
        ours = [vma["cache"] and {name: vma["cache"][name] for name in ("mapping", "bytes")} for vma in said["vmas"]]
        assert ours == theirs
        seen += sum(1 for cache in theirs if cache and cache["bytes"] >= page)
    assert seen > 5


def test_folios(scene: Any) -> None:
    """Every page that a process has mapped, and others by lot: folio, order, flags, counts, index; and who maps it."""
    page, mapped = scene.layout.page, defaultdict(list)
    for task in (task for task in scene.ours("ps")["tasks"] if task["mm"]):
        space = scene.mm_of(task["pid"])
        for vma in scenes.mm.for_each_vma(space):
            for va in range(vma.vm_start.value_(), vma.vm_end.value_(), page):
                if (found := scenes.phys(space, va)) is not None:
                    mapped[found // page].append((task["pid"], va))
    first = 0x4000_0000 // page
    draw = random.Random(9)
    pfns = set(mapped) | {first + draw.randrange(scene.answer["ram_bytes"] // page) for _ in range(1000)}
    said = scene.ours("page", ",".join(map(hex, sorted(pfns))))
    assert [frame["pfn"] for frame in said["pages"]] == sorted(pfns) and not said["notes"]
    orders, shared, told = set(), 0, 0
    for frame in said["pages"]:
        ours, theirs = frame["page"], scenes.page_of(scene.program, frame["pfn"])
        assert frame["problem"] is None
        # What either does not tell is not compared; of 6.12 that is what the words of a page that is no folio mean.
        both = [name for name in theirs if theirs[name] is not None and ours[name] is not None]
        assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}
        told += ours["mapcount"] is not None
        # A page without a mapping or an index has none with either.
        without = [name for name in ("mapping", "index") if theirs[name] is None]
        assert all(ours[name] is None for name in without), (ours, theirs)
        assert scenes.bits_of(scene.program, frame["folio_flags"]) == scenes.bits(scene.program, ours["folio_flags"])
        # The second page of a folio has its order where flags begin.
        second = ours["order"] > 0 and frame["pfn"] == ours["head"] + 1
        own = ours["flags"] & ~0xFF if second else ours["flags"]
        assert scenes.bits_of(scene.program, frame["flags"]) == scenes.bits(scene.program, own), frame
        found = [(at["pid"], int(at["va"], 16)) for at in frame["mapped"]]
        assert sorted(found) == sorted(mapped.get(frame["pfn"], []))
        if found:
            orders.add(ours["order"])
        shared += len(found) > 1
    assert len(mapped) > 500 and len(orders) > 2 and shared > 10 and told > 100
    assert scene.release.startswith("7.") or told >= len(mapped)
