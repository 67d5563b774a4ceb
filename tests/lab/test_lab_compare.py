# SPDX-License-Identifier: GPL-2.0-only
"""Two labs, one beside the other: what moved, what is a regression, and what is not judged, with its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folioscope.lab.compare import compared

from command import folioscope
from laboratory import Said, inside, lab, measured, reported

__all__ = ["inside"]

pytestmark = pytest.mark.only_machine("tcg")

BEFORE = [1000, 1010, 990, 1005, 995]
# 9.9 % more, and apart.
WORSE = [1100, 1110, 1090, 1105, 1095]


def page_fault1(*settings: dict[str, Any]) -> dict[str, Any]:
    """A lab of one experiment."""
    return reported({"page_fault1": settings})


def test_compare_tells_a_regression(tmp_path: Path, inside: Callable[..., Said]) -> None:
    """Status 1 past the threshold, 0 below it."""
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    for path, kernel in ((one, BEFORE), (other, WORSE)):
        path.write_text(json.dumps(page_fault1(measured("baseline", kernel))))
    worse = lab("compare", one, other, "--threshold", "5")
    assert worse.returncode == 1 and "| page_fault1 | baseline | fault | 1,010 | 1,110 | +9.90% |" in worse.stdout
    assert inside("compare", one, other, "--threshold", "15").status == 0
    # And by the command, which has to know where the laboratory is.
    command = folioscope("lab", "compare", one, other, "--threshold", "5")
    assert command.status == 1 and command.out == worse.stdout
    assert inside("compare", other, one, "--threshold", "5").status == 0
    found = compared(json.loads(one.read_text()), json.loads(other.read_text()), None)
    assert not found.worse and len(found.lines) == 3 and (found.judged, found.unjudged) == (1, 0)


def other_load(setting: dict[str, Any]) -> dict[str, Any]:
    """The same numbers, of another load."""
    return {**setting, "load": {**setting["load"], "words": ["/lab/load", "page_fault1", "1"]}}


LACKS = "the kernel has no order policy simple"
GOOD = measured("simple", BEFORE)
#: What the second has of "simple", which the first has measured well; and what is said of it.
CANNOT = {
    "no such setting": ([], "| page_fault1 | simple |  | | | *not judged*: it is not in the second |"),
    "four runs": ([measured("simple", BEFORE[:4])], "*not judged*: of 5 runs or more of each, the second has 4 |"),
    "no interval": ([measured("simple", [])], "*not judged*: of 5 runs or more of each, the second has 0 |"),
    "another interval": (
        [measured("simple", BEFORE, interval="release")],
        "| page_fault1 | simple | release | | | *not judged*: of 5 runs or more of each, the first has 0 |",
    ),
    "a kernel without it": ([measured("simple", [], missing=LACKS)], f"*not judged*: the second: missing: {LACKS} |"),
    "a lost guest": ([measured("simple", BEFORE, lost="it hung")], "*not judged*: the second: lost: it hung |"),
    "another load": ([other_load(GOOD)], "*not judged*: the loads differ: /lab/load page_fault1 65536 (1 x max"),
    "another CPU": (
        [{**GOOD, "load": {**GOOD["load"], "cpu": "cortex-a72"}}],
        "*not judged*: the loads differ: /lab/load page_fault1 65536 (1 x",
    ),
}


@pytest.mark.parametrize("what", CANNOT)
@pytest.mark.parametrize("turned", [False, True])
def test_what_one_of_them_lacks_is_not_judged(
    tmp_path: Path, inside: Callable[..., Said], what: str, turned: bool
) -> None:
    """It is said, whichever of the two lacks it, and the status is not that of all being well; a regression beside it
    is one all the same."""
    settings, said = CANNOT[what]
    if turned:
        said = said.replace("the first", "the 2nd").replace("the second", "the first").replace("the 2nd", "the second")
        said = said.replace("page_fault1 65536", "page_fault1 1") if what == "another load" else said
    for kernel, status in ((BEFORE, 2), (WORSE, 1)):
        reports = [
            page_fault1(measured("baseline", BEFORE), GOOD),
            page_fault1(measured("baseline", kernel), *settings),
        ]
        paths = [tmp_path / "one.json", tmp_path / "other.json"]
        for path, report in zip(paths, reversed(reports) if turned else reports, strict=True):
            path.write_text(json.dumps(report))
        ended = inside("compare", *paths, "--threshold", "5")
        # Turned round the regression is a gain.
        assert ended.status == (2 if turned else status)
        assert "| page_fault1 | baseline | fault |" in ended.out and said in ended.out, ended.out
        assert " judged, " in ended.err and " not judged" in ended.err


def test_an_experiment_that_one_lacks_is_not_judged() -> None:
    """In one line; and where neither has anything, that is none of it well."""
    one = reported({"page_fault1": [GOOD], "zap": [measured("on", BEFORE)]})
    for pair, side in (((one, page_fault1(GOOD)), "second"), ((page_fault1(GOOD), one), "first")):
        found = compared(*pair, None)
        assert found.lines[3] == f"| zap |  |  | | | *not judged*: it is not in the {side} |"
        assert (found.judged, found.unjudged, found.worse) == (1, 1, False)
    found = compared(reported({}), reported({}), None)
    assert (found.judged, found.unjudged) == (0, 1) and "neither has measured anything" in found.lines[2]
    found = compared(page_fault1(measured("simple", [])), page_fault1(measured("simple", [])), None)
    assert (found.judged, found.unjudged) == (0, 1) and "neither has a run of it" in found.lines[2]


def test_what_neither_kernel_has_is_left_out(tmp_path: Path, inside: Callable[..., Said]) -> None:
    """By name: two kernels without a policy can be compared in all else, and then all was judged."""
    report = page_fault1(measured("baseline", BEFORE), measured("simple", [], missing=LACKS))
    path = tmp_path / "lab.json"
    path.write_text(json.dumps(report))
    ended = inside("compare", path, path, "--threshold", "5")
    assert ended.status == 0 and f"left out: neither kernel can be put under it ({LACKS})" in ended.out


def test_a_small_regression_is_shown() -> None:
    """Less than a percent is not worth a word, unless it is what the status is about."""
    one, other = (page_fault1(measured("simple", [base + run for run in range(5)])) for base in (990, 996))
    assert compared(one, other, 5).lines[2].endswith("| ~ |")
    found = compared(one, other, 0.5)
    assert found.worse and found.lines[2].endswith("| +0.60% |")


def test_more_tlb_maintenance_is_a_regression() -> None:
    """Beside the instructions, where it has moved and is more than a few; then it counts as they do."""
    one, other = measured("simple", BEFORE), measured("simple", BEFORE)
    one["intervals"]["fault"]["tlbi"], other["intervals"]["fault"]["tlbi"] = [100] * 5, [200] * 5
    found = compared(page_fault1(one), page_fault1(other), 50)
    assert found.worse and found.lines[-1] == "| page_fault1 | simple | fault, TLBI | 100 | 200 | +100.00% |"
    assert not compared(page_fault1(other), page_fault1(one), 50).worse
    assert not compared(page_fault1(one), page_fault1(other), 150).worse
    few = page_fault1(one)
    few["experiments"][0]["units"] = 100_000
    found = compared(few, page_fault1(other), 50)
    assert not found.worse and len(found.lines) == 3


def test_runs_without_an_instruction_are_not_judged() -> None:
    """There is no ratio to nothing."""
    nothing = measured("simple", [0] * 5)
    nothing["intervals"]["fault"]["user"] = [0] * 5
    found = compared(page_fault1(nothing), page_fault1(GOOD), 5)
    assert (found.judged, found.unjudged) == (0, 1) and "the first has counted nothing in a run" in found.lines[2]


def test_tlb_maintenance_where_there_was_none_is_not_judged() -> None:
    """No ratio to nothing, and not passed over; a small part of many is a regression as instructions' is."""
    none, some = measured("simple", BEFORE), measured("simple", BEFORE)
    none["intervals"]["fault"]["tlbi"], some["intervals"]["fault"]["tlbi"] = [0] * 5, [200] * 5
    found = compared(page_fault1(none), page_fault1(some), 50)
    assert (found.judged, found.unjudged, found.worse) == (1, 1, False)
    said = "| page_fault1 | simple | fault, TLBI | | | *not judged*: the first has none in a run, and the second 200 |"
    assert found.lines[-1] == said
    assert compared(page_fault1(none), page_fault1(none), 50).unjudged == 0
    more = measured("simple", BEFORE)
    some["intervals"]["fault"]["tlbi"], more["intervals"]["fault"]["tlbi"] = [1000] * 5, [1006] * 5
    found = compared(page_fault1(some), page_fault1(more), 0.5)
    assert found.worse and found.lines[-1] == "| page_fault1 | simple | fault, TLBI | 1,000 | 1,006 | +0.60% |"
    assert len(compared(page_fault1(some), page_fault1(more), 5).lines) == 3
