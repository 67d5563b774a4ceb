# SPDX-License-Identifier: GPL-2.0-only
"""drgn on a guest that runs, over QEMU's own socket (`drgn --qemu`), against what the rig reads of that guest.

It knows a Linux guest by the note that the kernel hands to QEMU's device for that: the kernel needs VMCOREINFO and the
driver of fw_cfg (CONFIG_VMCORE_INFO, CONFIG_FW_CFG_SYSFS), QEMU `-device vmcoreinfo`. Without the device drgn attaches
and sees physical memory, and no kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from own_qemu import KERNEL, LAYOUT, MEMFD, NONCE, Guest

# PyPI has it for x86-64 alone.
drgn = pytest.importorskip("drgn", reason="there is no drgn for this host")
import drgn_scene as scenes  # noqa: E402

pytestmark = [pytest.mark.qemu, pytest.mark.only_machine("tcg")]

ARGUMENTS = ("-M", "virt,memory-backend=ram", "-object", MEMFD)
DEVICE = ("-device", "vmcoreinfo")
BLOCKS = 4
SIZE = f"/sys/kernel/mm/transparent_hugepage/hugepages-{LAYOUT.block >> 10}kB/enabled"
# Where QEMU puts the kernel, in front of which `virt` leaves 2 MiB.
IMAGE = 0x4020_0000


class Live:
    """A guest with a process that waits: what we read of it, then drgn over its socket, which serves one at a time."""

    def __init__(self, own: Guest) -> None:
        # Each size by itself, as a guest with less than 512 MiB has none.
        own.command("write_file", path=SIZE, text="always")
        process = own.command("spawn", name="mine")["spawned"]
        self.pid = process["pid"]
        where = {"isolated": {"offset": 0}}
        length = BLOCKS * LAYOUT.block
        self.area = own.op(process["process"], "mmap", length=length, place=where)["mapped"]["address"]
        own.op(process["process"], "madvise", address=self.area, length=length, advice="hugepage")
        own.op(process["process"], "touch", address=self.area, length=length, access="write", order="forward")
        own.command("checkpoint", process=process["process"], nonce=NONCE, smaps=False)
        self.tasks = self.ours(own, "ps")["tasks"]
        self.maps = self.ours(own, "maps", str(self.pid))
        self.words = {row["va"]: row["word"] for row in own.rows("--pid", str(self.pid)) if row["level"] == 3}
        first = self.output(self.area) // LAYOUT.page
        self.pages = self.ours(own, "page", ",".join(hex(first + at) for at in range(LAYOUT.cont_pages)))["pages"]
        self.program = drgn.Program()
        self.program.set_qemu_qmp(str(own.qmp))
        self.program.load_debug_info([KERNEL / "vmlinux"])

    @staticmethod
    def ours(own: Guest, *words: str) -> Any:
        """A listing of ours, of the guest."""
        return json.loads(own.attach(*words, "--format", "json").ok())

    def output(self, va: int) -> int:
        """Where a page of the process is, by our decoding of its entry."""
        return int(self.words[va] & (1 << 50) - 1 & ~0xFFF)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One for all tests."""
    with Guest(tmp_path_factory.mktemp("drgn-qemu"), *ARGUMENTS, *DEVICE) as own:
        yield Live(own)


def test_it_is_a_live_kernel(live: Live) -> None:
    """drgn knows it for one that runs, of this release, with the CPUs that it has."""
    flags = live.program.flags
    assert flags & drgn.ProgramFlags.IS_LINUX_KERNEL and flags & drgn.ProgramFlags.IS_LIVE
    assert live.program["init_uts_ns"].name.release.string_().decode() == live.maps["kernel"]
    assert len(list(scenes.cpumask.for_each_online_cpu(live.program))) == 2


def test_tasks_of_a_live_guest(live: Live) -> None:
    """Every process that has memory of its own; threads of the kernel come and go."""
    theirs = scenes.tasks_of(live.program)
    ours = {task["pid"]: task | {"threads": sorted(task["threads"])} for task in live.tasks if task["mm"]}
    assert {1, live.pid} <= set(ours)
    assert ours == {pid: task for pid, task in theirs.items() if task["mm"]}


def test_translations_of_a_live_guest(live: Live) -> None:
    """Each page of each VMA of the process that waits."""
    space = scenes.pid.find_task(live.program, live.pid).mm
    mapped = 0
    for vma in live.maps["vmas"]:
        for va in range(int(vma["start"], 16), int(vma["end"], 16), LAYOUT.page):
            theirs = scenes.phys(space, va)
            assert theirs == (live.output(va) if va in live.words else None), hex(va)
            mapped += theirs is not None
    assert mapped >= BLOCKS * LAYOUT.cont_pages


def test_folios_of_a_live_guest(live: Live) -> None:
    """Each page of a folded block, by its struct page as it is now."""
    for frame in live.pages:
        ours, theirs = frame["page"], scenes.page_of(live.program, frame["pfn"])
        both = [name for name in theirs if theirs[name] is not None and ours[name] is not None]
        assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}
    assert {frame["page"]["order"] for frame in live.pages} == {LAYOUT.cont_order}


def test_without_the_device_it_is_no_kernel(tmp_path: Path) -> None:
    """QEMU has no note to give then, and drgn does not look for one in memory."""
    with Guest(tmp_path, *ARGUMENTS) as own:
        program = drgn.Program()
        program.set_qemu_qmp(str(own.qmp))
        assert not program.flags & drgn.ProgramFlags.IS_LINUX_KERNEL
        # The kernel is there all the same: its image's magic (Documentation/arch/arm64/booting.rst).
        assert program.read(IMAGE + 56, 4, physical=True) == b"ARMd"
