# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's records of why a folio got its order: what they say of it, and that they are off until asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from folioscope import Area, Guest, Layout, Process, View
from folioscope.model import Record
from folioscope.rig import Rig, Wanted

from command import OUT

pytestmark = pytest.mark.every_granule

RECORD = "/sys/kernel/mm/transparent_hugepage/anon_order/record"


def of(area: Area, view: View) -> list[Record]:
    """The records of faults in an area."""
    return [record for record in view.records if area.address <= record.address < area.address + area.length]


@pytest.fixture(autouse=True)
def recording(guest: Guest) -> None:
    """A kernel that has the switch; the agent has switched it on."""
    if "record" not in guest.run("/bin/busybox", "ls", RECORD.rpartition("/")[0]).stdout.split():
        pytest.skip("this kernel has no switch for order records")
    assert guest.read(RECORD).strip() == "1"


def test_a_record_names_its_folio(guest: Guest, process: Process, layout: Layout) -> None:
    """Path, page frame and allowed orders of each fault, held against what the tables map."""
    guest.set_policy("variable")
    area = process.map(4 * layout.block + 3 * layout.page, offset=layout.page)
    area.write()
    view = process.look()
    records = of(area, view)
    assert {record.chosen for record in records} >= {0, layout.hinted_order}
    for record in records:
        assert record.chosen is not None and record.pfn is not None
        size = layout.page << record.chosen
        assert view.output(record.address & -size) == record.pfn * layout.page
        assert record.path == "anonymous"
        # THP has no order 1, and the policy asks for none above the preferred one.
        assert record.allowed == tuple(range(2, layout.hinted_order + 1))


def test_records_that_are_off_judge_nothing(guest: Guest, process: Process, layout: Layout) -> None:
    """Switched off they are *not judged*, though the rings are full of what was; switched on again those are forgotten.

    Without that the record of the first folio would be held against what nobody recorded in its place.
    """
    guest.set_policy("variable")
    area = process.map(2 * layout.block)
    area.write()
    assert len(of(area, process.look())) == 2
    guest.write(RECORD, "0")
    try:
        area.madvise("dontneed")
        guest.set_policy("baseline")
        area.write()
        area.fresh()
        view = process.look(check=False)
        assert not view.errors, view.errors
        assert [reason for reason in view.not_judged if RECORD in reason], view.not_judged
        assert not view.records
    finally:
        guest.write(RECORD, "1")
    area.fresh()
    view = process.look(check=False)
    assert not view.errors, view.errors
    (reason,) = view.not_judged
    assert "has no record of a fault there" in reason
    assert not of(area, view)
    guest.set_policy("variable")
    area.madvise("dontneed")
    area.write()
    area.fresh()
    view = process.look()
    assert not view.errors, view.errors
    assert [record.chosen for record in of(area, view)] == [layout.hinted_order] * 2


@pytest.mark.only_machine("tcg")
@pytest.mark.parametrize("granule", ["4k"])
def test_records_without_a_vmlinux(rig: Rig, tmp_path: Path, granule: str) -> None:
    """Where they are the kernel itself says, by the list of symbols in its memory."""
    image = tmp_path / "Image"
    image.write_bytes((OUT / f"kernel-{granule}" / "Image").read_bytes())
    wanted = Wanted(granule, "max", "tcg", ("--kernel", str(image)))
    guest = rig.guest(wanted)
    guest.reset()
    guest.set_policy("variable")
    process = guest.spawn()
    area = process.map(guest.layout.block)
    area.write()
    (record,) = of(area, process.look())
    assert (record.chosen, record.path) == (guest.layout.hinted_order, "anonymous")
    rig.drop(wanted)
