# SPDX-License-Identifier: GPL-2.0-only
"""The words of a ``struct page`` in a running guest, for tests that change them from outside.

Where a member lies is written down here a second time, from include/linux/mm_types.h of 6.12; the rig has it from the
kernel's BTF.
"""

from __future__ import annotations

from folioscope import Guest, Layout, Page, View

#: Bytes from the start of a struct page of 6.12.
FLAGS, COMPOUND_HEAD, MAPPING, INDEX, MAPCOUNT = 0, 8, 24, 32, 48
#: Where a page is that of a table (``struct ptdesc``).
TABLE_LOCK = 40
#: The other half of the word of MAPCOUNT.
REFCOUNT_SHIFT = 32
#: ``PG_anon_exclusive`` of 6.12 is ``PG_owner_2``.
ANON_EXCLUSIVE = 1 << 11
#: ``MM_ANONPAGES``.
ANONYMOUS = 1
#: ``PTE_SPECIAL`` and ``PTE_WRITE``.
SPECIAL, WRITE = 1 << 56, 1 << 51


def page_of(guest: Guest, view: View, va: int, layout: Layout) -> Page:
    """The page behind an address."""
    entry = view.entry(va)
    assert entry and entry.output_address is not None
    return guest.page(entry.output_address // layout.page)


def word(guest: Guest, address: int) -> int:
    """One word of the guest."""
    return guest.words(address, 1)[0]
