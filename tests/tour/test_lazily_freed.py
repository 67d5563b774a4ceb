# SPDX-License-Identifier: GPL-2.0-only
"""MADV_FREE of large folios: memory pressure frees them whole, and one that was written to since stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Guest, Layout, Process

from test_write_faults_pressed import GROUP, of_a_group, shell
from write_faults import THP, is_folio, look, outputs


@pytest.fixture
def group(guest: Guest) -> Iterator[None]:
    """A memory cgroup without a limit and, as yet, without a process."""
    yield from of_a_group(guest)


def test_pressure_frees_the_folio(guest: Guest, group: None, process: Process, layout: Layout) -> None:
    """What was advised is gone, without a split; what was written to again, and what was not advised, is as it was."""
    n = layout.cont_pages
    stats = f"{THP}/hugepages-{layout.block >> 10}kB/stats"
    shell(guest, f"echo {process.pid} >{GROUP}/cgroup.procs")
    area = process.blocks(3)
    area.write(salt=2)
    heads = [is_folio(area, look(process), block * n, layout.cont_order) for block in range(3)]
    split = guest.read(f"{stats}/split")
    area.madvise("free", 0, 2 * n)
    area.write(n + 3, 1, salt=9)
    # Less is left than was asked for: that fails, and has freed what there was.
    guest.run("/bin/busybox", "sh", "-c", f"echo 64M >{GROUP}/memory.reclaim")
    found = outputs(area, look(process))
    assert found[:n] == [None] * n
    assert found[n:] == [(heads[block] + page) * layout.page for block in (1, 2) for page in range(n)]
    assert guest.read(f"{stats}/split") == split
    freed = guest.page(heads[0])
    # Others may have it by now.
    assert freed.refcount == 0 or (freed.head, freed.order, freed.kind) != (heads[0], layout.cont_order, "anonymous")
    assert area.verify(0, n, zero=True).wrong == 0
    for page in range(n, 3 * n):
        assert area.verify(page, 1, salt=9 if page == n + 3 else 2).wrong == 0
