# SPDX-License-Identifier: GPL-2.0-only
"""Large folios in files of ramfs: which a write and a fault bring in, how they are mapped, and what is in every byte.

Orders are those of models of the two rules in the kernel's ``transhuge.rst``, not of what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import CommandFailed, Guest, Layout, Process

from page_cache_model import Cache
from ramfs_files import FILE, SWITCH, dirty, events, folios, holds, kib, look, mounted, same, vma_smaps

WRITABLE = 1 << 51


@pytest.fixture
def ramfs(guest: Guest) -> Iterator[Process]:
    """A process in a guest with an empty ramfs; the switch is on."""
    yield from mounted(guest)


def test_off(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """Files from before the switch was on have single pages, written and faulted, and each is mapped alone."""
    guest.write(SWITCH, "0")
    before = events(guest)
    ramfs.file_create(FILE, 4 * layout.block)
    guest.write(SWITCH, "1")
    ramfs.file_write(FILE, 0, 2 * layout.block, chunk=2 * layout.block)
    area = ramfs.map_file(FILE, 4 * layout.block)
    area.madvise("random")
    area.write(2 * layout.cont_pages, 1)
    assert look(ramfs).pages(area) == "." * 2 * layout.cont_pages + "v" + "." * (2 * layout.cont_pages - 1)
    area.write()
    assert folios(look(ramfs), area) == {page: (page, 0) for page in range(area.pages)}
    assert events(guest) == before


def writes(layout: Layout) -> dict[str, list[tuple[int, int]]]:
    """Offset and length of each ``pwrite(2)``, all in one file."""
    page, block = layout.page, layout.block
    return {
        "block": [(0, block)],
        "blocks": [(0, 2 * block)],
        "unaligned": [(3 * page, 2 * block)],
        "within pages": [(page + 104, block)],
        "a page's length within two": [(104, page)],
        "a folio's length within": [(104, block)],
        "before a page": [(5 * page, 8), (0, block)],
        "over what is there": [(0, 3 * page), (page // 2, block)],
        "rewritten": [(0, block), (2 * page + 8, 5 * page)],
        "small": [(at * page // 2, page // 2) for at in range(8)],
    }


@pytest.mark.parametrize("name", list(writes(Layout("", 4096, 16, 0, 0, 0))))
def test_write(guest: Guest, ramfs: Process, layout: Layout, name: str) -> None:
    """The order is that of the write's size, alignment and neighbours; what it leaves of a folio is zero."""
    if "within" in name:
        dirty(ramfs)
    before = events(guest)
    cache = Cache(layout)
    ramfs.file_create(FILE, 0)
    large = end = 0
    owner: dict[int, int] = {}
    for salt, (offset, length) in enumerate(writes(layout)[name], 1):
        ramfs.file_write(FILE, offset, length, salt=salt, chunk=length)
        large += cache.write(offset, length)
        owner |= dict.fromkeys(range(offset, offset + length, 8), salt)
        end = max(end, offset + length)
    pages = -(-end // layout.page)
    area = ramfs.map_file(FILE, pages * layout.page)
    area.read()
    found = folios(look(ramfs), area)
    # A page before the first that was written comes in by the read.
    assert {page: folio for page, folio in found.items() if page in cache.folios} == cache.folios
    assert events(guest) == (before[0] + large, before[1])
    holds(area, owner)


def test_write_without_memory(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """Where the order cannot be had the next lower one comes, and each time is counted."""
    order = layout.cont_order - 1
    ramfs.file_create(FILE, 0)
    before = events(guest)
    ramfs.fail_allocations(order)
    ramfs.file_write(FILE, 0, layout.block, chunk=layout.block)
    ramfs.allow_allocations()
    cache = Cache(layout)
    at, failed = 0, 0
    while at < layout.cont_pages:
        # What is left of the write would have had this order.
        wanted = min(
            (layout.cont_pages - at).bit_length() - 1, (at & -at).bit_length() - 1 if at else layout.cont_order
        )
        failed += wanted >= order
        cache.add(at, min(wanted, order - 1))
        at += 1 << min(wanted, order - 1)
    area = ramfs.map_file(FILE, layout.block)
    area.read()
    assert folios(look(ramfs), area) == cache.folios
    assert failed and events(guest) == (before[0] + len(set(cache.folios.values())), before[1] + failed)
    same(area, 0, area.length, salt=0)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "private"])
def test_fault_on_a_hole(guest: Guest, ramfs: Process, layout: Layout, shared: bool) -> None:
    """One read brings in and maps a block; a write to a private mapping then copies one page out of it."""
    dirty(ramfs)
    ramfs.file_create(FILE, 3 * layout.block)
    area = ramfs.map_file(FILE, 3 * layout.block, shared=shared, hint="hugepage")
    # The vDSO's data page, which an access reads, counts as a file's on 7.x (lib/vdso/datastore.c, vvar_fault()).
    own = ramfs.map(layout.page)
    own.write()
    rss = guest.space(ramfs.pid).rss
    assert rss is not None
    cache = Cache(layout)
    area.read(layout.cont_pages + 5, 1)
    cache.fault(layout.cont_pages + 5, 0, area.pages, layout.hinted_order)
    view = look(ramfs)
    assert view.pattern(area) == ".C."
    assert folios(view, area) == cache.folios
    for page in range(layout.cont_pages, 2 * layout.cont_pages):
        folio = view.folio(area.address + page * layout.page)
        assert folio is not None and folio.mapcount == 1 and folio.large == layout.cont_pages
    smaps = vma_smaps(ramfs, area)
    assert kib(smaps, "Rss") * 1024 == layout.block
    now = guest.space(ramfs.pid).rss
    assert now is not None and now["file"] - rss["file"] == layout.cont_pages
    area.write(layout.cont_pages + 5, 1)
    view = look(ramfs)
    assert view.pattern(area) == (".C." if shared else ".-.")
    same(area, layout.block, 5 * layout.page)
    same(area, layout.block + 6 * layout.page, (layout.cont_pages - 6) * layout.page)
    copied = view.folio(area.address + layout.block + 5 * layout.page)
    assert copied is not None and copied.kind == ("file" if shared else "anonymous")


def test_write_fault(ramfs: Process, layout: Layout) -> None:
    """A write to a hole of a shared mapping: the block is writable and folded at once, and all but the word is zero."""
    dirty(ramfs)
    ramfs.file_create(FILE, 2 * layout.block)
    area = ramfs.map_file(FILE, 2 * layout.block, hint="hugepage")
    area.write(3, 1, salt=7)
    view = look(ramfs)
    assert view.pattern(area) == "C."
    words = [view.word(area.address + page * layout.page) for page in range(layout.cont_pages)]
    assert all(word & WRITABLE for word in words)
    same(area, 0, 3 * layout.page)
    same(area, 3 * layout.page + 8, layout.block - 3 * layout.page - 8)
    assert area.verify(3, 1, salt=7).wrong == 0
    # The next file's folios are its own.
    area.write(salt=8)
    assert look(ramfs).pattern(area) == "CC"
    assert area.verify(salt=8).wrong == 0


def test_end_of_file(ramfs: Process, layout: Layout) -> None:
    """No folio ends behind the file, no entry is for a page behind it, and there a touch is a SIGBUS."""
    pages = layout.cont_pages + 3
    ramfs.file_create(FILE, pages * layout.page - 100)
    area = ramfs.map_file(FILE, 2 * layout.block, hint="hugepage")
    cache = Cache(layout)
    for page in (0, layout.cont_pages, layout.cont_pages + 2):
        area.write(page, 1)
        cache.fault(page, 0, pages, layout.hinted_order)
    view = look(ramfs)
    assert cache.folios[layout.cont_pages] == (layout.cont_pages, 1)
    assert folios(view, area) == cache.folios
    assert view.pages(area) == "c" * layout.cont_pages + "vvv" + "." * (layout.cont_pages - 3)
    with pytest.raises(CommandFailed) as failed:
        area.write(pages, 1)
    assert failed.value.kind == "signal"


def test_bounds_of_the_mapping(ramfs: Process, layout: Layout) -> None:
    """A fault asks for no more than its mapping has, and for single pages where file and memory are out of step."""
    half = layout.cont_pages // 2
    ramfs.file_create(FILE, 4 * layout.block)
    part = ramfs.map_file(
        FILE,
        layout.block,
        offset=half * layout.page,
        hint="hugepage",
        place={"isolated": {"offset": half * layout.page}},
    )
    cache = Cache(layout)
    for page in (half, layout.cont_pages):
        part.read(page - half, 1)
        cache.fault(page, half, half + layout.cont_pages, layout.hinted_order)
    assert folios(look(ramfs), part, half) == cache.folios
    assert {order for _, order in cache.folios.values()} == {layout.cont_order - 1}
    # A hint would let readahead bring in the rest.
    askew = ramfs.map_file(FILE, layout.block, offset=2 * layout.block, place={"isolated": {"offset": layout.page}})
    askew.read(0, 1)
    assert folios(look(ramfs), askew, 2 * layout.cont_pages) == {2 * layout.cont_pages: (2 * layout.cont_pages, 0)}


def test_map_what_was_written(ramfs: Process, layout: Layout) -> None:
    """A write fault maps the folio of a file's write from its first page on, and only what the mapping has of it."""
    ramfs.file_create(FILE, 0)
    ramfs.file_write(FILE, 0, 2 * layout.block, chunk=layout.block)
    area = ramfs.map_file(FILE, 2 * layout.block)
    area.poke(layout.cont_pages + 1, [1])
    view = look(ramfs)
    assert view.pattern(area) == ".C"
    assert set(folios(view, area).values()) == {(layout.cont_pages, layout.cont_order)}
    same(area, 0, (layout.cont_pages + 1) * layout.page, salt=0)
    rest = (layout.cont_pages + 1) * layout.page + 8
    same(area, rest, area.length - rest, salt=0, file_offset=rest)
    part = ramfs.map_file(FILE, 3 * layout.page, offset=layout.block + layout.page)
    part.poke(1, [2])
    assert look(ramfs).pages(part) == ".v."
    assert area.peek(layout.cont_pages + 2) == [2]


def test_truncate(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """A file cut within a folio: it is taken apart, what is left stays, and grown again the rest reads zero.

    Into single pages, and from 6.15 on into folios as large as the end lets them be (truncate_inode_partial_folio()).
    """
    ramfs.file_create(FILE, 0)
    ramfs.file_write(FILE, 0, 2 * layout.block, chunk=layout.block)
    area = ramfs.map_file(FILE, 2 * layout.block)
    area.read()
    assert set(folios(look(ramfs), area).values()) == {(0, layout.cont_order), (layout.cont_pages, layout.cont_order)}
    kept = layout.block + 3 * layout.page + 104
    ramfs.file_truncate(FILE, kept)
    view = look(ramfs)
    assert not view.pages(area)[layout.cont_pages + 4 :].strip(".")
    same(area, 0, kept, salt=0)
    same(area, kept, layout.page - 104)
    with pytest.raises(CommandFailed) as failed:
        area.read(layout.cont_pages + 4, 1)
    assert failed.value.kind == "signal"
    first = layout.cont_pages
    found = folios(look(ramfs), area)
    if guest.hello.release >= (6, 15):
        rest = {page: (first, 1) for page in (first, first + 1)} | {page: (page, 0) for page in (first + 2, first + 3)}
    else:
        rest = {page: (page, 0) for page in range(first, first + 4)}
    assert found == dict.fromkeys(range(first), (0, layout.cont_order)) | rest
    ramfs.file_truncate(FILE, 2 * layout.block)
    area.read()
    look(ramfs)
    same(area, 0, kept, salt=0)
    same(area, kept, area.length - kept)


def test_pmd(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """A hole that a level-2 block can map gets one folio where the page cache takes that, and meminfo says so."""
    ramfs.file_create(FILE, layout.pmd)
    before = kib(guest.read("/proc/meminfo"), "FileHugePages")
    area = ramfs.map_file(FILE, layout.pmd)
    area.write(1, 1)
    view = look(ramfs)
    huge = kib(guest.read("/proc/meminfo"), "FileHugePages") - before
    smaps = vma_smaps(ramfs, area)
    if layout.granule == "64k":
        # 512 MiB are more than a folio of the page cache can be.
        assert huge == 0 and view.pages(area)[:3] == ".v."
        assert kib(smaps, "Rss") == 64 and kib(smaps, "FilePmdMapped") == 0
        return
    assert huge == kib(smaps, "FilePmdMapped") == kib(smaps, "Rss") == layout.pmd // 1024
    assert set(view.pattern(area)) == {"B"}
    folio = view.folio(area.address)
    assert folio is not None and (folio.entire, folio.index) == (1, 0)
    assert layout.page << folio.order == layout.pmd
    same(area, 0, layout.page)
    same(area, layout.page + 8, 64 * layout.page)


def test_place_of_a_mapping(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """Where the kernel chooses the address, a level-2 block can map a file that has large folios, and no other."""
    length = layout.pmd + layout.page
    ramfs.file_create(FILE, length)
    guest.write(SWITCH, "0")
    ramfs.file_create("/ramfs/small", length)
    # Of two in a row that lie as densely as they can, one at most is aligned.
    small = [ramfs.map_file("/ramfs/small", length, place="kernel") for _ in range(2)]
    large = [ramfs.map_file(FILE, length, place="kernel") for _ in range(2)]
    assert small[1].address + length == small[0].address
    if layout.granule == "64k":
        # No folio of the page cache is that large.
        assert large[1].address + length == large[0].address
    else:
        assert [area.address % layout.pmd for area in large] == [0, 0]
