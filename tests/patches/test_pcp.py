# SPDX-License-Identifier: GPL-2.0-only
"""The lists of free pages that each CPU keeps, read from memory: which orders are kept under each setting of
``percpu_pagelist_high_order``, how many, which page frames come back, and that counts are what the lists have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from folioscope import Area, CommandFailed, Guest, Layout, Process

from test_rules_live import broken
from test_rules_live_counted import word, zones

SETTING = "/proc/sys/vm/percpu_pagelist_high_order"
FRACTION = "/proc/sys/vm/percpu_pagelist_high_fraction"
#: Seconds after which a CPU sees to the pages that it keeps of other nodes.
INTERVAL = "/proc/sys/vm/stat_interval"
#: Brings the counts of all CPUs together now.
REFRESH = "/proc/sys/vm/stat_refresh"
THP = "/sys/kernel/mm/transparent_hugepage"
#: The settings, by name.
DEFAULT, NONE, ALL, LIMIT = range(4)
SETTINGS = {"default": DEFAULT, "none": NONE, "all": ALL, "limit": LIMIT}
#: Orders up to it have lists on any kernel (PAGE_ALLOC_COSTLY_ORDER).
COSTLY = 3
#: Migrate types that have lists of their own (MIGRATE_PCPTYPES).
TYPES = 3


@pytest.fixture(autouse=True)
def fixed(guest: Guest) -> Iterator[None]:
    """Lists whose room is fixed, at an eighth of the memory: not tuned by what was before, and not drained in between.

    Those of another node are drained when they were left alone for three intervals. The kernel looks at the interval
    when one ends: a long one would leave it without counts to go by long after, and compaction waits for these.
    """
    assert guest.read(SETTING) == "0\n"
    interval = guest.read(INTERVAL).strip()
    guest.write(INTERVAL, "10")
    guest.write(FRACTION, "8")
    yield
    guest.write(SETTING, "0")
    guest.write(FRACTION, "0")
    guest.write(INTERVAL, interval)
    guest.write(REFRESH, "1")


def select(guest: Guest, setting: int) -> None:
    """Chooses a setting; nothing is left on a list of what was there, as each change drains them."""
    guest.write(SETTING, str(NONE if setting != NONE else ALL))
    guest.write(SETTING, str(setting))


def kept(guest: Guest, cpu: int) -> list[dict[str, Any]]:
    """What a CPU keeps of each zone, as there is one for each node; counts agree with lists, order by order where each
    is counted: while the setting is not 0."""
    parts: list[dict[str, Any]] = [zone["cpus"][cpu]["Ok"] for zone in zones(guest)]
    by_order = guest.read(SETTING) != "0\n"
    for part in parts:
        assert part["problem"] is None
        assert part["counted"] == part["listed"] == sum(1 << order for _, order in part["blocks"])
        assert bool(part["orders"]) == by_order
        assert not by_order or part["counted"] == sum(of["counted"] for of in part["orders"])
        for of in part["orders"]:
            blocks = [pfn for pfn, order in part["blocks"] if order == of["order"]]
            assert of["counted"] == of["listed"] == len(blocks) << of["order"]
    return parts


def limited(guest: Guest, layout: Layout, cpu: int) -> int:
    """Pages that a CPU keeps of all orders that the limit is for, in the zone of which it keeps most."""
    wanted = {1, 2, COSTLY, layout.cont_order}
    return max(sum(of["counted"] for of in part["orders"] if of["order"] in wanted) for part in kept(guest, cpu))


def listed(guest: Guest, cpu: int, order: int) -> list[int]:
    """The page frames of an order that a CPU keeps."""
    return [pfn for part in kept(guest, cpu) for pfn, of in part["blocks"] if of == order]


def batch(guest: Guest) -> int:
    """``pcp->batch``, as the kernel says it."""
    found = {int(line.split()[1]) for line in guest.read("/proc/zoneinfo").splitlines() if line.split()[0] == "batch:"}
    return max(found)


def limit(guest: Guest, layout: Layout) -> int:
    """Pages that the limit allows: four batches, but two contiguous blocks."""
    return max(4 * batch(guest), 2 << layout.cont_order)


def folios(process: Process, order: int, count: int, cpu: int) -> Area:
    """Written on a CPU, in folios of an order that are mapped whole."""
    size = process.guest.layout.page << order
    process.guest.set_policy("sysfs")
    process.guest.write(f"{THP}/hugepages-{size >> 10}kB/enabled", "always")
    area = process.map(count * size, hint=None)
    process.pin(cpu)
    area.write(salt=cpu)
    return area


def frames(area: Area, order: int) -> list[int]:
    """The first page frame of each folio, in the order of addresses."""
    view = area.process.look()
    assert not view.errors and not view.not_judged
    page = area.process.guest.layout.page
    outputs = {entry.va: entry.output_address for entry in view.entries}
    pfns = [(outputs[va] or 0) // page for va in range(area.address, area.address + area.length, page << order)]
    assert all(area.process.guest.page(pfn).order == order for pfn in pfns)
    return pfns


def order_of(kind: str, layout: Layout) -> int:
    """Folios of an order that has had lists since 5.13, or that fill a contiguous block."""
    return layout.cont_order if kind == "block" else 2


def in_a_row(guest: Guest, order: int) -> int:
    """So many folios that freeing them has been freeing in bulk for a while when it ends."""
    return max(batch(guest), 2 << order) // (1 << order) + 3


def test_lists_are_those_of_this_kernel(guest: Guest, layout: Layout) -> None:
    """Orders 0 to 3, a contiguous block's, and that of a folio that a table of level 2 maps."""
    select(guest, ALL)
    of_a_pmd = (layout.pmd // layout.page).bit_length() - 1
    for part in kept(guest, 0):
        assert [of["order"] for of in part["orders"]] == [0, 1, 2, COSTLY, layout.cont_order, of_a_pmd]


@pytest.mark.parametrize("kind", ["two", "block"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_allocated_on_one_freed_on_another(
    guest: Guest, process: Process, layout: Layout, setting: str, kind: str
) -> None:
    """What is on the lists of the CPU that has freed: all, nothing, or nothing as it was too much in a row."""
    order = order_of(kind, layout)
    select(guest, SETTINGS[setting])
    count = in_a_row(guest, order)
    area = folios(process, order, count, cpu=0)
    assert area.verify(salt=0).wrong == 0
    pfns = frames(area, order)
    process.pin(1)
    # One is none too many.
    area.part(0, 1 << order).munmap()
    keeps = setting in ("all", "limit") or (setting == "default" and kind == "two")
    assert (pfns[0] in listed(guest, 1, order)) == keeps
    area.part(1 << order).munmap()
    freed = {cpu: set(listed(guest, cpu, order)) & set(pfns) for cpu in (0, 1)}
    whole = {"default": kind == "two", "none": False, "all": True, "limit": False}[setting]
    assert freed == {0: set(), 1: set(pfns) if whole else set()}
    if setting == "none":
        assert not any(order for cpu in (0, 1) for part in kept(guest, cpu) for _, order in part["blocks"])
    if setting == "default":
        assert not listed(guest, 0, layout.cont_order) and not listed(guest, 1, layout.cont_order)
    assert not process.look().errors


@pytest.mark.parametrize("kind", ["two", "block"])
def test_frames_come_back_last_first(guest: Guest, process: Process, layout: Layout, kind: str) -> None:
    """What one CPU has freed it gets again, the newest first; another CPU does not."""
    order = order_of(kind, layout)
    select(guest, ALL)
    area = folios(process, order, 4, cpu=0)
    pfns = frames(area, order)
    process.pin(1)
    area.munmap()
    elsewhere = folios(process, order, 4, cpu=0)
    assert not set(frames(elsewhere, order)) & set(pfns)
    again = folios(process, order, 4, cpu=1)
    assert frames(again, order) == pfns[::-1]
    assert again.verify(salt=1).wrong == 0 and elsewhere.verify(salt=0).wrong == 0
    # Where none is kept there is nothing to come back.
    select(guest, NONE)
    process.pin(1)
    again.munmap()
    assert not listed(guest, 1, order)


def used(guest: Guest, process: Process, layout: Layout, setting: int) -> int:
    """How many page frames serve to allocate four blocks on one CPU and to free them on another, three times."""
    select(guest, setting)
    seen: set[int] = set()
    for _ in range(3):
        area = folios(process, layout.cont_order, 4, cpu=0)
        seen |= set(frames(area, layout.cont_order))
        process.pin(1)
        area.munmap()
    return len(seen)


def test_frames_are_used_again_under_the_limit(guest: Guest, process: Process, layout: Layout) -> None:
    """Without a limit the CPU that frees keeps them all, and the other one gets colder ones each time."""
    assert used(guest, process, layout, ALL) == 12
    assert used(guest, process, layout, LIMIT) < 12
    assert used(guest, process, layout, NONE) < 12


@pytest.mark.parametrize("setting", ["all", "limit"])
def test_the_limit_is_kept(guest: Guest, process: Process, layout: Layout, setting: str) -> None:
    """A CPU that allocates between two frees never frees in bulk: there is a bound all the same."""
    select(guest, SETTINGS[setting])
    most = limit(guest, layout)
    count = most // layout.cont_pages + 3
    area = folios(process, layout.cont_order, count, cpu=0)
    process.pin(1)
    # Each page that is allocated halves what counts as freed in a row.
    small = process.map(16 * count * layout.page, hint="nohugepage")
    reached = 0
    for block in range(count):
        area.madvise("dontneed", block * layout.cont_pages, layout.cont_pages)
        small.write(16 * block, 16)
        now = limited(guest, layout, 1)
        reached = max(reached, now)
        if setting == "limit":
            assert now <= most
    # One block more would have been too much; without a limit there was room for all.
    least = most - layout.cont_pages if setting == "limit" else (count - 1) * layout.cont_pages
    assert reached > least
    # Nor does a list that is filled from the buddy allocator add more than there is room for.
    folios(process, 2, 1, cpu=1)
    assert setting == "all" or limited(guest, layout, 1) <= most
    assert small.verify(0, 16 * count).wrong == 0
    assert not process.look().errors


def test_a_list_is_filled_up_to_the_limit_at_most(guest: Guest, process: Process, layout: Layout) -> None:
    """An allocation takes several from the buddy allocator at once, and leaves no more than is allowed."""
    most = limit(guest, layout)
    for order in (2, layout.cont_order):
        select(guest, LIMIT)
        left = []
        for _ in range(3):
            area = folios(process, order, 1, cpu=1)
            left.append(limited(guest, layout, 1))
        # With a small batch the third takes the last of what came with the first; one of a page brings them one by one.
        assert 0 < max(left) <= most or (batch(guest) == 1 and left == [0, 0, 0])
        pfns = frames(area, order)
        area.munmap()
        assert set(pfns) <= set(listed(guest, 1, order))


def test_orders_are_counted_from_when_the_setting_is_not_0(guest: Guest, process: Process, layout: Layout) -> None:
    """What was on the lists before is counted, and what comes and goes while the setting changes."""
    process.map(4 * layout.page, hint="nohugepage").write()
    assert not any(part["orders"] for cpu in (0, 1) for part in kept(guest, cpu))
    # Each process brings and takes pages of several orders, on either CPU.
    busy = "for j in 1 2 3; do (: | :) & done"
    lines = f"i=0; while [ $i -lt 20 ]; do {busy}; echo 2 >{SETTING}; {busy}; echo 0 >{SETTING}; i=$((i+1)); done"
    ran = guest.run("/bin/busybox", "sh", "-c", f"{lines}; {busy}; echo 2 >{SETTING}; wait")
    assert ran.status == 0, ran
    assert any(of["counted"] for cpu in (0, 1) for part in kept(guest, cpu) for of in part["orders"])
    guest.write(SETTING, "0")
    assert not any(part["orders"] for cpu in (0, 1) for part in kept(guest, cpu))


def test_settings_that_there_are(guest: Guest) -> None:
    """Four, each of which reads as it was written; anything else is refused and changes nothing."""
    for setting in (LIMIT, ALL, NONE, DEFAULT):
        guest.write(SETTING, str(setting))
        assert guest.read(SETTING) == f"{setting}\n"
    for wrong in ("4", "-1", "limit"):
        with pytest.raises(CommandFailed) as refused:
            guest.write(SETTING, wrong)
        assert refused.value.errno == "EINVAL"
    assert guest.read(SETTING) == "0\n"


def test_l14_orders_of_cpus(guest: Guest, process: Process, layout: Layout) -> None:
    """A block is charged to another order: the sum is right, and L14 says of which orders the counts are not."""
    select(guest, ALL)
    area = folios(process, layout.cont_order, 2, cpu=0)
    process.pin(1)
    area.munmap()
    paged = process.map(4 * layout.page, hint="nohugepage")
    paged.write()
    with process.hold() as held:
        found = max(kept(guest, 1), key=lambda part: int(part["counted"]))
        at = {of["order"]: of["at"] for of in found["orders"]}
        assert any(of["order"] == layout.cont_order and of["counted"] for of in found["orders"])
        start, end = min(at.values()), max(at.values()) + 4
        first = start - start % 8
        words = [word(guest, address) for address in range(first, end, 8)]
        raw = bytearray(b"".join(each.to_bytes(8, "little") for each in words))
        for order, change in ((layout.cont_order, -layout.cont_pages), (COSTLY, layout.cont_pages)):
            place = slice(at[order] - first, at[order] - first + 4)
            raw[place] = (int.from_bytes(raw[place], "little") + change).to_bytes(4, "little")
        pokes = [(first + place, int.from_bytes(raw[place : place + 8], "little")) for place in range(0, len(raw), 8)]
        changed = [poke for poke, old in zip(pokes, words, strict=True) if poke[1] != old]
        # A sentence for the order that has lost a block, and one for that which has gained it; none for the sum.
        assert broken(held, changed) == [("L14", 0)] * 2


def least_room(guest: Guest) -> int:
    """``pcp->high_min`` of the zone that has most of it: its low watermark over the CPUs of its node, or four batches
    where that is more (zone_highsize())."""
    node, rooms = 0, [4 * batch(guest)]
    for line in guest.read("/proc/zoneinfo").splitlines():
        words = line.replace(",", "").split()
        if words[0] == "Node":
            node = int(words[1])
        elif words[0] == "low":
            # "0-1", or nothing: then it is all of the two.
            cpus = guest.read(f"/sys/devices/system/node/node{node}/cpulist").strip()
            rooms.append(int(words[1]) // (1 if cpus.isdigit() else 2))
    return max(rooms)


def test_the_refresh_of_counts_drains_what_is_too_much(guest: Guest, process: Process, layout: Layout) -> None:
    """Where the room is tuned by the kernel, what a CPU has freed beyond the least room goes back in time."""
    guest.write(FRACTION, "0")
    select(guest, ALL)
    least = least_room(guest)
    count = 2 * least // layout.cont_pages + 4
    # Who allocates gets more room than the least (nr_pcp_alloc()), whatever the CPU did in the tests before.
    folios(process, layout.cont_order, count, cpu=1).munmap()
    area = folios(process, layout.cont_order, count, cpu=0)
    pfns = set(frames(area, layout.cont_order))
    process.pin(1)
    area.munmap()
    before = max(part["counted"] for part in kept(guest, 1))
    assert before > least and pfns & set(listed(guest, 1, layout.cont_order))
    now = before
    for _ in range(64):
        guest.write(REFRESH, "1")
        now = max(part["counted"] for part in kept(guest, 1))
        if now <= least:
            break
    assert now <= least < before
    assert not process.look().errors
