# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel with Folioscope's patches counts of its decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from .model import Fields, Raw

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Decision(Fields):
    """What faults have in common whose order was decided alike."""

    policy: str
    """The order policy."""
    path: str
    """The path of the kernel that decided: "anonymous", ..."""
    chosen: int | None
    """The order of the folio; None where the fault ended without one."""
    why: str
    """What became of the order that the policy would have liked best: "chosen", "overlap", "allocation-failed", ..."""


@dataclass(frozen=True, slots=True)
class Counts(Fields):
    """How often, on all CPUs. Other processes of the guest count too."""

    orders: Mapping[Decision, int] | None
    """The decisions about the orders of folios; None where the kernel does not count them."""
    contpte: Mapping[str, int] | None
    """What was done with contiguous blocks of user memory: "set", "fold", "unfold", "refused-hole", ...; None where the
    kernel does not count it."""
    unfolds: Mapping[str | None, int] | None
    """Unfolds by the function that caused them, with the distance from its start; None as a key where the kernel had no
    room for more (it names 64 on each CPU)."""

    @classmethod
    def read(cls, raw: Raw) -> Counts:
        """From JSON."""
        orders, contpte = raw["orders"], raw["contpte"]
        decided = {
            Decision(each["policy"], each["path"], each["chosen"], each["why"]): each["count"]
            for each in (orders or {"decisions": ()})["decisions"]
        }
        unfolds = {each["caller"]: each["count"] for each in (contpte or {"unfolds": ()})["unfolds"]}
        return cls(
            orders=orders and decided,
            contpte=contpte and contpte["events"],
            unfolds=contpte and unfolds,
        )

    def since(self, before: Counts) -> Counts:
        """What was counted in between, if nobody has switched the counting off and on; what was not is left out."""

        return replace(
            self,
            orders=_more(self.orders, before.orders),
            contpte=_more(self.contpte, before.contpte),
            unfolds=_more(self.unfolds, before.unfolds),
        )


def _more(now: Mapping[Key, int] | None, then: Mapping[Key, int] | None) -> Mapping[Key, int] | None:
    return None if now is None else Counter(now) - Counter(then or {})
