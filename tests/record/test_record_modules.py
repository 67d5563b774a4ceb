# SPDX-License-Identifier: GPL-2.0-only
"""Modules that are loaded and removed under the recorder, on kernels that others have built: the pinned one has none.

Their text is written through one mapping and run by another, the linear map loses and gets rights (set_memory_ro() and
its kin, arch/arm64/mm/pageattr.c), and vmalloc gives and takes kernel memory. A finding is a false alarm, but for the
one at boot.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from command import BOOT_SECONDS, OUT, ROOT, folioscope
from recorder import Found, plugin, seen
from test_record_stress import AFTER
from test_stock_kernel import FETCH_SECONDS, Kernel, stock

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.network]
__all__ = ["plugin"]

TIMES = 3
INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc
/bin/busybox mount -t proc proc /proc
cd /modules
loaded=0 removed=0
for round in $(/bin/busybox seq {TIMES}); do
    for module in *.ko; do
        words=
        # It compiles and runs a thousand programs, which takes minutes; these are a tenth.
        [ $module != test_bpf.ko ] || words="test_suite=test_bpf test_range=0,99"
        /bin/busybox insmod $module $words 2>/dev/null && loaded=$((loaded + 1))
    done
    # Those that others need go last.
    for again in 1 2 3; do
        for module in $(/bin/busybox awk '{{print $1}}' /proc/modules); do
            /bin/busybox rmmod $module 2>/dev/null && removed=$((removed + 1))
        done
    done
done
echo "modules: $loaded loaded, $removed removed"
/bin/busybox poweroff -f
"""


def initramfs(kernel: Kernel, place: Path) -> Path:
    """One whose init loads and removes the kernel's modules."""
    script = ROOT / "vmm" / "setup" / "stock.sh"
    fetched = subprocess.run(
        [script, *kernel, "modules"], check=False, capture_output=True, text=True, timeout=FETCH_SECONDS
    )
    assert fetched.returncode == 0, fetched.stderr
    extra = place / "extra"
    shutil.copytree(fetched.stdout.strip(), extra / "modules")
    (extra / "load").write_text(INIT)
    (extra / "load").chmod(0o755)
    packed = place / "initramfs.cpio"
    pack = [ROOT / "rootfs" / "pack.sh", "--agent", OUT / "folioscope-agent", "--extra", extra, "--out", packed]
    subprocess.run(pack, check=True, capture_output=True, timeout=FETCH_SECONDS)
    return packed


def at_boot(found: Found) -> bool:
    """The kernel maps its text a second time without a DSB behind the TLBI (docs/recorder.md, Found)."""
    contiguous = found.rule == "S3" and found.sentence.startswith("the Contiguous bit differs: no DSB came after")
    # By its physical address: the kernel's own page tables are not on yet.
    return contiguous and any(re.match(r"  made +CPU 0 at PC 0x4[0-9a-f]{7} ", line) for line in found.lines)


@pytest.mark.usefixtures("plugin")
@pytest.mark.long
@pytest.mark.parametrize("kernel", [Kernel("4k", "6.12"), Kernel("16k", "6.12")], ids=str)
def test_modules_recorded(kernel: Kernel, tmp_path: Path) -> None:
    """Nothing is found but what is wrong at boot, and modules were loaded and removed."""
    within = int(BOOT_SECONDS + AFTER)
    guest = ["--machine", "tcg", "--smp", 2, "--initrd", initramfs(kernel, tmp_path), "--append", "rdinit=/load"]
    ended = folioscope("record", "--bare", stock(kernel), "--boot-timeout", within, *guest, seconds=2.0 * within)
    print(ended.out[-3000:])
    assert all(at_boot(each) for each in Found.all(ended.out)), ended.out
    counts = re.search(r"^modules: (\d+) loaded, (\d+) removed\r?$", ended.out, re.MULTILINE)
    assert counts, ended.out
    assert int(counts[1]) >= 5 * TIMES and int(counts[2]) >= 5 * TIMES
    stores, tlbis, barriers = seen(ended.out)
    assert stores > 10_000 and tlbis > 100 and barriers > tlbis
