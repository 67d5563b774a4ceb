# SPDX-License-Identifier: GPL-2.0-only
"""The memory cgroup that a folio is charged to, from outside, by what the guest's kernel says: /proc/kpagecgroup."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Guest, Process
from folioscope.rig import Rig, Wanted

from test_rules_live_folios import of_pfn
from test_stock_kernel import EACH, Kernel, kernels, stock
from test_write_faults_pressed import shell

ROOT, GROUPS = "/sys/fs/cgroup", ("outer", "outer/in ner")


def made(guest: Guest) -> Iterator[str]:
    """A memory cgroup within another, and its path; processes are let go of it at the end."""
    shell(guest, f"echo +memory >{ROOT}/cgroup.subtree_control && mkdir -p {ROOT}/{GROUPS[0]}")
    shell(guest, f"echo +memory >{ROOT}/{GROUPS[0]}/cgroup.subtree_control && mkdir -p '{ROOT}/{GROUPS[1]}'")
    yield GROUPS[1]
    move = f"while read p; do echo $p >{ROOT}/cgroup.procs; done <'{ROOT}/{GROUPS[1]}/cgroup.procs'"
    shell(guest, f"{move}; rmdir '{ROOT}/{GROUPS[1]}' {ROOT}/{GROUPS[0]}")


@pytest.fixture
def group(guest: Guest) -> Iterator[str]:
    """As above, in the guest of the test."""
    yield from made(guest)


def charged(process: Process, group: str) -> tuple[Area, Area]:
    """Two areas: one whose pages are charged to where the process was, and one to the group."""
    guest = process.guest
    before, within = process.blocks(2), process.blocks(2)
    before.write()
    shell(guest, f"echo {process.pid} >'{ROOT}/{group}/cgroup.procs'")
    within.write()
    return before, within


def check(process: Process, group: str) -> int:
    """Every page of two areas by all ways there are; gives one page frame of the group."""
    guest = process.guest
    areas = charged(process, group)
    inode = int(guest.run("/bin/busybox", "stat", "-c", "%i", f"{ROOT}/{group}").stdout)
    with process.hold() as held:
        view = held.judge()
        assert not view.errors and not view.not_judged
        for area, path in zip(areas, ("/", f"/{group}"), strict=True):
            for va in range(area.address, area.address + area.length, guest.layout.page):
                kept = view.folio(va)
                assert kept and kept.memcg, hex(va)
                page = guest.page(kept.pfn)
                assert page.memcg == kept.memcg
                assert page.memcg.path == path
                assert page.memcg.inode == of_pfn(guest, "/proc/kpagecgroup", page.pfn)
                assert (page.memcg.inode == inode) == (path != "/") == (page.memcg.css > 1)
    return kept.pfn


def test_memory_cgroups(guest: Guest, process: Process, group: str) -> None:
    """Of pages faulted in before the process came to a group, and of those after."""
    pfn = check(process, group)
    # It stays charged where it was when its process leaves.
    shell(guest, f"echo {process.pid} >{ROOT}/cgroup.procs")
    left = guest.page(pfn).memcg
    assert left and left.path == f"/{group}"


@pytest.mark.network
@kernels(EACH[-1])
def test_on_other_kernels(rig: Rig, kernel: Kernel) -> None:
    """Where a folio is charged by a pointer to its group, and where by one to its group's obj_cgroup (7.x)."""
    guest = rig.guest(Wanted(kernel.granule, "max", "tcg", ("--kernel", str(stock(kernel)))))
    process = guest.spawn()
    for group in made(guest):
        check(process, group)
        process.exit()
