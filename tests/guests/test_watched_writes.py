# SPDX-License-Identifier: GPL-2.0-only
"""Writes to a range that the guest watches (`PAGEMAP_SCAN`, `UFFD_FEATURE_WP_ASYNC`)."""

from __future__ import annotations

import pytest
from folioscope import Area
from folioscope.client import CommandFailed
from folioscope.process import Process


def pages(area: Area, name: str) -> list[int]:
    """The pages of the area that an operation returns, by their places."""
    page = area.process.guest.layout.page
    found: list[int] = area.process.op(name, address=area.address, length=area.pages * page)["pages"]["pages"]
    return [(at - area.address) // page for at in found]


def test_pages_that_are_there_and_pages_that_are_written(process: Process) -> None:
    """What is not there when the watch begins is not in its answer; what is stored to since is in the next. A page that
    is not there may be, as it is not protected."""
    area = process.blocks(2)
    there = range(area.pages // 2)
    area.write(0, len(there))
    assert pages(area, "watch_writes") == list(there)
    assert not set(there) & set(pages(area, "written_pages"))
    area.read(0, len(there))
    area.write(5, 1)
    area.write(9, 2)
    assert set(there) & set(pages(area, "written_pages")) == {5, 9, 10}
    assert pages(area, "watch_writes") == list(there)
    assert not set(there) & set(pages(area, "written_pages"))


def test_many_runs_of_pages(process: Process) -> None:
    """More of them than one request has."""
    area = process.blocks(16)
    area.write()
    pages(area, "watch_writes")
    written = list(range(0, area.pages, 2))
    assert len(written) > 64
    for at in written:
        area.write(at, 1)
    assert pages(area, "written_pages") == written


def test_a_child_has_no_watch(process: Process) -> None:
    """Nobody protects its pages; the parent's stay as they are."""
    area = process.blocks(1)
    area.write()
    pages(area, "watch_writes")
    child = process.fork()
    theirs = area.in_process(child)
    theirs.write(3, 1)
    assert pages(theirs, "written_pages") == list(range(area.pages))
    assert pages(area, "written_pages") == []


def test_hints_need_numa_balancing(process: Process) -> None:
    """It is off unless a test switches it on."""
    with pytest.raises(CommandFailed, match="numa_balancing is 0: write 1 to it first"):
        process.op("numa_hints")
