# SPDX-License-Identifier: GPL-2.0-only
"""Whether a test sees what it is about: with ``--without SWITCH`` writes that switch a feature on are dropped.

A test that writes to the switch must then fail, as what it expects cannot be there. One that passes is reported as
failed. A test that does not write to it, or only what is there at boot, ends as it does; so does one of the list of
those that end alike with and without.
"""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest
from folioscope import Guest

THP = "/sys/kernel/mm/transparent_hugepage"
#: The files of each switch, as a pattern, and what is in them at boot.
SWITCHES = {
    "lru_batch": (f"{THP}/anon_order/lru_batch", "0"),
    "madvise_split": (f"{THP}/anon_order/madvise_split", "0"),
    "zap_batch": (f"{THP}/anon_order/zap_batch", "1"),
    "zero_page": (f"{THP}/anon_order/zero_page", "0"),
    "reuse": (f"{THP}/anon_order/reuse", "0"),
    "copy": (f"{THP}/anon_order/copy", "0"),
    "align": (f"{THP}/anon_order/align", "0"),
    "page_cache": (f"{THP}/page_cache", "0"),
    "percpu_pagelist_high_order": ("/proc/sys/vm/percpu_pagelist_high_order", "0"),
    "contpte": (f"{THP}/anon_order/contpte", "0"),
    "adaptive": (f"{THP}/anon_order/policy", "variable"),
    "shmem_enabled": (rf"{THP}/hugepages-\d+kB/shmem_enabled", "never"),
}
#: Of switches with several values, those that are dropped; of others, all but what is there at boot.
DROPS = {"adaptive": {"adaptive"}, "shmem_enabled": {"always", "advise", "within_size"}}
#: Tests that write to a switch and end alike without it, and why that is right: by switch, by id below tests/.
INDIFFERENT = {
    "lru_batch": {
        r"patches/test_roadmap\.py::test_larger_folios_do_not_wait\[.*": "larger ones never wait",
        r"patches/test_roadmap\.py::test_lists_are_in_the_order_of_faults\[.*False\]": "it drains by on and off",
    },
    "zero_page": {
        r"patches/test_zero_page\.py::test_off_as_it_was\[.*": "it is switched off again by the test",
        r"patches/test_zero_page\.py::test_policies\[.*baseline-anonymous\]": "baseline has single pages in any case",
    },
    "page_cache": {
        r"patches/test_ramfs\.py::test_off\[.*": "it is switched off again by the test",
        r"patches/test_ramfs_faults\.py::test_times\[.*single\]": "it is switched off again by the test",
        r"patches/test_ramfs\.py::test_write\[.*(a page's length within two|small)\]": "writes of no more than a page",
    },
    "contpte": {
        r"patches/test_counts\.py::test_(more_is_counted_than_recorded|each_reason_has_its_count)\[.*": "they count",
    },
    "shmem_enabled": {
        r"patches/test_paths\.py::test_shmem_controls\[.*-nohugepage\]": "the VMA forbids every order in any case",
    },
    "percpu_pagelist_high_order": {
        r"patches/test_pcp\.py::test_allocated_on_one_freed_on_another\[.*default-.*": "the setting is 0 in the end",
        r"patches/test_pcp\.py::test_allocated_on_one_freed_on_another\[.*all-two\]": "so few are kept by default too",
    },
}
DROPPED = pytest.StashKey[int]()


class Without:
    """A plugin of pytest: drops the writes, and turns the outcome of a test around in which one was dropped."""

    def __init__(self, switch: str) -> None:
        self._path, default = SWITCHES[switch]
        drops = DROPS.get(switch)
        self._dropped = lambda text: text in drops if drops else text != default
        self._indifferent = [re.compile(test) for test in INDIFFERENT.get(switch, {})]
        self._item: pytest.Item | None = None
        self._write = Guest.write
        self._failed = False

    def pytest_sessionstart(self) -> None:
        """Every guest's writes pass through here."""
        without, write = self, self._write

        def dropping(guest: Guest, path: str, text: str) -> None:
            of_it = re.fullmatch(without._path, path) and without._dropped(text.strip())
            if of_it and without._item is not None:
                without._item.stash[DROPPED] = without._item.stash.get(DROPPED, 0) + 1
                return
            write(guest, path, text)

        Guest.write = dropping  # type: ignore[method-assign]

    def pytest_sessionfinish(self) -> None:
        """As it was."""
        Guest.write = self._write  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Says which test it is that writes."""
        self._item, self._failed = item, False
        try:
            return (yield)
        finally:
            self._item = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test with a dropped write must have failed by the end of its call."""
        report = yield
        alike = any(test.fullmatch(item.nodeid) for test in self._indifferent)
        if not item.stash.get(DROPPED, 0) or report.skipped or alike:
            return report
        if report.failed:
            self._failed = True
            report.outcome = "passed"
        elif report.when == "call" and not self._failed:
            report.outcome = "failed"
            report.longrepr = f"it passes although writes to {self._path} were dropped: it does not see that switch"
        return report
