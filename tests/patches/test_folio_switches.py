# SPDX-License-Identifier: GPL-2.0-only
"""A look at a program of one's own says so, where the kernel's switches are why it has no contiguous block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from own_qemu import LAYOUT, MEMFD, NONCE, Guest, checked
from test_stock_kernel import Kernel, stock

pytestmark = [pytest.mark.network, pytest.mark.qemu]

THP = "/sys/kernel/mm/transparent_hugepage"
BLOCK = f"{THP}/hugepages-{LAYOUT.block // 1024}kB/enabled"
REMARK = "no block of it is contiguous: the kernel's switches "
KERNELS = [Kernel("4k", "6.12"), pytest.param(Kernel("4k", "7"), marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=KERNELS, ids=str)
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A stock kernel's guest, whose switches are as its distribution has them."""
    machine = ["-M", "virt,memory-backend=ram", "-object", MEMFD]
    with Guest(tmp_path_factory.mktemp("own"), *machine, kernel=stock(request.param)) as guest:
        yield guest


def program(own: Guest, advice: str = "") -> int:
    """A process that writes to memory for two blocks, and waits in user mode."""
    spawned = own.command("spawn", name="mine")["spawned"]
    process = spawned["process"]
    place = {"isolated": {"offset": 0}}
    area = own.op(process, "mmap", length=2 * LAYOUT.block, place=place)["mapped"]["address"]
    if advice:
        own.op(process, "madvise", address=area, length=2 * LAYOUT.block, advice=advice)
    own.op(process, "touch", address=area, length=2 * LAYOUT.block, access="write", order="forward")
    own.command("checkpoint", process=process, nonce=NONCE, smaps=False)
    return int(spawned["pid"])


def switch(own: Guest, path: str) -> str:
    """The chosen word of a switch."""
    text = own.command("read_file", path=path)["file"]["content"]["text"]
    (chosen,) = re.findall(r"\[(\w+)\]", text)
    return str(chosen)


def sizes(own: Guest) -> list[str]:
    """The sizes that are on by the guest's own files, those for any memory first, as a remark names them."""
    found: dict[str, list[str]] = {"always": [], "madvise": []}
    for order in range(2, 10):
        size = (LAYOUT.page << order) >> 10
        chosen = switch(own, f"{THP}/hugepages-{size}kB/enabled")
        chosen = switch(own, f"{THP}/enabled") if chosen == "inherit" else chosen
        found.get(chosen, []).append(f"{size} KiB")
    return [*found["always"], *(f"{size} with MADV_HUGEPAGE" for size in found["madvise"])]


def looked_at(own: Guest, pid: int, place: Path) -> tuple[dict[str, Any], list[str]]:
    """A process as `check` has it, and the remarks on switches; `maps` has the same ones."""
    status, report = checked(own, place, "--pid", str(pid))
    assert status == 0
    (process,) = report["steps"][0]["processes"]
    remarks = [note for note in process["notes"] if note.startswith(REMARK)]
    maps = own.attach("maps", str(pid)).ok()
    assert (REMARK in maps) == bool(remarks) and all(remark in maps for remark in remarks)
    return process, remarks


def test_what_the_remark_says_is_done(own: Guest, tmp_path: Path) -> None:
    """As the distribution has it no block is contiguous; the remark's own command changes that for what comes after."""
    assert switch(own, BLOCK) == "never"
    before = program(own)
    process, remarks = looked_at(own, before, tmp_path)
    assert process["entries"]["contiguous_pages"] == 0
    (remark,) = remarks
    on = sizes(own)
    assert (
        f"are off for each size of whole blocks below a PMD's ({'on: ' + ', '.join(on) if on else 'none is on'})"
        in remark
    )
    command = re.search(r"for 64 KiB: echo (\w+) > (\S+), in the guest$", remark)
    assert command and command[2] == BLOCK, remark
    own.command("write_file", path=command[2], text=command[1])
    try:
        process, remarks = looked_at(own, program(own), tmp_path)
        assert process["entries"]["contiguous_pages"] >= 2 * LAYOUT.cont_pages and remarks == []
        # Switches say nothing of what was there before.
        assert looked_at(own, before, tmp_path)[1] == []
    finally:
        own.command("write_file", path=BLOCK, text="never")


def test_sizes_for_memory_that_asks(own: Guest, tmp_path: Path) -> None:
    """With `madvise` a program that does not ask has no block, and one that asks has."""
    own.command("write_file", path=BLOCK, text="madvise")
    try:
        process, remarks = looked_at(own, program(own), tmp_path)
        assert process["entries"]["contiguous_pages"] == 0
        (remark,) = remarks
        assert "give whole blocks to memory with MADV_HUGEPAGE alone, and it has none" in remark
        assert "64 KiB with MADV_HUGEPAGE" in remark
        process, remarks = looked_at(own, program(own, "hugepage"), tmp_path)
        assert process["entries"]["contiguous_pages"] >= 2 * LAYOUT.cont_pages and remarks == []
    finally:
        own.command("write_file", path=BLOCK, text="never")
