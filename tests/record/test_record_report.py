# SPDX-License-Identifier: GPL-2.0-only
"""A recorder's findings in the reports: in JSON and JUnit as others, and with the life of their block on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from browser import browser
from command import ROOT, folioscope
from kernel_edits import dsb_of_all, edit, nothing
from recorder import WORKLOAD_ALONE, plugin

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.usefixtures("plugin"), pytest.mark.browser]
__all__ = ["plugin"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reports of a kernel whose contpte_convert() has no DSB behind its flush."""
    place = tmp_path_factory.mktemp("run")
    kernel = (ROOT / "out" / "kernel-4k").resolve()
    assert edit(kernel, "contpte_convert", dsb_of_all, nothing, place / "Image") > 0
    what = ("--machine", "tcg", "--kernel", place / "Image", "--vmlinux", kernel / "vmlinux", "--only", "mprotect")
    files = [word for name in ("json", "junit", "html") for word in (f"--{name}", place / f"report.{name}")]
    ended = folioscope("run", "--record", *WORKLOAD_ALONE, *what, *files, seconds=300)
    assert ended.status == 1 and "errors found (exit status 1)" in ended.out, ended.out + ended.err
    return place


def findings(run: Path) -> list[dict[str, Any]]:
    """Those of the step that the recorder has."""
    step = json.loads((run / "report.json").read_text())["steps"][-1]
    assert (step["workload"], step["step"]) == ("record", "sequences")
    return step["kernel"]["findings"]


def test_as_other_findings(run: Path) -> None:
    """By the schema, counted in the totals, a failure in JUnit."""
    report = json.loads((run / "report.json").read_text())
    jsonschema.Draft202012Validator(json.loads(folioscope("schema").ok())).validate(report)
    found = findings(run)
    assert {each["rule"] for each in found} == {"S3"}
    totals = report["totals"]
    assert totals["errors"] == totals["rules"]["S3"] == sum(each["places"] for each in found)
    assert (report["outcome"], report["exit_status"]) == ("errors", 1)
    (failed,) = ElementTree.parse(run / "report.junit").getroot().iter("failure")
    assert "S3 VA 0x" in str(failed.text) and "no DSB came after the TLBI" in str(failed.text)


def test_one_in_full(run: Path) -> None:
    """The word, the frame, the block and its life: cleared, flushed, and written without the DSB between."""
    for each in findings(run):
        sequence = each["sequence"]
        assert each["process"]["pid"] > 1 and int(each["end"], 16) - int(each["va"], 16) == 4096
        old, new = int(sequence["old"], 16), int(sequence["new"], 16)
        # The linear part of a descriptor of 4K pages and 48 bits: folding moves no page.
        frame = (old & 0xFFFF_FFFF_F000) >> 12
        assert int(sequence["old_frame"], 16) == int(sequence["new_frame"], 16) == frame
        # A block is one folio, and folding leaves it so.
        assert sequence["old_folio"] == sequence["new_folio"]
        first, order = int(sequence["old_folio"]["first"], 16), sequence["old_folio"]["order"]
        assert (order, sequence["old_folio"]["kind"]) == (4, "anonymous") and frame >> 4 << 4 == first
        assert (old ^ new) & 1 << 52 and len(sequence["before"]) == len(each["words"]) == 16
        assert sequence["made"]["place"].startswith("contpte_convert+")
        life = sequence["life"]
        assert life[-1]["event"] == sequence["made"]["event"] and life[-1]["did"] == "store"
        gone = [at for at, step in enumerate(life) if step["event"] == sequence["broken"]["event"]]
        behind = life[gone[0] :]
        # By ASID, in its top bits: of the block's own address space alone.
        asids = {int(step["operand"], 16) >> 48 for step in behind if step["did"] == "tlbi"}
        assert len(asids) == 1 and asids >= {
            int(step["operand"], 16) >> 48 for step in life if step.get("operation") == "aside1is"
        }
        flushes = [at for at, step in enumerate(behind) if step["did"] == "tlbi"]
        # Before the flush there is a DSB ISHST, behind it nothing but stores.
        assert flushes and any(step.get("option") == "ishst" for step in behind[: flushes[0]])
        assert all(step["did"] == "store" for step in behind[flushes[-1] + 1 :])
        assert sequence["made"]["callers"]
        assert {step.get("within") for step in behind} - {None} <= {"mprotect()", "page fault"}


def test_the_page_tells_the_life_of_a_block(run: Path) -> None:
    """A row for each step, a column for each CPU; the block turns from what it was to what it is."""
    found = findings(run)[0]
    with browser() as window:
        window.open(run / "report.html")
        window.click(".life summary")
        table = "const table = document.querySelector('.life table'); "
        heads = window.run(table + "return [...table.querySelectorAll('th')].map((it) => it.textContent)")
        cpus = sorted({step["cpu"] for step in found["sequence"]["life"]})
        assert heads == ["event", *(f"CPU {cpu}" for cpu in cpus), "block", "by", "in"]
        rows = window.run(
            table + "const row = (it) => [it.className, ...[...it.cells].map((cell) => cell.textContent)]; "
            "return [...table.tBodies[0].rows].map(row)"
        )
        assert window.run("return document.querySelector('.life table').getBoundingClientRect().height") > 0
        column = 2 + cpus.index(found["sequence"]["made"]["cpu"])
        (broken,) = [row for row in rows if row[0] == "broken"]
        made = rows[-1]
        assert made[0] == "made" and found["sequence"]["new"] in made[column]
        assert made[-3].count("=") + made[-3].count("-") >= 1 and "contpte_convert+" in made[-2]
        between = rows[rows.index(broken) : -1]
        assert any(row[-3] == "." * 16 for row in between), rows
        assert any("TLBI" in cell for row in between for cell in row)
        # No step of one CPU stands in another's column.
        assert all(sum(bool(cell) for cell in row[2 : 2 + len(cpus)]) == 1 for row in rows)
        assert not window.said()
