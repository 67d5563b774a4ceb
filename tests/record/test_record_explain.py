# SPDX-License-Identifier: GPL-2.0-only
"""`explain` of an address, out of a kept trace: the last sequences of its block, step by step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from command import OUT, folioscope
from kernel_edits import dsb_of_all, edit, nothing
from recorder import WORKLOAD_ALONE, Found, plugin, record

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin")]
__all__ = ["plugin"]

KERNEL = OUT / "kernel-4k"
PAGES = 16
# Where the workload's area is: the first of its process, by the agent's own choice (Placement::Isolated).
BLOCK = 0xFFFF_F7C0_0000


@dataclass(frozen=True)
class Step:
    """A line of a sequence: the event, the CPU, what was done, the block behind it, where."""

    event: int
    cpu: int
    what: str
    block: str
    place: str


def sequences(said: str) -> list[tuple[str, list[Step]]]:
    """What heads each, and its steps."""
    found: list[tuple[str, list[Step]]] = []
    for line in said.splitlines():
        if head := re.match(r"  sequence (.*)", line):
            found.append((head[1], []))
        elif step := re.match(r" +(\d+)  CPU (\d+)  (.*?)  \[(.*)\]  (\S.*)$", line):
            found[-1][1].append(Step(int(step[1]), int(step[2]), *step.groups()[2:]))
    return found


def addresses(step: Step) -> list[int]:
    """The pages whose descriptors a step stores."""
    first = int(step.what.split(":")[0], 16)
    more = re.search(r" and (\d+) more$", step.what)
    return [first + at * 4096 for at in range(1 + int(more[1] if more else 0))]


def explain(va: int, trace: Path, *more: object) -> str:
    """What is said of it, by the names of the kernel."""
    return folioscope("explain", hex(va), trace, "--vmlinux", KERNEL / "vmlinux", *more).ok()


@pytest.fixture(scope="module")
def unfolded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a block that is unfolded by one page's mprotect(), and then has its rights changed as a whole."""
    trace = tmp_path_factory.mktemp("unfolded") / "trace"
    record("--only", "unfolded", "--trace", trace).ok()
    return trace


def test_the_last_sequences(unfolded: Path) -> None:
    """The block was unfolded: 16 entries cleared, flushed, and written again, before the page's rights change."""
    said = explain(BLOCK + 5 * 4096, unfolded, "--last", "16")
    assert re.search(r"^  space    the address space with first table 0x[0-9a-f]+, process \d+", said, re.MULTILINE), (
        said
    )
    told = sequences(said)
    # The last is that its process is ended, which no system call of its own does.
    assert all("mprotect()" in head or "page fault" in head for head, _ in told[:-1]), said
    assert re.search(r"process \d+$", told[-1][0]), said
    # contpte_convert() as __contpte_try_unfold() has it do (arch/arm64/mm/contpte.c): all cleared, then all written.
    unfold = next(steps for _, steps in told if any(step.block == "-" * PAGES for step in steps))
    stores = [step for step in unfold if step.what.startswith("0x")]
    # An interrupt parts a run of stores, and may add DSBs of its own.
    blocks = [step.block for step in stores]
    cleared, made = blocks.index("." * PAGES) + 1, blocks.index("-" * PAGES) + 1
    for run in (stores[:cleared], stores[cleared:made]):
        assert all(step.place.startswith("contpte_convert+") for step in run), said
        assert [va for step in run for va in addresses(step)] == [BLOCK + at * 4096 for at in range(PAGES)], said
    first, last = unfold.index(stores[cleared - 1]), unfold.index(stores[cleared])
    between = [step.what.split()[0] for step in unfold[first + 1 : last]]
    assert between[0] == between[-1] == "DSB" and between.count("TLBI") == 1 and set(between) == {"DSB", "TLBI"}, said
    assert [step.event for step in unfold] == sorted(step.event for step in unfold)
    # Without --last it is the last of them, and the same.
    assert sequences(explain(BLOCK, unfolded)) == told[-1:]


def test_a_finding_is_named_with_its_sequence(tmp_path: Path) -> None:
    """A kernel that has no DSB behind its flush: explain says so of the VA that the finding is about."""
    trace, image = tmp_path / "trace", tmp_path / "Image"
    assert edit(KERNEL.resolve(), "contpte_convert", dsb_of_all, nothing, image) > 0
    kernel = ("--kernel", image, "--vmlinux", KERNEL / "vmlinux", *WORKLOAD_ALONE)
    ended = record(*kernel, "--only", "mprotect", "--trace", trace)
    assert ended.status == 1, ended.out
    found = Found.all(ended.out)[0]
    made = int(re.search(r"  made .*\(event (\d+)\)", "\n".join(found.lines))[1])  # type: ignore[index]
    said = explain(found.va, trace, "--last", "16")
    assert f"  wrong    {found.rule} {found.sentence} (event {made})" in said, said
    # The trace of a live guest and what is read from it count alike.
    ours = [steps for _, steps in sequences(said) if steps[0].event <= made <= steps[-1].event + PAGES]
    assert ours, said
    # kthreadd has no address space of its own.
    other = folioscope("explain", hex(found.va), trace, "--pid", "2")
    assert "expected process 2 among those" in other.sentence()


def test_what_no_trace_has(unfolded: Path, tmp_path: Path) -> None:
    """An address that nobody wrote; a trace that was cut; options of other sources."""
    nobody = folioscope("explain", "0xf123456789000", unfolded)
    assert nobody.status == 2 and "sequence none" in nobody.out
    cut = tmp_path / "cut"
    cut.write_bytes(unfolded.read_bytes()[: unfolded.stat().st_size // 2])
    ended = folioscope("explain", "0x123456789000", cut)
    assert ended.status == 2 and "not judged: the trace was cut after" in ended.out
    assert "leave --since out" in folioscope("explain", "0x1000", unfolded, "--since", cut).sentence()
