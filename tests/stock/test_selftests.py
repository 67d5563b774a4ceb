# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own mm selftests while their guest is looked at: no error, and they end as they do alone.

They exercise what our tour does not: pinned pages, copy on write of each size of folio, collapse and split,
userfaultfd's events, merging, poison, hugetlb in all ways, migration under load. A finding is a false alarm of ours
or a fault of the kernel; both have to be looked into. Two faults that releases are known to have are counted apart,
where the finding names the commit that mended it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from command import OUT
from own_qemu import LEFT_OUT, checked
from selftests import KILLED, SELFTESTS, SKIPPED, Outcome, Runner, Selftest
from test_stock_kernel import FAULTS, MIGRATED, Kernel, stock

pytestmark = [pytest.mark.qemu, pytest.mark.network]

# What switches the series' write faults on (vmm/setup/selftests.sh).
WRITE_FAULTS = "write_faults=1"
# A program that ends sooner is run again, for so long, so that looks meet it.
SECONDS = 2
LONG_SECONDS = 4
# What a guest may take longer that stands still now and then.
PATIENCE = 4
# A program that ends worse, or that no look has met, is tried again.
TRIES = 4


@dataclass
class Row:
    """What became of a program without and with us watching."""

    selftest: Selftest
    alone: list[Outcome] = field(default_factory=list)
    watched: list[Outcome] = field(default_factory=list)
    looks: int = 0
    # Looks at a process of the program, and those that were judged by the folios too.
    verdicts: int = 0
    folios: int = 0
    unsettled: int = 0
    not_judged: list[str] = field(default_factory=list)
    # Rules that did not apply to some of it, of the program's own processes.
    left_out: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    # Marks of faults that this release is known to have, and upstream has mended.
    known: Counter[str] = field(default_factory=Counter)

    @property
    def seen(self) -> bool:
        """Whether it was judged, all rules of folios too, if it does anything here."""
        return self.folios > 0 or self.watched[-1].left_out

    @property
    def worse(self) -> str | None:
        """What went wrong whenever we watched, and never without."""
        if min(o.bad for o in self.watched) > max(o.bad for o in self.alone):
            last = self.watched[-1]
            return f"{self.selftest}: {last.word}, and {self.alone[-1].word} without us\n{last.output[-1500:]}"
        parts = set.intersection(*(o.failed for o in self.watched)) - set.union(*(o.failed for o in self.alone))
        return f"{self.selftest}: {sorted(parts)} failed, and not without us" if parts else None

    def add(self, report: dict[str, Any]) -> None:
        """Takes in a look."""
        (step,) = report["steps"]
        self.looks += 1
        for process in step["processes"]:
            # The kernel keeps fifteen characters.
            if process["process"]["name"] == self.selftest.program[:15]:
                self.verdicts += 1
                self.folios += bool(process["folios"])
                # Without the guest's agent nobody can judge these.
                self.left_out += [n for n in process["notes"] if "judged" in n and not n.startswith(LEFT_OUT)]
            self.unsettled += process["unsettled"]
        for who in [step, *step["processes"], step.get("kernel", {})]:
            self.not_judged += [reason["reason"] for reason in who.get("not_judged", [])]
            name = who.get("process", "the kernel")
            found = [finding for finding in who.get("findings", []) if finding["severity"] == "error"]
            for finding in found:
                if any(fault.explains(finding, report["kernel"]["release"]) for fault in [*FAULTS, MIGRATED]):
                    self.known[finding["rule"]] += 1
                else:
                    self.errors.append(f"{name}: {finding['rule']}: {finding['message']}")

    def __str__(self) -> str:
        outcomes = (" then ".join(dict.fromkeys(o.word for o in tries)) for tries in (self.alone, self.watched))
        cells = [*outcomes, self.watched[-1].runs, self.looks, self.verdicts, self.folios, self.unsettled]
        known = " ".join(f"{rule} x{times}" for rule, times in sorted(self.known.items())) or "-"
        return " | ".join(map(str, [f"{self.selftest!s:34}", *cells, len(self.not_judged), len(self.errors), known]))


HEAD = (
    "program | alone | watched | runs | looks | its processes judged | with folios | unsettled | not judged | errors"
    " | faults of this release"
)


def watched(guest: Runner, row: Row, reports: Path, seconds: int) -> Outcome:
    """One program under our eyes, long enough to be seen."""
    # One that does not end by itself does not end later either.
    patience = 1 if row.alone[-1].status == KILLED else PATIENCE
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(guest.run, row.selftest, seconds, row.alone[-1].status, patience)
        while not ended.done():
            row.add(checked(guest, reports)[1])
        return ended.result()


def alike(reason: str) -> str:
    """What differs in numbers alone is one reason; the names of rules and registers have theirs."""
    return re.sub(r"0x[0-9a-f]+|\b\d+\b", "N", reason)


def works(
    place: Path, name: str, kernel: Path, selftests: Iterable[Selftest], *machine: str, seconds: int = LONG_SECONDS
) -> None:
    """None ends worse than alone, in none is an error found, and each was seen."""
    (here := place / "guest").mkdir()
    (reports := place / "reports").mkdir()
    rows = []
    with Runner(here, kernel, *machine) as guest:
        for selftest in selftests:
            rows.append(row := Row(selftest))
            for attempt in range(TRIES):
                # What fails only when it is run again and again has to be given that alone, too.
                row.alone.append(guest.run(selftest, seconds if attempt else 0))
                row.watched.append(watched(guest, row, reports, seconds))
                if row.worse is None and row.seen:
                    break
            print(row, flush=True)
        said = guest.said()
    reasons = Counter(alike(reason) for row in rows for reason in row.not_judged + row.left_out)
    why = [f"{times} x: {reason}" for reason, times in reasons.most_common()]
    table = "\n".join([HEAD, *map(str, rows), *why]) + "\n"
    print(*why, sep="\n")
    (OUT / "logs" / f"selftests-{name}.txt").write_text(table)
    missing = [str(row.selftest) for row in rows if row.watched[-1].missing]
    assert not missing, f"vmm/setup/selftests.sh has not built {missing}"
    assert not (errors := [f"{row.selftest}: {error}" for row in rows for error in row.errors]), "\n".join(errors)
    assert not (worse := [row.worse for row in rows if row.worse]), "\n".join(worse)
    unseen = [str(row.selftest) for row in rows if not row.seen]
    assert not unseen, f"no process of these was judged: {unseen}"
    assert "Oops" not in said and "BUG:" not in said, said[-4000:]


def test_faults_of_a_release() -> None:
    """A finding of one is none of ours where the release has it and the finding says so, and an error elsewhere."""
    said = [f"upstream has mended this: {FAULTS[0].commit}"]
    for release, remarks, known in [("6.18.15+deb13", said, 1), ("7.3.4", said, 0), ("6.18.15+deb13", [], 0)]:
        row, finding = Row(SELFTESTS[0]), {"severity": "error", "rule": "L4", "message": "", "remarks": remarks}
        row.add({"kernel": {"release": release}, "steps": [{"processes": [], "kernel": {"findings": [finding]}}]})
        assert (row.known["L4"], len(row.errors)) == (known, 1 - known)


def outcome(status: int, output: str = "", runs: int = 1) -> Outcome:
    """One that nothing has run."""
    return Outcome(status, runs, output, 1.0)


def test_what_is_worse() -> None:
    """A program that fails only when it is watched is named, and so is a part of one; what fails alone too is not."""
    passed, part = outcome(0), outcome(1, "not ok 3 at 0x1234\n")
    row = Row(SELFTESTS[0], alone=[passed], watched=[outcome(KILLED)])
    assert "timed out" in str(row.worse)
    assert "at N" in str(Row(SELFTESTS[0], [outcome(1, "not ok 2 other\n")], [part]).worse)
    assert Row(SELFTESTS[0], [passed], [outcome(SKIPPED)]).worse
    for alone, watched in [([passed], [passed]), ([part], [part]), ([passed, part], [part, part]), ([part], [passed])]:
        assert Row(SELFTESTS[0], alone, watched).worse is None
    # Once in several tries is not always.
    assert Row(SELFTESTS[0], [passed, passed], [part, passed]).worse is None
    assert outcome(127, runs=0).missing and not passed.missing
    assert not Row(SELFTESTS[0], [passed], [passed]).seen, "nothing was judged"


def test_reasons_are_one_by_their_words() -> None:
    """Addresses, pids and counts are left out; which rule was not judged is not."""
    said = "L16 was not judged: of process 17 (cow), slot 3 at 0x40ab was held; TTBR0_EL1"
    assert alike(said) == "L16 was not judged: of process N (cow), slot N at N was held; TTBR0_EL1"
    assert alike(said) == alike(said.replace("17", "4711")) != alike(said.replace("L16", "L12"))


def test_selftests(tmp_path: Path) -> None:
    """Those that are quick, on the patched kernel, with all that the patches do at write faults."""
    short = [selftest for selftest in SELFTESTS if selftest.short]
    works(tmp_path, "short", OUT / "kernel-4k" / "Image", short, "2G", WRITE_FAULTS, seconds=SECONDS)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("granule", ["4k", "16k", "64k"])
def test_all_selftests(tmp_path: Path, granule: str) -> None:
    """All of them, on the patched kernels."""
    # No guest has 512 MiB in one piece often enough; 2 MiB are a contiguous group.
    machine = ["4G", "default_hugepagesz=2M"] if granule == "64k" else []
    works(tmp_path, f"ours-{granule}", OUT / f"kernel-{granule}" / "Image", SELFTESTS, *machine)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_all_selftests_with_write_faults(tmp_path: Path) -> None:
    """All of them, with large folios for writes to zero pages and to folios that were shared."""
    works(tmp_path, "ours-4k-write-faults", OUT / "kernel-4k" / "Image", SELFTESTS, "2G", WRITE_FAULTS)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "kernel", [Kernel("4k", "6.12"), Kernel("4k", "6.18"), Kernel("4k", "7"), Kernel("16k", "7")], ids=str
)
def test_all_selftests_stock(tmp_path: Path, kernel: Kernel) -> None:
    """All of them, on Debian's kernels."""
    works(tmp_path, str(kernel), stock(kernel), SELFTESTS)
