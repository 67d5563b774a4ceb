# SPDX-License-Identifier: GPL-2.0-only
"""Guests of other sizes, CPUs and command lines than usual: the whole tour has no finding, and all of it is judged."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from command import BOOT_SECONDS, folioscope

pytestmark = pytest.mark.qemu

CPUS = ["a64fx", "cortex-a35", "cortex-a53", "cortex-a55", "cortex-a57", "cortex-a76", "cortex-a710"]
CPUS += ["neoverse-n2", "neoverse-v1", "max,lpa2=off", "max,sve=off,pauth=off"]
# Of these QEMU has the 16K granule.
WITH_16K = ["cortex-a55", "cortex-a710", "neoverse-n2", "neoverse-v1", "max,lpa2=off", "max,sve=off,pauth=off"]
# What changes the kernel's half, its page allocator, or what it counts.
APPEND = ["kpti=on", "nokaslr", "arm64.nolva", "rodata=off", "rodata=on", "debug_pagealloc=on", "numa=off"]
APPEND += ["init_on_alloc=1 init_on_free=1", "page_alloc.shuffle=1", "transparent_hugepage=never"]
APPEND += ["cgroup_disable=memory", "slub_debug=FZP", "mitigations=off", "nosmp", "hugepagesz=2M hugepages=16"]
SIZES = [("--memory", "128M"), ("--memory", "512M"), ("--memory", "4G"), ("--smp", "1"), ("--smp", "4"), ("--smp", "8")]
Words = tuple[str, ...]
OTHERS: list[Words] = [*(("--cpu", cpu) for cpu in CPUS), *(("--append", words) for words in APPEND), *SIZES]
# One of each kind whenever tests run, the rest where there is time.
WHENEVER: list[tuple[str, Words]] = [
    ("64k", ("--memory", "128M")),
    ("4k", ("--smp", "8")),
    ("4k", ("--cpu", "neoverse-v1", "--append", "kpti=on")),
    ("16k", ("--smp", "1")),
]
REST = [
    (granule, words)
    for granule, words in product(["4k", "16k", "64k"], OTHERS)
    if (granule, words) not in WHENEVER and (granule != "16k" or words[0] != "--cpu" or words[1] in WITH_16K)
]


@pytest.mark.parametrize(
    "granule,words",
    [*WHENEVER, *(pytest.param(*each, marks=pytest.mark.long) for each in REST)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value).replace("--", ""),
)
def test_tour(tmp_path: Path, granule: str, words: Words) -> None:
    """Whatever is an error on such a guest is a false alarm."""
    ended = folioscope("run", "--granule", granule, "--out", tmp_path, *words, seconds=4 * BOOT_SECONDS)
    assert ended.status == 0, ended.out[-3000:] + ended.err
    assert re.search(r"^\d+ checkpoints, \d+ entries: 0 errors, \d+ remarks?, 0 not judged", ended.out, re.MULTILINE)
