# SPDX-License-Identifier: GPL-2.0-only
"""The recorder: sequences of stores, TLB maintenance and barriers, judged while a guest runs and from a trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from command import COMMAND, ROOT, folioscope
from kernel_edits import (
    dsb_of_all,
    dsb_of_stores,
    edit,
    last_level,
    nearby,
    no_store,
    nothing,
    of_loads,
    of_stores,
    of_stores_nearby,
    other_asid,
    other_num,
    other_range_level,
    other_scale,
    page_beside,
    step,
    store_exclusive,
    symbols,
    tlbi,
    tlbi_by_va,
    tlbi_of_range,
    tlbi_of_tables,
    twice,
)
from recorder import Found, plugin, record, seen

pytestmark = pytest.mark.only_machine("tcg")
__all__ = ["plugin"]

# Workloads of the tour that fold, unfold, copy and move blocks.
WORKLOADS = "munmap,mprotect,fork"


def judged_right(granule: str, cpu: str, trace: Path) -> str:
    """What is said of a guest in which nothing is wrong, and nothing left unjudged."""
    said = record("--granule", granule, "--cpu", cpu, "--only", WORKLOADS, "--trace", trace).ok()
    assert said.splitlines()[-1] == "0 findings"
    assert "not judged" not in said
    stores, tlbis, barriers = seen(said)
    assert stores > 10_000
    # Beside the stores there are TLBIs and barriers, with 64K pages more than stores.
    assert trace.stat().st_size < 16 * (stores + tlbis + barriers)
    return said


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("granule", ["4k"])
def test_without_hardware_dirty_state(granule: str, tmp_path: Path) -> None:
    """cortex-a72 has KPTI besides, so each process has two ASIDs."""
    judged_right(granule, "cortex-a72", tmp_path / "trace")


@pytest.mark.usefixtures("plugin")
def test_a_right_kernel(granule: str, tmp_path: Path) -> None:
    """No finding; the same from the kept trace, which is small; a cut one says that it is."""
    trace = tmp_path / "trace"
    said = judged_right(granule, "max", trace)

    again = folioscope("record", "--judge", trace).ok()
    assert again.splitlines() == said.splitlines()[1:]

    cut = tmp_path / "cut"
    cut.write_bytes(trace.read_bytes()[: trace.stat().st_size // 2])
    ended = folioscope("record", "--judge", cut)
    assert ended.status == 2 and "not judged: the trace was cut after" in ended.out
    assert 0 < seen(ended.out)[0] < seen(said)[0]


@dataclass(frozen=True)
class Window:
    """Of the descriptor of an address: from the function whose store takes it away to where its TLBI has to be done.
    There the DSB of an interrupt (gic_handle_irq()) or of __switch_to() makes up for one that is gone."""

    at: int
    begins: str
    ends: str


@dataclass(frozen=True)
class Edit:
    """A wrong edit: in this function these instructions become others. Then the rules that name it, and where the new
    word is written."""

    function: str
    which: Callable[[int], bool]
    becomes: Callable[[int], int]
    rules: str
    where: str
    # What the guest does, and how it is booted.
    what: tuple[str, ...] = ("--only", WORKLOADS)
    # One that is passed once in a guest. Then there may be GUESTS of them until the place is named.
    once: Window | None = None

    def __str__(self) -> str:
        return f"{self.function}-{self.which.__name__}-{self.becomes.__name__}"


# The static function of include/asm/tlbflush.h has a copy in each file that calls it: the first in contpte.c, the
# second in hugetlbpage.c, the third in mremap.c, the fourth in pgtable-generic.c.
NOSYNC = "__flush_tlb_range_nosync.constprop.0"
HUGE = ("--only", "thp,fork")
# In one guest of eight, and of four on a host that is busy, one of them comes then. Its trace has to show that.
GUESTS = 4
# A PMD is split once in the tour: between its TLBI and the new word a table is filled.
ALL, SPLIT = (), Window(0xFFFFF7800000, "pmdp_invalidate", "split_huge_pmd_locked")
# Memory that is given back, and taken again: once by MADV_DONTNEED.
REUSE, GIVEN = ("--only", "reuse"), Window(0xFFFFF7C00000, "contpte_clear_full_ptes", "ret_to_user")
BOOT = ("--boot-only",)
# Without LSE, whose instructions are put in when the kernel has booted.
NO_LSE = ("--cpu", "cortex-a72")

# That of memory.c, which takes pages away; "tlb_flush" is its own as well, the second one mmu_gather.c's, for tables,
# and the third mprotect.c's.
ZAP = "__flush_tlb_range_nosync"
# Reclaim's and migration's, whose TLBIs wait for one DSB; pages that others move.
BATCHED = "set_tlb_ubc_flush_pending"
MOVED = ("--only", "migrate,compact")

# For each rule one, which make test does.
EDITS = [
    Edit(NOSYNC, tlbi, nothing, "S2", "contpte_convert"),
    Edit("contpte_convert", dsb_of_all, nothing, "S3", "contpte_convert"),
    Edit("contpte_convert", store_exclusive, no_store, "S1 S4", "contpte_convert", (*NO_LSE, "--only", WORKLOADS)),
    Edit(ZAP, tlbi, nothing, "S7", "contpte_clear_full_ptes", REUSE),
    Edit(NOSYNC, tlbi_of_range, other_num, "S6", "contpte_convert"),
]
MORE_EDITS = [
    Edit(NOSYNC, dsb_of_stores, nothing, "S3", "contpte_convert"),
    Edit("ptep_clear_flush", tlbi, nothing, "S2", "do_wp_page"),
    Edit("ptep_clear_flush", dsb_of_stores, nothing, "S3", "do_wp_page"),
    Edit("ptep_clear_flush", dsb_of_all, nothing, "S3", "do_wp_page"),
    Edit(f"{NOSYNC}#1", tlbi, nothing, "S2", "set_huge_pte_at", ("--only", "hugecow")),
    Edit(f"{NOSYNC}#3", tlbi, nothing, "S2", "split_huge_pmd_locked", HUGE),
    Edit("__set_fixmap", dsb_of_all, nothing, "S3", "__set_fixmap", BOOT),
    Edit(ZAP, dsb_of_stores, nothing, "S7", "contpte_clear_full_ptes", REUSE),
    Edit("tlb_flush", dsb_of_all, nothing, "S7", "contpte_clear_full_ptes", REUSE, GIVEN),
    Edit("tlb_flush#1", tlbi_of_tables, last_level, "S7", "free_pgd_range", REUSE),
    Edit(f"{NOSYNC}#2", tlbi, nothing, "S7", "move_page_tables", ("--only", "mremap")),
    Edit(NOSYNC, dsb_of_stores, of_loads, "S3", "contpte_convert"),
    Edit(NOSYNC, dsb_of_stores, of_stores_nearby, "S3", "contpte_convert"),
    Edit("contpte_convert", dsb_of_all, nearby, "S3", "contpte_convert"),
    Edit("contpte_convert", dsb_of_all, of_stores, "S3", "contpte_convert"),
    Edit("ptep_clear_flush", dsb_of_stores, of_loads, "S3", "do_wp_page"),
    Edit("ptep_clear_flush", dsb_of_stores, of_stores_nearby, "S3", "do_wp_page"),
    Edit("ptep_clear_flush", dsb_of_all, nearby, "S3", "do_wp_page"),
    Edit("ptep_clear_flush", dsb_of_all, of_stores, "S3", "do_wp_page"),
    Edit("ptep_clear_flush", store_exclusive, no_store, "S1", "do_wp_page", (*NO_LSE, "--only", WORKLOADS)),
    Edit(f"{NOSYNC}#3", dsb_of_stores, nothing, "S3", "split_huge_pmd_locked", ALL),
    Edit(f"{NOSYNC}#3", dsb_of_stores, of_loads, "S3", "split_huge_pmd_locked", ALL),
    Edit("__set_fixmap", dsb_of_stores, nothing, "S3", "__set_fixmap", BOOT),
    Edit("__set_fixmap", dsb_of_stores, of_loads, "S3", "__set_fixmap", BOOT),
    Edit("__set_fixmap", dsb_of_all, nearby, "S3", "__set_fixmap", BOOT),
    Edit("__set_fixmap", dsb_of_all, of_stores, "S3", "__set_fixmap", BOOT),
    Edit("pmdp_invalidate", dsb_of_all, nothing, "S3", "split_huge_pmd_locked", ALL, SPLIT),
    Edit("pmdp_invalidate", dsb_of_all, nearby, "S3", "split_huge_pmd_locked", ALL, SPLIT),
    Edit("pmdp_invalidate", store_exclusive, no_store, "S1", "split_huge_pmd_locked", (*NO_LSE, *HUGE)),
    Edit(ZAP, dsb_of_stores, of_loads, "S7", "contpte_clear_full_ptes", REUSE),
    Edit("tlb_flush", dsb_of_all, nearby, "S7", "contpte_clear_full_ptes", REUSE, GIVEN),
    Edit("tlb_flush", dsb_of_all, of_stores, "S7", "contpte_clear_full_ptes", REUSE, GIVEN),
    Edit("tlb_flush#1", dsb_of_stores, nothing, "S7", "free_pgd_range", REUSE),
    Edit("tlb_flush#1", dsb_of_all, nothing, "S7", "free_pgd_range", REUSE),
    Edit("tlb_flush#2", tlbi, nothing, "S7", "ptep_modify_prot_start", ("--only", "mprotect")),
    Edit(ZAP, tlbi_of_range, other_num, "S7", "contpte_clear_full_ptes", REUSE),
    Edit(ZAP, tlbi_of_range, other_scale, "S7", "contpte_clear_full_ptes", REUSE),
    Edit(ZAP, tlbi_of_range, other_range_level, "S7", "contpte_clear_full_ptes", REUSE),
    Edit(ZAP, tlbi_by_va, other_asid, "S7", "contpte_clear_full_ptes", REUSE),
    Edit(ZAP, step, twice, "S7", "contpte_clear_full_ptes", (*NO_LSE, *REUSE)),
    Edit(BATCHED, tlbi, nothing, "S2", "remove_migration_pte", MOVED),
    Edit(BATCHED, dsb_of_stores, nothing, "S3", "remove_migration_pte", MOVED),
    Edit("try_to_unmap_flush", dsb_of_all, nothing, "S3", "remove_migration_pte", MOVED),
    Edit(BATCHED, tlbi, nothing, "S7", "try_to_unmap_one", ("--only", "swap")),
    Edit(NOSYNC, tlbi_of_range, other_range_level, "S6", "contpte_convert"),
    Edit(NOSYNC, tlbi_of_range, page_beside, "S6", "contpte_convert"),
    Edit(NOSYNC, tlbi_by_va, other_asid, "S2", "contpte_convert"),
    Edit("ptep_clear_flush", tlbi_by_va, page_beside, "S2", "do_wp_page"),
    Edit("ptep_clear_flush", tlbi_by_va, other_asid, "S2", "do_wp_page"),
    Edit(f"{NOSYNC}#1", tlbi_of_range, other_num, "S2", "set_huge_pte_at", ("--only", "hugecow")),
    Edit(f"{NOSYNC}#1", tlbi_of_range, other_range_level, "S6", "set_huge_pte_at", ("--only", "hugecow")),
    Edit(f"{NOSYNC}#1", tlbi_by_va, other_asid, "S2", "set_huge_pte_at", ("--only", "hugecow")),
    Edit(f"{NOSYNC}#3", tlbi_of_range, other_range_level, "S6", "split_huge_pmd_locked", HUGE),
]


def made_up_for(window: Window, trace: Path, vmlinux: Path) -> bool:
    """Whether the CPU that took the descriptor away had another DSB behind its TLBI, each time that it was so."""
    text = trace.with_suffix(".text")
    folioscope("record", "--judge", trace, "--vmlinux", vmlinux, "--at", hex(window.at), "--text", text).ok()
    lines = text.read_text().splitlines()
    stores = [at for at, line in enumerate(lines) if f'(src "{window.begins}+' in line and "(mem-write" in line]
    address = re.search(r"\(address 0x[0-9a-f]+\)", lines[stores[0]])
    assert address

    def has_another(begins: int) -> bool:
        cpu = re.search(r"\(tid \d+\)", lines[begins])
        assert cpu
        own = [line for line in lines[begins:] if cpu[0] in line]
        ends = next(at for at, line in enumerate(own) if f'(src "{window.ends}+' in line and "(barrier" not in line)
        tlbi = next(at for at, line in enumerate(own) if line.startswith("(tlbi"))
        return any(re.search(r"dsb \(kind (sy|ish)\)", line) for line in own[tlbi:ends])

    return all(has_another(at) for at in stores if address[0] in lines[at])


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize(
    "wrong", [*EDITS, *(pytest.param(wrong, marks=pytest.mark.long) for wrong in MORE_EDITS)], ids=str
)
def test_a_wrong_kernel(granule: str, wrong: Edit, tmp_path: Path) -> None:
    """An instruction is taken away or weakened: the rule names it, with the function that wrote the new word."""
    kernel = (ROOT / "out" / f"kernel-{granule}").resolve()
    names = {name for _, name in symbols(kernel / "vmlinux")}
    # What the compiler makes of a function is its own affair.
    plain, _, number = wrong.function.partition("#")
    plain = plain if plain in names else plain.removesuffix(".constprop.0")
    image = tmp_path / "Image"
    assert edit(kernel, f"{plain}#{number}" if number else plain, wrong.which, wrong.becomes, image) > 0
    vmlinux, trace = kernel / "vmlinux", tmp_path / "trace"
    kept = ("--trace", trace) if wrong.once else ()
    made = re.compile(rf"  made +CPU \d+ at {wrong.where}\+0x")
    for left in reversed(range(GUESTS if wrong.once else 1)):
        ended = record("--kernel", image, "--vmlinux", vmlinux, *wrong.what, *kept)
        found = Found.all(ended.out)
        assert ended.status == (1 if found else 0), ended.out + ended.err
        named = any(made.match(line) for finding in found for line in finding.lines)
        if named or wrong.once is None or not left:
            break
        assert made_up_for(wrong.once, trace, vmlinux), ended.out
    assert named, ended.out
    assert " ".join(sorted({finding.rule for finding in found})) == wrong.rules, ended.out


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("granule", ["4k"])
def test_a_finding_in_full(granule: str, tmp_path: Path) -> None:
    """What was missing, whose memory it is, the block, and who called."""
    kernel = (ROOT / "out" / f"kernel-{granule}").resolve()
    image = tmp_path / "Image"
    assert edit(kernel, "contpte_convert", dsb_of_all, nothing, image) > 0
    ended = record("--kernel", image, "--vmlinux", kernel / "vmlinux", "--only", "mprotect")
    found = [each for each in Found.all(ended.out) if "Contiguous bit" in each.sentence]
    assert found, ended.out
    for each in found:
        text = "\n".join(each.lines)
        assert re.search(r"^  process \d+", text, re.MULTILINE)
        # Folding and unfolding leave the folio as it is, and the block is one.
        whole = r"^  folio   order 4, anonymous, from page frame 0x[0-9a-f]+0, before and after$"
        assert re.search(whole, text, re.MULTILINE)
        block = re.search(r"^  block   0x0000[0-9a-f]{12} \[(.{16})\] -> \[(.{16})\]$", text, re.MULTILINE)
        assert block and set(block[1]) <= {"-", "="} and block[1] != block[2]
        broken, made = text.split("  made")
        for chain in (broken, made):
            callers = re.findall(r"^          (\w[\w.]*)\+0x", chain, re.MULTILINE)
            # arch/arm64/mm/contpte.c, mm/mprotect.c or mm/memory.c, and where the system call or the fault came in.
            assert re.match(r"__contpte_try_(un)?fold", callers[0]), text
            assert (
                callers[-1] in {"invoke_syscall", "el0_svc", "el0t_64_sync_handler", "el0t_64_sync"}
                or len(callers) == 12
            )


def test_bad_input(tmp_path: Path) -> None:
    """Each in a sentence."""
    missing = tmp_path / "missing.so"
    said = folioscope("record", "--plugin", missing).sentence()
    assert f"expected the recorder's plugin at {missing}" in said and "vmm/setup/plugin.sh" in said
    said = folioscope("record", "--machine", "kvm").sentence()
    assert "a guest on KVM cannot be recorded" in said
    said = folioscope("record", "--judge", COMMAND).sentence()
    assert "expected a trace of `folioscope record`" in said
    newer = tmp_path / "newer"
    newer.write_bytes(b"FOLIOREC" + bytes([9, 0, 0, 0]))
    assert "the trace is of version 9" in folioscope("record", "--judge", newer).sentence()
    assert "no workload 'what' in the tour" in folioscope("record", "--only", "what").sentence().replace('"', "'")
