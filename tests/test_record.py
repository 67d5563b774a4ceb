"""The recorder: sequences of stores, TLB maintenance and barriers, judged while a guest runs and from a trace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command import COMMAND, ROOT, folioscope
from kernel_edits import dsb_of_all, dsb_of_stores, edit, nothing, symbols, tlbi
from recorder import plugin, record, seen

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


# Function, which instructions, what they become; then the rule, and where the new word is written.
EDITS = [
    ("__flush_tlb_range_nosync.constprop.0", tlbi, nothing, "S2", "contpte_convert"),
    ("__flush_tlb_range_nosync.constprop.0", dsb_of_stores, nothing, "S3", "contpte_convert"),
    ("contpte_convert", dsb_of_all, nothing, "S3", "contpte_convert"),
    ("ptep_clear_flush", tlbi, nothing, "S2", "do_wp_page"),
    ("ptep_clear_flush", dsb_of_stores, nothing, "S3", "do_wp_page"),
    ("ptep_clear_flush", dsb_of_all, nothing, "S3", "do_wp_page"),
]


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize(("function", "which", "becomes", "rule", "where"), EDITS)
def test_a_wrong_kernel(granule, function, which, becomes, rule, where, tmp_path) -> None:
    """An instruction is taken away: the rule names it, with the function that wrote the new word."""
    kernel = (ROOT / "out" / f"kernel-{granule}").resolve()
    names = {name for _, name in symbols(kernel / "vmlinux")}
    # What the compiler makes of a function is its own affair.
    function = function if function in names else function.removesuffix(".constprop.0")
    image = tmp_path / "Image"
    assert edit(kernel, function, which, becomes, image) > 0
    ended = record("--kernel", image, "--vmlinux", kernel / "vmlinux", "--only", WORKLOADS)
    assert ended.status == 1, ended.out + ended.err
    rules = re.findall(r"^(S\d) ", ended.out, re.MULTILINE)
    assert set(rules) == {rule}, ended.out
    assert re.search(rf"^  made +CPU \d+ at {where}\+0x", ended.out, re.MULTILINE), ended.out


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
