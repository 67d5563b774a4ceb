# SPDX-License-Identifier: GPL-2.0-only
"""Folios of Debian's newest kernel, where it keeps of them otherwise than 6.12: L13 and L9.

Those that wait to be split are on lists of nodes and of memory cgroups (``struct list_lru``, 7.3); that each page of a
large folio counts its own entries (6.15) is told by the pages alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Guest
from folioscope.rig import Rig, Wanted

from live_pages import FLAGS, MAPCOUNT, page_of, word
from test_memcg import charged, made
from test_rules_live import broken, errors
from test_rules_live_counted import PARTIALLY_MAPPED, break_queue, counted
from test_stock_kernel import EACH, Kernel, kernels, stock

pytestmark = [pytest.mark.network, kernels(EACH[-1])]


@pytest.fixture
def newest(rig: Rig, kernel: Kernel) -> Iterator[Guest]:
    """A guest of it."""
    guest = rig.guest(Wanted(kernel.granule, "max", "tcg", ("--kernel", str(stock(kernel)))))
    guest.reset()
    yield guest


def test_pages_of_a_folio_count_their_entries(newest: Guest) -> None:
    """A page counts an entry too many; two count each other's, so that the folio's sum is as it was."""
    layout = newest.layout
    process = newest.spawn()
    area = process.blocks(2)
    area.write()
    process.fork()
    area.madvise("dontneed", 0, 1)
    with process.hold() as held:
        view = held.judge()
        assert not view.errors and not view.not_judged
        at = [area.address + n * layout.page for n in (3, 5)]
        pages = [page_of(newest, view, va, layout) for va in at]
        assert {(page.order, page.head) for page in pages} == {(layout.cont_order, pages[0].head)}
        counts = [word(newest, page.at + MAPCOUNT) for page in pages]
        assert [count & 0xFFFF_FFFF for count in counts] == [1, 1]
        pokes = [(page.at + MAPCOUNT, count + by) for page, count, by in zip(pages, counts, (1, -1), strict=True)]
        assert broken(held, pokes[:1]) == [("L9", at[0])]
        assert broken(held, pokes) == [("L9", at[0]), ("L9", at[1])]
    assert errors(process.look(getters=True)) == []


def test_lists_of_nodes_and_of_cgroups(newest: Guest) -> None:
    """A folio of the root group and one of another are each on their list; each list is made wrong, and each folio."""
    guest = newest
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
            # Earlier kernels' root group has a queue as each other.
            root, other = ("node 0", "the memory cgroup with id 1"), ("the memory cgroup with ",)
            for area, whose in zip(areas, (root, other), strict=True):
                folio = view.folio(area.address + page)
                whole = view.folio(area.address + block + page)
                assert folio and whole
                head = guest.page(folio.pfn).head
                (queue,) = (queue for queue in queues["queues"] if head in queue["folios"])
                assert queue["whose"].startswith(whose)
                break_queue(guest, held, queue)
                second = guest.page(whole.pfn)
                assert second.pfn == second.head + 1
                flags = word(guest, second.at + FLAGS)
                assert not flags & PARTIALLY_MAPPED
                partial = (second.at + FLAGS, flags | PARTIALLY_MAPPED)
                assert broken(held, [partial]) == [("L13", area.address + block)]
        process.exit()
