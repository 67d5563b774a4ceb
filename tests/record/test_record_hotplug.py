# SPDX-License-Identifier: GPL-2.0-only
"""CPUs that go and come back under the recorder, on kernels that others have built: the pinned one is without
CONFIG_HOTPLUG_CPU.

A process that is pinned to such a CPU is moved to another, with its ASID and whatever the TLBs hold of it; the CPU
comes back with a TLB that it has to flush itself. Any finding is a false alarm.
"""

from __future__ import annotations

import pytest
from folioscope import Guest
from folioscope.rig import Rig, Wanted

from recorder import plugin
from test_stock_kernel import Kernel, stock

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.network]
__all__ = ["plugin"]

ONLINE = "/sys/devices/system/cpu/cpu1/online"
TIMES = 20


def change(guest: Guest, times: int) -> None:
    """Folds, unfolds, copies and unmaps on CPU 1 and wherever else the process is put while that CPU is away."""
    for _ in range(times):
        process = guest.spawn(cpu=1)
        area = process.blocks(4)
        area.write()
        child = process.fork()
        guest.write(ONLINE, "0")
        assert guest.read(ONLINE) == "0\n"
        area.mprotect(["read"], first=5, pages=1)
        area.in_process(child).write(first=guest.layout.cont_pages, pages=1)
        guest.write(ONLINE, "1")
        assert guest.read(ONLINE) == "1\n"
        area.munmap()
        child.kill()
        process.kill()


@pytest.mark.usefixtures("plugin")
@pytest.mark.long
@pytest.mark.parametrize("kernel", [Kernel(g, s) for s in ("6.12", "7") for g in ("4k", "16k")], ids=str)
def test_cpus_that_go_and_come_back(rig: Rig, kernel: Kernel) -> None:
    """Nothing is found and nothing left unjudged, and the CPU was seen to flush each time that it came back."""
    wanted = Wanted(kernel.granule, "max", "tcg", ("--kernel", str(stock(kernel)), "--record"))
    guest = rig.guest(wanted)
    try:
        guest.reset()
        with guest.recording() as trace:
            change(guest, TIMES)
        assert trace.findings == () and trace.total == 0 and trace.not_judged == ()
        # cpu_uninstall_idmap() of secondary_start_kernel(), arch/arm64/kernel/smp.c.
        local = [tlbi for tlbi in trace.tlbis if tlbi.cpu == 1 and tlbi.local and tlbi.first is None]
        assert sum(tlbi.place.startswith("secondary_start_kernel+") for tlbi in local) == TIMES
        assert trace.calls is not None and trace.calls["__contpte_try_unfold"].stores
    finally:
        rig.drop(wanted)
