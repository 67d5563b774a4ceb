# SPDX-License-Identifier: GPL-2.0-only
"""The tour's expectations can fail: at a checkpoint one bit of one entry, or one word of memory, is another.

The rule that must name it follows from what the step has left there, and is written down by hand.
"""

from __future__ import annotations

import pytest
from folioscope import Guest, Layout, View

AF = 10
RDONLY = 7
WRITE = 51
CONT = 52
DIRTY = 55
UFFD_WP = 58
VALID = 0

# Workload, checkpoint, area, block and page in it, bit, the rules that speak.
WRONG = [
    ("munmap", "populated", 0, 1, 2, CONT, {"A4", "C1"}),
    # Present and not valid, and young all the same.
    ("mprotect", "protected", 0, 2, 2, AF, {"L5"}),
    # There is a hole in that block.
    ("dontneed", "hole", 0, 0, 2, CONT, {"A4", "C2", "L1"}),
    ("fork", "child", 0, 1, 4, AF, {"L5"}),
    ("fork", "parent", 0, 0, 4, DIRTY, {"L6"}),
    ("zeropage", "read", 0, 0, None, DIRTY, {"L6"}),
    ("sizes", "small", 0, 0, 0, AF, {"L5"}),
    ("vma", "split", 3, 0, 0, CONT, {"A4", "C2"}),
    ("vma", "merged", 3, 0, 3, CONT, {"A4", "C1"}),
    ("mlock", "half", 0, 0, 2, CONT, {"A4", "C1"}),
    ("mremap", "page", 0, 1, 1, AF, {"L5"}),
    ("mremap", "two-tables", 0, 1, 1, CONT, {"A4", "C1"}),
    # WRITE, DIRTY and RDONLY at once.
    ("mremap", "far", 0, 0, 1, RDONLY, {"L6"}),
    # Clean entries lose their protection, and are dirty by that.
    ("free", "freed", 0, 0, 5, RDONLY, {"L6"}),
    ("free", "freed", 0, 3, 5, AF, {"L5"}),
    ("populate", "populated", 0, 0, 1, DIRTY, {"L6"}),
    # It leads to no slot in swap any more, and its own is counted all the same.
    ("swap", "out", 0, 0, 1, VALID, {"A7", "L16"}),
    ("swap", "in", 0, 0, 5, RDONLY, {"L6"}),
    ("migrate", "there", 0, 1, 2, AF, {"L5"}),
    ("compact", "compacted", 0, 0, 1, RDONLY, {"L6"}),
    # Writable, and another's page too.
    ("ksm", "merged", 0, 0, 1, WRITE, {"L8"}),
    ("uffd", "protected", 0, 0, 2, UFFD_WP, {"L5"}),
    ("hole", "punched", 0, 1, 2, CONT, {"A4", "C1"}),
    ("tmpfs", "straight", 0, 1, 0, RDONLY, {"L6"}),
]


def spoiled(guest: Guest, name: str, label: str, **spoil: object) -> View:
    """One checkpoint of a workload at which something is wrong."""
    raw = guest.call("tour", name=name, policy="variable", spoil={"label": label, **spoil}, seconds=120)
    if raw["left_out"]:
        pytest.skip(raw["left_out"])
    (found,) = [each for each in raw["checkpoints"] if each["label"] == label]
    return View(found["look"], guest.layout)


@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize("name,label,area,block,page,bit,rules", WRONG)
def test_wrong_entries_are_named(
    guest: Guest,
    layout: Layout,
    name: str,
    label: str,
    area: int,
    block: int,
    page: int | None,
    bit: int,
    rules: set[str],
) -> None:
    """The rules that must speak do, and no other."""
    # The zero page is read at a page of its own.
    at = block * layout.cont_pages + (layout.cont_pages // 2 + 3 if page is None else page)
    view = spoiled(guest, name, label, area=area, page=at, bit=bit)
    assert view.rules() == rules, view.errors


@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize("size,bit,rules", [(64, CONT, {"A4", "C1"}), (2048, AF, {"L5"}), (32768, AF, {"L5"})])
def test_wrong_hugetlb_entries_are_named(guest: Guest, size: int, bit: int, rules: set[str]) -> None:
    """At level 2 as at level 3."""
    view = spoiled(guest, "hugetlb", f"{size}K", area=0, page=0, bit=bit)
    assert view.rules() == rules, view.errors


@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize(
    "name,label",
    [
        ("anon", "forward"),
        ("fork", "parent-after"),
        ("mremap", "far"),
        ("swap", "in"),
        ("migrate", "back"),
        ("ksm", "merged"),
        ("uffd", "resolved"),
        ("hole", "filled"),
    ],
)
def test_lost_contents_are_named(guest: Guest, name: str, label: str) -> None:
    """A page that holds something else is found by the process that reads it."""
    view = spoiled(guest, name, label, area=0, page=0, memory=True)
    assert view.rules() == {"C3"}, view.errors
