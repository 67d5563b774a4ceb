# SPDX-License-Identifier: GPL-2.0-only
"""Sequences of the kernel's own mm selftests: nothing that a good kernel does for them breaks a rule.

They copy on write each size of folio, collapse and split, migrate under load, register userfaultfd, merge, and use
hugetlb in all ways (tests/helpers/selftests.py has the list). Any finding is a false alarm of ours, or a fault of the
kernel.
How a program itself ends is none of our affair here: tests/stock/test_selftests.py holds that against a run without us.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from command import BOOT_SECONDS, OUT, folioscope
from recorder import Found, plugin, seen
from selftests import KILLED, SELFTESTS, Selftest, initramfs
from test_record_stress import AFTER, known

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.network]
__all__ = ["plugin"]

# What one may take: most end by themselves; the long ones have shown their sequences by then, and are ended.
SECONDS = 45
# Programs of one guest: more do not fit on a command line.
AT_ONCE = 12
# Those that poison memory leave it so; those that fill all of it, or of the address space, take longer than the others.
LEFT_OUT = {"hugetlb-soft-offline", "hugetlb-read-hwpoison", "virtual_address_range", "compaction_test"}
# What Linux does rightly and words alone do not decide (docs/recorder.md).
NOT_JUDGED = (
    "another's TLBI for the old ones was on its way",
    "which are allowed where the bytes are the same",
    "which is allowed where they map the same",
    "stores to tables with several VAs or formats",
)


def judged(selftests: list[Selftest], granule: str = "4k", seconds: int = SECONDS) -> dict[str, int]:
    """How each ended; no finding in any, and enough was judged."""
    told = ",".join(f"{selftest.words.replace(' ', '+')}:{selftest.mib}" for selftest in selftests)
    within = int(len(selftests) * seconds + BOOT_SECONDS + AFTER)
    words = f"rdinit=/selftests numa=fake=2 write_faults=1 selftest_seconds={seconds} selftests={told}"
    guest = ["--machine", "tcg", "--granule", granule, "--smp", 3, "--memory", "2G", "--initrd", initramfs()]
    kernel = OUT / f"kernel-{granule}"
    judge = ["--bare", kernel / "Image", "--vmlinux", kernel / "vmlinux", "--boot-timeout", within]
    ended = folioscope("record", *judge, *guest, "--append", words, seconds=2.0 * within)
    print(ended.out[-3000:])
    found = [each for each in Found.all(ended.out) if not known(each)]
    assert not found, ended.out
    not_judged = [line for line in ended.out.splitlines() if line.startswith("not judged")]
    assert all(any(why in line for why in NOT_JUDGED) for line in not_judged), not_judged
    stores, tlbis, barriers = seen(ended.out)
    # A boot alone has fewer.
    assert stores > 80_000 and tlbis > 500 and barriers > tlbis
    return {words: int(status) for words, status in re.findall(r"^selftest: (.*): (\d+)\r?$", ended.out, re.MULTILINE)}


@pytest.mark.usefixtures("plugin")
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_selftests_recorded() -> None:
    """All of them, a dozen in a guest: most pass, and none is missing."""
    chosen = [selftest for selftest in SELFTESTS if selftest.program not in LEFT_OUT]
    ended: dict[str, int] = {}
    for first in range(0, len(chosen), AT_ONCE):
        ended |= judged(chosen[first : first + AT_ONCE])
    assert set(ended) == {selftest.words for selftest in chosen}
    print(table := Counter(ended.values()), {words: status for words, status in ended.items() if status})
    assert 127 not in table, "vmm/setup/selftests.sh has not built one"
    assert table[0] > len(chosen) // 2 and table[KILLED] < len(chosen) // 3
