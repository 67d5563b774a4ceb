# SPDX-License-Identifier: GPL-2.0-only
"""The order policies, written down from their description and not from the kernel's code.

seeds: "variable-order, large folios for anonymous memory" v1 (retry), v2 (variable) and the
simplification that v2 argues against (simple). A fault is given the largest power-of-two window
that is naturally aligned, lies within the VMA and the PMD, and holds nothing yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

NOT_CONSIDERED = "not-considered"
CHOSEN = "chosen"
NOT_ALLOWED = "not-allowed"
VMA_START = "crosses-start"
VMA_END = "crosses-end"
PTE_OVERLAP = "overlap"
ALLOCATION = "allocation-failed"
NOHUGEPAGE = "nohugepage"
SIZE_NEVER = "size-never"
POLICY = "policy"


@dataclass
class Model:
    """One VMA, in pages from an aligned origin: ``first`` to ``end`` exclusive."""

    policy: str
    preferred: int
    first: int
    end: int
    fails: Callable[[int], bool] = lambda order: False
    populated: set[int] = field(default_factory=set)
    # Under sysfs: the orders that are enabled; the preferred one where nothing is said.
    enabled: tuple[int, ...] | None = None
    # The order of a PMD: under sysfs each order below it has its control, and so its reason.
    pmd: int = 0

    def why_not(self, page: int, order: int) -> str | None:
        """What speaks against an order before anything is allocated."""
        if order == 1:
            return NOT_ALLOWED  # anonymous folios have no order 1 (THP_ORDERS_ALL_ANON)
        start = page >> order << order
        if start < self.first:
            return VMA_START
        if start + (1 << order) > self.end:
            return VMA_END
        if order and self.populated & set(range(start, start + (1 << order))):
            return PTE_OVERLAP
        return None

    def candidates(self) -> list[int]:
        """The orders that the policy looks at, largest first, without order 0."""
        if self.policy == "baseline" or self.preferred == 0:
            return []
        if self.policy == "sysfs" and self.enabled is not None:
            return sorted(self.enabled, reverse=True)
        if self.policy in ("simple", "sysfs"):
            return [self.preferred]
        return list(range(self.preferred, 0, -1))

    def fault(self, page: int) -> tuple[int, dict[int, str]]:
        """The order that is chosen, and the reason per order that was looked at."""
        reasons: dict[int, str] = {}
        chosen = 0
        for order in self.candidates():
            if why := self.why_not(page, order):
                reasons[order] = why
                continue
            if not self.fails(order):
                chosen = order
                break
            reasons[order] = ALLOCATION
            if self.policy in ("variable", "simple"):
                break
        reasons[chosen] = CHOSEN
        start = page >> chosen << chosen
        self.populated |= set(range(start, start + (1 << chosen)))
        return chosen, reasons

    def explain(self, pages: Iterable[int]) -> list[tuple[int, int, dict[int, str]]]:
        """Writes to pages in order: (page, chosen order, reason by order) of each that faults, as the record has it.

        An order between the one that was chosen and the highest that the policy would have liked, of which nothing
        else is known, was not on offer: its size is not enabled, or the policy does not go that way.
        """
        sysfs = self.policy == "sysfs"
        found = []
        for page in pages:
            if page in self.populated:
                continue
            chosen, reasons = self.fault(page)
            highest = self.pmd if sysfs else max(self.candidates(), default=0)
            for order in range(chosen + 1, highest):
                reasons.setdefault(order, NOT_ALLOWED if order == 1 else SIZE_NEVER if sysfs else POLICY)
            found.append((page, chosen, reasons))
        return found

    def write(self, pages: Iterable[int]) -> list[tuple[int, int]]:
        """Writes to pages in order: (page, chosen order) of each that faults."""
        return [(page, self.fault(page)[0]) for page in pages if page not in self.populated]
