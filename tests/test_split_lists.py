"""Folios that wait to be split, where nodes and memory cgroups have lists of them (``struct list_lru``, 7.3): L13."""

from __future__ import annotations

import pytest
from folioscope.rig import Rig, Wanted

from live_pages import FLAGS, word
from test_memcg import charged, made
from test_rules_live import broken
from test_rules_live_counted import NOWHERE, PAGE, PARTIALLY_MAPPED, counted
from test_stock_kernel import EACH, Kernel, kernels, stock


@pytest.mark.network
@kernels(EACH[-1])
def test_lists_of_nodes_and_of_cgroups(rig: Rig, kernel: Kernel) -> None:
    """A folio of the root group and one of another are each on their list; each list is made wrong, and each folio."""
    guest = rig.guest(Wanted(kernel.granule, "max", "tcg", ("--kernel", str(stock(kernel)))))
    guest.reset()
    page, block = guest.layout.page, guest.layout.block
    process = guest.spawn()
    for group in made(guest):
        areas = charged(process, group)
        for area in areas:
            area.madvise("dontneed", 0, 1)
        with process.hold() as held:
            view = held.judge()
            assert not view.errors and not view.not_judged
            queues = counted(guest)["queues"]
            assert not queues["is_scanned"]
            for area, whose in zip(areas, ("node 0", "the memory cgroup with number "), strict=True):
                folio = view.folio(area.address + page)
                whole = view.folio(area.address + block + page)
                assert folio and whole
                head = guest.page(folio.pfn).head
                (queue,) = (queue for queue in queues["queues"] if head in queue["folios"])
                assert queue["whose"].startswith(whose) and queue["length"] == len(queue["folios"])
                length = queue["at"]
                for wrong in (queue["length"] + 1, queue["length"] - 1):
                    assert broken(held, [(length, wrong)]) == [("L13", 0)]
                # The list's head lies before its length, and its first word is `next`.
                first = word(guest, length - 16)
                for wrong in (NOWHERE, first + PAGE):
                    assert broken(held, [(length - 16, wrong)]) == [("L13", 0)]
                second = guest.page(whole.pfn)
                assert second.pfn == second.head + 1
                flags = word(guest, second.at + FLAGS)
                assert not flags & PARTIALLY_MAPPED
                partial = (second.at + FLAGS, flags | PARTIALLY_MAPPED)
                assert broken(held, [partial]) == [("L13", area.address + block)]
        process.exit()
