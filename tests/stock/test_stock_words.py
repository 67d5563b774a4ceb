# SPDX-License-Identifier: GPL-2.0-only
"""What is said of processes, VMAs, the kernel half and histories on kernels without our patches.

These have no record, and structures of their own release.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Guest, Process
from folioscope.rig import Rig, Wanted

from test_diff_evidence import (
    single,
    test_a_block_that_a_fault_brought,
    test_a_file_that_is_mapped_elsewhere,
    test_a_mapping_in_the_place_of_another,
    test_copies_whose_sharer_is_gone,
    test_small_pages_where_a_block_was,
    test_what_was_dropped_beside_a_sharer,
    uncollapsed,
)
from test_listing import (
    test_folio,
    test_kernel_map,
    test_tasks,
    test_tasks_that_ended_and_threads_of_the_kernel,
    test_vmas,
    test_vmas_of_files,
)
from test_stock_kernel import Kernel, stock

__all__ = [
    "single",
    "test_a_block_that_a_fault_brought",
    "test_a_file_that_is_mapped_elsewhere",
    "test_a_mapping_in_the_place_of_another",
    "test_copies_whose_sharer_is_gone",
    "test_folio",
    "test_kernel_map",
    "test_small_pages_where_a_block_was",
    "test_tasks",
    "test_tasks_that_ended_and_threads_of_the_kernel",
    "test_vmas",
    "test_vmas_of_files",
    "test_what_was_dropped_beside_a_sharer",
    "uncollapsed",
]
pytestmark = [
    pytest.mark.only_machine("tcg"),
    pytest.mark.network,
    pytest.mark.long,
    pytest.mark.parametrize("granule, series", [("4k", "6.18"), ("4k", "7")]),
]


@pytest.fixture
def guest(rig: Rig, granule: str, series: str) -> Guest:
    """One with that kernel."""
    guest = rig.guest(Wanted(granule, "max", "tcg", ("--kernel", str(stock(Kernel(granule, series))))))
    guest.reset()
    return guest


@pytest.fixture
def process(guest: Guest) -> Iterator[Process]:
    """A process of it."""
    process = guest.spawn("test")
    yield process
    if not guest.session.lost:
        process.kill()


@pytest.fixture
def unrecorded() -> None:
    """No stock kernel keeps a record."""
