# SPDX-License-Identifier: GPL-2.0-only
"""What Linux does with blocks beyond the tour: exact patterns, orders and contents, stated from the kernel's source.

A pattern has a character per block (see ``View.pattern``), ``pages`` one per page. Contents are verified
after every step, because a wrong fold shows first as somebody else's data.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from folioscope import Area, CommandFailed, Guest, Layout, Process, View

from order_model import Model

pytestmark = pytest.mark.every_granule

POLICIES = ["baseline", "simple", "variable", "retry"]
USER = 1 << 6
AF = 1 << 10
RDONLY = 1 << 7
DIRTY = 1 << 55


def look(process: Process) -> View:
    """A look at which no rule is broken and everything was judged."""
    view = process.look()
    assert not view.errors, view.errors
    assert not view.not_judged, view.not_judged
    return view


def intact(area: Area, first: int = 0, pages: int | None = None, **expect: int) -> None:
    """Every page holds what was written to it."""
    found = area.verify(first, pages, **expect)
    assert found.words == (area.pages - first if pages is None else pages)
    assert found.wrong == 0, found.first


def pattern(area: Area) -> str:
    """The area's blocks, now."""
    return look(area.process).pattern(area.address, area.length)


class Folds:
    """Which pages are there and which carry the bit, by the order model and the rule of folding:

    a block folds when one folio comes in that covers it, and unfolds when one of its pages goes.
    """

    def __init__(self, model: Model, block: int) -> None:
        self.model = model
        self.block = block
        self.folded: set[int] = set()
        self.chosen: list[tuple[int, int]] = []

    def write(self, page: int) -> None:
        """A write; a page that is there takes it without a new folio."""
        for _, order in self.model.write([page]):
            self.chosen.append((page, order))
            if 1 << order >= self.block:
                self.folded.add(page // self.block)

    def read(self, page: int) -> None:
        """A read brings in the zero page alone."""
        self.model.populated.add(page)

    def drop(self, first: int, pages: int) -> None:
        """MADV_DONTNEED."""
        gone = set(range(first, first + pages))
        self.model.populated -= gone
        self.folded -= {page // self.block for page in gone}

    def pages(self) -> str:
        """As ``View.pages`` shows them."""
        there, folded = self.model.populated, self.folded
        inside = range(self.model.first, self.model.end)
        return "".join("." if p not in there else "c" if p // self.block in folded else "v" for p in inside)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("policy", POLICIES)
def test_random_sequence(guest: Guest, process: Process, layout: Layout, policy: str, seed: int) -> None:
    """Thirty writes, reads and holes at random pages: every order and every page as the model says."""
    draw = random.Random(f"{policy}-{seed}")
    guest.set_policy(policy)
    offset = draw.randrange(layout.cont_pages)
    count = 4 * layout.cont_pages
    area = process.map(count * layout.page, offset=offset * layout.page)
    folds = Folds(Model(policy, layout.hinted_order, offset, offset + count), layout.cont_pages)
    written: dict[int, int] = {}
    for step in range(30):
        page = draw.randrange(count)
        action = draw.choices(["write", "read", "drop"], [6, 1, 2])[0]
        if action == "write":
            area.write(page, 1, salt=step)
            folds.write(offset + page)
            written[page] = step
        elif action == "read":
            area.read(page, 1)
            if offset + page not in folds.model.populated:
                folds.read(offset + page)
        else:
            pages = min(draw.randrange(1, layout.cont_pages), count - page)
            area.madvise("dontneed", page, pages)
            folds.drop(offset + page, pages)
            written = {at: salt for at, salt in written.items() if not page <= at < page + pages}
        if step % 10 == 9:
            view = look(process)
            assert view.pages(area.address, area.length) == folds.pages(), f"after step {step}"
    assert [(offset + page, order) for page, order in view.orders(area.address, area.length)] == folds.chosen
    assert folds.chosen
    for page, salt in written.items():
        intact(area, page, 1, salt=salt)


@pytest.mark.parametrize("policy", POLICIES)
def test_unhinted_area(guest: Guest, process: Process, layout: Layout, policy: str) -> None:
    """Without a hint the preferred order is 4, 2 or 0: at 4K the block, else less than one."""
    guest.set_policy(policy)
    area = process.blocks(2, hint=None)
    area.write()
    view = look(process)
    model = Model(policy, layout.unhinted_order, 0, area.pages)
    found = view.orders(area.address, area.length)
    # The ring keeps the last records only.
    assert found
    assert found == model.write(range(area.pages))[-len(found) :]
    folds = layout.granule == "4k" and policy != "baseline"
    assert view.pattern(area.address, area.length) == ("CC" if folds else "--")
    intact(area)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", ["nohugepage", "prctl"])
def test_switched_off(guest: Guest, process: Process, policy: str, how: str) -> None:
    """MADV_NOHUGEPAGE and PR_SET_THP_DISABLE mean single pages under every policy."""
    guest.set_policy(policy)
    if how == "prctl":
        process.thp_disable()
    area = process.blocks(2, hint="nohugepage" if how == "nohugepage" else "hugepage")
    area.write(order="backward")
    assert pattern(area) == "--"
    assert {order for _, order in look(process).orders(area.address, area.length)} <= {0}
    intact(area)
    if how == "prctl":
        process.thp_disable(False)
        again = process.blocks(1)
        again.write(0, 1)
        assert pattern(again) == ("p" if policy == "baseline" else "C")


def free_place(process: Process, layout: Layout) -> int:
    """An address, aligned to a PMD, at which two blocks and more are free."""
    place = process.map(4 * layout.block, hint=None)
    place.munmap()
    return place.address


def move(area: Area, to: int) -> Area:
    """``mremap(2)`` to a given place."""
    moved = area.mremap(to)
    assert (moved.address, moved.length) == (to, area.length)
    return moved


def test_mremap_by_blocks(process: Process, layout: Layout) -> None:
    """Page by page, last page last: the block folds again where VA and PA stay in step."""
    area = process.blocks(2)
    area.write()
    moved = move(area, free_place(process, layout) + layout.block)
    view = look(process)
    assert view.pattern(moved.address, moved.length) == "CC"
    assert view.pattern(area.address, area.length) == ".."
    intact(moved, origin=area.address)
    moved.write(3, 1, salt=9)
    assert pattern(moved) == "CC"
    intact(moved, 3, 1, salt=9)


def test_mremap_by_a_page(process: Process, layout: Layout) -> None:
    """VA and PA are out of step: no entry may carry the bit; and moved back, both blocks fold again."""
    area = process.blocks(2)
    area.write()
    moved = move(area, free_place(process, layout) + layout.page)
    view = look(process)
    assert view.pages(moved.address, moved.length) == "v" * moved.pages
    intact(moved, origin=area.address)
    back = move(moved, area.address)
    assert pattern(back) == "CC"
    intact(back)


def test_mprotect_and_back(process: Process, layout: Layout) -> None:
    """A block folds again only when its last entry is set last and all match."""
    area = process.blocks(2)
    area.write()
    half = layout.cont_pages // 2
    area.mprotect(["read"], 0, half)
    assert pattern(area) == "-C"
    area.mprotect(["read", "write"], 0, half)
    assert pattern(area) == "-C"
    area.mprotect(["read"], half, half)
    assert pattern(area) == "-C"
    area.mprotect(["read", "write"], half, half)
    assert pattern(area) == "CC"
    intact(area)
    area.write(salt=2)
    intact(area, salt=2)


def test_protnone_and_back(process: Process) -> None:
    """PROT_NONE takes the bit, and what follows gives it back; the contents stay."""
    area = process.blocks(2)
    area.write()
    area.mprotect([])
    assert pattern(area) == ".."
    area.mprotect(["read"])
    assert pattern(area) == "CC"
    intact(area)


def test_block_comes_back_whole(process: Process, layout: Layout) -> None:
    """A block that was dropped as a whole is faulted in as a whole."""
    area = process.blocks(3)
    area.write()
    area.madvise("dontneed", layout.cont_pages, layout.cont_pages)
    assert pattern(area) == "C.C"
    area.write(layout.cont_pages + 5, 1, salt=3)
    assert pattern(area) == "CCC"
    intact(area, layout.cont_pages + 5, 1, salt=3)
    intact(area, 0, layout.cont_pages)


def words(view: View, area: Area, first: int, pages: int) -> list[int]:
    """The raw words of a range of pages."""
    page = view.layout.page
    return [view.word(area.address + at * page) for at in range(first, first + pages)]


@pytest.mark.parametrize("cpu", ["max", "cortex-a72"])
@pytest.mark.parametrize("granule", ["4k", "64k"])
def test_madv_free(process: Process, layout: Layout) -> None:
    """Whole folios are made clean and old in one go and stay folded; a part of one unfolds it."""
    area = process.blocks(3)
    area.write()
    block = layout.cont_pages
    area.madvise("free", 0, block)
    # Part of a folio: it is split first, so that its block cannot be folded any more.
    area.madvise("free", 2 * block, 1)
    view = look(process)
    assert view.pattern(area.address, area.length) == "CC-"
    assert all(not word & (DIRTY | AF) and word & RDONLY for word in words(view, area, 0, block))
    assert all(word & DIRTY for word in words(view, area, block, block))
    area.write(4, 1, salt=1)
    area.written(4, 1)
    view = process.look()
    assert not view.errors, view.errors
    assert view.pattern(area.address, area.length) == "CC-"
    intact(area, 4, 1, salt=1)
    intact(area, block, block)


@pytest.mark.parametrize("cpu", ["max", "cortex-a72"])
@pytest.mark.parametrize("granule", ["4k", "64k"])
def test_madv_cold(process: Process, layout: Layout) -> None:
    """Whole folios grow old in one go and stay folded."""
    area = process.blocks(2)
    area.write()
    area.madvise("cold", 0, layout.cont_pages)
    view = look(process)
    assert view.pattern(area.address, area.length) == "CC"
    assert not any(word & AF for word in words(view, area, 0, layout.cont_pages))
    assert all(word & AF for word in words(view, area, layout.cont_pages, layout.cont_pages))
    intact(area)
    view = look(process)
    assert view.pattern(area.address, area.length) == "CC"
    # A read makes all of the block young where the kernel does it, else the entries that were used.
    assert any(word & AF for word in words(view, area, 0, layout.cont_pages))


@pytest.fixture
def huge_pages(guest: Guest, layout: Layout) -> Iterator[int]:
    """Four hugetlb pages of the size of a block; gives the size in KiB."""
    size = layout.block // 1024
    assert guest.hugetlb_pages(size, 4) == 4
    yield size
    if not guest.session.lost:
        guest.reset()
        guest.hugetlb_pages(size, 0)


def test_hugetlb_of_block_size(process: Process, huge_pages: int) -> None:
    """hugetlb's contiguous pages: folded from the first access on, one block at a time."""
    area = process.map_hugetlb(3, huge_pages)
    assert pattern(area) == "..."
    area.write(0, 1)
    assert pattern(area) == "C.."
    area.write()
    assert pattern(area) == "CCC"
    intact(area)
    area.mprotect([])
    # pte_mkcont() makes the entry valid again (PTE_TYPE_PAGE): EL0 is kept out by AP[1] alone.
    view = look(process)
    assert view.pattern(area.address, area.length) == "CCC"
    assert not any(word & USER for word in words(view, area, 0, area.pages))
    with pytest.raises(CommandFailed, match="SIGSEGV"):
        area.read(0, 1)
    area.mprotect(["read"])
    assert pattern(area) == "CCC"
    intact(area)


def test_tmpfs_file(process: Process, layout: Layout) -> None:
    """tmpfs without huge= has single pages: never folded, the same frames in both mappings of a file."""
    path = "/tmp/two-blocks"
    process.file_create(path, 2 * layout.block)
    one, two = (process.map_file(path, 2 * layout.block) for _ in range(2))
    one.write()
    intact(two, origin=one.address)
    view = look(process)
    assert view.pattern(one.address, one.length) == view.pattern(two.address, two.length) == "--"
    frames = [[view.output(area.address + at * layout.page) for at in range(area.pages)] for area in (one, two)]
    assert frames[0] == frames[1]
    assert len(set(frames[0])) == one.pages
    process.file_unlink(path)


def test_private_file_copy(process: Process, layout: Layout) -> None:
    """A write to a private mapping copies one page and leaves the file as it was."""
    path = "/tmp/private"
    process.file_create(path, layout.block)
    process.file_write(path, 0, layout.block, salt=4)
    shared = process.map_file(path, layout.block)
    private = process.map_file(path, layout.block, shared=False)
    shared.read()
    private.read()
    private.write(2, 1, salt=6)
    view = look(process)
    same = [
        view.output(shared.address + at * layout.page) == view.output(private.address + at * layout.page)
        for at in range(shared.pages)
    ]
    assert same == [at != 2 for at in range(shared.pages)]
    intact(private, 2, 1, salt=6)
    intact(shared, salt=4, origin=0)
    process.file_unlink(path)
