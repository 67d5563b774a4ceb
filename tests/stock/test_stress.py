# SPDX-License-Identifier: GPL-2.0-only
"""Guests at hard work, judged: nothing that a good kernel does while stress-ng drives its memory is an error.

stress-ng's stressors fork, map, unmap, swap, merge and poison memory by dozens of processes. Such a guest is somebody
else's to us: it has no agent, nobody waits at a checkpoint, and each of its processes is judged by the kernel's own
structures, wherever the stop met it. Any error is a false alarm. Once they have more memory than there is, so that it
is swapped out and in all the time, and slots in swap are counted.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from command import BOOT_SECONDS, OUT, ROOT, wait_until
from own_qemu import Foreign, checked
from test_stock_kernel import Kernel, stock

pytestmark = pytest.mark.qemu

SECONDS = 30
LONG_SECONDS = 600
# How many times as long it may take until enough was judged: the host may have other things to do.
PATIENCE = 5
# A guest that has to swap, and to how many bytes of zram.
SCARCE = "512M"
SWAP = "384M"


@cache
def initramfs() -> Path:
    """stress-ng and what it needs, from the cache or from Debian."""
    script = ROOT / "vmm" / "setup" / "stress.sh"
    made = subprocess.run([script], check=False, capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


class Stressed(Foreign):
    """A guest whose init has stress-ng's stressors at work, one kind after the other."""

    def __init__(self, place: Path, kernel: Path, swap: str = "") -> None:
        # What the kernel does not know its init has in its environment.
        words = ["rdinit=/stress", f"SWAP={swap}"]
        super().__init__(place, kernel, initramfs(), *words, cpus=2, memory=SCARCE if swap else "1G")

    def __enter__(self) -> Stressed:
        super().__enter__()
        assert wait_until(lambda: "stress: begins" in self.said(), 2 * BOOT_SECONDS), self.said()
        return self

    def stressors(self) -> Counter[str]:
        """How often each kind has ended, with or without what it calls success."""
        lines = (line.split() for line in self.said().splitlines() if line.startswith("stress: "))
        return Counter(words[1] for words in lines if len(words) == 3)


Enough = Callable[[list[dict[str, Any]]], bool]


def judged(guest: Stressed, seconds: float, enough: Enough) -> tuple[list[dict[str, Any]], list[str]]:
    """The reports of checks one after the other, and the errors in them; for longer where they are not enough yet."""
    reports, errors = [], []
    (place := guest.place.with_suffix(".reports")).mkdir()
    start = time.monotonic()
    while (took := time.monotonic() - start) < seconds or took < PATIENCE * seconds and not enough(reports):
        _, report = checked(guest, place)
        reports.append(report)
        (step,) = report["steps"]
        for who in [*step["processes"], step.get("kernel", {})]:
            name = who.get("process", "the kernel")
            found = [f for f in who.get("findings", []) if f["severity"] == "error"]
            errors += [f"{name}: {finding['rule']}: {finding['message']}" for finding in found]
    return reports, errors


def works(place: Path, kernel: Path, seconds: float, swap: str = "", enough: Enough = bool) -> None:
    """No error, and enough was judged for that to say something."""
    with Stressed(place, kernel, swap) as guest:
        reports, errors = judged(guest, seconds, enough)
        stressors, said = guest.stressors(), guest.said()
    assert errors == []
    steps = [report["steps"][0] for report in reports]
    processes = [process for step in steps for process in step["processes"]]
    names = Counter(process["process"]["name"] for process in processes)
    with_folios = [process for process in processes if process["folios"]]
    unsettled = sum(process["unsettled"] for process in processes)
    large = Counter(order for process in processes for order in process["folios"] if order != "0")
    not_judged = [process["not_judged"] for process in processes if process["not_judged"]]
    print(f"{len(reports)} looks, {len(processes)} processes, {len(with_folios)} with folios, {unsettled} unsettled")
    print("stressors that ended:", dict(stressors))
    print("judged:", dict(names.most_common(12)))
    print("processes with folios of each order:", dict(large))
    print("not judged:", *not_judged, sep="\n    ")
    # Two workers and their parent at the least, most of the time.
    assert len(reports) >= 3 and len(with_folios) >= 3 * len(reports), said[-2000:]
    assert sum(name.startswith("stress-ng") for name in names.elements()) >= 2 * len(reports)
    # A fork under way keeps some counts from being judged; not those of most processes, nor of the kernel.
    assert len(large) >= 3 and len(not_judged) <= len(processes) // 4
    kernels = [step["kernel"] for step in steps]
    assert sum(not kernel["not_judged"] for kernel in kernels) >= len(kernels) // 2
    assert "Oops" not in said and "BUG:" not in said
    assert enough(reports), f"{len(reports)} looks were not enough: {[swapped(report) for report in reports]}"


def swapped(report: dict[str, Any]) -> tuple[int, bool]:
    """Swap entries of all processes in a look, and whether L16 was judged: not where somebody just took a slot."""
    (step,) = report["steps"]
    processes = step["processes"]
    said = [reason["reason"] for who in [step, *processes] for reason in who["not_judged"]]
    said += [note for process in processes for note in process["notes"]]
    return sum(process["entries"]["swapped"] for process in processes), not any("L16" in why for why in said)


def swaps(place: Path, kernel: Path, seconds: float) -> None:
    """As above, by a guest that swaps all the while; and what rules say of swap was judged."""

    def enough(reports: list[dict[str, Any]]) -> bool:
        looks = [swapped(report) for report in reports]
        entries, counted = [count for count, _ in looks if count], sum(count > 0 and judged for count, judged in looks)
        # A look costs two where somebody was just taking or giving back a slot.
        often = len(entries) >= len(looks) / 2 and counted >= max(3, len(looks) / 4)
        return often and max(entries) >= 1000

    works(place, kernel, seconds, SWAP, enough)


@pytest.mark.network
def test_stress_ng(tmp_path: Path) -> None:
    """The patched kernel."""
    works(tmp_path, OUT / "kernel-4k" / "Image", SECONDS)


@pytest.mark.network
@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS)
@pytest.mark.parametrize("granule", ["4k", "16k"])
def test_swap_long(tmp_path: Path, granule: str) -> None:
    """For longer. A 64K kernel of this size has too few pages; Debian's kernels have zram as a module alone."""
    swaps(tmp_path, OUT / f"kernel-{granule}" / "Image", LONG_SECONDS / 3)


@pytest.mark.network
@pytest.mark.long
@pytest.mark.timeout(2 * LONG_SECONDS)
@pytest.mark.parametrize("kernel", ["ours", Kernel("4k", "6.12"), Kernel("4k", "7"), Kernel("16k", "7")], ids=str)
def test_stress_ng_long(tmp_path: Path, kernel: Kernel | str) -> None:
    """Ten minutes each: the patched kernel and Debian's own."""
    image = OUT / "kernel-4k" / "Image" if isinstance(kernel, str) else stock(kernel)
    works(tmp_path, image, LONG_SECONDS)
