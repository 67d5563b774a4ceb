# SPDX-License-Identifier: GPL-2.0-only
"""Several workers, by pytest-xdist's ``-n``: all tests of one guest go to one of them, so that it boots once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from . import scratch
from .machines import CARRIED

# The values of a test's id that say which guest it has, other parameters of the test among them.
MACHINE = re.compile(r"\[(tcg|kvm-in-tcg-nvhe|kvm-in-tcg|kvm)(?=[-\]])")
CPU = re.compile(r"[-\[](max|host|a64fx|(?:cortex|neoverse)-[a-z]\d+[a-z]*)(?=[-\]])")
GRANULE = re.compile(r"[-\[](4k|16k|64k)(?=[-\]])")


def group(nodeid: str) -> str:
    """What runs on one worker: the tests of a guest, those of a carrier, or else those of a module."""
    module, _, test = nodeid.partition("::")
    machine, cpu, granule = (found and found[1] for found in (part.search(test) for part in (MACHINE, CPU, GRANULE)))
    if not machine or not granule:
        return module
    return f"{machine}-{cpu}" if machine in CARRIED else f"{machine}-{cpu}-{granule}"


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out groups, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:
    """Another way of distribution than the default is the user's to choose."""
    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_configure_node(node: Any) -> None:
    """Tells a worker where the logs of the run go."""
    node.workerinput[scratch.WORKERS] = str(scratch.of_run(node.config))
