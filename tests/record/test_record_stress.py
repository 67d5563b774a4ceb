# SPDX-License-Identifier: GPL-2.0-only
"""Sequences at hard work: nothing that a good kernel does while stress-ng drives its memory breaks a rule.

Dozens of processes and threads map, unmap, move, share, swap and poison memory on two CPUs, and every store to their
page tables is judged. Any finding is a false alarm.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from command import BOOT_SECONDS, OUT, folioscope
from recorder import Found, plugin, seen
from test_stress import LONG_SECONDS, SCARCE, SWAP, initramfs

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.network]
__all__ = ["plugin"]

SECONDS = 10
# What the guest may take to power off, and the judge to come after it.
AFTER = 120.0
# What may be left unjudged: what Linux lets two threads do at once, and the same as known() where nobody may write.
BOTH_AT_ONCE = "another's TLBI for the old ones was on its way"
READ_ONLY = "changes of the address of read-only memory"


def known(found: Found) -> bool:
    """A fault maps a page again, folded or in another page frame, that reclaim has unmapped without the DSB behind its
    batched TLBIs (docs/recorder.md, Found): true of Linux."""
    broken, _, made = "\n".join(found.lines).partition("  made")
    differs = re.match("the (Contiguous bit|output address) differs: no DSB came after the TLBI", found.sentence)
    reclaimed = "try_to_unmap_one+" in broken and "shrink_folio_list+" in broken
    return found.rule == "S3" and differs is not None and reclaimed and " handle_mm_fault+" in made


def judged(kernel: Path, seconds: int, memory: str, swap: str = "") -> None:
    """No finding but what is known, and enough was judged."""
    within = int(seconds + BOOT_SECONDS + AFTER)
    words = f"rdinit=/stress SECONDS_LEFT={seconds} SWAP={swap}"
    guest = ["--machine", "tcg", "--smp", 2, "--memory", memory, "--initrd", initramfs(), "--append", words]
    judge = ["--bare", kernel / "Image", "--vmlinux", kernel / "vmlinux", "--boot-timeout", within]
    ended = folioscope("record", *judge, *guest, seconds=2.0 * within)
    stressors = Counter(re.findall(r"^stress: (\w+) \d+\r?$", ended.out, re.MULTILINE))
    print(ended.out[-400:], dict(stressors))
    not_judged = [line for line in ended.out.splitlines() if line.startswith("not judged")]
    found = Found.all(ended.out)
    assert all(swap and known(each) for each in found), ended.out
    assert ended.status == (1 if found else 2 if not_judged else 0), ended.out + ended.err
    assert all(re.search(BOTH_AT_ONCE + (f"|{READ_ONLY}" if swap else ""), line) for line in not_judged), not_judged
    stores, tlbis, barriers = seen(ended.out)
    assert re.search(r"^stress: ends\r?$", ended.out, re.MULTILINE) and stressors, ended.out
    # A boot alone has fewer.
    assert stores > 100_000 + 2_000 * seconds and tlbis > 200 * seconds and barriers > tlbis


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("granule", ["4k"])
def test_stress_ng_recorded(granule: str) -> None:
    """The first stressors."""
    judged(OUT / f"kernel-{granule}", SECONDS, "1G")


@pytest.mark.usefixtures("plugin")
@pytest.mark.long
@pytest.mark.timeout(2 * LONG_SECONDS)
@pytest.mark.parametrize("swap", ["", SWAP], ids=["all", "swap"])
@pytest.mark.parametrize("granule", ["4k", "16k"])
def test_stress_ng_recorded_long(granule: str, swap: str) -> None:
    """All of them, several times; and with less memory than they want, where reclaim batches its TLBIs."""
    judged(OUT / f"kernel-{granule}", LONG_SECONDS // 2, SCARCE if swap else "1G", swap)
