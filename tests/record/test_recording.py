# SPDX-License-Identifier: GPL-2.0-only
"""The recorder in tests: what went by between two instants of a guest, and its verdict beside a run of the tour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from folioscope import Area, CommandFailed, Guest
from folioscope.rig import Rig, Wanted
from folioscope.trace import Trace

from command import OUT, folioscope
from kernel_edits import dsb_of_stores, edit, nothing, tlbi
from recorder import plugin, seen
from write_faults import SWITCHES, switch

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin")]
__all__ = ["plugin"]

#: Of a kernel without a DSB.
WRITES = 4


@pytest.mark.recorded
@pytest.mark.parametrize("granule", ["4k"])
def test_what_a_step_does(guest: Guest) -> None:
    """One page's right to be written is taken away in a folded block: the block is unfolded, with its TLBIs."""
    process = guest.spawn()
    area = process.blocks(2)
    area.write()
    with guest.recording() as trace:
        area.mprotect(["read"], first=5, pages=1)
    assert trace.findings == () and trace.total == 0
    assert trace.not_judged == ()
    for page in (0, 5, 15):
        assert trace.tlbi(area.address + page * guest.layout.page), page
    mine = [tlbi for tlbi in trace.tlbis if tlbi.first is not None and tlbi.covers(area.address)]
    assert {tlbi.asid for tlbi in mine} and None not in {tlbi.asid for tlbi in mine}
    assert not any(tlbi.local for tlbi in mine)
    assert any("flush_tlb_range" in tlbi.place for tlbi in mine)
    # Unfolding clears and writes each entry of the block (contpte_convert(), arch/arm64/mm/contpte.c).
    assert trace.calls is not None
    unfolded = trace.calls["__contpte_try_unfold"]
    entries = guest.layout.block // guest.layout.page
    assert unfolded.stores == 2 * entries and unfolded.tlbis >= 1 and unfolded.dsbs >= 2
    # The agent has waited in ppoll(), and the DSB of __switch_to() is not poll's.
    assert trace.calls["__switch_to"].dsbs
    waits = ("__schedule", "schedule_hrtimeout_range_clock")
    assert not any(trace.calls[name].dsbs for name in waits if name in trace.calls)

    with guest.recording() as trace:
        area.write(first=16 + 5, pages=1)
        with pytest.raises(RuntimeError, match="expected the recording to have ended"):
            trace.tlbi(area.address)
    # A page that is there already: nothing is stored in its block.
    assert not [tlbi for tlbi in trace.tlbi(area.address + guest.layout.block) if tlbi.first is not None]
    process.kill()


def write_fault(guest: Guest, path: str) -> tuple[Area, Trace]:
    """A block of zero pages, one that a child has left, or one that a child shares, and what a write to it does."""
    guest.set_policy("variable")
    process = guest.spawn()
    area = process.blocks(1)
    if path == "zero_page":
        area.read()
    else:
        area.write()
        child = process.fork()
        if path == "reuse":
            child.exit()
        else:
            area = area.in_process(child)
    switch(guest, path)
    try:
        with guest.recording() as trace:
            area.write(5, 1)
    finally:
        switch(guest, path, False)
    assert area.process.look().pages(area) == "c" * guest.layout.cont_pages
    return area, trace


@pytest.mark.recorded
@pytest.mark.parametrize("path", SWITCHES)
@pytest.mark.parametrize("granule", ["4k"])
def test_folios_of_write_faults(guest: Guest, path: str) -> None:
    """All of the block is cleared, flushed, and only then set."""
    area, trace = write_fault(guest, path)
    assert trace.findings == () and trace.total == 0 and trace.not_judged == ()
    for page in range(guest.layout.cont_pages):
        assert trace.tlbi(area.address + page * guest.layout.page), page


@pytest.mark.parametrize("path", SWITCHES)
@pytest.mark.parametrize("what,rule", [(tlbi, "S2"), (dsb_of_stores, "S3")], ids=["tlbi", "dsb"])
def test_without_a_flush(rig: Rig, tmp_path: Path, what: Callable[[int], bool], rule: str, path: str) -> None:
    """A kernel that sets the block without its TLBI, or without the DSB before that: named, of the block and no more.

    Reuse maps the same page frames again, with the right to write besides: who still holds an old entry takes a fault
    more, and that is all. An interrupt between the stores and the TLBI has a DSB of its own and makes up for the one
    that is gone, so there is more than one write.
    """
    kernel, image = OUT / "kernel-4k", tmp_path / "Image"
    # That of mm/memory.c, which all three paths call.
    assert edit(kernel, "__flush_tlb_range_nosync", what, nothing, image)
    more = ("--kernel", str(image), "--vmlinux", str(kernel / "vmlinux"), "--record")
    wanted = Wanted("4k", "max", "tcg", more)
    try:
        found: set[str] = set()
        for _ in range(WRITES):
            area, trace = write_fault(rig.guest(wanted), path)
            assert all(area.address <= finding.va < area.address + area.length for finding in trace.findings)
            found |= {finding.rule for finding in trace.findings}
            if found:
                break
        assert found == (set() if path == "reuse" else {rule})
    finally:
        rig.drop(wanted)


def test_folios_before_and_after(rig: Rig, tmp_path: Path) -> None:
    """A page of a folio that a child shares is copied, by a kernel without the flush: its folio, and the new one.

    Both are as the kernel itself has them, before the write and behind it.
    """
    kernel, image = OUT / "kernel-4k", tmp_path / "Image"
    assert edit(kernel, "ptep_clear_flush", tlbi, nothing, image)
    more = ("--kernel", str(image), "--vmlinux", str(kernel / "vmlinux"), "--record")
    wanted = Wanted("4k", "max", "tcg", more)
    try:
        guest = rig.guest(wanted)
        guest.set_policy("variable")
        process = guest.spawn()
        area = process.blocks(1)
        area.write()
        child = process.fork()
        # Of one cause the first is told: not that of what the process writes to by itself.
        area.write(0, 1)
        va = area.address + 5 * guest.layout.page
        before = process.look().folio(va)
        with guest.recording() as trace:
            area.write(5, 1)
        after = process.look().folio(va)
        found = [each for each in trace.findings if each.va == va]
        assert found and {each.rule for each in found} == {"S2"}, trace.findings
        assert before and after and before.pfn != after.pfn
        for each, folio in [(found[0].old_folio, before), (found[0].new_folio, after)]:
            assert each and (each.first, each.order, each.kind) == (folio.head, folio.order, "anonymous")
        assert found[0].old_folio and found[0].old_folio.order == guest.layout.cont_order
        # What is taken away and given back to nobody has no folio behind it.
        with guest.recording() as trace:
            area.in_process(child).munmap()
        assert trace.findings == ()
    finally:
        rig.drop(wanted)


@pytest.mark.parametrize("granule", ["4k"])
def test_a_guest_that_is_not_recorded(guest: Guest) -> None:
    """What has to be done is said in a sentence."""
    sentence = "booted without the recorder's plugin.*boot it with --record"
    with pytest.raises(CommandFailed, match=sentence), guest.recording():
        pass


@pytest.mark.long
@pytest.mark.parametrize(
    "granule,least", [("4k", (300_000, 20_000)), ("16k", (100_000, 10_000)), ("64k", (40_000, 5_000))]
)
def test_a_run_of_the_tour(granule: str, least: tuple[int, int]) -> None:
    """The tour's states and its sequences, judged in one run: no error in either, and nothing left unjudged.

    `make test` does the same by the README's `make run RECORD=1`. The larger the pages, the fewer entries the same
    memory has, and the fewer of them are stored and flushed.
    """
    said = folioscope("run", "--machine", "tcg", "--granule", granule, "--record", seconds=300).ok()
    _, sequences = said.split("record - the guest's sequences\n")
    assert "no error found (exit status 0)" in sequences
    stores, tlbis, barriers = seen(sequences)
    assert stores > least[0] and tlbis > least[1] and barriers > 10_000
    assert sequences.splitlines()[1] == "0 findings"
