# SPDX-License-Identifier: GPL-2.0-only
"""Pages that somebody else takes from a process, and that are another's before the TLBI: rule S5, by the folios.

Reclaim frees pages of a process that runs meanwhile. No register tells when, but a page frame that has another page of
memory in it than when it was taken away was free in between, and the process goes on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from folioscope import Area, Guest
from folioscope.rig import Rig, Wanted
from folioscope.trace import Trace

from command import OUT
from kernel_edits import edit, nothing, symbols, tlbi
from recorder import plugin
from test_write_faults_pressed import shell

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin")]
__all__ = ["plugin"]

KERNEL = OUT / "kernel-4k"
GROUP = "/sys/fs/cgroup/given"
SWAP = "/dev/zram0"
PAGES = 64
# What the other writes to: more page frames than lie on the lists of a CPU's free pages.
OTHERS = 4096


def reclaimed(guest: Guest) -> tuple[Area, Trace]:
    """Pages of a process are swapped out by a shell, another process gets their frames, and the first goes on."""
    guest.set_policy("baseline")
    guest.write("/sys/block/zram0/disksize", str(32 << 20))
    guest.swap_on(SWAP)
    shell(guest, f"echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir -p {GROUP}")
    # What is freed on a CPU is given out there first, and then the smallest blocks.
    victim, neighbour, other = guest.spawn(cpu=1), guest.spawn(cpu=1), guest.spawn(cpu=0)
    shell(guest, f"echo {victim.pid} >{GROUP}/cgroup.procs")
    area, beside = (process.map(PAGES * guest.layout.page) for process in (victim, neighbour))
    for page in range(PAGES):
        # So that they are no larger block when they are free.
        area.write(page, 1)
        beside.write(page, 1)
    # A policy does not keep PMDs from being tried, and their blocks are not what was freed.
    taken = other.map(OTHERS * guest.layout.page, hint="nohugepage")
    kept = victim.map(guest.layout.page)
    # Reclaim has a TLBI where it makes a page old. So all are old before, for TLBs too (4), and it has run since.
    for what in "14":
        guest.write(f"/proc/{victim.pid}/clear_refs", what)
    kept.write()
    with guest.recording() as trace:
        # It writes as much as it can, and says where it could not write all.
        line = f"echo {PAGES * guest.layout.page} >{GROUP}/memory.reclaim"
        guest.run("/bin/busybox", "taskset", "1", "/bin/busybox", "sh", "-c", line)
        taken.write()
        kept.write()
    gone = victim.look().pages(area).count(".")
    assert gone > PAGES // 2, "few pages were swapped out"
    return area, trace


def test_a_page_is_reclaimed(rig: Rig) -> None:
    """A kernel that does its TLBIs before it frees: nothing."""
    wanted = Wanted("4k", "max", "tcg", ("--record",))
    try:
        _, trace = reclaimed(rig.guest(wanted))
        assert trace.findings == () and trace.total == 0 and trace.not_judged == ()
    finally:
        rig.drop(wanted)


@pytest.mark.long
def test_a_page_is_reclaimed_without_its_tlbi(rig: Rig, tmp_path: Path) -> None:
    """One that leaves them out: its pages are found at the other's addresses, and by whom they were taken away."""
    names = {name for _, name in symbols(KERNEL.resolve() / "vmlinux")}
    # What the compiler makes of a static function is its own affair.
    where = "set_tlb_ubc_flush_pending" if "set_tlb_ubc_flush_pending" in names else "try_to_unmap_one"
    image = tmp_path / "Image"
    assert edit(KERNEL.resolve(), where, tlbi, nothing, image)
    wanted = Wanted("4k", "max", "tcg", ("--kernel", str(image), "--vmlinux", str(KERNEL / "vmlinux"), "--record"))
    try:
        area, trace = reclaimed(rig.guest(wanted))
        found = [each for each in trace.findings if each.rule == "S5"]
        assert found, trace.findings
        # The rest is its stack. A place in the code is told once.
        assert sum(each.count for each in found) > PAGES // 2
        vmas = area.process.vmas()
        for each in found:
            assert [vma.permissions for vma in vmas if vma.start <= each.va < vma.end] == ["rw-p"]
            assert "is another's now: no TLBI came" in each.sentence
            assert any(caller.startswith("handle_mm_fault+") for caller in each.made.callers)
            assert each.old_folio and (each.old_folio.order, each.old_folio.kind) == (0, "anonymous")
        # What is swapped in again at its own address is S2.
        for each in trace.findings:
            assert each.rule in {"S2", "S5"}
            assert each.broken and any(caller.startswith("try_to_unmap") for caller in each.broken.callers), each
    finally:
        rig.drop(wanted)
