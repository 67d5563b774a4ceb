# SPDX-License-Identifier: GPL-2.0-only
"""Each rule that asks the kernel's own structures broken on a running guest, by their words changed from outside.

As in test_rules_live.py a break is in guest memory for the time of one capture. What is counted of the mapped is in
test_rules_live_mapcounts.py.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from folioscope import Area, Expectation, Guest, Layout, Process
from folioscope.model import bytes_of

from command import ROOT
from live_pages import ANON_EXCLUSIVE, COMPOUND_HEAD, FLAGS, INDEX, MAPCOUNT, MAPPING, SPECIAL, WRITE, page_of, word
from test_rules_live import broken, errors, words_of

pytestmark = pytest.mark.every_granule


def test_pages_are_what_the_guest_says(guest: Guest, folded: Area, paged: Area, layout: Layout) -> None:
    """Folios by our reading and by what the process did: order, kind, number, counts, who has it for itself."""
    for area, order in ((folded, layout.cont_order), (paged, 0)):
        with area.process.hold() as held:
            view = held.judge()
            pages = [page_of(guest, view, area.address + at * layout.page, layout) for at in range(layout.cont_pages)]
        assert {page.order for page in pages} == {order}
        assert {page.kind for page in pages} == {"anonymous"}
        assert {page.exclusive for page in pages} == {True}
        assert {page.mapcount for page in pages} == {1}
        assert {page.large for page in pages} == {layout.cont_pages if order else None}
        numbers = [page.index + page.pfn - page.head for page in pages]
        assert numbers == [area.address // layout.page + at for at in range(layout.cont_pages)]
        assert all("swapbacked" in page.folio_flags for page in pages)


#: Bits of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst), and what they are here. KPF_KSM is left out:
#: 6.12 sets it for every anonymous page, as stable_page_flags() asks for either of the two bits of PAGE_MAPPING_KSM.
KPAGEFLAGS = {
    "anonymous": 1 << 12,
    "swapbacked": 1 << 14,
    "head": 1 << 15,
    "tail": 1 << 16,
    "hugetlb": 1 << 17,
    "poisoned": 1 << 19,
}


def of_pfn(guest: Guest, path: str, pfn: int) -> int:
    """A page's word in /proc/kpageflags or /proc/kpagecount."""
    found = guest.command("read_file", path=path, offset=8 * pfn, max=8)
    return int.from_bytes(bytes_of(found["file"]["content"]), "little")


def test_pages_by_the_kernels_own_files(guest: Guest, process: Process, layout: Layout) -> None:
    """Flags and counts of every kind of page that a process has, by /proc/kpageflags and /proc/kpagecount."""
    folded, paged, shared = (
        process.blocks(1),
        process.blocks(1, hint="nohugepage"),
        process.blocks(1, flags=["shared"]),
    )
    for area in (folded, paged, shared):
        area.write()
    seen: dict[str, int] = {}
    with process.hold() as held:
        view = held.judge()
        for entry in view.entries:
            if entry.level != 3 or entry.output_address is None or entry.word & SPECIAL:
                continue
            page = guest.page(entry.output_address // layout.page)
            assert page.mapcount is not None
            flags = of_pfn(guest, "/proc/kpageflags", page.pfn)
            ours = {
                "anonymous": page.kind in ("anonymous", "ksm"),
                "swapbacked": page.swapbacked,
                "head": page.order > 0 and page.pfn == page.head,
                "tail": page.pfn != page.head,
                "hugetlb": page.hugetlb,
                "poisoned": page.poisoned,
            }
            assert {name: bool(flags & bit) for name, bit in KPAGEFLAGS.items()} == ours, page
            counted = of_pfn(guest, "/proc/kpagecount", page.pfn)
            # What reads the file for us is a process of the same program, which maps its pages meanwhile.
            own = any(area.address <= entry.va < area.address + area.length for area in (folded, paged, shared))
            assert counted == page.mapcount if own else counted > 0, page
            kind = f"{page.kind}, order {page.order}"
            seen[kind] = seen.get(kind, 0) + 1
    # The guest's programs are on a tmpfs; the vDSO is in no file.
    wanted = {f"anonymous, order {layout.cont_order}", "anonymous, order 0", "file, order 0", "unowned, order 0"}
    assert wanted <= seen.keys(), seen


def test_l2_folio_cut_short(guest: Guest, folded: Area, layout: Layout) -> None:
    """The folio of a contiguous group is said to be of half its order: its second half is of no folio."""
    va = folded.address
    with folded.process.hold() as held:
        second = page_of(guest, held.judge(), va + layout.page, layout)
        assert second.order == layout.cont_order and second.pfn == second.head + 1
        flags = word(guest, second.at + FLAGS)
        assert flags & 0xFF == layout.cont_order
        assert broken(held, [(second.at + FLAGS, flags - 1)]) == [("L2", va)]


def test_l2_head_that_leads_nowhere(guest: Guest, folded: Area, layout: Layout) -> None:
    """The compound_head of one page of a folio leads to what is no page's."""
    va = folded.address + 3 * layout.page
    with folded.process.hold() as held:
        page = page_of(guest, held.judge(), va, layout)
        for head in (1, word(guest, page.at + COMPOUND_HEAD) + 8, 0xDEAD_BEEF_DEAD_BEEF):
            assert broken(held, [(page.at + COMPOUND_HEAD, head)]) == [("L2", va)]


def test_l7_page_of_another_place(guest: Guest, paged: Area, layout: Layout) -> None:
    """A page has the number of the one behind it; and two entries of equal words exchange their pages."""
    va = paged.address + 2 * layout.page
    with paged.process.hold() as held:
        view = held.judge()
        page = page_of(guest, view, va, layout)
        index = word(guest, page.at + INDEX)
        assert broken(held, [(page.at + INDEX, index + 1)]) == [("L7", va)]
        words, places = words_of(view, paged.address, layout)
        pokes = [(places[4], words[6]), (places[6], words[4])]
        # Both are of one group, which is told of once.
        assert broken(held, pokes) == [("L7", paged.address + 4 * layout.page)]


def test_l19_anonymous(guest: Guest, folded: Area, paged: Area, layout: Layout) -> None:
    """A folio leads to another anon_vma, in whose tree its VMA does not hang: one page, and a block."""
    for area in (paged, folded):
        with area.process.hold() as held:
            page = page_of(guest, held.judge(), area.address, layout)
            assert page.pfn == page.head
            wrong = [(page.at + MAPPING, (page.mapping | 1) + 0x1000)]
            assert broken(held, wrong) == [("L19", area.address)]


@pytest.mark.parametrize("hint", ["hugepage", "nohugepage"])
def test_one_page_of_a_long_run(guest: Guest, process: Process, layout: Layout, hint: str) -> None:
    """Of many pages that are alike, which are judged together, one is not: at either end, inside, next to a border."""
    area, members = process.blocks(8, hint=hint), layout.cont_pages
    area.write()
    with process.hold() as held:
        view = held.judge()
        assert errors(view) == []
        for at in (0, 1, members - 1, members, 3 * members + 5, 8 * members - 1):
            va = area.address + at * layout.page
            page = page_of(guest, view, va, layout)
            flags, counts = word(guest, page.at + FLAGS), word(guest, page.at + MAPCOUNT)
            pokes = [(FLAGS, flags & ~ANON_EXCLUSIVE, "L8"), (MAPCOUNT, counts + 1, "L9")]
            if page.order == 0:
                index = word(guest, page.at + INDEX)
                pokes += [(INDEX, index + 1, "L7"), (MAPCOUNT, counts & 0xFFFF_FFFF, "L9")]
            for member, wrong, rule in pokes:
                found = errors(held.judge([(page.at + member, wrong)]))
                assert found == [(rule, va)], (at, member)
        assert errors(held.judge()) == []


@pytest.mark.parametrize("flags", [["shared"], []], ids=["shared", "private"])
def test_l7_page_of_a_file(guest: Guest, process: Process, layout: Layout, flags: list[str]) -> None:
    """The same of shmem's pages; anonymous memory that maps one is told of as well."""
    area = process.blocks(1, flags=["shared"])
    area.write()
    other = process.blocks(1, hint="nohugepage", flags=flags)
    other.write()
    with process.hold() as held:
        view = held.judge()
        words, _ = words_of(view, area.address, layout)
        _, places = words_of(view, other.address, layout)
        # One number on: were it the same, another shared area's page would have the right one.
        va = other.address + 5 * layout.page
        # In private memory it is writable and mapped elsewhere as well.
        rules = ["L7"] if flags else ["L7", "L8"]
        assert broken(held, [(places[5], words[6] & ~(1 << 52))]) == [(rule, va) for rule in rules]


def test_l7_page_of_another_file(guest: Guest, process: Process, layout: Layout) -> None:
    """Two files of shmem: a page with the right number, and of the other one."""
    areas = [process.blocks(1, hint="nohugepage", flags=["shared"]) for _ in range(2)]
    for area in areas:
        area.write()
    with process.hold() as held:
        view = held.judge()
        (words, _), (_, places) = (words_of(view, area.address, layout) for area in areas)
        va = areas[1].address + 5 * layout.page
        assert broken(held, [(places[5], words[5])]) == [("L7", va)]


def physical(process: Process, va: int) -> int:
    """Where an address of the kernel's half is."""
    for entry in process.kernel_half():
        size = process.guest.layout.page << (3 - entry.level) * (process.guest.layout.page.bit_length() - 4)
        if entry.output_address is not None and entry.va <= va < entry.va + size:
            return entry.output_address + va - entry.va
    raise AssertionError(f"0x{va:x} is not mapped")


def test_l7_page_behind_the_end(guest: Guest, process: Process, layout: Layout) -> None:
    """A file of shmem becomes smaller, and its pages stay."""
    pages = layout.cont_pages + 3
    area = process.map(pages * layout.page, flags=["shared"], hint="nohugepage")
    area.write()
    with process.hold() as held:
        view = held.judge()
        mapping = page_of(guest, view, area.address, layout).mapping
        inode = guest.words(physical(process, mapping), 1)[0]
        words = guest.words(at := physical(process, inode), 48)
        (size,) = [at + 8 * i for i, word in enumerate(words) if word == pages * layout.page]
        for left in (pages - 1, 2, 1):
            # The file's size is promised memory (L15). L7 names the first page of each group.
            found = broken(held, [(size, left * layout.page - 1)])
            assert found[:2] == [("L15", 0), ("L7", area.address + left * layout.page)], left
            assert {rule for rule, _ in found[1:]} == {"L7"}
        assert errors(held.judge([(size, (pages + 1) * layout.page)])) == [("L15", 0)]
        # RWSEM_WRITER_LOCKED: somebody is at it.
        shorter = (size, 2 * layout.page)
        assert len(errors(held.judge([shorter]))) > 1
        assert errors(held.judge([shorter, (at + lock_of(layout), 1)])) == [("L15", 0)]


def lock_of(layout: Layout) -> int:
    """Where the count of ``i_rwsem`` is in a ``struct inode``, by the DWARF of the kernel: the rig asks its BTF."""
    vmlinux = ROOT / "out" / f"kernel-{layout.granule}" / "vmlinux"
    said = subprocess.run(["pahole", "-F", "dwarf", "-C", "inode", vmlinux], capture_output=True, text=True, check=True)
    found = re.search(r"struct rw_semaphore +i_rwsem; +/\* +(\d+) ", said.stdout)
    assert found, said.stdout
    return int(found[1])


def test_l8_page_that_is_not_exclusive(guest: Guest, paged: Area, layout: Layout) -> None:
    """A page that may be written, and is not its process's own."""
    va = paged.address + 7 * layout.page
    with paged.process.hold() as held:
        page = page_of(guest, held.judge(), va, layout)
        flags = word(guest, page.at + FLAGS)
        assert page.exclusive and flags & ANON_EXCLUSIVE
        assert broken(held, [(page.at + FLAGS, flags & ~ANON_EXCLUSIVE)]) == [("L8", va)]


def test_l8_page_that_was_exclusive(guest: Guest, folded: Area, paged: Area, layout: Layout) -> None:
    """A page that may not be written, and was no other's: what is known of it says that it is exclusive."""
    for area in (folded, paged):
        area.mprotect(["read"])
        va = area.address + 7 * layout.page
        alone = Expectation(area.address, area.address + area.length, "exclusive")
        with area.process.hold() as held:
            page = page_of(guest, held.judge(expectations=[alone]), va, layout)
            flags = word(guest, page.at + FLAGS)
            shared = [(page.at + FLAGS, flags & ~ANON_EXCLUSIVE)]
            assert page.exclusive and broken(held, shared) == []
            assert broken(held, shared, expectations=[alone]) == [("L8", va)]


def test_l8_zero_page_that_may_be_written(process: Process, layout: Layout) -> None:
    """The zero page, mapped for a read, may be written; the finding begins at its entry."""
    area = process.blocks(1)
    area.read()
    with process.hold() as held:
        entry = held.judge().entry(area.address + 3 * layout.page)
        assert entry and entry.word & SPECIAL and not entry.word & WRITE
        assert broken(held, [(entry.address, entry.word | WRITE)]) == [("L8", area.address + 3 * layout.page)]


def test_l8_exclusive_page_of_two(guest: Guest, paged: Area, layout: Layout) -> None:
    """A page that a child maps too is said to be exclusive still."""
    va = paged.address + 2 * layout.page
    paged.process.fork()
    with paged.process.hold() as held:
        page = page_of(guest, held.judge(), va, layout)
        assert page.mapcount == 2 and not page.exclusive
        assert broken(held, [(page.at + FLAGS, word(guest, page.at + FLAGS) | ANON_EXCLUSIVE)]) == [("L8", va)]


def test_l11_folio_of_another_order(guest: Guest, folded: Area, layout: Layout) -> None:
    """The folio that was just faulted in is said to be of half its order; its group is then of no folio either."""
    va = folded.address
    fresh = Expectation(va, va + layout.block, "freshly-faulted")
    with folded.process.hold() as held:
        second = page_of(guest, held.judge(), va + layout.page, layout)
        flags = word(guest, second.at + FLAGS)
        pokes = [(second.at + FLAGS, flags - 1)]
        assert broken(held, pokes, expectations=[fresh]) == [("L11", va), ("L2", va)]


def test_l10_hugetlb(guest: Guest, paged: Area, layout: Layout) -> None:
    """A hugetlb page that is said to be none; one that ordinary memory maps."""
    size = layout.block >> 10
    assert guest.hugetlb_pages(size, 2) == 2
    try:
        area = paged.process.map_hugetlb(1, size)
        area.write(0, 1)
        with paged.process.hold() as held:
            view = held.judge()
            page = page_of(guest, view, area.address, layout)
            assert page.hugetlb and page.order == layout.cont_order
            kind = word(guest, page.head_at + MAPCOUNT)
            assert broken(held, [(page.head_at + MAPCOUNT, kind | 0xFFFF_FFFF)]) == [("L10", area.address)]
            words, _ = words_of(view, area.address, layout)
            _, places = words_of(view, paged.address, layout)
            va = paged.address + 5 * layout.page
            # It is writable there and mapped elsewhere as well.
            expected = [("L10", va), ("L8", va)]
            assert broken(held, [(places[5], words[5] & ~(1 << 52))]) == expected
        area.munmap()
    finally:
        guest.hugetlb_pages(size, 0)
