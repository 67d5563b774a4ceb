# SPDX-License-Identifier: GPL-2.0-only
"""The run as a page (`--html`): in a real browser it draws, flips, filters, shows what is wrong, and asks nobody."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest, Session
from selenium.webdriver.common.keys import Keys

from browser import Browser, browser
from command import folioscope

pytestmark = pytest.mark.browser

# The places of `State::ALL` in vmm/report/src/html/attributes.rs, by the character of the map.
STATES = "=-rz#Cnsm?"
# A page that is a million cells has this long until its picture is there, on a host that has other things to do.
MILLION_MS = 10_000
# Names that would be elements, or end the script that they stand in, if they were not text.
PROCESS = "</script><b>x"
FILE = "/tmp/<img src=x onerror=document.title=1>"
CONT, VALID = 1 << 52, 1


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser."""
    with browser() as window:
        yield window


@dataclass
class Run:
    """A run of some workloads, as page and as JSON."""

    page: Path
    report: dict[str, Any]

    def step(self, workload: str, step: str) -> int:
        """The number of a checkpoint."""
        return [(it["workload"], it["step"]) for it in self.report["steps"]].index((workload, step))

    def pages(self, number: int, process: int = 0) -> dict[int, str]:
        """The characters of the pages that the checkpoint was about, by VA."""
        step = self.report["steps"][number]
        about = [(it["start"], it["end"]) for it in step["expectations"]]
        verdict = step["processes"][process]
        found = {}
        for vma in verdict["vmas"]:
            first, last = int(vma["start"], 16), int(vma["end"], 16)
            for row in vma["rows"]:
                for block in range(row["blocks"]):
                    start = int(row["va"], 16) + block * verdict["block_size"]
                    for at, character in enumerate(row["pages"]):
                        va = start + at * verdict["page_size"]
                        if first <= va < last and any(low <= va < high for low, high in about):
                            found[va] = character
        return found


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that ends well."""
    place = tmp_path_factory.mktemp("page")
    page, report = place / "tour.html", place / "tour.json"
    said = folioscope("run", "--only", "dontneed,fork", "--out", place, "--html", page, "--json", report).ok()
    assert str(page) in said.splitlines()[-2] and said.splitlines()[-1].startswith("ok ")
    return Run(page, json.loads(report.read_text()))


@dataclass
class Planted:
    """A saved core with one wrong word, judged."""

    page: Path
    core: Path
    va: int
    word: int


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A process with a hostile name and a file of one, in whose folded block one entry has lost the Contiguous bit."""
    place = tmp_path_factory.mktemp("planted")
    session = Session(["--memory", "128M", "--out", str(place)], log=place / "session.log")
    guest = Guest(session, "4k")
    guest.reset()
    process = guest.spawn(PROCESS)
    process.file_create(FILE, 1 << 16)
    process.map_file(FILE, 1 << 16).read()
    area = process.blocks(4)
    area.write()
    va = area.address + area.length // 4 + 3 * guest.layout.page
    with process.hold() as held:
        entry = held.judge().entry(va)
        assert entry and entry.word & CONT
        guest.poke([(entry.address, entry.word & ~CONT)])
        session.call("save", process=process.id, kernel=True, path=str(place / "core"))
        guest.poke([(entry.address, entry.word)])
    session.close()
    ended = folioscope("check", place / "core", "--html", place / "planted.html")
    assert ended.status == 1, ended.out
    return Planted(place / "planted.html", place / "core", va, entry.word & ~CONT)


def test_one_file_that_asks_nobody(tour: Run, chromium: Browser) -> None:
    """Nothing is named that would have to be loaded, nothing is asked for, and nothing is complained of."""
    text = tour.page.read_text()
    assert not re.search(r"https?://|@import|src=|<link", text)
    assert len(text) < 1 << 20
    chromium.open(tour.page)
    assert chromium.asked() == [f"file://{tour.page}"]
    for selector in ("#next", "#in", "#last"):
        chromium.click(selector)
    assert chromium.asked() == []
    assert chromium.said() == []
    # What the page itself would try is refused.
    chromium.run("fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert any("Content Security Policy" in line for line in chromium.said())


def test_verdict_is_on_top(tour: Run, chromium: Browser) -> None:
    """In words, with the same numbers as the report."""
    chromium.open(tour.page)
    totals = tour.report["totals"]
    assert chromium.text("#verdict .word") == "no error found"
    assert (
        re.sub(r"\s+", " ", chromium.text(".counts"))
        .strip()
        .startswith(f"{totals['steps']} checkpoints {totals['entries']} entries 0 errors 0 not judged")
    )
    assert tour.report["kernel"]["release"] in chromium.text(".machine")


def test_each_page_has_its_colour(tour: Run, chromium: Browser) -> None:
    """A cell per page, by the character that the report has for it; light and dark."""
    seen = set()
    for number, process in ((tour.step("dontneed", "hole"), 0), (tour.step("fork", "child-wrote"), 0)):
        chromium.open(tour.page, f"#step={number}")
        for dark in (False, True):
            chromium.dark(dark)
            assert chromium.find("#frame").get_dom_attribute("data-step") == str(number)
            pages = tour.pages(number, process)
            cells = chromium.cells(list(pages))
            for (va, character), cell in zip(pages.items(), cells, strict=True):
                name = "hole" if character == "." else f"state-{STATES.index(character)}"
                assert cell == chromium.colour(name), f"{va:#x} {character}"
                seen.add((dark, character, cell))
        chromium.dark(False)
    assert {character for _, character, _ in seen} == set("=-r.")
    # No two look alike, and dark is not light.
    assert len({colour for *_, colour in seen}) == len(seen) == 8


def test_folios_are_shown(tour: Run, chromium: Browser) -> None:
    """Blocks that were faulted in as one have a folio of their size, of which each page is at its place; a page that
    was copied on write after a fork has one of its own."""
    number = tour.step("fork", "child-wrote")
    chromium.open(tour.page, f"#step={number}&colour=order")
    pages = tour.pages(number)
    copied = [va for va, character in pages.items() if character == "-"]
    for (va, character), cell in zip(pages.items(), chromium.cells(list(pages)), strict=True):
        assert cell == chromium.colour("order-0" if va in copied else "order-4"), f"{va:#x} {character}"
    assert len(copied) == 1
    shared = copied[0] + 3 * 4096
    assert chromium.hover(shared)["folio"].startswith(
        f"order 4 (64K), page {shared % 0x10000 // 4096} of 16; anonymous"
    )
    assert chromium.hover(copied[0])["folio"].startswith("order 0 (4K), page 0 of 1; anonymous")


def test_checkpoints_are_flipped(tour: Run, chromium: Browser) -> None:
    """By keys, buttons, dots and slider; the picture goes along."""
    chromium.open(tour.page)
    steps = [f"{it['workload']} - {it['step']}" for it in tour.report["steps"]]

    def shown() -> str:
        return chromium.text("#now").partition(": ")[2]

    def picture() -> int:
        return hash(chromium.run("return document.getElementById('canvas').toDataURL()"))

    assert shown() == steps[0]
    before = picture()
    chromium.key(Keys.ARROW_RIGHT)
    assert shown() == steps[1] and picture() != before
    chromium.key(Keys.ARROW_LEFT)
    assert shown() == steps[0] and picture() == before
    chromium.key(Keys.END)
    assert shown() == steps[-1]
    chromium.key(Keys.ARROW_RIGHT)
    assert shown() == steps[-1]
    chromium.click("#previous")
    assert shown() == steps[-2]
    chromium.click(".workload:nth-child(2) .dot:nth-of-type(2)")
    assert shown() == "fork - child"
    chromium.run("const it = document.getElementById('slider'); it.value = 1; it.dispatchEvent(new Event('input'))")
    assert shown() == steps[1]
    chromium.key(" ")
    chromium.wait("return document.getElementById('now').textContent.startsWith('4 of')")
    chromium.key(" ")
    assert chromium.said() == []


def test_filters(tour: Run, chromium: Browser) -> None:
    """States fade one by one, text and the step choose VMAs, and the rows below go along."""
    number = tour.step("dontneed", "hole")
    chromium.open(tour.page, f"#step={number}")
    pages = tour.pages(number)
    one = {character: va for va, character in pages.items()}
    before = {character: chromium.cell(va) for character, va in one.items()}
    chromium.click('#legend [data-state="="]')
    after = {character: chromium.cell(va) for character, va in one.items()}
    assert after["="] != before["="] and after["-"] == before["-"] and after["."] == before["."]
    chromium.click('#legend [data-state="="]')
    assert chromium.cell(one["="]) == before["="]

    def vmas() -> list[str]:
        rows = "return [...document.querySelectorAll('#table tbody tr')].map((it) => it.children[4].textContent)"
        return list(chromium.run(rows))

    chromium.click('[data-table="vmas"]')
    known = [vma["name"] for vma in tour.report["steps"][number]["processes"][0]["vmas"]]
    mapped = [vma["name"] for vma in tour.report["steps"][number]["processes"][0]["vmas"] if vma["mapped"]]
    assert vmas() == [""]
    chromium.run(
        "const it = document.getElementById('vmas'); it.value = 'mapped'; it.dispatchEvent(new Event('change'))"
    )
    assert vmas() == mapped
    chromium.run("const it = document.getElementById('vmas'); it.value = 'all'; it.dispatchEvent(new Event('change'))")
    assert vmas() == known and len(known) > len(mapped) > 1
    chromium.find("#text").send_keys("[stack")
    assert vmas() == ["[stack]"]
    chromium.find("#text").clear()
    chromium.find("#text").send_keys(hex(one["."]))
    assert vmas() == [""]
    chromium.run("document.getElementById('text').value = ''")
    chromium.click("#only-findings")
    assert vmas() == [] and chromium.find("#nothing").is_displayed()


def test_planted_word_is_shown(planted: Planted, chromium: Browser) -> None:
    """The finding is in words on top; its link leads to the very page, with the raw word; the block has a red frame."""
    chromium.open(planted.page)
    assert chromium.text("#verdict .word") == "errors found"
    finding = chromium.text("#findings li")
    block = planted.va & ~0xFFFF
    assert "A4" in finding and f"{block:#018x}" in finding and PROCESS in finding
    chromium.click("#findings li a")
    tip = chromium.tip()
    assert tip["VA"] == f"{block:#014x}" and "A4" in tip
    chromium.key(Keys.ESCAPE)
    assert chromium.tip() == {}
    assert chromium.hover(planted.va)["word"].startswith(f"{planted.word:#018x}  level 3")
    chromium.click("#only-findings")
    assert chromium.hover(planted.va)["block"] == f"{block:#014x}  broken"
    red = chromium.colour("finding")
    box = chromium.place(block)
    near = """const canvas = document.getElementById('canvas'), box = canvas.getBoundingClientRect();
        const [x, y] = [arguments[0] - box.left - 3, arguments[1] - box.top - 3];
        const data = canvas.getContext('2d').getImageData(x, y, 6, 6).data;
        return Array.from({length: 36}, (_, at) => [...data.slice(4 * at, 4 * at + 4)])"""
    assert list(red) in chromium.run(near, box["x"], box["y"])
    rows = chromium.run("return [...document.querySelectorAll('#table tbody tr')].map((it) => it.textContent)")
    assert len(rows) == 1 and "===-============" in rows[0] and "A4" in rows[0]


def test_raw_words_are_those_of_the_core(planted: Planted, chromium: Browser) -> None:
    """For each page of the process: the word, the level and the address that `dump` reads in the core."""
    rows = json.loads(folioscope("dump", planted.core, "--format", "json").ok())
    chromium.open(planted.page)
    chromium.run("const it = document.getElementById('vmas'); it.value = 'all'; it.dispatchEvent(new Event('change'))")
    chromium.click('[data-table="entries"]')
    assert len(rows) > 100
    for row in random.Random(1).sample(rows, 25):
        va = int(row["va"], 16)
        chromium.run("folioscope.lookAt(arguments[0])", hex(va))
        chromium.frame()
        tip = chromium.tip()
        assert tip["VA"] == f"{va:#014x}"
        assert tip["word"] == f"{row['word']}  level {row['level']}"
        output = re.search(r"OA=0x([0-9a-f]+)", row["descriptor"])
        assert output and tip["PA"].startswith(f"0x{int(output[1], 16):012x}  pfn")
        assert tip["fields"] == re.sub(r" OA=\S+", "", row["descriptor"])
        assert tip.get("software", "") == row["software"]


def test_names_of_the_guest_are_text(planted: Planted, chromium: Browser) -> None:
    """A process and a file whose names are HTML: they are read, and nothing of them is done."""
    assert PROCESS not in planted.page.read_text() and FILE not in planted.page.read_text()
    chromium.open(planted.page)
    assert "errors found" in chromium.driver.title
    assert chromium.text("#spaces button").startswith(PROCESS)
    chromium.click('[data-table="vmas"]')
    chromium.run("const it = document.getElementById('vmas'); it.value = 'all'; it.dispatchEvent(new Event('change'))")
    assert FILE in chromium.text("#table")
    assert chromium.run("return document.images.length + document.querySelectorAll('#spaces b').length") == 0
    assert chromium.said() == []


def packed(*numbers: int) -> bytes:
    """Numbers as vmm/report/src/html/pack.rs has them."""
    found = bytearray()
    for number in numbers:
        left = number
        while left >= 128:
            found.append(left & 127 | 128)
            left >>= 7
        found.append(left)
    return bytes(found)


def test_a_million_pages(tour: Run, chromium: Browser, tmp_path: Path) -> None:
    """In one process, at random page frames: no two entries go on as each other."""
    head, rest = tour.page.read_text().split('id="data">', 1)
    text, tail = rest.split("</script>", 1)
    data = json.loads(text)
    chance = random.Random(2)
    attributes = [at for at, it in enumerate(data["attributes"]) if it["level"] == 3 and it["address"]]
    # A single entry each, there and back again by as many frames as chance will have it; now and then a gap.
    pairs = bytearray()
    for place in range(1000):
        frames = chance.randrange(1, 1 << 20)
        pairs += packed(0, 0, chance.choice(attributes), 2 * frames)
        pairs += packed(int(place % 20 == 0), 0, chance.choice(attributes), 2 * frames - 1)
    runs = packed(0x1000000, 0, attributes[0], 2 << 20) + bytes(pairs) * 500
    space = data["steps"][0]["spaces"][0]
    space |= {"words": base64.b64encode(runs).decode(), "entries": 1_000_001, "rows": "", "findings": []}
    area = {"start": 0x1000000, "end": 0x1000000 + 1_100_000, "permissions": "rw-p", "name": "[big]", "rows": 0}
    space["vmas"] = [area | {"mapped": 1_000_000 << 12, "contiguous": 0, "largest_run": 4096, "orders": {}}]
    data["steps"][0]["about"] = []
    page = tmp_path / "big.html"
    page.write_text(f'{head}id="data">{json.dumps(data)}</script>{tail}')
    chromium.open(page)
    took = int(chromium.find("#frame").get_dom_attribute("data-drawn"))
    print(f"first picture of a million pages after {took} ms")
    assert took < MILLION_MS
    counts = re.findall(r" ([\d,]+)(?=[a-z]|$)", chromium.text("#legend"))
    assert sum(int(count.replace(",", "")) for count in counts) == 1_000_001
    chromium.cell(0x1000000 << 12)
    chromium.key("+", "+", "+")
    assert chromium.hover(0x1000000 << 12)["VA"] == f"{0x1000000 << 12:#014x}"
    assert chromium.said() == []
