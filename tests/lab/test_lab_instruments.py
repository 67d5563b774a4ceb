# SPDX-License-Identifier: GPL-2.0-only
"""The laboratory's instruments on guests: what is counted between two marks, by cause, kind, fault and step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from folioscope.guest import Guest
from folioscope.lab.bench import Bench, measure, units
from folioscope.lab.experiments import EXPERIMENTS, MIB, Experiment, crowds, policies
from folioscope.lab.frames import BadHistogram, summary
from folioscope.lab.marks import Interval, intervals
from folioscope.lab.memory import PAGE, watched
from folioscope.lab.orders import NOT_BUILT, series

from command import OUT, folioscope
from laboratory import FEW, bench

__all__ = ["bench"]

pytestmark = pytest.mark.only_machine("tcg")


def counted(guest: Guest, marks: Path, load: str) -> list[Interval]:
    """The intervals of a load."""
    before = len(marks.read_text().splitlines())
    assert guest.run("/lab/load", load, "65536").status == 0
    return intervals(marks, before)


@pytest.mark.parametrize("cpus", [1, 4])
@pytest.mark.parametrize("icount", [True, False])
def test_a_known_program_is_counted_exactly(bench: Bench, tmp_path: Path, icount: bool, cpus: int) -> None:
    """A register's turns, and stores and loads, of which each ends a run of what is counted at once."""
    marks = tmp_path / "marks"
    guest = bench.boot(marks, icount=icount, cpus=cpus)
    try:
        # An interrupt may come in between, and with it another process: never in the shortest of some runs.
        for load, instructions_ in (("known", 1 + 2 * 1000), ("known_memory", 1 + 4 * 500)):
            found = [each for _ in range(5) for each in counted(guest, marks, load)]
            assert {each.name for each in found} == {"known"} and all(each.cpu < cpus for each in found)
            assert min(each.user for each in found) == instructions_
            # Another CPU may do something at any time.
            least = min(found, key=lambda each: each.instructions)
            assert cpus > 1 or (least.kernel == 0 and not any(least.did.values()))
            assert all(each.ns > 0 for each in found)
    finally:
        guest.session.close()


def test_tlb_maintenance_is_counted(bench: Bench) -> None:
    """A page that is given back is one TLBI, with a DSB before and one behind (Linux, __flush_tlb_range())."""
    flush = Experiment("tlb_flush2", "", "tlb_flush2", 4, policies("baseline"))
    found = measure(bench, flush, flush.settings[0])
    pages = units(flush)
    fault, release = found["intervals"]["fault"], found["intervals"]["release"]
    for run in range(bench.runs):
        assert pages <= fault["tlbi"][run] < 1.1 * pages
        assert 2 * pages <= fault["dsb"][run] < 2.2 * pages
        assert release["tlbi"][run] < 0.1 * pages
    crowded = replace(flush, crowds=crowds("processes", 2))
    counts = measure(bench, crowded, crowded.settings[0])["intervals"]["fault, 2 processes"]
    assert all(pages <= run < 1.1 * pages for run in counts["tlbi"])


def test_what_a_fault_costs_by_order(bench: Bench) -> None:
    """As many faults as there are folios of the order; a larger one costs more, and less for each of its pages."""
    orders = replace(EXPERIMENTS["orders"], mib=4)
    pages = units(orders)
    found = {}
    for order in (0, 4):
        setting = next(each for each in orders.settings if each.name == f"order {order}")
        aborts = measure(bench, orders, setting)["entries"]["data abort"]
        assert all(pages >> order <= times < (pages >> order) + FEW // 10 for times in aborts["times"])
        found[order] = median(aborts["instructions"]) / median(aborts["times"])
    assert found[0] < found[4] < 16 * found[0]


def test_a_kernel_of_the_series_is_measured(bench: Bench, tmp_path: Path) -> None:
    """As an Image without a vmlinux; one that is not built is left out."""
    image = tmp_path / "image"
    image.symlink_to(OUT / "kernel-4k" / "Image")
    listed = tmp_path / "list"
    listed.write_text(f"30\t0030 some\t{NOT_BUILT}\n31\t0031 other\t{image}\n")
    experiment = replace(series(listed), mib=4)
    left_out, _, _, measured = experiment.settings
    assert "this kernel is not built (make series builds it)" in measure(bench, experiment, left_out)["missing"]
    assert measured.name == "31 other, 64K"
    aborts = measure(bench, experiment, measured)["entries"]["data abort"]
    assert all(units(experiment) >> 4 <= times < (units(experiment) >> 4) + FEW // 10 for times in aborts["times"])


def test_what_a_step_does_to_page_tables(bench: Bench) -> None:
    """By the recorder: a fault stores each entry that it brings; an unfold clears and writes each of its block's."""
    of_steps = replace(EXPERIMENTS["steps"], mib=1)
    blocks = units(of_steps)
    baseline, variable = (measure(bench, of_steps, of_steps.settings[at]) for at in (0, 2))
    for each in (baseline, variable):
        assert each["steps"]["findings"] == 0 and each["steps"]["not_judged"] == []
        fault = each["steps"]["functions"]["handle_mm_fault"]
        # Two runs of a program may differ by a copy on write.
        assert 16 * blocks <= fault["stores"] <= 18 * blocks and fault["tlbis"] <= blocks // 4
    unfold, fold = (variable["steps"]["functions"][f"__contpte_try_{what}"] for what in ("unfold", "fold"))
    assert unfold["stores"] == fold["stores"] == 2 * 16 * blocks
    assert min(unfold["tlbis"], fold["tlbis"]) >= blocks and min(unfold["dsbs"], fold["dsbs"]) >= 2 * blocks
    assert not any(baseline["steps"]["functions"]["__contpte_try_unfold"].values())


def test_memory_is_looked_at_while_a_load_runs(bench: Bench, tmp_path: Path) -> None:
    """From outside, between the marks; what the load has taken is in use, and a load that fails says so."""
    marks = tmp_path / "marks"
    guest = bench.boot(marks)
    try:
        total = bench.memory_mib * MIB
        program, water = watched(guest, ["/lab/load", "mmap1", str(128 * MIB), "--turns", "20000"], marks, total, 120)
        assert program.status == 0 and water and water["looks"] >= 2
        # Nothing is touched, so that only the kernel and the initramfs are in use.
        assert 16 * MIB < water["low"] <= water["high"] < total // 2
        before = water["high"]
        program, water = watched(guest, ["/lab/load", "read1", str(256 * MIB)], marks, total, 120)
        # The program before had some memory of its own too.
        assert program.status == 0 and water and abs(water["low"] - before - 256 * MIB) < FEW * PAGE
        program, _ = watched(guest, ["/lab/load", "file_map", str(3 * 65536)], marks, total, 120)
        assert program.status == 2 and "expected a file whose size is a power of two" in program.stderr
    finally:
        guest.session.close()


def test_entries_have_all_that_the_kernel_executed(bench: Bench, tmp_path: Path) -> None:
    """Each page a data abort, one munmap(2), and together every instruction of the kernel's."""
    marks = tmp_path / "marks"
    pages = 4 * MIB // PAGE
    bench = replace(bench, more=("--entries",))
    guest = bench.boot(marks)
    try:
        guest.set_policy("baseline")
        assert guest.run("/lab/load", "page_fault1", str(4 * MIB)).status == 0
        fault, release = intervals(marks)
        for each, cause, times in ((fault, "data abort", pages), (release, "syscall 215", 1)):
            assert sum(count for _, count in each.entries.values()) == each.kernel
            assert each.entries[cause][0] == times and each.entries[cause][1] > 0.9 * each.kernel
    finally:
        guest.session.close()
    ended = folioscope("boot", "--machine", "tcg", "--marks", marks, "--entries", "--smp", "2")
    assert "--entries is for guests with one CPU and this one has 2" in ended.sentence()


def test_page_frames_are_counted_by_their_event(bench: Bench, tmp_path: Path) -> None:
    """Of the kernel's text; what was left out is no count. The rig's own kernel has no TCP."""
    lines = [f"{{ pfn:{pfn:11} }} hitcount: {times:10}" for pfn, times in ((7, 1), (4096, 30), (5, 9), (6, 20))]
    text = "\n".join(["# event histogram", "#", "", *lines, "", "Totals:", "    Hits: 60", "    Entries: 4"])
    found = summary(text + "\n    Dropped: 0\n")
    assert (found["allocations"], found["frames"], found["half"]) == (60, 4, 1)
    assert found["most"][:2] == [{"pfn": 4096, "times": 30}, {"pfn": 6, "times": 20}]
    for wrong in (text, text + "\n    Dropped: 3\n", "\n    Dropped: 0\n"):
        with pytest.raises(BadHistogram, match="expected the counts of all page frames"):
            summary(wrong)
    tcp = replace(EXPERIMENTS["tcp"], kernel="")
    assert "the kernel has no TCP" in measure(bench, tcp, tcp.settings[0])["missing"]


def test_locks_are_counted_at_their_functions(bench: Bench) -> None:
    """A fault takes its VMA's lock once, and the table's lock to map what it brings; zap_batch spares the queue."""
    pages = 4 * MIB // PAGE
    settings = policies("baseline", "v2", "rfc")
    experiment = Experiment("locks", "", "page_fault1", 4, settings, locks=True)
    single, v2, rfc = (measure(bench, experiment, setting) for setting in settings)
    for each, faults in ((single, pages), (v2, pages // 16), (rfc, pages // 16)):
        assert not each["missing"] and not each["lost"]
        fault, release = (each["locks"][name] for name in ("fault", "release"))
        assert len(fault["lock_vma_under_rcu"]) == bench.runs
        # An area that begins within a block has two more. Others of the guest may fault meanwhile.
        assert faults <= min(fault["lock_vma_under_rcu"]) <= faults + 16
        assert min(fault["__pte_offset_map_lock"]) >= faults
        # The area is unmapped by one munmap().
        assert 1 <= min(release["down_write_killable"] or [0]) <= 4
        assert faults // 4 > min(release["lock_vma_under_rcu"])
    # do_zap_pte_range() of one page after another has a partially mapped folio.
    assert min(v2["locks"]["release"]["deferred_split_folio"]) >= pages // 16 - 2
    assert max(rfc["locks"]["release"]["deferred_split_folio"]) <= 2
    assert max(single["locks"]["release"]["deferred_split_folio"]) <= 2
