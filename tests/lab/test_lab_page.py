# SPDX-License-Identifier: GPL-2.0-only
"""The laboratory's page: pictures and tables of what was measured, in one file, light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from folioscope.lab.experiments import EXPERIMENTS
from folioscope.lab.grades import (
    CANNOT,
    NEITHER,
    NOT_JUDGED,
    NOT_MEASURED,
    OPPOSITE,
    OURS_ALONE,
    SAME,
    THEIRS_ALONE,
    WITHIN_10,
    WITHIN_25,
)
from folioscope.lab.page import written
from folioscope.lab.plots import draw
from folioscope.lab.report import judged
from folioscope.lab.schema import SCHEMA

from browser import Browser, browser
from laboratory import measured, reported

pytestmark = [pytest.mark.only_machine("tcg"), pytest.mark.browser]

RUNS = [1000, 1010, 990, 1005, 995]
#: What would be an element if it were not text.
LOST = "the guest <b>hung</b> & span"
EMPTY = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "use", "path"}


def memory(order: int) -> dict[str, Any]:
    """32 MiB of one order."""
    return {
        "mapped": 32 << 20,
        "contiguous": (32 << 20) * (order == 4),
        "folios": {str(order): 32 << 20},
        "taken": 8192,
    }


def report() -> dict[str, Any]:
    """Each kind of picture: policies, tasks, page frames, one order at a time; and a guest that was lost."""
    crowds = EXPERIMENTS["page_fault1_tasks"].crowds
    tasks = []
    for name, cost in (("baseline", 4), ("variable", 1)):
        one = measured(name, [run * cost for run in RUNS], crowds[0].of("fault"), memory=memory(0))
        for crowd in crowds[1:]:
            one["intervals"] |= measured(name, [run * cost for run in RUNS], crowd.of("fault"))["intervals"]
        tasks.append(one)
    frames = [
        measured(
            name,
            RUNS,
            "send 64",
            frames=[
                {"allocations": 9, "frames": 5, "half": 1, "most": [{"pfn": 7, "times": most + run}] * 5}
                for run in range(5)
            ],
        )
        for name, most in (("all", 50), ("none", 90), ("limit", 90), ("default", 70))
    ]
    orders = [
        measured(f"order {order}", RUNS, entries={"data abort": {"times": [16 >> order] * 5, "instructions": RUNS}})
        for order in (0, 2, 4)
    ]
    return reported(
        {
            "page_fault1": [
                measured("baseline", [5 * run for run in RUNS], memory=memory(0), guest="6.12.117"),
                measured("variable", RUNS, memory=memory(4), guest="6.12.117"),
                measured("retry", [], lost=LOST),
            ],
            "page_fault1_tasks": tasks,
            "tcp": frames,
            "orders": orders,
        }
    )


class Page(HTMLParser):
    """Its elements in order, each closed where it should be; and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One begins."""
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One without content."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """The last that was begun."""
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Between them."""
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of that report."""
    made = report()
    jsonschema.validate(made, SCHEMA)
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    path.write_text(written(made, draw(made, path.with_suffix(".json"))))
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser."""
    with browser() as window:
        yield window


def test_a_page_has_all_pictures_and_grades(page: Path) -> None:
    """A section and a picture for each experiment, a row for each figure that is repeated, and no name twice."""
    found = Page(page.read_text())
    made = report()
    names = [each["name"] for each in made["experiments"]]
    assert [section["id"] for section in found.all("section")] == names
    assert len(found.all("svg")) == len(names)
    identities = [each["id"] for _, each in found.elements if each.get("id")]
    assert len(identities) == len(set(identities))
    # Whatever is referred to is there.
    targets = [each.get("xlink:href") or each.get("href") for _, each in found.elements]
    assert {target[1:] for target in targets if target} <= set(identities)
    assert all(target.startswith("#") for target in targets if target)
    assert not any("src" in each for _, each in found.elements)
    rows = re.search(r'<table id="grades">.*?</table>', page.read_text(), re.DOTALL)
    assert rows
    said = re.findall(r'<td class="(\w+)">(.*?)</td></tr>', rows[0])
    wanted = [row[-1] for each in made["experiments"] for row in judged(each)]
    assert len(said) == len(wanted) > 5
    classes = dict.fromkeys((WITHIN_10, WITHIN_25, SAME, NEITHER), "good")
    classes |= dict.fromkeys((THEIRS_ALONE, OURS_ALONE, OPPOSITE), "bad")
    classes |= dict.fromkeys((NOT_JUDGED, CANNOT, NOT_MEASURED), "unsure")
    assert [kind for kind, _ in said] == [classes[grade.partition(":")[0].strip("*")] for grade in wanted]
    assert {"good", "unsure"} <= {kind for kind, _ in said}
    assert LOST in found.text and "<b>" not in page.read_text()


@pytest.mark.parametrize(
    "drawn",
    [
        "page_fault1-fault:variable",
        "page_fault1-order 4:variable",
        "page_fault1_tasks-rate threads:baseline",
        "page_fault1_tasks-processes:variable",
        "tcp-frame 5:none",
        "orders-fault:order 4",
    ],
)
def test_each_kind_of_picture_is_drawn(page: Path, drawn: str) -> None:
    """By the names that its parts have."""
    assert f'id="{drawn}"' in page.read_text()


def test_the_series_is_drawn_against_its_patches(tmp_path: Path) -> None:
    """A line for each size, with a point for each kernel that was measured."""
    settings = [
        measured(
            f"{patch:02} some-patch, {size}", RUNS, entries={"data abort": {"times": [cost] * 5, "instructions": RUNS}}
        )
        for patch in (0, 3, 31)
        for size, cost in (("single pages", 8), ("64K", 1))
    ]
    settings.append(measured("04 not-there, 64K", [], missing="this kernel is not built"))
    made = reported({"series": settings})
    (picture,) = draw(made, tmp_path / "lab.json")
    svg = picture.read_text()
    for size in ("single pages", "64K"):
        line = re.search(rf'<g id="series:{size}">\s*<path d="([^"]*)"', svg)
        assert line and len(re.findall("[ML]", line[1])) == 3
    page = written(made, [picture])
    assert "04 not-there, 64K: missing: this kernel is not built" in page and "<td>31 some-patch, 64K</td>" in page


def test_a_browser_shows_it_by_day_and_by_night(page: Path, chromium: Browser) -> None:
    """Without the network and without a word on the console; letters and lines stand out from what they are on."""
    driver = chromium.driver
    chromium.said(), chromium.asked()
    driver.get(f"file://{page}")
    assert chromium.asked() == [f"file://{page}"]
    assert not chromium.said()
    script = """const channels = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
        const light = (colour) => channels(colour).reduce((sum, each) => sum + each, 0) / 3;
        const text = document.querySelector('svg text');
        return [light(getComputedStyle(text).fill), light(getComputedStyle(document.body).backgroundColor)]"""
    seen = {}
    for dark in (False, True):
        chromium.dark(dark)
        ink, ground = chromium.run(script)
        assert abs(ink - ground) > 150
        seen[dark] = ground
    assert seen[False] > 200 and seen[True] < 60
    # Nothing is wider than its page but what scrolls by itself.
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    boxes = chromium.run(
        "return [...document.querySelectorAll('svg')].map((it) => [it.clientWidth, it.clientHeight, it.textContent])"
    )
    assert all(width > 300 and height > 100 for width, height, _ in boxes)
    assert "allocations of each of the 5 page frames" in boxes[2][2]
    assert json.dumps(boxes).count("a second of this host") == 1
