# SPDX-License-Identifier: GPL-2.0-only
"""What `page` prints of pages of every kind, compared with the guest's own files, page frame by page frame.

The guest's files are /proc/kpageflags and /proc/kpagecount, read inside before and after a core of all memory is
saved: what is the same in both was so in between, but for what the reading process itself has. docs/pages.md has what
each word of `struct page` holds by what the page is.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from folioscope import Guest
from folioscope.model import bytes_of
from folioscope.rig import Rig

from command import folioscope
from test_stock_kernel import guest_of
from word_scenes import KPF, Stage

pytestmark = [
    pytest.mark.only_machine("tcg"),
    pytest.mark.parametrize(
        "granule,series",
        [
            ("4k", "pinned"),
            pytest.param("4k", "6.18", marks=[pytest.mark.network, pytest.mark.long]),
            pytest.param("4k", "7", marks=[pytest.mark.network, pytest.mark.long]),
        ],
    ),
]

RAM = 0x4000_0000
#: Flags of the folio that kpageflags copies (stable_page_flags(), fs/proc/page.c).
COPIED = ("locked", "referenced", "uptodate", "dirty", "lru", "active", "writeback", "reclaim", "swapbacked")
COPIED += ("unevictable", "mlocked", "reserved")
#: What the first page of a folio alone has a name for, or the second.
OF_FIRST = {"locked", "writeback", "referenced", "uptodate", "dirty", "lru", "head", "waiters"}
OF_SECOND = {"has_hwpoisoned", "large_rmappable", "partially_mapped"}
BITS = KPF | {"reserved": 32, "mlocked": 33}
#: A piece of a file that the agent reads at a time.
PIECE = 1 << 19


def words(guest: Guest, path: str, first: int, count: int) -> list[int]:
    """Words of a file of the guest."""
    found = b""
    while len(found) < 8 * count:
        wanted = min(PIECE, 8 * count - len(found))
        piece = guest.command("read_file", path=path, offset=8 * first + len(found), max=wanted)["file"]["content"]
        if not (more := bytes_of(piece)):
            break
        found += more
    return [int.from_bytes(found[at : at + 8], "little") for at in range(0, len(found), 8)]


class Pages:
    """All pages of a guest: what it says of each, and what we do."""

    def __init__(self, guest: Guest, place: Path) -> None:
        self.stage = Stage(guest)
        self.release = guest.hello.kernel_release
        self.stage.build()
        page = guest.layout.page
        # A fork leaves its parent no page of its own (PageAnonExclusive()), so these are written behind all forks.
        guest.spawn("own").map(64 * page).write()
        first, count = RAM // page, guest.hello["memory_bytes"] // page
        read = lambda name: words(guest, f"/proc/{name}", first, count)  # noqa: E731
        before = read("kpageflags"), read("kpagecount")
        core = self.stage.save(place / "kinds.core")
        self.after = {name: self.stage.facts(scene) for name, scene in self.stage.scenes.items()}
        flags, counts = read("kpageflags"), read("kpagecount")
        same = [at for at in range(len(flags)) if (flags[at], counts[at]) == (before[0][at], before[1][at])]
        self.flags = {first + at: {name for name, bit in BITS.items() if flags[at] >> bit & 1} for at in same}
        self.counts = {first + at: counts[at] for at in same}
        asked = ",".join(map(hex, sorted(self.some(first, count))))
        self.ours = {
            frame["pfn"]: frame
            for frame in json.loads(folioscope("page", asked, core, "--format", "json").ok())["pages"]
        }
        self.text = dict(
            re.findall(r"(?ms)^page frame (0x[0-9a-f]+)(.*?)(?=^page frame|\Z)", self.shown(core, first, count))
        )

    def some(self, first: int, count: int) -> set[int]:
        """Pages of all kinds: some of each that kpageflags tells apart, with neighbours, some by lot, all of scenes."""
        draw, of_kind = random.Random(11), Counter[frozenset[str]]()
        # The kernel has set some of the RAM aside, which MemTotal does not have.
        end = -(-(first + count) // 16384) * 16384
        near = lambda pfn, by: set(range(max(first, pfn - by), min(end, pfn + by + 1)))  # noqa: E731
        found = set(draw.sample(range(first, first + count), 1500))
        for pfn, kinds in self.flags.items():
            if of_kind[frozenset(kinds)] < 25:
                of_kind[frozenset(kinds)] += 1
                found |= near(pfn, 1)
        anonymous = [pfn for pfn, kinds in self.flags.items() if {"anon", "mmap"} <= kinds]
        found |= set(draw.sample(anonymous, min(len(anonymous), 600)))
        for facts in self.after.values():
            found |= near(facts.pfn, 5) if facts.pfn else set()
        return found

    def shown(self, core: Path, first: int, count: int) -> str:
        """The text of the pages of all scenes, and of their neighbours."""
        pfns = {facts.pfn + near for facts in self.after.values() if facts.pfn for near in (-1, 0, 1)}
        # The kernel has set some of the RAM aside, which MemTotal does not have.
        end = -(-(first + count) // 16384) * 16384
        pfns = {pfn for pfn in pfns if first <= pfn < end}
        return folioscope("page", ",".join(map(hex, sorted(pfns))), core).ok()

    def both(self) -> list[tuple[int, dict[str, Any], set[str]]]:
        """Each page of which both are known: its frame, ours, theirs."""
        frames = [(pfn, self.ours[pfn], theirs) for pfn, theirs in self.flags.items() if pfn in self.ours]
        known = [(pfn, frame, theirs) for pfn, frame, theirs in frames if frame["page"] and "nopage" not in theirs]
        # Who reads kpageflags has memory of its own, often the same both times, and is gone when the core is saved;
        # memory of who saves it is gone when kpageflags is read: free on one side, in use or on a CPU's list on the
        # other. Few pages are so; a reader that takes free pages for others has thousands.
        without = "without a type and a reference"
        gone = {pfn for pfn, frame, theirs in known if theirs & {"anon", "slab", "pgtable"} and without in frame["is"]}
        gone |= {pfn for pfn, frame, theirs in known if not theirs and frame["is"] in ("anonymous", "a page table")}
        gone |= {pfn for pfn, frame, theirs in known if (frame["free"] is not None) != ("buddy" in theirs)}
        assert len(gone) < 16, [(hex(pfn), frame["is"], theirs) for pfn, frame, theirs in known if pfn in gone]
        return [each for each in known if each[0] not in gone]


MADE: dict[tuple[str, str], Pages] = {}


@pytest.fixture
def pages(rig: Rig, granule: str, series: str, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """One for all tests of a kernel."""
    if (granule, series) not in MADE:
        guest = guest_of(rig, granule, series)
        made = Pages(guest, tmp_path_factory.mktemp("kinds"))
        made.stage.close()
        MADE[granule, series] = made
    return MADE[granule, series]


def test_what_each_page_is(pages: Pages) -> None:
    """Free, slab, table, anonymous, KSM, hugetlb, zero page, reserved, ...: as kpageflags has it, of all memory."""
    wrong, gone, seen = [], [], Counter[str]()
    old = pages.release.startswith("6.12.")
    for pfn, frame, theirs in pages.both():
        page, what = frame["page"], frame["is"]
        expected = next((words for name, words in {
            "buddy": "free",
            "zero_page": "zero",
            "slab": "slab",
            "pgtable": "a page table",
            "offline": "offline",
            "huge": "hugetlb",
            "anon": "merged by KSM" if page["kind"] == "ksm" else "anonymous",
            "reserved": "reserved",
        }.items() if name in theirs), None)  # fmt: skip
        # A bit of the first page alone, before 6.16 (snapshot_page()).
        if expected in ("a page table", "offline") and frame["pfn"] != page["head"] and old:
            expected = None
        if expected:
            seen[expected] += 1
            if expected not in what:
                # Who reads kpageflags inside has tables of its own, and is gone when the core is saved.
                found = gone if expected == "a page table" else wrong
                found.append((hex(pfn), what, expected, sorted(theirs)))
        elif not any(
            it in what
            for it in ("shmem", "a file's", "of no mapping", "without a type", "of type", "kmalloc", "driver")
        ):
            wrong.append((hex(pfn), what, sorted(theirs)))
        # Every anonymous page was reported so (stable_page_flags() of these).
        every = pages.release.startswith(("6.12.", "6.18."))
        if ("ksm" in theirs) != (page["kind"] == "ksm") and "anon" in theirs and not every:
            wrong.append((hex(pfn), "KSM", what, sorted(theirs)))
    assert not wrong, (len(wrong), wrong[:8])
    assert len(gone) < min(8, seen["a page table"]), gone
    assert {"free", "slab", "a page table", "anonymous", "reserved", "zero"} <= set(seen), seen


def test_flags_and_counts(pages: Pages) -> None:
    """Names of flags are set where kpageflags has them, and a page's own count is what kpagecount has."""
    wrong, counted, seconds, passing = [], 0, 0, 0
    free = "without a type and a reference"
    vvar = {facts.pfn for facts in pages.after.values() if (facts.vma or "").endswith("[vvar]")}
    for pfn, frame, theirs in pages.both():
        page, ours = frame["page"], set(frame["folio_flags"])
        first = pfn == page["head"]
        named = {name for both in ours for name in both.split("|")}
        if "buddy" in theirs:
            assert named <= {"reported", "head", "hwpoison"} | (named - set(COPIED)), (hex(pfn), named)
        elif page["kind_of_page"] is None and first:
            told = {name for name in COPIED if name in named}
            if told != theirs & set(COPIED):
                wrong.append((hex(pfn), sorted(ours), sorted(theirs)))
        if ("swapcache" in named) != ("swapcache" in theirs):
            wrong.append((hex(pfn), "swap cache", sorted(ours), sorted(theirs)))
        if page["order"] and pfn == page["head"] + 1:
            own = {name for both in frame["flags"] for name in both.split("|")}
            seconds += 1
            if own & OF_FIRST:
                wrong.append((hex(pfn), page["order"], sorted(own)))
        elif page["order"] and {name for both in frame["flags"] for name in both.split("|")} & OF_SECOND:
            wrong.append((hex(pfn), page["order"], frame["flags"]))
        if page["mapcount"] is not None:
            counted += 1
            # A PMD's entry counts for each page (folio_precise_page_mapcount()).
            ours, theirs_counted = page["mapcount"] + page["entire"], pages.counts[pfn]
            # Who reads kpagecount inside is a child of the agent, which is gone when the core is saved.
            reader = ours < theirs_counted and (page["kind"] in ("file", "anonymous") or pfn in vvar)
            # It reads kpageflags and kpagecount one after the other: its pages may be free in the former already.
            # And a process may be there when the core is saved, and not at the two readings.
            passed = ours > theirs_counted == 0 or (ours == 0 < theirs_counted and not theirs and free in frame["is"])
            passing += passed
            if ours != theirs_counted and not reader and not passed:
                wrong.append((hex(pfn), frame["is"], sorted(theirs), ours, theirs_counted))
        if page["mapcount"] is page["large"] is None and "mapped:" in pages.text.get(hex(pfn), ""):
            wrong.append((hex(pfn), pages.text[hex(pfn)]))
    assert not wrong, (len(wrong), wrong[:8])
    assert counted > 100 and seconds > 5 and passing < 16


def test_what_a_page_does_not_have(pages: Pages) -> None:
    """What is free, a slab, a table, or of no mapping has no mapping, index or exclusivity, and is not mapped."""
    seen = Counter[str]()
    for pfn, frame, theirs in pages.both():
        page = frame["page"]
        if page["kind_of_page"] is not None or frame["free"] or theirs & {"slab"}:
            seen["typed"] += 1
            assert (page["mapping"], page["index"], page["mapcount"], page["large"]) == (None,) * 4, (hex(pfn), frame)
            assert not page["exclusive"] and not page["swapcache"] and page["slot"] is None, (hex(pfn), frame)
            assert frame["mapped"] == [] and not frame["belongs"], (hex(pfn), frame)
        if page["kind"] == "unowned":
            seen["unowned"] += 1
            assert page["index"] is None and page["mapping"] is None, (hex(pfn), frame)
        if page["kind"] == "file":
            seen["file"] += 1
            assert page["index"] is not None and not page["exclusive"], (hex(pfn), frame)
        if page["exclusive"]:
            seen["exclusive"] += 1
            assert "anon" in theirs, (hex(pfn), frame)
    assert all(seen[kind] > 20 for kind in ("typed", "unowned", "file", "exclusive")), seen


def test_free_blocks(pages: Pages) -> None:
    """Each page of a free block names that block, which is aligned to its size, and no other page does."""
    blocks = {(free["first"], free["order"]) for frame in pages.ours.values() if (free := frame["free"])}
    of_page: dict[int, tuple[int, int]] = {}
    for first, order in blocks:
        assert first % (1 << order) == 0
        within = [pfn for pfn in pages.ours if first <= pfn < first + (1 << order)]
        assert not set(within) & set(of_page)
        of_page |= dict.fromkeys(within, (first, order))
    for pfn, frame in pages.ours.items():
        free = frame["free"]
        assert (free and (free["first"], free["order"])) == of_page.get(pfn), (hex(pfn), free)
        assert not free or frame["page"]["refcount"] == 0
    assert len({order for _, order in blocks}) > 3


#: COUNT stands for the page's own in /proc/kpagecount.
WORDS = {
    "written": r"folio    order 0 \(4K\), page 0 of it, from page frame 0x[0-9a-f]+: anonymous$",
    "folded": r"folio    order 4 \(64K\), page 5 of it, from page frame 0x[0-9a-f]+: anonymous$",
    "zero-page": r": the zero page$",
    "pmd": r"folio    order 9 \(2M\), page 5 of it, from page frame 0x[0-9a-f]+: anonymous$",
    "pmd-zero": r": the huge zero folio$",
    "ksm": r": merged by KSM\n.*\n  mapping  0x[0-9a-f]+ \(ksm_stable_node\), index",
    "hugetlb": r": hugetlb, anonymous$",
    "shmem": r": shmem$",
    "file": r": a file's\n.*\n  mapping  0x[0-9a-f]+ \(address_space\), index",
    "file-copied": r": anonymous\n.*\n  mapping  0x[0-9a-f]+ \(anon_vma\), index",
    "swap-cache": r"\n  swap     slot 0x[0-9a-f]+ of area \d+ is its own, in the swap cache\n",
    "shared-parent": r"counts   references \d+, mapped: (page COUNT, )?whole folio 0, any part \d+$",
}


def test_words(pages: Pages) -> None:
    """The text of pages of known history."""
    told = 0
    for name, pattern in WORDS.items():
        facts = pages.after.get(name)
        if facts is None:
            continue
        assert facts.pfn is not None, name
        text = pages.text[hex(facts.pfn)]
        assert re.search(pattern.replace("COUNT", str(facts.count)), text, re.MULTILINE), (name, text)
        ours = pages.ours[facts.pfn]
        scene = pages.stage.scenes[name]
        assert (scene.pid, f"{scene.address:#018x}") in [(at["pid"], at["va"]) for at in ours["mapped"]], (name, text)
        told += 1
    assert told >= 9, pages.stage.missing
