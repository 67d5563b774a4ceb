# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope watch` on kernels without our patches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from command import Running
from held_guest import Held
from test_stock_kernel import Kernel, stock
from test_watch import test_lines, test_refusals, watched

__all__ = ["test_lines", "test_refusals", "watched"]
pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.network, pytest.mark.long]
BLOCKS = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"


@pytest.fixture(scope="module", params=["6.18", "7"])
def held(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """`folioscope boot` of a series' newest kernel, where 64K is had for the asking."""
    place: Path = tmp_path_factory.mktemp("watch")
    kernel = stock(Kernel("4k", request.param))
    with Running(["boot", "--kernel", str(kernel), "--out", str(place), "--memory", "512M"]) as running:
        held = Held(running)
        held.call("command", command={"write_file": {"path": BLOCKS, "text": "madvise"}})
        yield held
