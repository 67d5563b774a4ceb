# SPDX-License-Identifier: GPL-2.0-only
"""Policy ``adaptive``, written down from its description (kernel-patches/README.md) and not from the kernel's code.

Orders are reckoned one fault after the other from the pages that are touched and from what was remembered of the
VMA; which one fits is ``order_model``'s. :func:`waste` is the memory by stride, start and policy that the description
promises.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from order_model import CHOSEN, NOT_ALLOWED, POLICY, Model

# One block in so many is a probe; twice as many after each dense one, so often.
EVERY = 4
TRUST = 4
# What a hint is worth, in dense probes, until this fault of a hinted VMA has nothing beside it: the ones before may.
HINT = 1
SPEND = 5


@dataclass
class Memory:
    """What is remembered of a VMA: how far probes are trusted, and faults that had nothing beside them."""

    trust: int = 0
    spent: int = 0


@dataclass
class Adaptive:
    """One VMA, in pages from an origin that is aligned to every probe: ``first`` to ``end`` exclusive.

    Probes go by the number of the page, so real ones are wanted where the origin is not aligned to 64 blocks.
    ``table`` is how many pages a page table has: a row of touched pages is counted in one alone.
    """

    preferred: int
    first: int
    end: int
    hinted: bool
    known: Memory = field(default_factory=Memory)
    populated: set[int] = field(default_factory=set)
    fails: Callable[[int], bool] = lambda order: False
    table: int = 512

    @property
    def orders(self) -> list[int]:
        """All that there are for anonymous memory, up to the preferred one."""
        return [0, *range(2, self.preferred + 1)]

    def at_most(self, order: int) -> int:
        """The highest order up to one."""
        return max(each for each in self.orders if each <= max(order, 0))

    @property
    def top(self) -> int:
        """No folio is larger than the VMA, or than a quarter of one that is not hinted."""
        pages = self.end - self.first
        room = pages if self.hinted else max(pages // 4, 1)
        return self.at_most(room.bit_length() - 1)

    def touched(self, page: int) -> bool:
        """Whether a page of the VMA is there."""
        return self.first <= page < self.end and page in self.populated

    def row(self, page: int, step: int) -> int:
        """Touched pages in a row beside one, in one page table."""
        at, run = page + step, 0
        table = at // self.table
        while at // self.table == table and self.touched(at):
            at, run = at + step, run + 1
        return run

    def probes(self, block: int) -> bool:
        """Whether a block of the largest order's pages is a probe: the last one of each so many."""
        spends = self.hinted and self.known.spent < SPEND
        every = EVERY << min(self.known.trust + (HINT if spends else 0), TRUST)
        return block % every == every - 1

    def next(self, page: int) -> int:
        """The order to try for a fault; what is remembered changes."""
        top, size = self.top, 1 << self.top
        block = page // size
        below, above = min(self.row(page, -1), size), min(self.row(page, 1), size)
        fresh = self.known == Memory()
        dense = sparse = False
        for side, run, edge in ((-1, below, page % size == 0), (1, above, page % size == size - 1)):
            if not self.probes(block + side):
                continue
            first, last = (block + side) * size, (block + side) * size + size - 1
            far, near = (first, last) if side < 0 else (last, first)
            dense |= edge and run == size
            sparse |= self.touched(far) and not self.touched(near)
        alone = not below and not above
        if dense:
            self.known = Memory(min(self.known.trust + 1, TRUST), max(self.known.spent - 1, 0))
        elif sparse:
            self.known = Memory(0, SPEND if self.hinted else self.known.spent)
        elif self.hinted and alone:
            self.known = replace(self.known, spent=min(self.known.spent + 1, SPEND))
        if self.hinted and fresh and alone:
            return top
        run = max(below, above)
        if self.probes(block):
            run = max(min(below, page % size), min(above, size - 1 - page % size))
        elif self.hinted and self.known.spent < SPEND:
            return top
        return self.at_most(min(top, run.bit_length() - 1))

    def fault(self, page: int) -> tuple[int, int, dict[int, str]]:
        """Page, chosen order, and the reason of each order, as the record has it."""
        order = self.next(page) if self.preferred >= 2 else 0
        # From there on it is "retry".
        place = Model("retry", order, self.first, self.end, fails=self.fails, populated=self.populated)
        chosen, reasons = place.fault(page)
        for above in range(chosen + 1, self.preferred + 1):
            reasons.setdefault(above, NOT_ALLOWED if above == 1 else POLICY)
        assert reasons[chosen] == CHOSEN
        return page, chosen, reasons

    def explain(self, pages: Iterable[int]) -> list[tuple[int, int, dict[int, str]]]:
        """Writes in this order: of each that faults what ``fault`` says."""
        return [self.fault(page) for page in pages if page not in self.populated]

    def part(self, first: int, end: int) -> Adaptive:
        """A part that was split off, or the whole that came of a merge: it knows what this one knows."""
        populated = {page for page in self.populated if first <= page < end}
        return replace(self, first=first, end=end, known=replace(self.known), populated=populated)

    def moved(self, by: int) -> Adaptive:
        """After mremap(): what is there and what is known come along."""
        populated = {page + by for page in self.populated}
        return replace(self, first=self.first + by, end=self.end + by, known=replace(self.known), populated=populated)


def strides(count: int) -> Iterator[tuple[str, list[int]]]:
    """Ways of touching ``count`` pages, each with its name: 1 to 64 pages apart, up and down, and at random."""
    for stride in range(1, 65):
        up = [at * stride for at in range(count)]
        yield f"{stride} up", up
        yield f"{stride} down", [up[-1] - page for page in up]
    pages = list(range(0, 64 * count))
    yield "random", random.Random(1).sample(pages, count)


def waste(preferred: int, *, hinted: bool, count: int = 64, walked: int = 0) -> dict[str, float]:
    """Pages that are there by page that was touched, by way of touching, in a VMA in which a walk came before.

    For the laboratory as for the test: policy ``adaptive`` by this model; the others' follow from ``order_model``.
    """
    found = {}
    for name, pages in strides(count):
        # Room for the way, the walk before it, and no more than an aligned end; the cap is not what this is about.
        vma = Adaptive(preferred, 0, 4 * (walked + 64 * count + 64), hinted)
        vma.explain(range(walked))
        vma.explain(walked + page for page in pages)
        found[name] = len(vma.populated) / (walked + count)
    return found
