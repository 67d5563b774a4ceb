# SPDX-License-Identifier: GPL-2.0-only
"""Which faults each workload of the tour makes, so that the order model can say what the kernel must record of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from folioscope import Layout

from adaptive_model import Adaptive
from order_model import CHOSEN, NOHUGEPAGE, NOT_ALLOWED, Model

# A record: page of the area, chosen order, reason by order.
Fault = tuple[int, int, dict[int, str]]


@dataclass
class Script:
    """The faults in one VMA of an area. Pages count from the block that the area starts in."""

    model: Model | Adaptive
    found: list[Fault] = field(default_factory=list)

    def write(self, pages: Iterable[int]) -> Script:
        """Writes to pages, in this order."""
        self.found += self.model.explain(pages)
        return self

    def there(self, page: int) -> Script:
        """A zero page: nothing is recorded of it."""
        self.model.populated.add(page)
        return self

    def drop(self, page: int) -> Script:
        """MADV_DONTNEED of a page."""
        self.model.populated.discard(page)
        return self

    def failing(self, order: int | None) -> Script:
        """Allocations of at least this order fail from here on."""
        self.model.fails = lambda tried: order is not None and tried >= order
        return self


@dataclass(frozen=True)
class Orders:
    """What the faults depend on: policy and sizes."""

    policy: str
    layout: Layout

    @property
    def block(self) -> int:
        """Pages per block."""
        return self.layout.cont_pages

    @property
    def pmd_order(self) -> int:
        """The order of a PMD: a table's entries, eight bytes each."""
        return (self.layout.page // 8).bit_length() - 1

    def vma(self, first: int, end: int, **more: object) -> Script:
        """A hinted VMA from page ``first`` to ``end``."""
        if self.policy == "adaptive":
            return Script(Adaptive(self.layout.hinted_order, first, end, hinted=True))
        model = Model(self.policy, self.layout.hinted_order, first, end, pmd=self.pmd_order, **more)  # type: ignore[arg-type]
        return Script(model)

    def all_of(self, first: int, end: int) -> list[Fault]:
        """Each page of it written, forward."""
        return self.vma(first, end).write(range(first, end)).found


def plain(o: Orders, pages: Iterable[int]) -> list[Fault]:
    """Faults under MADV_NOHUGEPAGE: what the architecture prefers without a hint is forbidden, and what is below; under
    sysfs all that have a control."""
    highest = {"sysfs": o.pmd_order - 1, "baseline": 0}.get(o.policy, o.layout.unhinted_order)
    reasons = {0: CHOSEN} | {order: NOT_ALLOWED if order == 1 else NOHUGEPAGE for order in range(1, highest + 1)}
    return [(page, 0, reasons) for page in pages]


# Checkpoint and area -> the faults in that area until then, in order.
Expected = dict[tuple[str, int], list[Fault]]


def anon(o: Orders) -> Expected:
    """Faults forward, backward, in every other block, and across a VMA's ends."""
    n = o.block
    backward = o.vma(0, 4 * n).write(range(4 * n - 1, -1, -1))
    sparse = o.vma(0, 8 * n).write(range(3, 8 * n, 2 * n))
    return {
        ("forward", 0): o.all_of(0, 4 * n),
        ("backward", 1): backward.found,
        ("sparse", 2): sparse.found,
        ("ends", 3): o.all_of(n // 2, 5 * n // 2),
    }


def neighbour(o: Orders) -> Expected:
    """A fault beside a page that is there."""
    n = o.block
    first = n // 2 + 1
    script = o.vma(0, 2 * n).there(first)
    return {("filled", 0): plain(o, [first]) + script.write([0, n]).write(range(n)).found}


def dontneed(o: Orders) -> Expected:
    """One page dropped, and written again."""
    n = o.block
    return {("refilled", 0): o.vma(0, 2 * n).write(range(2 * n)).drop(5).write([5]).found}


def allocfail(o: Orders) -> Expected:
    """Allocation fails at the preferred order."""
    n = o.block
    script = o.vma(0, 2 * n).failing(o.layout.cont_order).write(range(n))
    return {("recovered", 0): script.failing(None).write(range(n, 2 * n)).found}


def zeropage(o: Orders) -> Expected:
    """A zero page, and writes beside it and to it."""
    n = o.block
    return {("written", 0): o.vma(0, 2 * n).there(n // 2 + 3).write([0, n]).found}


def sizes(o: Orders) -> Expected:
    """Only sizes below a block's are enabled."""
    n, top = o.block, o.layout.cont_order
    sysfs = Orders("sysfs", o.layout)
    # No anonymous folio has order 1.
    small = sysfs.vma(0, 2 * n, enabled=tuple(range(2, top)))
    every = sysfs.vma(0, 2 * n, enabled=tuple(range(2, top + 1)))
    return {("small", 0): small.write(range(2 * n)).found, ("enabled", 1): every.write(range(2 * n)).found}


def vma(o: Orders) -> Expected:
    """VMAs that start and end inside a block, their split and merge."""
    n, half = o.block, o.block // 2
    meet = o.all_of(0, half) + plain(o, range(half, n)) + o.all_of(n, 2 * n)
    return {
        ("ends", 0): o.all_of(half, 2 * n),
        ("ends", 1): o.all_of(0, n + half),
        ("meet", 2): meet,
        ("merged", 3): o.all_of(0, 2 * n),
    }


def populate(o: Orders) -> Expected:
    """MADV_POPULATE_READ and MADV_POPULATE_WRITE."""
    # What was a zero page is copied, and no order is chosen for a copy.
    return {("copied", 0): [], ("copied", 1): o.all_of(0, 2 * o.block)}


def filled(checkpoint: str, blocks: int) -> Callable[[Orders], Expected]:
    """The first area, all of it written once, forward."""
    return lambda o: {(checkpoint, 0): o.all_of(0, blocks * o.block)}


ORDERS: dict[str, Callable[[Orders], Expected]] = {
    "anon": anon,
    "neighbour": neighbour,
    "munmap": filled("populated", 2),
    "mprotect": filled("populated", 3),
    "dontneed": dontneed,
    "fork": filled("parent", 2),
    "allocfail": allocfail,
    "zeropage": zeropage,
    "sizes": sizes,
    "vma": vma,
    "mlock": filled("unlocked", 2),
    "free": filled("freed", 4),
    "populate": populate,
    "swap": filled("out", 3),
    "migrate": filled("there", 2),
    "compact": filled("compacted", 8),
    "ksm": filled("merged", 3),
    "uffd": filled("protected", 2),
}
