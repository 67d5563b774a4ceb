# SPDX-License-Identifier: GPL-2.0-only
"""The queue of folios that wait to be split, which two CPUs work on: one queues and frees, the other scans.

The RFC asks whether freeing has to take the queue's lock. 6.12 takes it for a folio that is queued and for no other;
how often is a table of the laboratory (``locks``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Guest, Layout, Process

from write_faults import THP, look

TURNS = 4
STOP = "/tmp/no-more-scans"


def blocks(layout: Layout) -> int:
    """Folios that are queued, scanned and freed together: fewer than a PMD maps, or a PMD's would take their place."""
    return min(24, layout.pmd // layout.block - 1)


def stats(guest: Guest, *names: str) -> dict[str, int]:
    """Counters of a contiguous block's size."""
    folder = f"{THP}/hugepages-{guest.layout.block >> 10}kB/stats"
    return {name: int(guest.read(f"{folder}/{name}")) for name in names}


@pytest.fixture
def scans(guest: Guest) -> Iterator[None]:
    """CPU 0 runs the shrinkers, that of the queue among them, until the test ends."""
    loop = f"while [ ! -e {STOP} ]; do echo 2 >/proc/sys/vm/drop_caches; done"
    # By a mask: lists of CPUs are an option of busybox.
    run = f"/bin/busybox taskset 1 /bin/busybox sh -c '{loop}; /bin/busybox rm {STOP}'"
    assert guest.run("/bin/busybox", "sh", "-c", f"{run} </dev/null >/dev/null 2>&1 &").status == 0
    yield
    # The loop has gone when the file has.
    waits = f"i=0; while [ -e {STOP} ] && [ $i -lt 20 ]; do /bin/busybox sleep 1; i=$((i+1)); done; [ ! -e {STOP} ]"
    assert guest.run("/bin/busybox", "sh", "-c", f": >{STOP}; {waits}").status == 0


def queued(area: Area, layout: Layout, turn: int) -> None:
    """Each folio loses a page, by which it is queued."""
    area.write(salt=turn)
    for block in range(blocks(layout)):
        area.madvise("dontneed", block * layout.cont_pages + turn % layout.cont_pages, 1)


def check(area: Area, layout: Layout, turn: int) -> None:
    """Nothing but the pages that were given back has changed."""
    lost = turn % layout.cont_pages
    for block in range(blocks(layout)):
        first = block * layout.cont_pages
        for start, end in ((first, first + lost), (first + lost + 1, first + layout.cont_pages)):
            assert start == end or area.verify(start, end - start, salt=turn).wrong == 0


def test_freed_while_it_is_scanned(guest: Guest, scans: None, process: Process, layout: Layout) -> None:
    """Folios are queued and freed on CPU 1 while CPU 0 takes what it finds from the queue and splits it."""
    guest.set_policy("variable")
    process.pin(1)
    counted = stats(guest, "split_deferred", "split", "nr_anon", "nr_anon_partially_mapped")
    for turn in range(TURNS):
        area = process.blocks(blocks(layout))
        queued(area, layout, turn)
        # L13: the queue has large anonymous folios alone, and as many as it counts.
        look(process)
        check(area, layout, turn)
        area.munmap()
    after = stats(guest, *counted)
    changed = {name: after[name] - counted[name] for name in counted}
    # Each folio was queued: one side. Some were split by the scan, the other side; the rest were freed from the queue.
    assert changed["split_deferred"] == TURNS * blocks(layout)
    assert 0 < changed["split"] <= TURNS * blocks(layout)
    assert (changed["nr_anon"], changed["nr_anon_partially_mapped"]) == (0, 0)
    look(process)


def test_what_is_not_queued_is_freed_without_the_queue(guest: Guest, process: Process, layout: Layout) -> None:
    """Whole folios are freed, and none of them is ever queued: the lock is not taken for them."""
    guest.set_policy("variable")
    counted = stats(guest, "split_deferred", "nr_anon")
    area = process.blocks(blocks(layout))
    area.write()
    assert stats(guest, "nr_anon")["nr_anon"] == counted["nr_anon"] + blocks(layout)
    area.munmap()
    assert stats(guest, *counted) == counted
    look(process)
