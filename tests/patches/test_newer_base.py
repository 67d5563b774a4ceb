# SPDX-License-Identifier: GPL-2.0-only
"""Debian's newest 7.x with the patches that are for it: the exact tests of the series, and what 7.x alone has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from folioscope import Guest
from folioscope.rig import Rig, Wanted

from command import OUT, ROOT, folioscope, module
from kernel_edits import edit
from live_pages import MAPCOUNT, page_of, word
from test_rules_live import broken, errors
from test_stock_kernel import FETCH_SECONDS
from test_tour import tour
from tour_states import Runs, compare, pages_of

pytestmark = [pytest.mark.network, pytest.mark.long, pytest.mark.timeout(3600)]

#: Where it is set, pages of large folios do not count what maps them. No type of a kernel tells.
UNCOUNTED = "NO_PAGE_MAPCOUNT"
#: Bytes that arm64 asks readahead for at once where memory is executable (``exec_folio_order()``).
EXECUTABLE = 64 << 10
#: What is read ahead of a device unless it is told otherwise (``VM_READAHEAD_PAGES``), in bytes.
AHEAD = 128 << 10


@cache
def kernel(granule: str, option: str = "") -> Path:
    """The directory of its Image and vmlinux, built where the cache has none; with an option more."""
    fetch = [ROOT / "vmm" / "setup" / "source.sh", "7"]
    tarball = subprocess.run(fetch, check=True, capture_output=True, text=True, timeout=FETCH_SECONDS).stdout.strip()
    out = OUT / f"7.x-{granule}{option and '-' + option.lower()}"
    environment = os.environ | {"FOLIOSCOPE_KERNEL_TARBALL": tarball}
    with tempfile.TemporaryDirectory() as place:
        patches = ROOT / "kernel-patches"
        if option:
            patches = Path(shutil.copytree(patches, Path(place) / "kernel-patches"))
            with (patches / "config" / "newer.config").open("a") as config:
                config.write(f"CONFIG_{option}=y\n")
        words = [patches / "build.sh", "--granule", granule, "--base", "7.x", "--out", out]
        built = subprocess.run(words, capture_output=True, text=True, timeout=3000, env=environment, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    assert not option or f"CONFIG_{option}=y" in (out / "config").read_text().splitlines()
    return out


#: What is about each topic of the series, and how many of its tests pass at least.
TESTS = {
    "policy": (["tour", "paths", "adaptive", "order_records", "counts", "map_align"], 200),
    "page-lists": (["pcp"], 10),
    "roadmap": (["roadmap"], 20),
    "ramfs": (["ramfs", "ramfs_faults", "ramfs_modes"], 20),
    "write-faults": (["zero_page", "reused_folios", "copied_folios", "write_faults_pressed"], 40),
}


@pytest.mark.parametrize("topic", list(TESTS))
@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_each_topic(granule: str, topic: str) -> None:
    """What is foretold holds here too: of each page, policy, path, record and counter, and of what a switch does."""
    names, least = TESTS[topic]
    place = kernel(granule)
    options = ["--guest-kernel", place / "Image", "--guest-vmlinux", place / "vmlinux", "--machine", "tcg", "-n", "0"]
    words = [sys.executable, "-m", "pytest", *(module(f"test_{name}.py") for name in names), "-m", "not long", *options]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert int(re.findall(r"\b(\d+) passed\b", run.stdout)[-1]) >= least, run.stdout[-1000:]


@pytest.mark.parametrize(
    "granule,option,policy",
    [
        *((granule, "", "variable") for granule in ("4k", "16k", "64k")),
        ("4k", UNCOUNTED, "variable"),
        ("4k", "", "sysfs"),
        ("4k", "", "adaptive"),
    ],
)
def test_tour(tmp_path: Path, granule: str, option: str, policy: str) -> None:
    """All workloads, those that the pinned base leaves out too: no finding, and nothing is left unjudged."""
    place = kernel(granule, option)
    words = ["--granule", granule, "--kernel", place / "Image", "--vmlinux", place / "vmlinux", "--out", tmp_path]
    ended = folioscope("run", *words, "--policy", policy, seconds=300)
    assert ended.status == 0, ended.out[-3000:] + ended.err
    assert f"policy {policy}" in ended.out and "order records were not read" not in ended.out
    assert re.search(r"^\d+ checkpoints, \d+ entries: 0 errors, \d+ remarks?, 0 not judged", ended.out, re.MULTILINE)
    assert all(f"ok {name}: " in ended.out for name in ("collapse", "swap", "text"))
    left_out = re.findall(r"^  left out: (.*)$", ended.out, re.MULTILINE)
    # The size of a PMD's folio is more than there is in one piece.
    assert len(left_out) == (granule == "64k"), left_out


@contextmanager
def guest_of(rig: Rig, granule: str, option: str = "") -> Iterator[Guest]:
    """A guest of that kernel."""
    place = kernel(granule, option)
    wanted = Wanted(granule, "max", "tcg", ("--kernel", str(place / "Image"), "--vmlinux", str(place / "vmlinux")))
    guest = rig.guest(wanted)
    try:
        guest.reset()
        yield guest
    finally:
        rig.drop(wanted)


@pytest.fixture(scope="module", params=["4k", "16k", "64k"])
def newer(request: pytest.FixtureRequest, rig: Rig) -> Iterator[Guest]:
    """One of each granule."""
    with guest_of(rig, request.param) as guest:
        yield guest


def test_executable_memory(newer: Guest) -> None:
    """Each page of the tour's mapping that is to be run, and of one of the same file that is not."""
    layout = newer.layout
    seen = tour(newer, "text", "variable")
    around = EXECUTABLE // layout.page
    shape = "c" if layout.granule == "4k" else "v"
    nothing: Runs = [(around, ".")]
    folio: Runs = [(around, f"{shape}ry")]
    # The page that was asked for is young, what is mapped around it is not, and that one is left out whose use is to
    # start the next readahead (do_sync_mmap_readahead(): half before the page, and a quarter from the mark on).
    ahead = AHEAD // layout.page
    mark = ahead - ahead // 2 - ahead // 4
    single: Runs = [(1, "vry"), *((1, "." if at == mark and ahead // 4 else "vro") for at in range(1, around))]
    wanted: dict[str, Runs] = {
        "ran": nothing + folio + 6 * nothing,
        "beside": nothing + 2 * folio + 5 * nothing,
        "as data": nothing + folio + 3 * nothing + single + 2 * nothing,
        "late": nothing + 2 * folio + 2 * nothing + single + 2 * nothing,
    }
    assert list(seen) == list(wanted)
    for label, row in wanted.items():
        view, (area,) = seen[label]
        assert area["length"] == 8 * EXECUTABLE
        assert not compare(pages_of(view, area, layout), row), label


def test_executable_memory_in_single_pages(tmp_path: Path) -> None:
    """A kernel that reads what is to be run in single pages is named, at each step: its blocks are not contiguous."""
    image = tmp_path / "Image"
    # MOV of 4, exec_folio_order(), into what is stored as ra->order: of 0.
    edited = edit(kernel("4k"), "filemap_fault", lambda opcode: opcode == 0x52800084, lambda _: 0x52800004, image)
    assert edited == 1, "the compiler has made something else of it"
    words = ["--kernel", image, "--vmlinux", kernel("4k") / "vmlinux", "--only", "text", "--out", tmp_path]
    ended = folioscope("run", *words, "--json", tmp_path / "report.json", seconds=300)
    assert ended.status == 1, ended.out[-3000:] + ended.err
    steps = [step for step in json.loads((tmp_path / "report.json").read_text())["steps"] if step["workload"] == "text"]
    found = {
        step["step"]: {finding["rule"] for each in step["processes"] for finding in each["findings"]} for step in steps
    }
    assert found == dict.fromkeys(["ran", "beside", "as data", "late"], {"C1"})


def test_what_was_read_ahead(newer: Guest) -> None:
    """The folios behind it: of 64 KiB each where it is to be run, and single pages where data was read."""
    layout = newer.layout
    around = EXECUTABLE // layout.page
    order = around.bit_length() - 1
    path = newer.mount_erofs("/dev/ram1", "/tmp/disk", 8 * EXECUTABLE)
    process = newer.spawn("runs")
    code = process.map_file(path, 8 * EXECUTABLE, shared=False, prot=["read", "exec"])
    data = process.map_file(path, 8 * EXECUTABLE, shared=False, prot=["read"])
    code.read(around + 1 % around, 1)
    data.read(5 * around, 1)
    code.read(2 * around, 1)
    code.read(5 * around, 1)
    view = process.look()
    assert not view.errors and not view.not_judged
    places = [code.address + page * layout.page for page in (around, 2 * around, 5 * around)]
    folios = [view.folio(va) for va in places]
    assert [folio.order for folio in folios if folio] == [order, order, 0]
    assert view.output(data.address + 5 * EXECUTABLE) == view.output(places[2])
    assert code.verify(around, 2 * around, origin=EXECUTABLE).wrong == 0
    process.kill()
    newer.unmount("/tmp/disk")


def test_pages_that_do_not_count(rig: Rig) -> None:
    """What a page's count says there is nothing, and the folio's sum is all: a wrong one is named."""
    with guest_of(rig, "4k", UNCOUNTED) as guest:
        layout = guest.layout
        process = guest.spawn("counts")
        area = process.blocks(2)
        area.write()
        child = process.fork()
        area.madvise("dontneed", 0, 1)
        with process.hold() as held:
            view = held.judge(getters=True)
            assert not view.errors and not view.not_judged
            fourth = page_of(guest, view, area.address + 3 * layout.page, layout)
            head = page_of(guest, view, area.address + layout.page, layout).head
            count = word(guest, fourth.at + MAPCOUNT)
            assert count & 0xFFFF_FFFF == 0xFFFF_FFFF, "it counts"
            assert broken(held, [(fourth.at + MAPCOUNT, count + 1)]) == []
            # _large_mapcount, in the second struct page.
            second = guest.page(head + 1)
            sums = word(guest, second.at + 16)
            assert sums & 0xFFFF_FFFF == 2 * layout.cont_pages - 2
            for wrong in (sums - 1, sums + 1):
                assert broken(held, [(second.at + 16, wrong)]) == [("L9", area.address + layout.page)]
        assert errors(child.look(getters=True)) == errors(process.look(getters=True)) == []
        for each in (child, process):
            each.kill()
