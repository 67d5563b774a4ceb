# SPDX-License-Identifier: GPL-2.0-only
"""Slots in swap on a kernel that counts them in the tables of clusters (7.1 and later): L16, on Debian's newest.

It has a RAM disk as a module, which is loaded from the guest's initramfs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folioscope import Area, Guest
from folioscope.rig import Rig, Wanted

from command import OUT, ROOT
from live_pages import word
from test_rules_live import broken, errors
from test_rules_live_counted import SWAP
from test_stock_kernel import FETCH_SECONDS, Kernel, stock

pytestmark = [pytest.mark.network, pytest.mark.only_machine("tcg")]

MODULE = "brd"
KIB = 64 << 10
#: ``SWP_TB_COUNT_SHIFT`` of arm64, and ``SWP_TB_BAD``: an area's header is no slot.
COUNT_SHIFT = 60
BAD = (1 << 64) - 8


def initramfs(place: Path) -> Path:
    """The rig's own with the module behind it: the kernel unpacks one archive after the other."""
    line = [str(ROOT / "vmm/setup/stock.sh"), "4k", "7", MODULE]
    module = subprocess.run(line, check=True, capture_output=True, text=True, timeout=FETCH_SECONDS).stdout.strip()
    archive, own = ["cpio", "--create", "--format=newc", "--quiet"], Path(module)
    name = f"{own.name}\n".encode()
    more = subprocess.run(archive, check=True, capture_output=True, input=name, cwd=own.parent).stdout
    whole = (OUT / "initramfs.cpio").read_bytes()
    both = place / "initramfs.cpio"
    both.write_bytes(whole + bytes(-len(whole) % 4) + more)
    return both


@pytest.fixture(scope="module")
def swapping(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest with a RAM disk for swap."""
    more = ("--kernel", str(stock(Kernel("4k", "7"))), "--initrd", str(initramfs(tmp_path_factory.mktemp("brd"))))
    wanted = Wanted("4k", "max", "tcg", more)
    guest = rig.guest(wanted)
    guest.reset()
    loaded = guest.run("/bin/busybox", "insmod", f"/{MODULE}.ko", "rd_nr=1", f"rd_size={KIB}")
    assert loaded.status == 0, loaded
    guest.swap_on(SWAP)
    yield guest
    rig.drop(wanted)


@pytest.fixture
def swapped(swapping: Guest) -> Iterator[tuple[Area, Area]]:
    """A block of which parent and child have each page in swap, and as much of a file in memory."""
    process = swapping.spawn("swapped")
    own, shared = process.blocks(1, hint="nohugepage"), process.blocks(1, flags=["shared"])
    for area in (own, shared):
        area.write(salt=1)
        area.swap_out()
    child = process.fork()
    yield own, shared
    child.kill()
    process.kill()


def swap_of(guest: Guest) -> dict[str, Any]:
    """What is known of swap."""
    found: dict[str, Any] = guest.call("counted")["counted"]["swap"]["Ok"]
    return found


def test_slots_of_processes_and_of_files(swapping: Guest, swapped: tuple[Area, Area]) -> None:
    """Each slot is counted as often as entries and files have it, also when it is in the swap cache as well."""
    own, shared = swapped
    pages = swapping.layout.cont_pages
    assert errors(own.process.look()) == []
    swap = swap_of(swapping)
    (area,) = swap["areas"]
    counts = {run["count"]: run["slots"] for run in area["counted"]}
    # The first is the area's header.
    assert counts == {None: 1, 2: pages, 1: pages}
    assert sum(count for _, _, count in swap["shmem"]) == pages
    own.read(0, 3)
    shared.read(4, 2)
    view = own.process.look()
    assert errors(view) == [] and not any("L16" in why for why in view.not_judged)
    assert sum(count for _, _, count in swap_of(swapping)["shmem"]) == pages - 2


def test_l16_tables_of_clusters(swapping: Guest, swapped: tuple[Area, Area]) -> None:
    """A slot of two entries, and one of a file, are counted once too often, once too rarely, and not at all."""
    own, _ = swapped
    with own.process.hold() as held:
        (area,) = swap_of(swapping)["areas"]
        assert word(swapping, area["at"]) == BAD and area["counted"][0]["first"] == 0
        for count in (2, 1):
            run = next(run for run in area["counted"] if run["count"] == count)
            at = area["at"] + 8 * run["first"]
            now = word(swapping, at)
            assert now >> COUNT_SHIFT == count
            for wrong in {0, 1, 2, 3} - {count}:
                poked = now & (1 << COUNT_SHIFT) - 1 | wrong << COUNT_SHIFT
                assert broken(held, [(at, poked)]) == [("L16", 0)], (count, wrong)
