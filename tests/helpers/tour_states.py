# SPDX-License-Identifier: GPL-2.0-only
"""What a page's raw entry says, in three letters, and whether a row of pages is as it was expected.

The first letter is what is there:

    c  valid and contiguous          v  valid             z  valid and special (the zero page)
    k  a contiguous level-2 block    b  a level-2 block
    n  PROT_NONE                     s  a swap entry      .  nothing

The second, of valid and PROT_NONE entries, is what software and hardware know of writes (asm/pgtable.h):

    W  dirty by DIRTY, and writable   h  dirty by hardware alone: WRITE, RDONLY clear, DIRTY clear
    w  clean and writable             D  dirty and write-protected    r  clean and write-protected
    P  dirty, protected by userfaultfd

The third is ``y``, young (AF), or ``o``, old. An expectation is a list of runs, (how many pages, three letters); in it
``~`` is ``w`` or ``h``, ``?`` anything, and a single letter stands for an entry without the other two.
"""

from __future__ import annotations

from collections.abc import Iterable

from folioscope import Layout, View

VALID = 1 << 0
RDONLY = 1 << 7
AF = 1 << 10
PRESENT_INVALID = 1 << 11
WRITE = 1 << 51
CONT = 1 << 52
DIRTY = 1 << 55
SPECIAL = 1 << 56
UFFD_WP = 1 << 58

Runs = list[tuple[int, str]]
ALLOWED = {"~": "wh", "?": "cvWhwDrPyo"}


def code(word: int, level: int = 3) -> str:
    """The letters of one entry."""
    if word == 0:
        return "."
    present = word & VALID or word & PRESENT_INVALID
    if not present:
        return "s"
    if not word & VALID:
        shape = "n"
    elif level == 2:
        shape = "k" if word & CONT else "b"
    elif word & SPECIAL:
        shape = "z"
    else:
        shape = "c" if word & CONT else "v"
    write, readonly, dirty = word & WRITE, word & RDONLY, word & DIRTY
    if word & UFFD_WP:
        state = "P" if dirty and not write else "!"
    elif write:
        # WRITE, DIRTY and RDONLY at once is what no kernel leaves behind.
        state = ("!" if dirty else "w") if readonly else ("W" if dirty else "h")
    else:
        state = "D" if dirty else "r"
    return shape + state + ("y" if word & AF else "o")


def codes(view: View, address: int, length: int) -> list[str]:
    """The letters of each page of a range."""
    page, pmd = view.layout.page, view.layout.pmd
    blocks = {entry.va: entry.word for entry in view.entries if entry.level == 2}
    found = []
    for va in range(address, address + length, page):
        block = blocks.get(va & ~(pmd - 1), 0)
        found.append(code(block, 2) if block else code(view.word(va)))
    return found


def agrees(found: str, wanted: str) -> bool:
    """Whether a page is as it was expected."""
    return len(found) == len(wanted) and all(
        have in ALLOWED.get(want, want) for have, want in zip(found, wanted, strict=True)
    )


def runs(each: Iterable[str]) -> Runs:
    """Equal neighbours counted, for people."""
    out: Runs = []
    for letters in each:
        if out and out[-1][1] == letters:
            out[-1] = (out[-1][0] + 1, letters)
        else:
            out.append((1, letters))
    return out


def compare(found: list[str], wanted: Runs) -> str | None:
    """What is wrong with a row of pages; nothing where it is as expected."""
    flat = [letters for count, letters in wanted for _ in range(count)]
    if len(flat) != len(found):
        return f"{len(found)} pages, and {len(flat)} were written down"
    wrong = [at for at, (have, want) in enumerate(zip(found, flat, strict=True)) if not agrees(have, want)]
    if not wrong:
        return None
    return f"page {wrong[0]} (and {len(wrong) - 1} more) is {found[wrong[0]]}, not {flat[wrong[0]]}: {runs(found)}"


def pages_of(view: View, area: dict[str, int], layout: Layout) -> list[str]:
    """The letters of each page of an area of the tour."""
    assert view.layout == layout
    return codes(view, area["address"], area["length"])
