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
    #: Function of the kernel and distance from its start; "PC 0x..." where no name is known.
    place: str
    #: Who called, the nearest first.
    callers: tuple[str, ...]

    @classmethod
    def read(cls, raw: Raw) -> Step:
        """From JSON."""
        return cls(raw["cpu"], raw["place"], tuple(raw["callers"]))


@dataclass(frozen=True, slots=True)
class Moment(Fields):
    """A step in the life of a block."""

    cpu: int
    place: str
    #: "store", "tlbi" or "dsb".
    did: str
    #: Of a store: the VA, the word before and the word behind.
    va: int | None
    old: int | None
    new: int | None
    #: Of a TLBI or a DSB, as the assembler has it: "vale1is", "ish".
    operation: str | None

    @classmethod
    def read(cls, raw: Raw) -> Moment:
        """From JSON."""
        va, old, new = (number(raw[name]) if name in raw else None for name in ("va", "old", "new"))
        return cls(raw["cpu"], raw["place"], raw["did"], va, old, new, raw.get("operation", raw.get("option")))


@dataclass(frozen=True, slots=True)
class FolioThen(Fields):
    """A folio, as the kernel had it when a descriptor that maps it was written or taken away."""

    #: Its first page frame.
    first: int
    order: int
    #: "anonymous", "file" (shmem too), "ksm", "movable", "unowned".
    kind: str

    @classmethod
    def read(cls, raw: Raw) -> FolioThen:
        """From JSON."""
        return cls(number(raw["first"]), raw["order"], raw["kind"])


@dataclass(frozen=True, slots=True)
class Sequence(Fields):
    """A sequence that breaks a rule (docs/recorder.md)."""

    #: "S1" to "S7".
    rule: str
    #: What was missing.
    sentence: str
    #: The first VA that the descriptor maps.
    va: int
    level: int
    #: The word that a TLB may still hold, and the one that was written.
    old: int
    new: int
    #: The old word's folio when it was taken away, and the new one's when it was written; None where that was not told.
    old_folio: FolioThen | None
    new_folio: FolioThen | None
    #: How often, at this place in the code.
    count: int
    #: Pid, and name where it is known.
    process: str | None
    #: The store that made it so, the one that took the old word away, the TLBI that came nearest.
    made: Step
    broken: Step | None
    tlbi: Step | None
    #: What happened last to the block, in order.
    life: tuple[Moment, ...]

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
    #: As the assembler has it: "vale1is".
    operation: str
    #: The VAs, first and last; None for all.
    first: int | None
    last: int | None
    #: None for all.
    asid: int | None
    #: Of its hint.
    level: int | None
    last_level: bool
    #: For its own CPU alone.
    local: bool

    def covers(self, va: int) -> bool:
        """Whether it is for this VA, in whatever address space."""
        return self.first is None or self.last is None or self.first <= va <= self.last


@dataclass(frozen=True, slots=True)
class Done(Fields):
    """How much was done under a function."""

    stores: int
    tlbis: int
    dsbs: int


@dataclass(slots=True)
class Trace:
    """What went by while a guest was recorded; all of it is there once the recording has ended."""

    #: What is wrong: of each cause the first.
    findings: tuple[Sequence, ...] = ()
    #: How many findings there were in all.
    total: int = 0
    #: What could not be judged since the guest was booted, a sentence each.
    not_judged: tuple[str, ...] = ()
    #: In the order in which they came.
    tlbis: tuple[Tlbi, ...] = ()
    #: By function of the kernel: what was done under it, called by whom it may.
    calls: Mapping[str, Done] | None = None
    ended: bool = False

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
