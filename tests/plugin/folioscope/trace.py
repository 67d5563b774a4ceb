# SPDX-License-Identifier: GPL-2.0-only
"""What the recorder saw of a guest's sequences: findings, TLB maintenance, and what was done under whose call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import Fields, Raw, number


@dataclass(frozen=True, slots=True)
class Step(Fields):
    """An instruction that was part of a sequence."""

    cpu: int
    place: str
    """The function of the kernel and the distance from its start; "PC 0x..." where no name is known."""
    callers: tuple[str, ...]
    """Its callers, the nearest first."""

    @classmethod
    def read(cls, raw: Raw) -> Step:
        """From JSON."""
        return cls(raw["cpu"], raw["place"], tuple(raw["callers"]))


@dataclass(frozen=True, slots=True)
class Moment(Fields):
    """A step in the life of a block."""

    cpu: int
    place: str
    """As in ``Step``."""
    did: str
    """One of "store", "tlbi" and "dsb"."""
    va: int | None
    """The VA of a store."""
    old: int | None
    """The word before the store."""
    new: int | None
    """The word that it wrote."""
    operation: str | None
    """The name of a TLBI or a DSB in assembler: "vale1is", "ish"."""

    @classmethod
    def read(cls, raw: Raw) -> Moment:
        """From JSON."""
        va, old, new = (number(raw[name]) if name in raw else None for name in ("va", "old", "new"))
        return cls(raw["cpu"], raw["place"], raw["did"], va, old, new, raw.get("operation", raw.get("option")))


@dataclass(frozen=True, slots=True)
class FolioThen(Fields):
    """A folio, as the kernel had it when a descriptor that maps it was written or taken away."""

    first: int
    """Its first page frame."""
    order: int
    kind: str
    """One of "anonymous", "file" (shmem too), "ksm", "movable" and "unowned"."""

    @classmethod
    def read(cls, raw: Raw) -> FolioThen:
        """From JSON."""
        return cls(number(raw["first"]), raw["order"], raw["kind"])


@dataclass(frozen=True, slots=True)
class Sequence(Fields):
    """A sequence that breaks a rule (docs/recorder.md)."""

    rule: str
    """The rule's id, S1 to S7."""
    sentence: str
    """What was missing."""
    va: int
    """The first VA that the descriptor maps."""
    level: int
    """Its lookup level."""
    old: int
    """The word that a TLB may still hold."""
    new: int
    """The word that was written."""
    old_folio: FolioThen | None
    """The folio of the old word when that was removed; None where it is not known."""
    new_folio: FolioThen | None
    """The folio of the new word when that was written; None likewise."""
    count: int
    """How often this happened at this place in the code."""
    process: str | None
    """The pid, and the name where it is known."""
    made: Step
    """The store that wrote the new word."""
    broken: Step | None
    """The store that removed the old one."""
    tlbi: Step | None
    """The TLBI that came nearest."""
    life: tuple[Moment, ...]
    """The last steps of the block, in their order."""

    def __str__(self) -> str:
        """As the command prints it: the rule, the words, and the two stores with their callers."""
        lines = [
            f"{self.rule} {self.sentence}",
            f"VA 0x{self.va:016x} level {self.level}: 0x{self.old:016x} -> 0x{self.new:016x}; {self.count} time(s)",
        ]
        if self.process:
            lines.append(f"process {self.process}")
        for name, step in (("broken", self.broken), ("made", self.made)):
            if step:
                lines.append(f"{name:7} CPU {step.cpu} at {step.place}")
                lines += [f"        {caller}" for caller in step.callers]
        return "\n  ".join(lines)

    @classmethod
    def read(cls, raw: Raw) -> Sequence:
        """From JSON."""
        whole = raw["sequence"]
        broken, tlbi = whole.get("broken"), whole.get("tlbi")
        folios = [whole.get("old_folio"), whole.get("new_folio")]
        old_folio, new_folio = (folio and FolioThen.read(folio) for folio in folios)
        process = raw.get("process")
        return cls(
            rule=raw["rule"],
            sentence=raw["message"],
            va=number(raw["va"]),
            level=raw["level"],
            old=number(whole["old"]),
            new=number(whole["new"]),
            old_folio=old_folio,
            new_folio=new_folio,
            count=raw["places"],
            process=process and f"{process['pid']} ({process['name']})",
            made=Step.read(whole["made"]),
            broken=broken and Step.read(broken),
            tlbi=tlbi and Step.read(tlbi),
            life=tuple(Moment.read(each) for each in whole["life"]),
        )


@dataclass(frozen=True, slots=True)
class Tlbi(Fields):
    """An instruction of TLB maintenance."""

    cpu: int
    place: str
    """As in ``Step``."""
    operation: str
    """Its name in assembler: "vale1is"."""
    first: int | None
    """The first VA; None for all."""
    last: int | None
    """The last VA; None for all."""
    asid: int | None
    """The ASID; None for all."""
    level: int | None
    """The level of its hint; None without one."""
    last_level: bool
    """It is for entries of the last level alone."""
    local: bool
    """It is for its own CPU alone."""

    def covers(self, va: int) -> bool:
        """Whether it is for this VA, in whatever address space."""
        return self.first is None or self.last is None or self.first <= va <= self.last


@dataclass(frozen=True, slots=True)
class Done(Fields):
    """How much was done under a function."""

    stores: int
    """Stores to page tables."""
    tlbis: int
    """TLBIs."""
    dsbs: int
    """DSBs."""


@dataclass(slots=True)
class Trace:
    """What went by while a guest was recorded; all of it is there once the recording has ended."""

    findings: tuple[Sequence, ...] = ()
    """The first finding of each cause."""
    total: int = 0
    """The number of findings."""
    not_judged: tuple[str, ...] = ()
    """One sentence for each part that was not judged since the guest was booted."""
    tlbis: tuple[Tlbi, ...] = ()
    """In the order in which they came."""
    calls: Mapping[str, Done] | None = None
    """Counts of each function of the kernel, all its callers together."""
    ended: bool = False
    """The recording has ended."""

    def take_in(self, raw: Raw) -> None:
        """From JSON."""
        self.findings = tuple(Sequence.read(each) for each in raw["findings"])
        self.total = raw["total"]
        self.not_judged = tuple(raw["not_judged"])
        self.tlbis = tuple(Tlbi(**each) for each in raw["tlbis"])
        self.calls = {name: Done(**done) for name, done in raw["calls"].items()}
        self.ended = True

    def tlbi(self, va: int) -> tuple[Tlbi, ...]:
        """The TLBIs that are for this VA, those of a range, of an ASID and of everything too."""
        if not self.ended:
            raise RuntimeError("expected the recording to have ended, and it goes on; ask behind the `with` block")
        return tuple(tlbi for tlbi in self.tlbis if tlbi.covers(va))
