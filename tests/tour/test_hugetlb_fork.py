# SPDX-License-Identifier: GPL-2.0-only
"""A fault of Linux itself, which the rig has found: hugetlb pages of a block's size that fork() leaves out.

``copy_hugetlb_page_range()`` leaves alone what is in a shared PMD table, and asks ``ptdesc_pmd_is_shared()`` for that.
A page of a contiguous block's size lies in a table of level 3, whose ``pt_share_count`` is never set: it is what the
page's ``index`` was before. Where that is not 0 the child gets nothing, and its first access raises SIGBUS.
Once this test fails because no child is without its page, the tour can fork with these pages again.
"""

from __future__ import annotations

import pytest
from folioscope import CommandFailed, Guest, Layout

# About one in twenty lacks its page.
CHILDREN = 400


@pytest.mark.long
@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.timeout(300)
def test_a_child_without_its_page_is_named(guest: Guest, layout: Layout) -> None:
    """Stated to be folded, it is an error where the child has nothing, and none where it has the page."""
    size = layout.block // 1024
    assert guest.hugetlb_pages(size, 2) == 2
    try:
        for _ in range(CHILDREN):
            process = guest.spawn()
            area = process.map_hugetlb(2, size)
            area.write(0, 1)
            inherited = area.in_process(process.fork())
            inherited.must_fold(0, layout.cont_pages)
            view = inherited.process.look()
            if view.word(inherited.address):
                assert not view.errors, view.errors
                assert inherited.verify(0, 1).wrong == 0
            else:
                assert view.rules() == {"C1"}, view.errors
                with pytest.raises(CommandFailed, match="SIGBUS"):
                    inherited.read(0, 1)
                return
            inherited.process.kill()
            process.kill()
    finally:
        guest.reset()
        guest.hugetlb_pages(size, 0)
    pytest.fail(f"each of {CHILDREN} children had its page: this kernel is mended")
