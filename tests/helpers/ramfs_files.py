# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of files of ramfs share: a mount, what its folios are, and what is in every byte."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from folioscope import Area, Guest, Process, View

SWITCH = "/sys/kernel/mm/transparent_hugepage/page_cache"
FILE = "/ramfs/file"


def busybox(guest: Guest, *argv: str) -> None:
    """A program that must succeed."""
    program = guest.run("/bin/busybox", *argv)
    assert program.status == 0, program.stderr


def events(guest: Guest) -> tuple[int, int]:
    """``thp_write_alloc`` and ``thp_write_alloc_failed``."""
    lines = dict(line.split() for line in guest.read("/proc/vmstat").splitlines())
    return int(lines["thp_write_alloc"]), int(lines["thp_write_alloc_failed"])


def kib(text: str, name: str) -> int:
    """A line of meminfo, or the sum of those of smaps."""
    found = [int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name}:")]
    assert found, name
    return sum(found)


def dirty(process: Process) -> None:
    """Leaves words that are not zero in what files get their folios from, so that a part nobody has cleared shows."""
    layout = process.guest.layout
    # By other memory it would not be: what cannot be moved comes from page blocks of its own.
    for path, chunk in (("/ramfs/blocks", layout.block), ("/ramfs/pages", layout.page)):
        process.file_create(path, 0)
        process.file_write(path, 0, 16 << 20, salt=99, chunk=chunk)
    process.file_unlink("/ramfs/blocks")
    process.file_unlink("/ramfs/pages")


def mounted(guest: Guest, mode: int = 1) -> Iterator[Process]:
    """A process in a guest with an empty ramfs; the switch is on. What was in the files is free again behind it."""
    assert guest.read(SWITCH) == "0\n"
    busybox(guest, "mkdir", "-p", "/ramfs")
    huge = kib(guest.read("/proc/meminfo"), "FileHugePages")
    busybox(guest, "mount", "-t", "ramfs", "ramfs", "/ramfs")
    guest.write(SWITCH, str(mode))
    process = guest.spawn()
    yield process
    guest.write(SWITCH, "0")
    process.kill()
    busybox(guest, "umount", "/ramfs")
    assert kib(guest.read("/proc/meminfo"), "FileHugePages") == huge


def cached(guest: Guest) -> int:
    """Pages of the file in the page cache: what ``stat(2)`` has for its blocks (``simple_getattr()``)."""
    program = guest.run("/bin/busybox", "stat", "-c", "%b", FILE)
    assert program.status == 0, program.stderr
    return int(program.stdout) * 512 // guest.layout.page


def look(process: Process) -> View:
    """A look at which no rule is broken and everything was judged."""
    view = process.look()
    assert not view.errors, view.errors
    assert not view.not_judged, view.not_judged
    return view


def folios(view: View, area: Area, first: int = 0) -> dict[int, tuple[int, int]]:
    """As ``Cache.folios``, of the pages that an area maps; it begins at page ``first`` of its file.

    Each page must be the one of the folio that its place in the file says, and its output address that page's.
    """
    page = area.process.guest.layout.page
    found = {}
    for number in range(area.pages):
        va = area.address + number * page
        if view.output(va) is None:
            continue
        folio = view.folio(va)
        assert folio is not None and folio.kind == "file"
        assert folio.index + folio.pfn - folio.head == first + number
        entry = view.entry(va)
        assert entry is not None and entry.output_address is not None
        assert entry.output_address + va - entry.va == folio.pfn * page
        found[first + number] = (folio.index, folio.order)
    return found


def same(area: Area, at: int, length: int, *, salt: int | None = None, file_offset: int = 0) -> None:
    """Every word of these bytes of an area is that of a write to the file, or 0."""
    if not length:
        return
    expect = "zero" if salt is None else {"pattern": {"salt": salt, "origin": file_offset}}
    found = area.process.op("verify", address=area.address + at, length=length, stride=8, expect=expect)["verified"]
    assert found["words"] == length // 8 and found["wrong"] == 0, found["first"]


def holds(area: Area, owner: dict[int, int], begin: int = 0) -> None:
    """Each word of an area, which begins at this byte of its file, is that of the write that owns it (a salt), or 0."""
    for salt, words in groupby(range(0, area.length, 8), key=lambda at: owner.get(begin + at)):
        run = list(words)
        same(area, run[0], 8 * len(run), salt=salt, file_offset=begin + run[0])


def vma_smaps(process: Process, area: Area) -> str:
    """The part of smaps that is about an area's VMA."""
    parts = process.smaps().split(f"{area.address:x}-{area.address + area.length:x} ")
    assert len(parts) == 2
    lines = parts[1].splitlines()[1:]
    ends = [number for number, line in enumerate(lines) if "-" in line.split(" ")[0]]
    return "\n".join(lines[: ends[0]] if ends else lines)
