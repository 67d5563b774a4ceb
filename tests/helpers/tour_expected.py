# SPDX-License-Identifier: GPL-2.0-only
"""What each page of each area is after each step of the tour, written down by hand from what Linux 6.12 and 7.3 do.

Once more and independently of the expectations in ``vmm/folioscope/src/tour``: those say what must fold, these say what
every raw entry is. The letters are those of ``tour_states``; areas are in the order in which the process mapped them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from folioscope import Layout

from tour_states import Runs

# Checkpoint -> the runs of each area of its process.
Expected = dict[str, list[Runs]]


@dataclass(frozen=True)
class Case:
    """What the expectations depend on."""

    layout: Layout
    policy: str
    cpu: str
    # TCR_EL1.DS: output addresses of 52 bits at 4K and 16K (FEAT_LPA2).
    lpa2: bool
    # Of what is between 6.12 and 7.x nothing was tried.
    newer: bool = False

    @property
    def hardware(self) -> bool:
        """Whether the CPU updates AF and dirty state by itself (FEAT_HAFDBS)."""
        return self.cpu != "cortex-a72"

    @property
    def moved(self) -> str:
        """The age of what was young and has been a migration entry since: by a move, or by the split of its folio.

        It is carried in the first bit above the frame number (SWP_MIG_YOUNG_BIT = PHYS_MASK_SHIFT - PAGE_SHIFT). At 4K
        with LPA2 that is bit 52 of the entry, which set_ptes() clears of whatever it writes (pte_mknoncont()).
        """
        return "o" if self.layout.granule == "4k" and self.lpa2 else "y"

    @property
    def block(self) -> int:
        """Pages per block."""
        return self.layout.cont_pages

    @property
    def fills(self) -> bool:
        """Whether the policy fills a block at the first touch."""
        return self.policy != "baseline"

    @property
    def fold(self) -> str:
        """The first letter of what a policy that fills blocks folds."""
        return "c" if self.fills else "v"

    @property
    def lower(self) -> bool:
        """Whether the policy takes a smaller folio where a block does not fit."""
        return self.policy in ("variable", "retry", "adaptive")

    def first(self, of: int, state: str = "Wy") -> Runs:
        """A block of which one page, number ``of``, was written."""
        if self.fills:
            return [(self.block, "c" + state)]
        return [(of, "."), (1, "v" + state), (self.block - of - 1, ".")]

    def hit(self, page: int, before: str, folded: bool) -> Runs:
        """A block of clean, writable entries (``before``: their age) of which one page was written.

        Hardware marks the entry that it used, or, as it may in a folded block, others of it too; software marks what it
        was asked for, and all of a folded block.
        """
        if folded:
            if not self.hardware:
                return [(self.block, "cWy")]
            return [(page, "c~?"), (1, "c~y"), (self.block - page - 1, "c~?")]
        one = "vhy" if self.hardware else "vWy"
        return [(page, "vw" + before), (1, one), (self.block - page - 1, "vw" + before)]


def anon(c: Case) -> Expected:
    """Faults forward, backward, in every other block, and across a VMA's ends."""
    n, f = c.block, c.fold
    full: Runs = [(4 * n, f + "Wy")]
    # One write in every other block, to its page 3.
    sparse = [run for _ in range(4) for run in (*c.first(3), (n, "."))]
    ends: Runs = [(n // 2, "vWy"), (n, f + "Wy"), (n // 2, "vWy")]
    return {
        "forward": [full],
        "backward": [full, full],
        "sparse": [full, full, sparse],
        "ends": [full, full, sparse, ends],
    }


def neighbour(c: Case) -> Expected:
    """A fault beside a page that is there."""
    n, half = c.block, c.block // 2
    # The page at half + 1 was there first: below it, a policy with smaller sizes fills the lower half.
    low: Runs = [(half, "vWy"), (1, ".")] if c.lower else [(1, "vWy"), (half, ".")]
    beside = [*low, (1, "vWy"), (half - 2, "."), *c.first(0)]
    return {"beside": [beside], "filled": [[(n, "vWy"), *c.first(0)]]}


def munmap(c: Case) -> Expected:
    """A quarter of a block unmapped."""
    n, f = c.block, c.fold
    partial: Runs = [(3 * n // 4, "vWy"), (n // 4, "."), (n, f + "Wy")]
    return {"populated": [[(2 * n, f + "Wy")]], "partial": [partial]}


def mprotect(c: Case) -> Expected:
    """Half a block and a whole one read-only, one not accessible; then back."""
    n, f = c.block, c.fold
    half: Runs = [(n // 2, "vDy"), (n // 2, "vWy")]
    return {
        "populated": [[(3 * n, f + "Wy")]],
        "protected": [[*half, (n, f + "Dy"), (n, "nDy")]],
        "restored": [[*half, (2 * n, f + "Wy")]],
    }


def dontneed(c: Case) -> Expected:
    """One page dropped, and written again."""
    n, f = c.block, c.fold
    return {
        "hole": [[(5, "vWy"), (1, "."), (n - 6, "vWy"), (n, f + "Wy")]],
        "refilled": [[(n, "vWy"), (n, f + "Wy")]],
    }


def fork(c: Case) -> Expected:
    """A child, and a write of it."""
    n, f = c.block, c.fold
    # The child's entries are old (__copy_present_ptes). Hardware may have made the block young on its way to the fault.
    rest = "vD?" if c.hardware and c.fills else "vDo"
    wrote: Runs = [(2, rest), (1, "vWy"), (n - 3, rest), (n, f + "Do")]
    return {
        "parent": [[(2 * n, f + "Dy")]],
        "child": [[(2 * n, f + "Do")]],
        "child-wrote": [wrote],
        "parent-after": [[(2 * n, f + "Dy")]],
    }


def shmem(c: Case) -> Expected:
    """Anonymous shared memory."""
    n = c.block
    return {"first": [[(n, "cWy"), (n, ".")]], "both": [[(2 * n, "cWy")]]}


def thp(c: Case) -> Expected:
    """A page of a PMD's size, split by a protection."""
    n = c.block
    pmd = c.layout.pmd // c.layout.page
    split: Runs = [(n, "cWy"), (1, "vWy"), (1, "vDy"), (n - 2, "vWy"), (pmd - 2 * n, "cWy")]
    return {"huge": [[(pmd, "bWy")]], "split": [split]}


def allocfail(c: Case) -> Expected:
    """Allocation fails at the preferred order."""
    n, f = c.block, c.fold
    return {"failing": [[(n, "vWy"), (n, ".")]], "recovered": [[(n, "vWy"), (n, f + "Wy")]]}


def zeropage(c: Case) -> Expected:
    """A zero page, and writes beside it and to it."""
    n, half = c.block, c.block // 2
    low: Runs = [(half, "vWy"), (3, ".")] if c.lower else [(1, "vWy"), (half + 2, ".")]
    return {
        "read": [[(half + 3, "."), (1, "zry"), (half - 4, "."), (n, ".")]],
        "written": [[*low, (1, "vWy"), (half - 4, "."), *c.first(0)]],
    }


def sizes(c: Case) -> Expected:
    """Only sizes below a block's are enabled."""
    n = c.block
    small: Runs = [(2 * n, "vWy")]
    # sysfs decides here, whatever the policy.
    return {"small": [small], "enabled": [small, [(2 * n, "cWy")]]}


def vma(c: Case) -> Expected:
    """VMAs that start and end inside a block, their split and merge."""
    n, f, half = c.block, c.fold, c.block // 2
    starts: Runs = [(half, "vWy"), (n, f + "Wy")]
    ends: Runs = [(n, f + "Wy"), (half, "vWy")]
    meet: Runs = [(n, "vWy"), (n, f + "Wy")]
    split: Runs = [(half, "vWy"), (half, "vDy"), (n, f + "Wy")]
    return {
        "ends": [starts, ends],
        "meet": [starts, ends, meet],
        "split": [starts, ends, meet, split],
        # Newer kernels change what mprotect() changes in one piece: nothing looks then whether a block is whole again.
        "merged": [starts, ends, meet, [(n, "vWy"), (n, f + "Wy")] if c.newer else [(2 * n, f + "Wy")]],
    }


def mlock(c: Case) -> Expected:
    """mlock of an area, munlock of a part."""
    full: list[Runs] = [[(2 * c.block, c.fold + "Wy")]]
    return {"locked": full, "half": full, "unlocked": full}


def mremap(c: Case) -> Expected:
    """An area moves: by blocks, by a page, across tables, with its table."""
    n = c.block
    folded: Runs = [(2 * n, c.fold + "Wy")]
    table: Runs = [(2 * n, c.fold + "Wy"), (c.layout.pmd // c.layout.page - 2 * n, ".")]
    return {
        "block": [folded],
        "page": [[(2 * n, "vWy")]],
        "two-tables": [folded],
        "far": [folded],
        "whole-table": [folded, table],
    }


def free(c: Case) -> Expected:
    """Lazily freed, and made cold."""
    n, f = c.block, c.fold
    # A folio was split there, if there was one; then it was read.
    age = c.moved if c.fills else "y"
    freed: Runs = [(n, f + "wo"), (n, f + "Wy"), (1, "vwo"), (n - 1, "vW" + age), (n, f + "Wo")]
    again: Runs = [(n, f + "Wy"), (1, "vwo"), (n - 1, "vWy"), (n, f + "Wo")]
    return {"freed": [freed], "used-again": [[*c.hit(4, "o", c.fills), *again]]}


def populate(c: Case) -> Expected:
    """MADV_POPULATE_READ and MADV_POPULATE_WRITE."""
    full: Runs = [(2 * c.block, c.fold + "Wy")]
    return {"populated": [[(2 * c.block, "zry")], full], "copied": [[(2 * c.block, "vWy")], full]}


def swap(c: Case) -> Expected:
    """Out to zram, and in again."""
    n, f = c.block, c.fold
    # In one piece only where a folio goes out in one piece: 4K alone has ARCH_WANTS_THP_SWAP.
    whole = c.fills and c.layout.granule == "4k"
    back = "c" if whole else "v"
    # The second block's folio was split, if there was one.
    rest: Runs = [(n - 1, "vW" + (c.moved if c.fills else "y")), (n, f + "Wy")]
    used: Runs = [(1, "vwy"), (n - 1, "vWy"), (n, f + "Wy")]
    return {
        "out": [[(n, "s"), (1, "s"), *rest]],
        "in": [[(n, back + "wy"), (1, "s"), *rest]],
        "written": [[*c.hit(3, "y", whole), *used]],
    }


def migrate(c: Case) -> Expected:
    """To another node and back."""
    n, f = c.block, c.fold
    # On the way back the folio is split: when the first move took its entries out one by one, __folio_remove_rmap()
    # queued it as partially mapped, migrate_folio_move() queued the new one alike, migrate_pages_batch() splits such.
    age = c.moved
    return {"there": [[(n, f"{f}W{age}"), (n, f + "Wo")]], "back": [[(n, "vW" + age), (n, "vWo")]]}


def compact(c: Case) -> Expected:
    """Compaction."""
    # Moved or not, and split where no room was found for it in one piece: `test_compaction` tells by the frames.
    return {"compacted": [[run for _ in range(4) for run in ((c.block, "?W?"), (c.block, "."))]]}


def ksm(c: Case) -> Expected:
    """Equal pages merged."""
    n, f = c.block, c.fold
    # Both folios were split. The page that the others came to is the second block's: the first two were one folio's
    # when they met, which only splits it (cmp_and_merge_page); theirs are new entries for it, and young.
    age = c.moved if c.fills else "y"
    own, stays = "vW" + age, "vr" + age
    first: Runs = [(1, own), (1, "vry"), (1, own), (1, "vry"), (n - 4, own)]
    second: Runs = [(2, own), (1, stays), (n - 3, own), (n, f + "Wy")]
    # All was read by then.
    later: Runs = [(1, "vWy"), (1, "vry"), (n - 2, "vWy"), (2, "vWy"), (1, "vry"), (n - 3, "vWy"), (n, f + "Wy")]
    return {"merged": [[*first, *second]], "written": [[*later]]}


def hugetlb(c: Case) -> Expected:
    """Each size of hugetlb that fits in a guest."""
    # What fits in a guest: CONT_PTE, PMD and CONT_PMD at 4K, CONT_PTE and PMD at 16K, CONT_PTE at 64K.
    shapes = {"4k": {64: "c", 2048: "b", 32768: "k"}, "16k": {2048: "c", 32768: "b"}, "64k": {2048: "c"}}
    out: Expected = {}
    for size, shape in shapes[c.layout.granule].items():
        pages = size * 1024 // c.layout.page
        out[f"{size}K"] = [[(pages, shape + "Wy"), (pages, ".")]]
        # What fork() does to a group at level 3 is test_hugetlb_fork.py's.
        for who in ("parent", "child") if shape != "c" else ():
            out[f"{size}K-{who}"] = [[(pages, shape + "Dy"), (pages, ".")]]
    return out


def uffd(c: Case) -> Expected:
    """Write protection and missing pages of userfaultfd."""
    n, f = c.block, c.fold
    resolved: Runs = [(2, "vPy"), (1, "vWy"), (n - 3, "vPy"), (n, f + "Wy")]
    return {
        "protected": [[(n, f + "Py"), (n, f + "Wy")]],
        "resolved": [resolved],
        "filled": [resolved, [(n, "vWy"), (1, "zry"), (n - 1, ".")]],
    }


def hole(c: Case) -> Expected:
    """A hole in shared memory."""
    n = c.block
    # A split leaves four pages in one piece in front of the fifth, and newer kernels map all of it that a fault meets.
    front = 4 if c.newer else 1
    return {
        "full": [[(2 * n, "cWy")]],
        "punched": [[(n, "."), (n, "cWy")]],
        "filled": [[(front, "vWy"), (5 - front, "."), (1, "vWy"), (n - 6, "."), (n, "cWy")]],
    }


def tmpfs(c: Case) -> Expected:
    """A file mapped by two processes at different offsets."""
    n = c.block
    # Fault-around is 64 KiB: a block at 4K, four pages at 16K, the page itself at 64K.
    around = 65536 // c.layout.page
    folded = "c" if c.layout.granule == "4k" else "v"

    # What write(2) has made dirty is mapped so by newer kernels, where it may be written (set_pte_range()).
    read = "Wy" if c.newer else "wy"

    def seen(shape: str) -> Runs:
        return [(n, "."), (around, shape + read), (n - around, "."), (2 * n, ".")]

    # By then all of the second block was read.
    wrote: Runs = [(n, "."), (n, "v" + read), (n, "."), (1, "vWy"), (n - 1, ".")]
    return {"straight": [seen(folded)], "askew": [seen("v")], "wrote": [wrote]}


EXPECTED: dict[str, Callable[[Case], Expected]] = {
    each.__name__: each
    for each in (
        *(anon, neighbour, munmap, mprotect, dontneed, fork, shmem, thp, allocfail, zeropage),
        *(sizes, vma, mlock, mremap, free, populate, swap, migrate, compact, ksm, hugetlb, uffd, hole, tmpfs),
    )
}
