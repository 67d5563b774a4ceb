# SPDX-License-Identifier: GPL-2.0-only
"""Several workers, by pytest-xdist's ``-n``: all tests of one guest go to one of them, so that it boots once.

They have its mark ``xdist_group``, which ``--dist loadgroup`` goes by: that is the default where a guest may be tested.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from . import dimensions, scratch

# The worker's input that says whether groups are sent to one worker.
GROUPED = "folioscope_grouped"


def by_group(config: pytest.Config) -> None:
    """Makes groups the default, before pytest-xdist goes by its own; another way is the user's to choose."""
    if hasattr(config, "workerinput"):
        config.option.loadgroup = config.workerinput.get(GROUPED, False)
    elif config.option.numprocesses and config.option.dist == "no":
        config.option.dist = "loadgroup"
        config.option.loadscopereorder = False


def pytest_configure_node(node: Any) -> None:
    """Tells a worker where the logs of the run go, and whether tests are sent by group."""
    node.workerinput[scratch.WORKERS] = str(scratch.of_run(node.config))
    node.workerinput[GROUPED] = node.config.option.dist == "loadgroup"


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None, None, None]:
    """The scheduler has the groups by then; in reports tests have their own names."""
    result = yield
    if hasattr(session.config, "workerinput"):
        for item in session.items:
            item._nodeid = dimensions.nodeid(item)
    return result
