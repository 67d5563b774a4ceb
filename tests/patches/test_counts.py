# SPDX-License-Identifier: GPL-2.0-only
"""What the patched kernel counts of its decisions, held against what is done in a guest and what its records say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Area, Counts, Decision, Guest, Layout, Process

pytestmark = pytest.mark.every_granule

DIRECTORY = "/sys/kernel/mm/transparent_hugepage/anon_order"


@pytest.fixture(autouse=True)
def counting(guest: Guest) -> Iterator[None]:
    """A kernel that counts; blocks too, which the agent has not asked for."""
    if "contpte" not in guest.run("/bin/busybox", "ls", DIRECTORY).stdout.split():
        pytest.skip("this kernel counts no contiguous blocks")
    guest.write(f"{DIRECTORY}/contpte", "1")
    yield
    guest.write(f"{DIRECTORY}/contpte", "0")


def faulted(guest: Guest, area: Area) -> dict[Decision, int]:
    """What is counted while an area is written."""
    before = guest.counts()
    area.write()
    orders = guest.counts().since(before).orders
    assert orders is not None
    return dict(orders)


def test_more_is_counted_than_recorded(guest: Guest, process: Process, layout: Layout) -> None:
    """Single pages, which no counter of the kernel's own counts, and more of them than a ring has records."""
    guest.set_policy("baseline")
    pages = 700
    area = process.map(pages * layout.page, hint="nohugepage")
    counted = faulted(guest, area)
    single = Decision("baseline", "anonymous", 0, "chosen")
    # The agent has faults of its own.
    assert pages <= counted.pop(single) < pages + 100
    assert not counted
    recorded = [record for record in process.look().records if record.tgid == process.pid]
    assert recorded and {record.chosen for record in recorded} == {0}
    assert len(recorded) < pages


def test_each_reason_has_its_count(guest: Guest, process: Process, layout: Layout) -> None:
    """What did not fit, what could not be allocated: once for each fault, whatever others do meanwhile."""
    guest.set_policy("simple")
    order = layout.hinted_order
    across = process.map(layout.block, offset=layout.page)
    counted = faulted(guest, across)
    # It lies in two blocks; the page at the end alone is in the second.
    assert counted[Decision("simple", "anonymous", 0, "crosses-start")] >= layout.cont_pages - 1
    assert counted[Decision("simple", "anonymous", 0, "crosses-end")] >= 1

    guest.set_policy("retry")
    failing = process.blocks(2)
    process.fail_allocations(order)
    counted = faulted(guest, failing)
    process.allow_allocations()
    # Twice in each block: the lower half, then the upper one, whose block is populated.
    assert counted[Decision("retry", "anonymous", order - 1, "allocation-failed")] == 2
    assert counted[Decision("retry", "anonymous", order - 1, "overlap")] >= 2


def blocks(before: Counts, after: Counts) -> dict[str, int]:
    """What became of blocks, but what the agent's own faults can be."""
    contpte = after.since(before).contpte
    assert contpte is not None
    return {event: count for event, count in contpte.items() if event not in ("refused-folio", "refused-frames")}


def test_what_becomes_of_blocks(guest: Guest, process: Process, layout: Layout) -> None:
    """Set, unfolded by whom, folded again, refused and why; the tables are as the counts say."""
    guest.set_policy("variable")
    area = process.blocks(3)
    part = process.map(layout.block, offset=layout.page)
    before = guest.counts()
    area.write()
    part.write()
    # Nothing of the agent's own becomes contiguous from here on.
    guest.set_policy("baseline")
    done = blocks(before, guest.counts())
    assert done["set"] >= 3 and done["refused-part"] >= 1
    assert process.look().pattern(area) == "CCC"

    def did(**wanted: int) -> str:
        """What was done since the last time, and no more; who had blocks unfolded."""
        nonlocal before
        before, then = guest.counts(), before
        assert blocks(then, before) == {event.replace("_", "-"): count for event, count in wanted.items()}
        return " ".join(caller or "" for caller in before.since(then).unfolds or {})

    before = guest.counts()
    area.madvise("dontneed", 1, 1)
    assert did(unfold=1).startswith(("zap_", "unmap_page_range", "__zap_vma_range"))
    area.mprotect(["read"], 0, layout.cont_pages)
    if guest.hello.release < (7,):
        # The hole is found when the last entry is set.
        assert did(refused_hole=1) == ""
    else:
        # Newer kernels set what lies behind the hole at once.
        assert did(refused_part=1) == ""
    last = 2 * layout.cont_pages - 1
    area.mprotect(["read"], last, 1)
    caller = did(unfold=1, refused_attrs=1)
    assert caller.startswith(("ptep_modify_prot_start", "modify_prot_start_ptes")), caller
    area.mprotect(["read", "write"], last, 1)
    did(fold=1)
    assert process.look().pattern(area) == "pCC"


def test_blocks_that_are_not_counted(guest: Guest, process: Process) -> None:
    """Off they stay as they were, and say so; on again they begin at 0."""
    area = process.blocks(2)
    area.write()
    area.madvise("dontneed", 1, 1)
    assert guest.call("counts")["contpte"]["on"]
    guest.write(f"{DIRECTORY}/contpte", "0")
    before = guest.counts()
    assert before.contpte is not None and before.contpte["unfold"] >= 1
    area.madvise("dontneed", area.pages - 2, 1)
    assert guest.counts() == before
    assert not guest.call("counts")["contpte"]["on"]
    guest.write(f"{DIRECTORY}/contpte", "1")
    again = guest.counts()
    assert again.contpte is not None and again.contpte["unfold"] == 0 and not again.unfolds
