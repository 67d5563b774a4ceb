# SPDX-License-Identifier: GPL-2.0-only
"""The guest's secondary MMU for tests: a copy of page tables that only MMU notifiers change."""

from __future__ import annotations

from typing import Any

import pytest
from folioscope import Guest
from folioscope.client import CommandFailed
from folioscope.process import Process

pytestmark = pytest.mark.parametrize("granule", ["4k", "16k"])

#: Bits of a user entry of level 3 (Arm ARM D8.3): AP[2] is read-only, DBM lets hardware take that away.
AP_READ_ONLY = 1 << 7
DBM = 1 << 51


def left(process: Process) -> dict[str, Any]:
    """The rest of the copy, compared with the page tables."""
    found: dict[str, Any] = process.op("mirror_verify")["mirrored"]
    return found


def test_notifiers_keep_it_up_to_date(process: Process) -> None:
    """The copy drops the pages that the process unmaps, write-protects or shares by fork(), and no others."""
    area = process.blocks(4)
    area.write()
    process.op("mirror")
    first = left(process)
    assert first["copied"] >= area.pages and (first["dropped"], first["stale"]) == (0, 0)
    area.madvise("dontneed", first=1, pages=2)
    assert (left(process)["dropped"], left(process)["stale"]) == (2, 0)
    area.mprotect(["read"], first=3, pages=4)
    assert (left(process)["dropped"], left(process)["stale"]) == (6, 0)
    process.fork()
    found = left(process)
    assert found["dropped"] >= area.pages and found["stale"] == 0
    process.op("mirror")
    assert left(process)["dropped"] == 0


def test_an_entry_that_changes_without_a_notifier_is_listed(guest: Guest, process: Process) -> None:
    """An entry that is changed from outside: to read-only, and to none."""
    area = process.blocks(1)
    area.write()
    process.op("mirror")
    entry = process.look().entry(area.address)
    assert entry.output_address
    frame = entry.output_address // guest.layout.page
    had = {"pfn": frame, "writable": True}
    for word, now in [
        (entry.word & ~DBM | AP_READ_ONLY, {"pfn": frame, "writable": False}),
        (entry.word & ~1, None),
    ]:
        guest.poke([(entry.address, word)])
        found = left(process)
        guest.poke([(entry.address, entry.word)])
        assert found["stale"] == 1
        assert found["first"] == [{"address": area.address, "copied": had, "now": now}]
    assert left(process)["stale"] == 0


def test_a_child_has_none(process: Process) -> None:
    """The copy is of one address space."""
    process.op("mirror")
    child = process.fork()
    with pytest.raises(CommandFailed, match="no page tables were copied"):
        child.op("mirror_verify")
    child.op("mirror")
    assert left(child)["stale"] == 0
