# SPDX-License-Identifier: GPL-2.0-only
"""Our own experiments: one order at a time, what a step costs, and the series patch by patch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .kinds import THP, Experiment, Setting, policies

#: Of anonymous folios: a single page, and each size that 4K pages have up to a PMD. There is no order 1.
_ORDERS = (0, 2, 3, 4, 5, 6, 7, 8, 9)
_PAGE_KIB = 4
#: What `folioscope series --list` prints for a kernel that is not built.
NOT_BUILT = "-"


def _only(order: int, name: str) -> Setting:
    """One size for the kernel's own choice, which a kernel without our patches makes as well."""
    knobs = {f"{THP}/hugepages-{_PAGE_KIB << each}kB/enabled": "never" for each in _ORDERS if each}
    if order:
        knobs[f"{THP}/hugepages-{_PAGE_KIB << order}kB/enabled"] = "always"
    return Setting(name, "sysfs", knobs)


#: Which kernels there are is known when the lab runs.
SERIES = Experiment(
    "series",
    "our own: what a fault costs with the first patches of the series, one more each time",
    "page_fault1",
    32,
    (),
    per_fault=True,
    long=True,
)

ORDERS = (
    Experiment(
        "orders",
        "our own: what a fault costs by the order of the folio that it brings, each order alone",
        "page_fault1",
        32,
        tuple(_only(order, f"order {order}") for order in _ORDERS),
        per_fault=True,
    ),
    Experiment(
        "steps",
        "our own: stores to page tables, TLBIs and barriers of faulting, unfolding, folding and unmapping",
        "fold",
        4,
        policies("baseline", "simple", "variable", "adaptive"),
        unit="block",
        steps=True,
    ),
    SERIES,
)


class BadList(ValueError):
    """The list of the series' kernels is not what `folioscope series --list` prints."""


def series(listed: Path) -> Experiment:
    """The experiment on the kernels that ``folioscope series --list`` prints: number, name and Image in each line."""
    settings: list[Setting] = []
    for at, line in enumerate(listed.read_text().splitlines(), 1):
        words = line.split("\t")
        if len(words) != 3 or not words[0].isdigit():
            raise BadList(
                f"expected a number, a name and an Image in line {at} of {listed} and found {line[:80]!r}; "
                "folioscope series --list makes it"
            )
        number, name, image = words
        for order, size in ((0, "single pages"), (4, "64K")):
            setting = _only(order, f"{int(number):02} {name.partition(' ')[2] or name}, {size}")
            settings.append(replace(setting, image=image))
    return replace(SERIES, settings=tuple(settings))
