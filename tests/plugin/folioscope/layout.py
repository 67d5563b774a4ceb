# SPDX-License-Identifier: GPL-2.0-only
"""The sizes that follow from the granule: the Arm ARM's numbers, written down here by hand.

They are not taken from the tool under test, so that a wrong number in it shows.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Layout:
    """Bytes and orders of one granule (Arm ARM, table D8-20; Linux: asm/pgtable-hwdef.h)."""

    granule: str
    """"4k", "16k" or "64k"."""
    page: int
    """Bytes of a page."""
    cont_pages: int
    """Pages of a block."""
    pmd: int
    """Bytes that a PMD maps."""
    hinted_order: int
    """arch_wants_pte_order() of the series for a VMA with MADV_HUGEPAGE."""
    unhinted_order: int
    """The same for another VMA."""

    @property
    def block(self) -> int:
        """Bytes of a level-3 contiguous block."""
        return self.page * self.cont_pages

    @property
    def cont_order(self) -> int:
        """The folio order that fills a contiguous block."""
        return self.cont_pages.bit_length() - 1


LAYOUTS = {
    "4k": Layout("4k", 4 * KIB, 16, 2 * MIB, 4, 4),
    "16k": Layout("16k", 16 * KIB, 128, 32 * MIB, 7, 2),
    "64k": Layout("64k", 64 * KIB, 32, 512 * MIB, 5, 0),
}
