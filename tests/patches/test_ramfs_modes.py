# SPDX-License-Identifier: GPL-2.0-only
"""Files of ramfs: a private write brings in one page, and ``page_cache`` at 2 gives any write a folio of a PMD's size.

The second is what the huge page cache for ramfs of 2013 did, where a write of 4K got a huge page.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import CommandFailed, Guest, Layout, Process
from folioscope.layout import LAYOUTS

from page_cache_model import Cache
from ramfs_files import FILE, SWITCH, cached, dirty, events, folios, holds, look, mounted, same


@pytest.fixture
def ramfs(guest: Guest) -> Iterator[Process]:
    """A process in a guest with an empty ramfs; folios are as large as writes."""
    yield from mounted(guest)


@pytest.fixture
def huge(guest: Guest) -> Iterator[Process]:
    """The same, and folios are as large as they can be."""
    yield from mounted(guest, 2)


def around(layout: Layout) -> int:
    """The order of a folio around a write: a PMD's, or a contiguous block's where the page cache ends below a PMD."""
    pmd = (layout.pmd // layout.page).bit_length() - 1
    return pmd if pmd <= 11 else layout.cont_order


# A hint lets the kernel read ahead what a PMD maps, and there is nothing to read.
@pytest.mark.parametrize("hint", [None, "hugepage"])
def test_a_private_write(guest: Guest, ramfs: Process, layout: Layout, hint: str | None) -> None:
    """A write to a hole by a private mapping copies one page, and that page is all that the file gets."""
    ramfs.file_create(FILE, 2 * layout.pmd if layout.granule != "64k" else 4 * layout.block)
    area = ramfs.map_file(FILE, 4 * layout.block, shared=False, hint=hint)
    area.write(layout.cont_pages + 5, 1, salt=6)
    assert cached(guest) == 1
    view = look(ramfs)
    copied = view.folio(area.address + layout.block + 5 * layout.page)
    assert copied is not None and copied.kind == "anonymous" and copied.order == 0
    assert view.pattern(area) == ".p.."
    area.write(3 * layout.cont_pages - 1, 1, salt=6)
    assert cached(guest) == 2
    # A read maps what it brings in.
    area.read(0, 1)
    order = layout.hinted_order if hint else layout.unhinted_order
    assert folios(look(ramfs), area.part(0, layout.cont_pages)) == dict.fromkeys(range(1 << order), (0, order))
    assert cached(guest) == 2 + (1 << order)
    assert area.verify(layout.cont_pages + 5, 1, salt=6).wrong == 0
    same(area, layout.block, 5 * layout.page)


def writes(layout: Layout) -> dict[str, list[tuple[int, int]]]:
    """Offset and length of each ``pwrite(2)``, all in one file."""
    page, block = layout.page, layout.block
    return {
        "a page": [(5 * page, page)],
        "a word": [(3 * page + 104, 8)],
        "pages in turn": [(at * page, page) for at in range(layout.cont_pages + 3)],
        "a block": [(block, block)],
        "across": [((page << around(layout)) - 2 * page, 4 * page)],
    }


@pytest.mark.parametrize("name", list(writes(LAYOUTS["4k"])))
def test_any_write_gets_a_folio(guest: Guest, huge: Process, layout: Layout, name: str) -> None:
    """It is aligned around the write, zero beside it, and ends where it ends: behind the file."""
    dirty(huge)
    before = events(guest)
    cache = Cache(layout)
    huge.file_create(FILE, 0)
    large = end = 0
    owner: dict[int, int] = {}
    for salt, (offset, length) in enumerate(writes(layout)[name], 1):
        huge.file_write(FILE, offset, length, salt=salt, chunk=length)
        large += cache.write_around(offset, length, around(layout))
        owner |= dict.fromkeys(range(offset, offset + length, 8), salt)
        end = max(end, offset + length)
    assert events(guest) == (before[0] + large, before[1])
    assert cached(guest) == len(cache.folios)
    begin = min(owner) // layout.page * layout.page
    pages = -(-(end - begin) // layout.page)
    area = huge.map_file(FILE, pages * layout.page, offset=begin)
    area.read()
    found = folios(look(huge), area, begin // layout.page)
    assert found == {page: cache.folios[page] for page in found} and len(found) == pages
    holds(area, owner, begin)


def test_what_is_behind_the_end(guest: Guest, huge: Process, layout: Layout) -> None:
    """Pages of the folio behind the file's end are not mapped; the file grows into them, and they read zero."""
    dirty(huge)
    huge.file_create(FILE, 0)
    huge.file_write(FILE, 0, layout.page, salt=1, chunk=layout.page)
    area = huge.map_file(FILE, layout.block)
    area.read(0, 1)
    view = look(huge)
    assert view.pages(area) == "v" + "." * (layout.cont_pages - 1)
    with pytest.raises(CommandFailed) as failed:
        area.read(1, 1)
    assert failed.value.kind == "signal"
    huge.file_truncate(FILE, layout.page << around(layout))
    assert cached(guest) == 1 << around(layout)
    area.read()
    assert set(folios(look(huge), area).values()) == {(0, around(layout))}
    same(area, 0, layout.page, salt=1)
    same(area, layout.page, layout.block - layout.page)
    # Cut within the folio, it is taken apart.
    huge.file_truncate(FILE, layout.page)
    assert cached(guest) == 1
    huge.file_truncate(FILE, layout.block)
    area.read()
    same(area, layout.page, layout.block - layout.page)


def test_what_is_there_stays(guest: Guest, huge: Process, layout: Layout) -> None:
    """Beside a page that is there the largest folio that it is not in; where memory is short the next order."""
    order = around(layout)
    huge.file_create(FILE, layout.page << order)
    guest.write(SWITCH, "1")
    huge.file_write(FILE, 0, 8)
    guest.write(SWITCH, "2")
    before = events(guest)
    cache = Cache(layout)
    cache.add(0, 0)
    huge.file_write(FILE, (layout.page << order) - 8, 8)
    assert cache.write_around((layout.page << order) - 8, 8, order) == 1
    assert cached(guest) == len(cache.folios) == 1 + (1 << order - 1)
    # Order 1 and above meet page 0.
    huge.file_write(FILE, layout.page, 8)
    cache.write_around(layout.page, 8, order)
    assert events(guest) == (before[0] + 1, before[1]) and cache.folios[1] == (1, 0)
    area = huge.map_file(FILE, layout.page << order)
    area.read(0, 2)
    area.read(1 << order - 1, 1)
    found = folios(look(huge), area)
    assert found == {page: cache.folios[page] for page in found} and {0, 1, 1 << order - 1} <= found.keys()
    huge.file_unlink(FILE)
    area.munmap()
    huge.file_create(FILE, 0)
    huge.fail_allocations(order)
    huge.file_write(FILE, 5 * layout.page, 8)
    huge.allow_allocations()
    assert cached(guest) == 1 << order - 1
    assert events(guest) == (before[0] + 2, before[1] + 1)


def test_modes_that_there_are(guest: Guest, ramfs: Process, layout: Layout) -> None:
    """Each reads as it was written, anything else is refused; which it is is asked at each write, not at creation."""
    for mode in ("2", "0", "1"):
        guest.write(SWITCH, mode)
        assert guest.read(SWITCH) == f"{mode}\n"
    for wrong in ("3", "-1", "always"):
        with pytest.raises(CommandFailed) as refused:
            guest.write(SWITCH, wrong)
        assert refused.value.errno == "EINVAL"
    assert guest.read(SWITCH) == "1\n"
    ramfs.file_create(FILE, 0)
    ramfs.file_write(FILE, 0, 8)
    assert cached(guest) == 1
    guest.write(SWITCH, "2")
    ramfs.file_write(FILE, layout.page << around(layout), 8)
    assert cached(guest) == 1 + (1 << around(layout))
    # A file from before either has single pages.
    guest.write(SWITCH, "0")
    ramfs.file_create(f"{FILE}2", 0)
    guest.write(SWITCH, "2")
    before = events(guest)
    ramfs.file_write(f"{FILE}2", 0, layout.block, chunk=layout.block)
    assert events(guest) == before
