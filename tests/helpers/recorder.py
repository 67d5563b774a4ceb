# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's command in tests: where its plugin and its litmus guest are, and what it says."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from command import ROOT, SLOWER, folioscope

# What builds the plugin when nothing of it is there.
BUILD_SECONDS = 300


@pytest.fixture(scope="session")
def plugin() -> Path:
    """The plugin for QEMU, which is built where it can be."""
    build = ROOT / "vmm" / "setup" / "plugin.sh"
    built = subprocess.run([build], capture_output=True, text=True, timeout=BUILD_SECONDS * SLOWER, check=False)
    if "needs Rust 1." in built.stderr:
        pytest.skip("the recorder's plugin needs a newer Rust")
    assert built.returncode == 0, built.stderr
    return ROOT / "out" / "librecorder_plugin.so"


@dataclass(frozen=True)
class Found:
    """A finding, as the command prints it."""

    rule: str
    sentence: str
    va: int
    lines: tuple[str, ...]

    @classmethod
    def all(cls, said: str) -> list[Found]:
        """Those in what was printed."""
        found = []
        for match in re.finditer(r"^(S\d) (.*)\n((?:  .*\n)+)", said, re.MULTILINE):
            va = re.search(r"^  VA (0x[0-9a-f]+) level", match[3], re.MULTILINE)
            assert va, match[0]
            found.append(cls(match[1], match[2], int(va[1], 16), tuple(match[3].splitlines())))
        return found


def seen(said: str) -> tuple[int, int, int]:
    """How many stores to descriptors, TLBIs and barriers were judged."""
    found = re.search(r"^(\d+) stores to descriptors, (\d+) TLBIs, (\d+) barriers", said, re.MULTILINE)
    assert found, said
    return int(found[1]), int(found[2]), int(found[3])


#: Large folios for the workload alone: by default the guest's own programs have them too, and are told of first.
WORKLOAD_ALONE = ("--append", "anon_order_policy=sysfs")


def record(*arguments: object):
    """Runs the command with a guest in it."""
    return folioscope("record", "--machine", "tcg", *arguments, seconds=300)
