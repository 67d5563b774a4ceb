# SPDX-License-Identifier: GPL-2.0-only
"""Which folios writes and faults bring into a file of ramfs, by the two rules of the kernel's ``transhuge.rst``."""

from __future__ import annotations

from folioscope import Layout


class Cache:
    """A file's folios: the first page and the order of each, by page."""

    def __init__(self, layout: Layout) -> None:
        self.page = layout.page
        # MAX_PAGECACHE_ORDER: a PMD's, or two levels of the XArray less one.
        self.most = min((layout.pmd // layout.page).bit_length() - 1, 11)
        self.folios: dict[int, tuple[int, int]] = {}

    def add(self, first: int, order: int) -> None:
        """A folio comes in."""
        self.folios |= dict.fromkeys(range(first, first + (1 << order)), (first, order))

    def write(self, offset: int, length: int) -> int:
        """One ``pwrite(2)``: how many large folios it brings in."""
        large = 0
        while length:
            room = min(length, (self.page << self.most) - offset % (self.page << self.most))
            index = offset // self.page
            if index not in self.folios:
                order = max(order for order in range(self.most + 1) if self.page << order <= max(room, self.page))
                while index % (1 << order) or any(page in self.folios for page in range(index, index + (1 << order))):
                    order -= 1
                self.add(index, order)
                large += order > 0
            first, order = self.folios[index]
            step = min(room, (first + (1 << order)) * self.page - offset)
            offset, length = offset + step, length - step
        return large

    def write_around(self, offset: int, length: int, most: int) -> int:
        """One ``pwrite(2)`` while folios of order ``most`` come in around it: how many large folios it brings in."""
        large = 0
        for index in range(offset // self.page, -(-(offset + length) // self.page)):
            if index not in self.folios:
                order = most
                while any(at in self.folios for at in range(index >> order << order, (index >> order) + 1 << order)):
                    order -= 1
                self.add(index >> order << order, order)
                large += order > 0
        return large

    def fault(self, page: int, begin: int, end: int, wanted: int) -> int:
        """A fault where nothing is cached; begin and end, in pages, are those of file and mapping. Gives the order."""
        for order in range(wanted, -1, -1):
            pages = range(page >> order << order, (page >> order) + 1 << order)
            inside = begin <= pages.start and pages.stop <= end
            if not order or (inside and not any(at in self.folios for at in pages)):
                self.add(pages.start, order)
                return order
        raise AssertionError("order 0 always fits")
