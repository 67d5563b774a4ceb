# SPDX-License-Identifier: GPL-2.0-only
"""A fault of Linux itself that the kernel's selftest ``migration`` has shown: hugetlb pages count as anonymous folios.

``__folio_migrate_mapping()`` adds one to ``nr_anon`` of its order for what a folio is moved to, and hugetlb's pages are
anonymous and large. Nothing takes it away again: they are counted nowhere else. 7.2 has mended it, and so do the fixes
of our series on the pinned kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from folioscope import Guest
from folioscope.rig import Rig, Wanted

from test_stock_kernel import EACH, MIGRATED, Kernel, kernels, stock, version

# It is QEMU's that has two nodes, and boots any kernel.
pytestmark = pytest.mark.only_machine("tcg")

# Debian's kernels have one node, and move a page that is taken out of use.
SIZES = "/sys/kernel/mm/transparent_hugepage/hugepages"
OFFLINE = "/sys/devices/system/memory/soft_offline_page"


@contextmanager
def alone(rig: Rig, granule: str, *words: str) -> Iterator[Guest]:
    """A guest that nobody else sees, as what it has counted stays."""
    wanted = Wanted(granule, "max", "tcg", ("--memory", "768M", *words))
    try:
        yield rig.guest(wanted)
    finally:
        rig.drop(wanted)


def moves(guest: Guest, size_kib: int, times: int, *, offline: bool) -> set[str]:
    """A hugetlb page is written and moved so often; what is found then."""
    wanted = times + 1 if offline else 2
    assert guest.hugetlb_pages(size_kib, wanted) == wanted
    process = guest.spawn()
    area = process.map_hugetlb(1, size_kib)
    area.write(0, 1)
    view = process.look()
    assert not view.errors and not view.not_judged
    for _ in range(times):
        before = view.output(area.address)
        if offline:
            assert before is not None
            guest.write(OFFLINE, hex(before))
        else:
            area.move_to_node(1 - area.nodes(0, 1)[0], 0, 1)
        view = process.look(check=False)
        assert view.output(area.address) not in (None, before), "the page has not moved"
        assert not view.not_judged
    assert view.rules() <= {"L12"} and area.verify(0, 1).wrong == 0
    process.kill()
    for finding in view.errors:
        (remark,) = finding.remarks
        assert f'upstream has mended: "{MIGRATED.commit}", in 7.2' in remark
    return {finding.message for finding in view.errors}


def counted(times: int, order: int) -> set[str]:
    """What is said of so many."""
    so_many = f"counts {times} anonymous folios of order {order} (nr_anon), and there are only 0 of that order"
    return {f"the kernel {so_many} in all memory: they must be equal"}


@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_hugetlb_pages_that_were_migrated(rig: Rig, granule: str) -> None:
    """On the pinned kernel, which has the fix, none is counted: of a contiguous block's size."""
    # By default the guest's own programs have such folios as well.
    with alone(rig, granule, "--append", "anon_order_policy=sysfs") as guest:
        guest.set_policy("sysfs")
        layout = guest.layout
        order = layout.cont_pages.bit_length() - 1
        assert moves(guest, layout.block // 1024, 3, offline=False) == set()
        assert guest.read(f"{SIZES}-{layout.page << order >> 10}kB/stats/nr_anon") == "0\n"


@pytest.mark.network
@kernels(*EACH)
def test_of_stock_kernels(rig: Rig, kernel: Kernel) -> None:
    """As releases have it: of a PMD's size, 2 MiB or 32 MiB."""
    with alone(rig, kernel.granule, "--kernel", str(stock(kernel))) as guest:
        order = (guest.layout.pmd // guest.layout.page).bit_length() - 1
        faulty = MIGRATED.is_in(version(guest.hello.kernel_release))
        found = moves(guest, guest.layout.pmd // 1024, 2, offline=True)
        assert found == (counted(2, order) if faulty else set())
