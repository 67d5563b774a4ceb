# SPDX-License-Identifier: GPL-2.0-only
"""The tour: what every raw entry is after each step, which order was chosen for each fault, and why.

What is expected is written down by hand, once more than in the tour itself: pages in ``tour_expected``, faults in
``tour_orders``.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from folioscope import CommandFailed, Guest, Layout, Session, View

from order_model import NOT_CONSIDERED
from tour_expected import EXPECTED, Case
from tour_orders import ORDERS, Orders
from tour_states import codes, compare

pytestmark = pytest.mark.every_granule

POLICIES = ["sysfs", "baseline", "simple", "variable", "retry", "adaptive"]
# What the policies differ in.
FAULTS = ["anon", "neighbour", "munmap", "mprotect", "dontneed", "fork", "allocfail", "zeropage", "vma", "populate"]
PLAYS = [(name, policy) for name in EXPECTED for policy in (POLICIES if name in FAULTS else ["baseline", "variable"])]
# No step is played twice for the same guest, workload and policy.
Seen = dict[str, tuple[View, list[dict[str, int]]]]
PLAYED: WeakKeyDictionary[Session, dict[tuple[str, str], dict[str, Any]]] = WeakKeyDictionary()


def tour(guest: Guest, name: str, policy: str) -> Seen:
    """One workload of the tour under a policy; no checkpoint may have an error finding."""
    if guest.has_policies and policy not in guest.policies:
        pytest.skip(f"this kernel has no policy {policy}")
    played = PLAYED.setdefault(guest.session, {})
    if (name, policy) not in played:
        played[name, policy] = guest.call("tour", name=name, policy=policy, seconds=120)
    raw = played[name, policy]
    if raw["left_out"]:
        pytest.skip(raw["left_out"])
    assert raw["checkpoints"], f"{name} made no checkpoint"
    seen = {}
    for checkpoint in raw["checkpoints"]:
        view = View(checkpoint["look"], guest.layout)
        assert not view.errors, f"{checkpoint['label']}: {view.errors}"
        assert not view.not_judged, f"{checkpoint['label']}: {view.not_judged}"
        seen[checkpoint["label"]] = (view, checkpoint["areas"])
    return seen


def check_pages(guest: Guest, seen: Seen, name: str, policy: str, cpu: str) -> None:
    """Every page of every area is as it must be, at every checkpoint."""
    words = [entry.word for view, _ in seen.values() for entry in view.entries if entry.level == 3 and entry.word & 1]
    layout = guest.layout
    # With TCR_EL1.DS bits [9:8] are of the address, which is low here; without, Linux says Inner Shareable there.
    lpa2 = layout.granule != "64k" and not any(word >> 8 & 3 for word in words)
    newer = guest.hello.release >= (7,)
    wanted = EXPECTED[name](Case(layout, policy, cpu, lpa2, newer))
    assert list(seen) == list(wanted), "the checkpoints are others than those that were written down"
    wrong = []
    for label, rows in wanted.items():
        view, areas = seen[label]
        assert len(areas) == len(rows), f"{label}: {len(areas)} areas, and {len(rows)} were written down"
        for at, (area, row) in enumerate(zip(areas, rows, strict=True)):
            if why := compare(codes(view, area["address"], area["length"]), row):
                wrong.append(f"{name}/{label}, area {at}: {why}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.every_machine
@pytest.mark.parametrize("name,policy", PLAYS)
def test_pages(guest: Guest, name: str, policy: str, cpu: str) -> None:
    """Every page of every area, under the policies."""
    check_pages(guest, tour(guest, name, policy), name, policy, cpu)


@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("cpu", ["cortex-a72", "neoverse-n1"])
@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize("name", list(EXPECTED))
def test_pages_on_other_cpus(guest: Guest, name: str, cpu: str) -> None:
    """One CPU that leaves AF and dirty state to software, and one that is not ``max`` and updates them."""
    check_pages(guest, tour(guest, name, "variable"), name, "variable", cpu)


@pytest.mark.parametrize("policy", ["baseline", "variable"])
def test_compaction(guest: Guest, layout: Layout, policy: str) -> None:
    """A folio that compaction moved, or left, is folded as it was; one that it split is not.

    The pages of one that it split can have come to lie in a row again, so frames in a row alone ask for nothing.
    """
    view, (area,) = tour(guest, "compact", policy)["compacted"]
    for block in range(area["address"], area["address"] + area["length"], 2 * layout.block):
        frames = [view.output(va) or 0 for va in range(block, block + layout.block, layout.page)]
        whole = frames == list(range(frames[0], frames[0] + layout.block, layout.page)) and not frames[0] % layout.block
        allowed = {shape * layout.cont_pages for shape in ("vc" if whole and policy != "baseline" else "v")}
        assert view.pages(block, layout.block) in allowed


def test_merged_pages_of_an_ended_process_do_not_count(guest: Guest, layout: Layout) -> None:
    """KSM counts them until ksmd comes by, and ksmd may be late."""
    busybox, ksm = "/bin/busybox", "/sys/kernel/mm/ksm"
    # They end by themselves: ksmd is to be late, and not to be kept from what it is waited for.
    spin = "for _ in 1 2 3 4; do timeout 3 sh -c 'while :; do :; done' </dev/null >/dev/null 2>&1 & done"

    def play() -> None:
        played = guest.call("tour", name="ksm", policy="variable", seconds=120)
        views = [View(checkpoint["look"], layout) for checkpoint in played["checkpoints"]]
        assert len(views) == 2 and not any(view.errors for view in views), [view.errors for view in views]

    ksmd = guest.run(busybox, "pidof", "ksmd").stdout.strip()
    play()
    assert [int(guest.read(f"{ksm}/pages_{of}")) for of in ("shared", "sharing")] == [1, 2]
    assert guest.run(busybox, "renice", "-n", "19", "-p", ksmd).status == 0
    try:
        assert guest.run(busybox, "sh", "-c", spin).status == 0
        play()
    finally:
        # It was at 5 (mm/ksm.c, ksm_scan_thread()).
        assert guest.run(busybox, "renice", "-n", "-14", "-p", ksmd).status == 0


def migrated(guest: Guest) -> list[View]:
    """What was seen of a workload that moves two blocks to a node and back: there, back."""
    played = guest.call("tour", name="migrate", policy="variable", seconds=120)
    assert [each["label"] for each in played["checkpoints"]] == ["there", "back"]
    return [View(each["look"], guest.layout) for each in played["checkpoints"]]


@pytest.mark.long
@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("granule", ["64k"])
def test_a_node_without_room_for_a_block(guest: Guest, layout: Layout) -> None:
    """Blocks are split on their way there, and what had to be folded is not judged.

    Of some pages of the node that cannot be moved out of the way every other one is given back, and all blocks that
    there are besides are taken: there is room, and none for a block.
    """
    size = f"hugepages-{layout.block // 1024}kB"
    pool = f"/sys/devices/system/node/node1/hugepages/{size}/nr_hugepages"
    splits = f"/sys/kernel/mm/transparent_hugepage/{size}/stats/split"
    stays = "/proc/sys/vm/compact_unevictable_allowed"
    process, blocks = guest.spawn(), 64
    combed, rest = process.blocks(blocks, hint="nohugepage"), process.blocks(blocks)
    combed.write()
    combed.move_to_node(1)
    combed.mlock()
    assert set(combed.nodes()) == {1}
    rest.write()
    guest.write(stays, "0")
    guest.write(pool, str(1 << 20))
    try:
        for page in range(0, blocks * layout.cont_pages, 2):
            combed.munmap(page, 1)
        before = guest.read(splits)
        for first in range(0, blocks * layout.cont_pages, layout.cont_pages):
            rest.move_to_node(1, first, layout.cont_pages)
            if guest.read(splits) != before:
                break
        else:
            pytest.fail("the node had room for all blocks")
        seen = migrated(guest)
    finally:
        guest.write(pool, "0")
        guest.write(stays, "1")
        process.exit()
    for view in seen:
        assert not view.errors
        assert len(view.not_judged) == 1 and "the guest was short of large folios" in view.not_judged[0]
    assert not any(view.errors or view.not_judged for view in migrated(guest))


@pytest.mark.long
@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("granule", ["64k"])
def test_a_page_that_finds_no_room_on_a_node(guest: Guest, layout: Layout) -> None:
    """One allocation fails, at first before and at last after the pages are moved, on nodes that have room.

    migrate_pages() leaves pages of a split folio behind, and counts them: they are asked for again. A block that is
    split on its way, for nothing, is an error. In the agent's other steps the error says so.
    """
    fail, agent = "/sys/kernel/debug/fail_page_alloc", "/proc/1/make-it-fail"
    knobs = {"times": 0, "task-filter": "Y", "ignore-gfp-wait": "N", "ignore-gfp-highmem": "N", "min-order": 0}
    knobs |= {"verbose": 0, "interval": 1, "probability": 100}
    split = 0

    def left_behind() -> int:
        said = re.search(r"^pgmigrate_fail (\d+)$", guest.read("/proc/vmstat"), re.M)
        assert said
        return int(said[1])

    def injected(said: str) -> bool:
        return "ENOMEM" in said or "ended without an answer" in said

    def play(pages: int) -> int:
        """The workload, with the allocation failing after so many pages; how many pages were left behind on the way."""
        nonlocal split
        try:
            guest.write(f"{fail}/times", "0")
            before = left_behind()
            guest.write(f"{fail}/space", str(pages))
            guest.write(f"{fail}/times", "1")
            there, back = migrated(guest)
            left = left_behind() - before
        except CommandFailed as error:
            assert injected(str(error)), error
            return 0
        assert not back.errors
        for error in there.errors:
            assert "the whole block must have the Contiguous bit" in error.message
            split += 1
        for reason in [*there.not_judged, *back.not_judged]:
            # A fault that had no folio of a block's size is counted.
            assert "the guest was short of large folios" in reason or injected(reason), reason
        return left

    for knob, value in knobs.items():
        guest.write(f"{fail}/{knob}", str(value))
    guest.write(agent, "1")
    try:
        assert max(map(play, range(180, 560, 5))), "no page was ever left behind"
        assert split, "no block was split on its way"
    finally:
        # The first of these may be what fails.
        for _ in range(2):
            with contextlib.suppress(CommandFailed):
                guest.write(agent, "0")
        guest.write(f"{fail}/probability", "0")


@pytest.mark.every_machine
@pytest.mark.parametrize("name,policy", [(name, policy) for name, policy in PLAYS if name in ORDERS])
def test_orders(guest: Guest, layout: Layout, name: str, policy: str) -> None:
    """Every fault: its page, the order that it got, and what became of each other order."""
    seen = tour(guest, name, policy)
    wanted = ORDERS[name](Orders(policy, layout))
    # The ring keeps the last 256 records of a CPU, whosever they are.
    all_kept = sum(map(len, wanted.values())) < 200
    for (label, at), want in wanted.items():
        view, areas = seen[label]
        area = areas[at]
        # Pages count from the block that the area starts in.
        origin = area["address"] // layout.block * layout.block
        found = [
            (
                (record.address - origin) // layout.page,
                record.chosen,
                {order: why for order, why in enumerate(record.reasons) if why != NOT_CONSIDERED},
            )
            for record in view.records
            if area["address"] <= record.address < area["address"] + area["length"]
        ]
        assert found or not want, label
        # What was kept must be the end of what had to happen.
        assert found == want[len(want) - len(found) :], f"{name}/{label}, area {at}"
        assert not all_kept or len(found) == len(want), f"{name}/{label}: records are missing"
