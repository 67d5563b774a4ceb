# SPDX-License-Identifier: GPL-2.0-only
"""One process's tables at one instant, as the rig saw and judged them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from .changes import Changes
from .expect import OF_ENTRIES, Expectation, Open, OrderExpected, Stated, with_reason
from .layout import Layout
from .listing import Folio
from .model import Again, Entry, Finding, Record, Who

VALID = 1 << 0
CONTIGUOUS = 1 << 52
# How the sentence on what a look with ``again=True`` leaves out ends.
AGAIN = "a look that reads only what was written to reads no structures of the kernel"
# So many findings, and sentences on what was not judged, are in the message of a look that fails.
MOST = 5


class LookFailed(AssertionError):
    """A look found an error, or something that was stated does not hold; ``view`` is the look, if there was one."""

    def __init__(self, view: View | None, lines: list[str]) -> None:
        more = [f"and {len(lines) - MOST} more"] if len(lines) > MOST else []
        super().__init__("\n".join([*lines[:MOST], *more]))
        self._view = view

    @property
    def view(self) -> View:
        """The look that it is about."""
        if self._view is None:
            raise ValueError("there was no look")
        return self._view


class NotJudged(LookFailed):
    """No error was found, and something that was to be judged could not be."""


class Range(Protocol):
    """Anything with an address and a length: an ``Area``."""

    @property
    def address(self) -> int:
        """The first address."""

    @property
    def length(self) -> int:
        """The bytes."""


class View:
    """One process's tables at one instant, as the rig saw and judged them.

    ``findings`` and ``errors`` are those of *all* processes that were looked at at that instant: what one maps bears on
    the others. ``raw`` is what the session said.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        layout: Layout,
        *,
        stated: Iterable[Stated] = (),
        before: Mapping[int, int] | None = None,
        call: Callable[..., Any] | None = None,
    ) -> None:
        self.raw = raw
        self.layout = layout
        self._call = call
        # The look's number in its session; None for what is not kept there.
        self.number: int | None = raw.get("number")
        who = raw["verdict"]["process"]
        self.process = Who(who["pid"], who["name"])
        verdicts = [raw["verdict"], *raw.get("companions", [])]
        self.entries = [Entry.read(entry) for entry in raw["entries"]]
        self.records = [Record.read(record) for record in raw.get("records", [])]
        stated = list(stated)
        found = (Finding.read(finding) for verdict in verdicts for finding in verdict["findings"])
        self._findings = [with_reason(finding, stated) for finding in found]
        self._stated = stated
        # What could not be judged, in one sentence each.
        self.not_judged: list[str] = [each["reason"] for verdict in verdicts for each in verdict["not_judged"]]
        # What the verdict lacks as a whole: a rule's input that is not there, Linux's rules that were not applied.
        self.not_judged += [lack for lack in raw.get("basis", {}).get("lacks", []) if lack not in self.not_judged]
        # Where only tables that were written to were to be read: what came of that.
        self.again = Again.read_from(raw["again"]) if "again" in raw else None
        # How many errors were seen and taken back, as they did not show to stay.
        self.unsettled: int = sum(verdict["unsettled"] for verdict in verdicts)
        self._by_place = {(entry.level, entry.va): entry for entry in self.entries}
        new = [record for record in self.records if record.seq > (before or {}).get(record.cpu, 0)]
        for expected in stated:
            wrong = expected.judge(new, self.process) if isinstance(expected, OrderExpected) else []
            self._findings += wrong or []
            if wrong is None or self._lacks_record(expected, self.records):
                self.not_judged.append(
                    f"{expected.what if isinstance(expected, Expectation) else f'order {expected.order}'} was expected "
                    f"at {expected.start:#x}-{expected.end:#x} and the kernel has no record of a fault there"
                    f"{' since the look before' if wrong is None else ''}: it keeps the last ones only, and that needs "
                    "Folioscope's patches and the vmlinux"
                )
            elif self._lacks_entries(expected):
                self.not_judged.append(f"expected {expected} and the process maps nothing there")

    @staticmethod
    def _lacks_record(expected: Stated, records: Iterable[Record]) -> bool:
        """Whether folios of the last faults are to be judged and there was none."""
        if not isinstance(expected, Expectation) or expected.what != "freshly-faulted":
            return False
        return not any(expected.start <= record.address < expected.end for record in records)

    def _lacks_entries(self, expected: Stated) -> bool:
        """Whether entries are to be judged and there is none."""
        if not isinstance(expected, Expectation) or expected.what not in OF_ENTRIES:
            return False
        pages = range(expected.start, expected.end, self.layout.page)
        return not any(self.entry(va) for va in pages)

    def check(self, when: str = "") -> None:
        """Raises ``LookFailed`` with the errors that were found, or ``NotJudged`` with what could not be judged;
        ``when`` is for the message."""
        before = f"{when}: " if when else ""
        if self.errors:
            raise LookFailed(self, [f"{before}{error}" for error in self.errors])
        lacks = [why for why in self.not_judged if self.again is None or not why.endswith(f": {AGAIN}")]
        if lacks:
            raise NotJudged(self, [f"{before}not judged: {why}" for why in lacks])

    @property
    def findings(self) -> list[Finding]:
        """What was found, by all rules; a test that reads it has what came of its expectations."""
        Open.settle(self._stated)
        return self._findings

    @property
    def pid(self) -> int:
        """The process's id in the guest."""
        return self.process.pid

    @property
    def errors(self) -> list[Finding]:
        """The findings that are errors."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def rules(self) -> set[str]:
        """The rules that were broken."""
        return {finding.rule for finding in self.errors}

    def entry(self, va: int) -> Entry | None:
        """The level-3 entry of a page, or the block that maps it."""
        page = self._by_place.get((3, va & ~(self.layout.page - 1)))
        return page or self._by_place.get((2, va & ~(self.layout.pmd - 1)))

    def word(self, va: int) -> int:
        """The raw level-3 word of a page; 0 where there is no table."""
        entry = self._by_place.get((3, va))
        return entry.word if entry else 0

    def pattern(self, where: Range | int, length: int | None = None) -> str:
        """A character per block of an area: ``C`` every entry valid and contiguous, ``.`` nothing valid,
        ``B`` mapped by a level-2 block, ``-`` full without the bit, ``p`` partly valid, ``!`` the bit on some.

        Computed here from the raw words, not taken from the tool's own classification.
        """
        address, length = _range(where, length)
        page, pages = self.layout.page, self.layout.cont_pages
        out = []
        for block in range(address, address + length, self.layout.block):
            words = [self.word(va) for va in range(block, block + pages * page, page)]
            if (2, block & ~(self.layout.pmd - 1)) in self._by_place:
                out.append("B")
                continue
            valid = [word for word in words if word & VALID]
            contiguous = [word for word in valid if word & CONTIGUOUS]
            if not valid:
                out.append(".")
            elif len(contiguous) == pages:
                out.append("C")
            elif contiguous:
                out.append("!")
            else:
                out.append("-" if len(valid) == pages else "p")
        return "".join(out)

    def pages(self, where: Range | int, length: int | None = None) -> str:
        """A character per page of an area: ``c`` valid and contiguous, ``v`` valid, ``.`` not valid."""
        address, length = _range(where, length)
        out = []
        for va in range(address, address + length, self.layout.page):
            word = self.word(va)
            out.append("." if not word & VALID else "c" if word & CONTIGUOUS else "v")
        return "".join(out)

    def output(self, va: int) -> int | None:
        """The output address of a page, from the tool's decoding; None where it is not mapped."""
        entry = self.entry(va)
        return (entry.output_address or None) if entry else None

    def orders(self, where: Range | int, length: int | None = None) -> list[tuple[int, int | None]]:
        """(page index of the fault, chosen order) of each record in an area, oldest first."""
        address, length = _range(where, length)
        found = [record for record in self.records if address <= record.address < address + length]
        return [((record.address - address) // self.layout.page, record.chosen) for record in found]

    def record(self, address: int) -> Record:
        """The newest record of the fault at an address."""
        page = address & ~(self.layout.page - 1)
        found = [record for record in self.records if record.address & ~(self.layout.page - 1) == page]
        assert found, f"no order record for {address:#x}"
        return found[-1]

    def folio(self, va: int) -> Folio | None:
        """The page that was mapped at an address, its folio, and who else mapped it; None where nothing was.

        Where folios are not known (a kernel without BTF, a look with ``again=True``) that is a ``CommandFailed``.
        """
        if self._call is None or self.number is None:
            raise ValueError("expected the view of a look, and this is one of a tour's checkpoint, which is not kept")
        found = self._call("folio", look=self.number, va=va)
        if "pages" not in found:
            return None
        (page,) = found["pages"]
        if page["page"] is None:
            raise ValueError(f"the page at {va:#x} is not known: {page['problem']}")
        return Folio.read(page)

    def diff(self, before: View) -> Changes:
        """What happened since an earlier look of the same guest, as events: faults, folds, copies on write, ...

        The command keeps the last 16 looks at a guest.
        """
        if self._call is None or self.number is None or before.number is None:
            raise ValueError("expected two views of looks, and one is of a tour's checkpoint, which is not kept")
        return Changes(self._call("diff", before=before.number, after=self.number), self.process, self.layout)

    def newest(self) -> dict[int, int]:
        """By CPU, the number of its last record."""
        newest: dict[int, int] = {}
        for record in self.records:
            newest[record.cpu] = max(record.seq, newest.get(record.cpu, 0))
        return newest


def _range(where: Range | int, length: int | None) -> tuple[int, int]:
    if isinstance(where, int):
        if length is None:
            raise TypeError("an address needs a length; an area has its own")
        return where, length
    return where.address, where.length
