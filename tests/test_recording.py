"""The recorder in tests: what went by between two instants of a guest, and its verdict beside a run of the tour."""

from __future__ import annotations

import pytest
from folioscope import CommandFailed, Guest

from command import folioscope
from recorder import plugin, seen

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin")]
__all__ = ["plugin"]


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

    with guest.recording() as trace:
        area.write(first=16 + 5, pages=1)
        with pytest.raises(RuntimeError, match="expected the recording to have ended"):
            trace.tlbi(area.address)
    # A page that is there already: nothing is stored in its block.
    assert not [tlbi for tlbi in trace.tlbi(area.address + guest.layout.block) if tlbi.first is not None]
    process.kill()


@pytest.mark.parametrize("granule", ["4k"])
def test_a_guest_that_is_not_recorded(guest: Guest) -> None:
    """What has to be done is said in a sentence."""
    sentence = "booted without the recorder's plugin.*boot it with --record"
    with pytest.raises(CommandFailed, match=sentence), guest.recording():
        pass


@pytest.mark.parametrize("granule", ["4k"])
def test_a_run_of_the_tour(granule: str) -> None:
    """The tour's states and its sequences, judged in one run: no error in either, and nothing left unjudged."""
    said = folioscope("run", "--machine", "tcg", "--granule", granule, "--record", seconds=300).ok()
    states, sequences = said.split("record - the guest's sequences\n")
    assert "no error found (exit status 0)" in states
    stores, tlbis, barriers = seen(sequences)
    assert stores > 100_000 and tlbis > 10_000 and barriers > 10_000
    assert sequences.splitlines()[1:] == ["0 findings"]
