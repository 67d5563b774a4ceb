# SPDX-License-Identifier: GPL-2.0-only
"""The campaign of ``make test-long``, ``tests/long.toml``."""

from __future__ import annotations

import functools
from pathlib import Path

from folioscope.campaign.matrix import Matrix, load

from command import ROOT


@functools.cache
def campaign() -> Matrix:
    """Its cells."""
    return load(ROOT / "tests" / "long.toml")


@functools.cache
def modules() -> frozenset[tuple[Path, str, str]]:
    """The modules of tests that it runs, each with a machine and a granule."""
    found = set()
    for values in campaign().cells:
        test = campaign().tests[values["test"]]
        for selected in test.settings.get("select", ()):
            found.add((Path(test.directory) / selected, values["machine"], values["granule"]))
    return frozenset(found)
