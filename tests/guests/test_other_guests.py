# SPDX-License-Identifier: GPL-2.0-only
"""Guests of other sizes, CPUs and command lines than usual: the whole tour has no finding, and all of it is judged. One
of each kind; the others are cells of ``tests/long.toml``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command import BOOT_SECONDS, folioscope

pytestmark = pytest.mark.qemu

GUESTS = [
    ("64k", ("--memory", "128M")),
    ("4k", ("--smp", "8")),
    ("4k", ("--cpu", "neoverse-v1", "--append", "kpti=on")),
    ("16k", ("--smp", "1")),
]


@pytest.mark.parametrize(
    "granule,words", GUESTS, ids=lambda value: value if isinstance(value, str) else " ".join(value).replace("--", "")
)
def test_tour(tmp_path: Path, granule: str, words: tuple[str, ...]) -> None:
    """Whatever is an error on such a guest is a false alarm."""
    ended = folioscope("run", "--granule", granule, "--out", tmp_path, *words, seconds=4 * BOOT_SECONDS)
    assert ended.status == 0, ended.out[-3000:] + ended.err
    assert re.search(r"^\d+ checkpoints, \d+ entries: 0 errors, \d+ remarks?, 0 not judged", ended.out, re.MULTILINE)
