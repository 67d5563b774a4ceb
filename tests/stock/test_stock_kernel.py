# SPDX-License-Identifier: GPL-2.0-only
"""Kernels that others have built: Debian's own, 4K and 16K, without a vmlinux and without our patches.

Whatever is an error on them is a false alarm, but for the marks of two faults that they have. Which kernels there are
is the mirror's affair: the newest of each series is taken, 6.12 of the machine's own suite, the others of Debian 13's
backports. What they cannot do without our patches and options is left out by name.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from folioscope import Guest, View
from folioscope.guest import number
from folioscope.layout import LAYOUTS
from folioscope.rig import Rig, Wanted

from command import BOOT_SECONDS, OUT, ROOT, folioscope
from live_pages import word
from test_rules_live import CONT, broken
from test_rules_live_kernel import Half
from test_tour_wrong import spoiled
from tour_states import Runs, codes, compare

pytestmark = pytest.mark.network

# What any kernel can play; Debian's cannot make allocations fail, and bring zram and NUMA as modules or not at all.
PLAYED = ["anon", "neighbour", "munmap", "mprotect", "dontneed", "fork", "shmem", "thp", "zeropage", "sizes", "vma"]
PLAYED += ["mlock", "mremap", "free", "populate", "ksm", "hugetlb", "uffd", "hole", "tmpfs"]
MAY_BE_LEFT_OUT = {"allocfail", "swap", "migrate", "compact", "collapse", "text"}
FETCH_SECONDS = 600


class Kernel(NamedTuple):
    """A page size, and a series as stock.sh takes it."""

    granule: str
    series: str

    def __str__(self) -> str:
        return f"{self.granule}-{self.series}"


# One of each series whenever tests run; the rest where there is time.
EACH = [Kernel("4k", "6.12"), Kernel("4k", "6.18"), Kernel("4k", "7")]
LONG = [Kernel("16k", "6.12"), Kernel("16k", "6.18"), Kernel("16k", "7"), Kernel("4k", "7.2")]


def kernels(*whenever: Kernel, without: str = "") -> pytest.MarkDecorator:
    """A test of each kernel, but for those of a series, which `make test` does with some."""
    others = [kernel for kernel in EACH + LONG if kernel not in whenever and kernel.series != without]
    long = [pytest.param(kernel, marks=pytest.mark.long) for kernel in others]
    return pytest.mark.parametrize("kernel", [*whenever, *long], ids=str)


of_each = kernels(*EACH)


class Fault(NamedTuple):
    """A fault of some releases: which rule names it, and the commit that mended it."""

    rule: str
    commit: str

    def is_in(self, release: tuple[int, int, int]) -> bool:
        """By the releases that have the commits; 6.12's own newest has the first two."""
        if self.rule == "L4":
            return release < (6, 12, 117) or (6, 13, 0) <= release < (7, 3, 0)
        if self.rule == "L12":
            return release < (7, 2, 0)
        return (6, 18, 0) <= release < (7, 0, 0)

    def explains(self, finding: dict[str, Any], release: str) -> bool:
        """Whether this is it, on a kernel that has it, and the finding says so."""
        said = " ".join(finding.get("remarks", []))
        told = self.commit in said and "upstream has mended" in said
        return finding["rule"] == self.rule and self.is_in(version(release)) and told


FAULTS = [
    Fault("L4", "arm64: mm: restrict transparent contpte mappings to valid PTEs"),
    Fault("K2", "arm64: mm: Add PTE_DIRTY back to PAGE_KERNEL*"),
]
# No tour shows this one: hugetlb pages that are migrated count as anonymous folios.
MIGRATED = Fault("L12", "mm/migrate: exclude hugetlb folios from MTHP_STAT_NR_ANON accounting")


def version(release: str) -> tuple[int, int, int]:
    """The numbers of a release, as `6.18.15+deb13-cloud-arm64` has them."""
    major, minor, patch = release.split("+")[0].split("-")[0].split(".")
    return int(major), int(minor), int(patch)


@cache
def stock(kernel: Kernel) -> Path:
    """The newest stock kernel of a series, from the cache or from Debian."""
    script = ROOT / "vmm" / "setup" / "stock.sh"
    fetched = subprocess.run([script, *kernel], check=False, capture_output=True, text=True, timeout=FETCH_SECONDS)
    assert fetched.returncode == 0, fetched.stderr
    return Path(fetched.stdout.strip())


def guest_of(rig: Rig, granule: str, series: str) -> Guest:
    """A fresh guest of the newest stock kernel of a series, or of the rig's own (`pinned`)."""
    more = () if series == "pinned" else ("--kernel", str(stock(Kernel(granule, series))))
    guest = rig.guest(Wanted(granule, "max", "tcg", more))
    guest.reset()
    return guest


@cache
def tour(kernel: Kernel) -> tuple[str, dict[str, Any], int]:
    """The whole tour on a stock kernel: the text, the report and the status."""
    out = OUT / "stock"
    out.mkdir(parents=True, exist_ok=True)
    report = out / f"{kernel}.json"
    options = ["--kernel", stock(kernel), "--out", out, "--json", report]
    ended = folioscope("run", *options, seconds=4 * BOOT_SECONDS)
    assert ended.status in (0, 1), ended.err
    return ended.out, json.loads(report.read_text()), ended.status


def findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    """All findings of a report, by what was judged."""
    judged = [each for step in report["steps"] for each in [*step["processes"], step.get("kernel")] if each]
    return [finding for each in judged for finding in each["findings"]]


@of_each
def test_no_false_alarm(kernel: Kernel) -> None:
    """It boots from its vmlinuz, every checkpoint is judged, and an error is the mark of a fault that it has.

    Each finding then names the commit that mended it; and what the kernel has is found.
    """
    text, report, status = tour(kernel)
    release = version(report["kernel"]["release"])
    assert ".".join(map(str, release)).startswith(f"{kernel.series}.")
    assert report["totals"]["not_judged"] == 0
    assert report["machine"]["page_size"] == LAYOUTS[kernel.granule].page
    assert report["kernel"].get("policy") is None and report["kernel"]["contpte"] is True
    played = [step["workload"] for step in report["steps"]]
    assert [name for name in dict.fromkeys(played) if name not in MAY_BE_LEFT_OUT] == [*PLAYED, "kernel"]
    # Below a PMD's size only later kernels collapse.
    labels = [step["step"] for step in report["steps"] if step["workload"] == "collapse"]
    assert labels == (["pages", "full", "sparse"] if release >= (7, 3, 0) else []) or release[:2] == (7, 2)
    assert report["steps"][-1]["kernel"]["mapped"]
    errors = [finding for finding in findings(report) if finding["severity"] == "error"]
    has = [fault for fault in FAULTS if fault.is_in(release)]
    assert {finding["rule"] for finding in errors} == {fault.rule for fault in has}
    for finding in errors:
        assert any(fault.explains(finding, report["kernel"]["release"]) for fault in has), finding
    # The text breaks its lines.
    for fault in has:
        assert fault.commit in " ".join(text.split())
    assert report["outcome"] == ("errors" if has else "ok")
    assert text.rstrip().endswith("errors found (exit status 1)" if has else "ok no error found (exit status 0)")
    assert status == (1 if has else 0)


@of_each
def test_what_is_counted_is_read(rig: Rig, kernel: Kernel) -> None:
    """No counter and no list is left out because a release has given it another name or place."""
    guest = guest_of(rig, kernel.granule, kernel.series)
    for _ in range(20):
        parts: dict[str, Any] = guest.call("counted")["counted"]
        memory = parts["memory"]["Ok"]
        # What is just being changed is read again.
        lacks = {name: part["Err"] for name, part in {**parts, "lists": memory["lists"]}.items() if "Err" in part}
        if not any(why["later"] for why in lacks.values()):
            break
    assert lacks == {}
    census = parts["census"]["Ok"]
    assert all(it[name] for name in ("large", "written", "lists", "pinned", "poisoned") for it in (memory, census))
    # Where the CPUs' registers and the stacks of tasks are not known, this is not judged; nor while a task is at it.
    at = memory["isolated"][1]
    with guest.spawn("idle").hold() as held:
        assert any(broken(held, [(at, word(guest, at) + 1)]) == [("L15", 0)] for _ in range(20))
    assert parts["committed"]["Ok"]["limited"]


@of_each
def test_protnone_that_keeps_the_bit(kernel: Kernel) -> None:
    """L4 on a kernel that has the fault: bit 52 in every word of one block, none of them valid, and nothing else."""
    _, report, _ = tour(kernel)
    fault = FAULTS[0]
    found = [finding for finding in findings(report) if finding["rule"] == fault.rule]
    assert bool(found) == fault.is_in(version(report["kernel"]["release"]))
    for finding in found:
        words = [number(word) for word in finding["words"]]
        assert all(word >> 52 & 1 and not word & 1 for word in words), finding


@of_each
def test_what_is_left_out_is_named(kernel: Kernel) -> None:
    """The workload that needs a debugging option; of the kernel half, which needs no vmlinux, nothing is."""
    text, report, _ = tour(kernel)
    at = text.index("\nallocfail - ")
    assert "left out: the kernel has no CONFIG_FAIL_PAGE_ALLOC" in text[at:].splitlines()[2]
    left_out = set(re.findall(r"^(\w+) - .*\n(?:.*\n){0,2}?.*left out: ", text, re.M))
    played = {step["workload"] for step in report["steps"]}
    assert left_out == MAY_BE_LEFT_OUT - played, "a workload that was not played is not named"
    assert "it has no order policies" in text.splitlines()[0]
    said = [note for note in report["steps"][-1]["kernel"]["notes"] if "not judged" in note or "not read" in note]
    assert said == []


@pytest.mark.parametrize("kernel", EACH, ids=str)
def test_k1_without_a_vmlinux(rig: Rig, kernel: Kernel) -> None:
    """A run of the linear map has the bit, with rodata=full, which Debian's kernels have.

    From 6.18 on the CPU's ID_AA64MMFR2_EL1 would let it (BBM of 2), and the kernel does not. And before 6.16 one of
    vmemmap or the fixmap has it. Where these lie the kernel's own symbols tell.
    """
    guest = rig.guest(Wanted(kernel.granule, "max", "tcg", ("--kernel", str(stock(kernel)))))
    process = guest.spawn()
    with process.hold():
        half = Half(process, "K1")
        runs = [
            (level, index)
            for (level, index), group in half.groups.items()
            if level == 3 and len(group) == half.members(level) and half.in_step(group)
            if not any(entry.word & CONT for entry in group)
        ]
        linear = [run for run in runs if half.linear(half.groups[run][0])]
        above = [run for run in runs if half.groups[run][0].va > 0xFFFF_FC00 << 32]
        early = version(guest.read("/proc/sys/kernel/osrelease")) < (6, 16, 0)
        assert linear and (above or not early)
        for level, index in [*linear[-1:], *above[: int(early)]]:
            pokes = [(entry.address, entry.word | CONT) for entry in half.groups[level, index]]
            assert half.broken(pokes) == [("K1", index * half.bytes(level))]
    process.exit()


@kernels(*EACH[1:], without="6.12")
def test_linear_map_that_is_split(rig: Rig, tmp_path: Path, kernel: Kernel) -> None:
    """A kernel that takes its CPU for one that splits blocks: with rodata=full there are some, contiguous ones too.

    Its ID_AA64MMFR2_EL1 does not tell, as AmpereOne's does not: Linux has a list. That is no finding, and what no other
    rule says of the linear map is said not to be judged.
    """
    image = stock(kernel).read_bytes()
    # cpu_supports_bbml2_noabort(), later cpu_supports_bbml3(): the first of its list, Cortex-X4 from r0p3 on, becomes
    # Neoverse N1 in all versions.
    x4, n1 = struct.pack("<3I", 0x410FD820, 3, 0xF), struct.pack("<3I", 0x410FD0C0, 0, 0x00F0_000F)
    assert image.count(x4) == 1
    (tmp_path / "Image").write_bytes(image.replace(x4, n1))
    guest = rig.guest(Wanted(kernel.granule, "neoverse-n1", "tcg", ("--kernel", str(tmp_path / "Image"))))
    process = guest.spawn()
    with process.hold():
        half = Half(process, "K1")
        folded = [group[0] for group in half.groups.values() if all(entry.word & CONT for entry in group)]
        levels = {entry.level for entry in folded if half.linear(entry)}
        # At 16K a contiguous run of blocks is 1 GiB, which is all the guest has.
        assert levels == ({2, 3} if kernel.granule == "4k" else {3})
        verdict = half.call([])["verdict"]
    assert any("the linear map was not judged" in note and "this one does" in note for note in verdict["notes"])
    process.exit()


@of_each
def test_blocks_follow_sysfs(kernel: Kernel) -> None:
    """With the block's size enabled in sysfs every aligned block of an anonymous area is contiguous."""
    report = tour(kernel)[1]
    (anon,) = [step for step in report["steps"] if (step["workload"], step["step"]) == ("anon", "sparse")]
    totals: dict[str, int] = {}
    for process in anon["processes"]:
        for vma in process["vmas"]:
            for state, blocks in vma["blocks"].items():
                totals[state] = totals.get(state, 0) + blocks
    # Forward and backward four blocks each, and every other one of eight.
    assert totals["folded"] == 4 + 4 + 4
    assert totals.get("broken", 0) == 0


def test_policy_needs_the_patches() -> None:
    """POLICY= on a stock kernel: which kernel, and what to do."""
    options = [
        "--kernel",
        stock(EACH[0]),
        "--policy",
        "variable",
        "--only",
        "anon",
        "--out",
        OUT / "stock",
    ]
    sentence = folioscope("run", *options).sentence()
    assert "has no order policies" in sentence and "kernel-patches/" in sentence and "leave POLICY out" in sentence


@kernels(EACH[-1])
def test_exclusive_by_the_first_page(rig: Rig, kernel: Kernel) -> None:
    """A PMD's block, of which a child has given back the first page: pagemap says that all of it is exclusive (L17).

    pagemap_pmd_range_thp() asks the block's first page for each of its pages, in 7.3.4 still; 6.12 asks each.
    """
    guest = rig.guest(Wanted(kernel.granule, "max", "tcg", ("--kernel", str(stock(kernel)))))
    process, layout = guest.spawn(), guest.layout
    area = process.map(3 * layout.pmd)
    start = -(-area.address // layout.pmd) * layout.pmd
    first, pages = (start - area.address) // layout.page, layout.pmd // layout.page
    area.madvise("hugepage")
    area.write(first, pages)
    child = process.fork()
    view = process.look(getters=True)
    assert not view.errors and not view.not_judged and (entry := view.entry(start)) and entry.level == 2
    area.in_process(child).madvise("dontneed", first, 1)
    exclusive = [word >> 56 & 1 for word in process.pagemap(start, pages)]
    view = process.look(getters=True, check=False)
    assert not view.not_judged
    if version(guest.hello.kernel_release) < (6, 13, 0):
        assert exclusive == [1, *[0] * (pages - 1)] and not view.errors
    else:
        assert exclusive == [1] * pages
        (finding,) = view.errors
        assert (finding.rule, finding.va) == ("L17", start + layout.page)
        assert "(EXCLUSIVE), and kpagecount 2" in finding.message
    for each in (child, process):
        each.exit()


# Checkpoint, block, page in it, bit, the rules that speak.
WRONG = [
    ("pages", 0, 2, 10, {"L5"}),
    ("full", 0, 2, 52, {"A4", "C1"}),
    # WRITE, DIRTY and RDONLY at once; the CPU may have made the difference, so it is none of A5.
    ("full", 2, 0, 7, {"L6"}),
    ("sparse", 1, 15, 10, {"L5"}),
]


@pytest.mark.long
def test_what_khugepaged_makes(rig: Rig) -> None:
    """Blocks of single pages: every raw entry before and after; and an entry that is wrong is named."""
    guest = rig.guest(Wanted("4k", "max", "tcg", ("--kernel", str(stock(Kernel("4k", "7"))))))
    n, rest = 16, (512 - 3 * 16, ".")
    wanted: dict[str, Runs] = {
        "pages": [(n, "vWy"), (n - 1, "vWy"), (1, "."), (n, "vWy"), rest],
        "full": [(n, "cWy"), (n - 1, "vWy"), (1, "."), (n, "cWy"), rest],
        "sparse": [(3 * n, "cWy"), rest],
    }
    raw = guest.call("tour", name="collapse", policy="variable", seconds=120)
    assert [each["label"] for each in raw["checkpoints"]] == list(wanted)
    for each in raw["checkpoints"]:
        view = View(each["look"], guest.layout)
        assert not view.errors and not view.not_judged
        (area,) = each["areas"]
        assert not compare(codes(view, area["address"], area["length"]), wanted[each["label"]])
    for label, block, page, bit, rules in WRONG:
        found = spoiled(guest, "collapse", label, area=0, page=n * block + page, bit=bit).rules()
        assert found == rules, (label, block, page, bit)
