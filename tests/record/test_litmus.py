# SPDX-License-Identifier: GPL-2.0-only
"""The recorder's judge, held to a guest of ours that does right and wrong sequences on purpose (guest/litmus)."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from command import ROOT, folioscope
from recorder import Found, plugin, record, seen

pytestmark = pytest.mark.only_machine("tcg")
__all__ = ["plugin"]

# What a case's tables map, and where (guest/litmus/litmus.h).
SLOT = 0x200000
CASE = re.compile(r'^CASE\((\w+), "([^"]*)", "([^"]*)", "([^"]+)"\)$', re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A row of the guest's table."""

    name: str
    one: str
    more: str
    what: str

    def expected(self, cpus: int) -> str:
        """The rules that name it, "ok" for none, "-" where it is not run."""
        return self.one if cpus == 1 else self.more


def cases() -> list[Case]:
    """All of them, as the guest's own source has them."""
    sources = sorted((ROOT / "guest" / "litmus").glob("cases_*.h"))
    found = [Case(*match) for source in sources for match in CASE.findall(source.read_text())]
    assert len(found) == sum(source.read_text().count("\nCASE(") for source in sources) > 100
    assert len({case.name for case in found}) == len(found)
    return found


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the traces are kept."""
    return tmp_path_factory.mktemp("litmus")


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("granule", ["4k"])
@pytest.mark.parametrize("cpus", [1, 2, 3, 4])
def test_each_case(cpus: int, granule: str, traces: Path) -> None:
    """Each wrong sequence is named by its rules and no others, and no right one is."""
    trace = traces / str(cpus)
    said = record("--bare", ROOT / "out" / "litmus", "--smp", cpus, "--memory", "64M", "--trace", trace)
    assert said.status == 1, said.out + said.err
    assert "not judged" not in said.out
    played, names = {}, {}
    for name, lower, upper in re.findall(r"^case (\w+) ([0-9a-f]{16}) ([0-9a-f]{16})\r?$", said.out, re.MULTILINE):
        played[name] = int(lower, 16)
        names[int(lower, 16)] = names[int(upper, 16)] = name
    assert re.search(r"^end\r?$", said.out, re.MULTILINE), said.out
    found = defaultdict(set)
    for finding in Found.all(said.out):
        # A table that is used too soon is named at the VA that it was for.
        found[names[finding.va & -SLOT]].add(finding.rule)
    wanted = {case.name: case.expected(cpus) for case in cases() if case.expected(cpus) != "-"}
    assert set(played) == set(wanted)
    judged = {name: " ".join(sorted(found[name])) or "ok" for name in wanted}
    assert judged == wanted


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("granule", ["4k"])
def test_a_cut(granule: str, tmp_path: Path) -> None:
    """A trace cut to a VA has the VA's own verdict, and its steps in order; as text it has the same stores."""
    trace, cut, text = tmp_path / "trace", tmp_path / "cut", tmp_path / "text"
    said = record("--bare", ROOT / "out" / "litmus", "--smp", 1, "--memory", "64M", "--trace", trace)
    places = dict(re.findall(r"^case (\w+) ([0-9a-f]{16})", said.out, re.MULTILINE))
    all_stores, _, _ = seen(said.out)
    for case in cases():
        if case.one == "-":
            continue
        va = int(places[case.name], 16) + 0x3000
        if case.name.startswith("upper"):
            va = va - 0x40000000 + 0xFFFFFF8080000000
        once = folioscope("record", "--judge", trace, "--at", hex(va), "--trace", cut)
        rules = {finding.rule for finding in Found.all(once.out)}
        # What S5 names is done to another place.
        expected = set() if case.one in ("ok", "S5") else set(case.one.split())
        assert rules == expected, case
        # A case that did nothing would be right as well.
        stores, _, _ = seen(once.out)
        assert 1 <= stores < all_stores / 10, case
        again = folioscope("record", "--judge", cut)
        assert {finding.rule for finding in Found.all(again.out)} == rules, case

    va = int(places["no_dsb_after"], 16) + 0x3000
    said = folioscope("record", "--judge", trace, "--at", hex(va), "--text", text)
    steps = re.findall(r"^ +\d+  CPU 0  (.*)  PC 0x[0-9a-f]+$", said.out, re.MULTILINE)
    make = max(index for index, step in enumerate(steps) if step.startswith(f"{va:#018x}"))
    broken, ordered, flushed, made = steps[make - 3 : make + 1]
    assert broken.startswith(f"{va:#018x}") and broken.endswith(f"-> {0:#018x}")
    assert ordered == "dsb ishst" and flushed.startswith("tlbi vale1is ")
    new = int(made.split()[-1], 16)
    assert new != 0
    lines = text.read_text().splitlines()
    form = re.compile(r'^\((mem-write|mem-init|tlbi|barrier|sysreg-write) \(id \d+\) \(tid \d+\) .* \(src ".*"\)\)$')
    assert all(form.match(line) for line in lines)
    assert any(f"(value {new:#x})" in line and "mem-write" in line for line in lines)
    assert [int(line.split()[2].rstrip(")")) for line in lines] == list(range(len(lines)))
