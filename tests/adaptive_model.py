"""Policy ``adaptive``, written down from its description (kernel-patches/README.md) and not from the kernel's code.

Orders are reckoned one fault after the other from what was remembered of the VMA; which one fits is ``order_model``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from order_model import CHOSEN, NOT_ALLOWED, POLICY, Model

RAISE = 4
LOWER = 4


@dataclass
class Memory:
    """What is remembered of a VMA: its own order, the page of the last fault, and how often in a row or apart."""

    order: int
    last: int
    hinted: bool
    run: int = 0
    scattered: int = 0


@dataclass
class Adaptive:
    """One VMA, in pages from an origin that is aligned to every order: ``first`` to ``end`` exclusive."""

    preferred: int
    first: int
    end: int
    hinted: bool
    known: Memory | None = None
    populated: set[int] = field(default_factory=set)
    fails: Callable[[int], bool] = lambda order: False

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

    def next(self, page: int) -> int:
        """The order to try for a fault, which is remembered."""
        was = self.known
        if was is None or was.hinted != self.hinted:
            self.known = Memory(self.top if self.hinted else self.at_most(self.top // 2), page, self.hinted)
            return self.known.order
        order = self.at_most(min(was.order, self.top))
        run = scattered = 0
        if self.first <= was.last < self.end:
            if abs((page >> order) - (was.last >> order)) <= 1:
                run = was.run + 1
            else:
                scattered = was.scattered + 1
        if run == RAISE:
            higher = [each for each in self.orders if order < each <= self.top]
            order, run = min(higher, default=order), 0
        if scattered == LOWER:
            order, scattered = self.at_most(order - 1), 0
        self.known = Memory(order, page, self.hinted, run, scattered)
        return order

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
        known = replace(self.known) if self.known else None
        populated = {page for page in self.populated if first <= page < end}
        return replace(self, first=first, end=end, known=known, populated=populated)

    def moved(self, by: int) -> Adaptive:
        """After mremap(): the last fault stays behind, outside of what the VMA is now."""
        known = replace(self.known) if self.known else None
        populated = {page + by for page in self.populated}
        return replace(self, first=self.first + by, end=self.end + by, known=known, populated=populated)
