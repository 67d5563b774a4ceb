# SPDX-License-Identifier: GPL-2.0-only
"""What is done to show a wrong edit where the tour does not.

Each function does as little as is needed and lets the scene look; what must be true is stated as in any test.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import scenes_told
import scenes_written
from folioscope import Area, CommandFailed, Guest
from scene import Scene

THP = "/sys/kernel/mm/transparent_hugepage"
SWAP = "/dev/ram0"
KIB = 1024


def faulted(scene: Scene) -> None:
    """Four folios of a block's size come in, and one of them goes."""
    area = scene.spawn().blocks(4)
    area.write()
    scene.look(area.process)
    block = scene.layout.cont_pages
    area.madvise("dontneed", block, block)
    scene.look(area.process)
    scene.holds(area, 2 * block)


def many(scene: Scene) -> None:
    """Much comes in, goes, and comes in again: more than what CPUs may keep of a counter."""
    area = scene.spawn().blocks(128)
    area.write()
    scene.look(area.process)
    area.madvise("dontneed")
    area.write()
    scene.look(area.process)


def many_shared(scene: Scene) -> None:
    """More shared memory than the guest's own files take."""
    area = scene.spawn().blocks(1024, flags=["shared"])
    area.write()
    scene.look(area.process)


def many_dropped(scene: Scene) -> None:
    """More anonymous memory comes and goes than all that the guest has mapped otherwise."""
    area = scene.spawn().blocks(1024)
    area.write()
    area.madvise("dontneed")
    scene.look(area.process)


def larger_folio(scene: Scene) -> None:
    """A folio of two blocks, of which one and a half are dropped."""
    scene.guest.set_policy("sysfs")
    block = scene.layout.block // KIB
    scene.guest.write(f"{THP}/hugepages-{2 * block}kB/enabled", "always")
    area = scene.spawn().blocks(2)
    area.write()
    area.must_fold()
    assert scene.look(area.process).record(area.address).chosen == scene.layout.cont_order + 1
    half = scene.layout.cont_pages // 2
    area.madvise("dontneed", 0, 3 * half)
    area.must_not_fold("half of it is gone", 2 * half)
    scene.look(area.process)
    scene.holds(area, 3 * half)


def written_once(scene: Scene) -> None:
    """A clean block of which one page is written, and another one dropped: what was written stays dirty."""
    area = _written_once(scene)
    area.madvise("dontneed", 8, 1)
    area.written(4, 1).must_not_fold("a page of it is gone")
    scene.look(area.process)


def _written_once(scene: Scene) -> Area:
    area = scene.spawn().blocks(1)
    area.write()
    area.madvise("free")
    area.write(4, 1)
    return area


def written_once_and_forked(scene: Scene) -> None:
    """The same, and a fork: the child's entries are as dirty as the block was."""
    area = _written_once(scene)
    child = area.in_process(area.process.fork())
    child.raw("dirty").must_fold()
    scene.look(child.process)


def split_and_protected(scene: Scene) -> None:
    """A folio is split, and all of its block changes its protection up to the last entry: there is no folio to fold."""
    area = scene.spawn().blocks(1)
    area.write()
    area.madvise("free", 0, 1)
    area.mprotect(["read"])
    area.must_not_fold("its folio was split")
    scene.look(area.process)


def hole_and_protected(scene: Scene) -> None:
    """A block without its first page changes its protection up to the last entry."""
    area = scene.spawn().blocks(1)
    area.write()
    area.madvise("dontneed", 0, 1)
    area.mprotect(["read"])
    scene.look(area.process)


def half_and_forked(scene: Scene) -> None:
    """Half a block that is left, and is copied to a child: it is no block there either."""
    area = scene.spawn().blocks(1)
    area.write()
    half = scene.layout.cont_pages // 2
    area.munmap(half, half)
    child = area.part(0, half).in_process(area.process.fork())
    child.must_not_fold("half of it is gone")
    scene.look(child.process)


def middle(scene: Scene) -> None:
    """A fault in the middle of a block brings in all of it, from its start on."""
    area = scene.spawn().blocks(3)
    area.write(3, 1)
    area.fresh()
    scene.look(area.process)


def shared_whole(scene: Scene) -> Area:
    """A fault in shared memory brings in a whole folio."""
    block = scene.layout.block // KIB
    scene.guest.write(f"{THP}/hugepages-{block}kB/shmem_enabled", "always")
    area = scene.spawn().blocks(2, flags=["shared"], hint=None)
    area.write(2, 1)
    scene.look(area.process)
    return area


def shared_part(scene: Scene) -> None:
    """A quarter of such a block is unmapped."""
    area = shared_whole(scene)
    quarter = scene.layout.cont_pages // 4
    area.munmap(3 * quarter, quarter)
    area.must_not_fold("a quarter of it is gone", 0, 3 * quarter)
    scene.look(area.process)


def copied_on_write(scene: Scene) -> None:
    """A child writes one word of a page, and has the others as they were."""
    area = scene.spawn().blocks(1)
    area.write(salt=1)
    area.poke(3, [1, 2, 3])
    child = area.in_process(area.process.fork())
    child.poke(3, [4])
    scene.look(child.process)
    for who, words in ((area, [1, 2, 3]), (child, [4, 2, 3])):
        found = who.peek(3, 3)
        if found != words:
            scene.name("C3", f"there must be {words} and there is {found}")


def private_file(scene: Scene) -> None:
    """A private mapping of a file is read, and one page of it written."""
    process = scene.spawn()
    path = "/tmp/mutants"
    process.file_create(path, scene.layout.block)
    process.file_write(path, 0, scene.layout.block)
    area = process.map_file(path, scene.layout.block, shared=False)
    area.read()
    scene.look(process)
    area.write(2, 1, salt=6)
    scene.look(process)
    other = process.map_file(path, scene.layout.block)
    scene.holds(other, origin=0)
    process.file_unlink(path)


def _swapped(scene: Scene) -> Area:
    scene.guest.swap_on(SWAP)
    area = scene.spawn().blocks(1)
    area.write(salt=1)
    return area


def swapped_back(scene: Scene) -> None:
    """Swapped out, and in again."""
    area = _swapped(scene)
    area.swap_out()
    scene.look(area.process)
    area.swap_in()
    scene.look(area.process)
    scene.holds(area, salt=1)


def swapped_and_shared(scene: Scene) -> None:
    """Parent and child share what is swapped out; the parent brings it back, and has it for itself only by a fault."""
    area = _swapped(scene)
    area.swap_out()
    child = area.in_process(area.process.fork())
    scene.look(area.process)
    area.read(0, 1)
    scene.look(area.process)
    area.write(0, 1, salt=2)
    scene.look(area.process)
    with suppress(CommandFailed):  # on which this kernel falls
        scene.holds(child, 0, 1, salt=1)
        scene.look(child.process)


def swapped_and_forked(scene: Scene) -> None:
    """Swapped out, then forked: the child counts what it has in swap."""
    area = _swapped(scene)
    area.swap_out()
    child = area.in_process(area.process.fork())
    scene.look(area.process)
    scene.look(child.process)
    scene.holds(child, salt=1)


def moved_half(scene: Scene) -> None:
    """An area with one block of two moves; the other block comes in at the new place, under the old numbers."""
    process = scene.spawn()
    area = process.blocks(2)
    area.write(0, 1)
    free = process.map(4 * scene.layout.block, hint=None)
    free.munmap()
    moved = area.mremap(free.address + scene.layout.block)
    moved.write(scene.layout.cont_pages, 1)
    moved.must_fold()
    scene.look(process)


def moved_and_kept(scene: Scene) -> None:
    """An area whose pages move, and which stays itself (MREMAP_DONTUNMAP): it has no page then."""
    area = scene.spawn().blocks(1)
    area.write()
    moved = area.mremap(keep=True)
    scene.look(area.process)
    scene.holds(moved, origin=area.address)


def forked_and_protected(scene: Scene) -> None:
    """A child takes its right to write away and gives it back: its pages are shared, so a write has to fault."""
    area = scene.spawn().blocks(1)
    area.write(salt=1)
    child = area.in_process(area.process.fork())
    child.mprotect(["read"])
    child.mprotect(["read", "write"])
    scene.look(child.process)
    child.write(3, 1, salt=2)
    scene.look(child.process)
    scene.holds(area, salt=1)


def written_after_protection(scene: Scene) -> None:
    """A write to what was made read-only raises SIGSEGV, at once."""
    process = scene.spawn()
    # Where the agent runs, too. On another CPU QEMU's TLB keeps what nobody invalidated, in some boots.
    process.pin(0)
    area = process.blocks(1, hint="nohugepage")
    area.write()
    area.mprotect(["read"])
    with suppress(CommandFailed):
        area.write(0, 1, salt=2)
        scene.name("C3", "a write to a page that is read-only was not refused")
    scene.look(area.process)


def child_gone_and_moved(scene: Scene) -> None:
    """What a child has shared is nobody's own, even when the child is gone, until it is written; so it moves."""
    area = scene.spawn().blocks(1)
    area.write(salt=1)
    area.process.fork().kill()
    scene.look(area.process)
    area.move_to_node(1)
    assert set(area.nodes()) == {1}
    scene.look(area.process)
    scene.holds(area, salt=1)


def moved_away(scene: Scene) -> None:
    """A block goes to another node, folded as it was."""
    area = scene.spawn().blocks(1)
    area.write(salt=1)
    area.move_to_node(1)
    area.must_fold()
    scene.look(area.process)
    scene.holds(area, salt=1)


def hugetlb_written(scene: Scene) -> None:
    """A hugetlb page of a block's size is written to; where that never ends, what is wrong comes with the failure."""
    size = scene.layout.block // KIB
    assert scene.guest.hugetlb_pages(size, 2) == 2
    area = scene.spawn().map_hugetlb(1, size)
    try:
        area.write(0, 1, seconds=5)
    except CommandFailed as error:
        # A7 is said of the entry as well, unless the kernel was just setting it once more.
        for finding in error.findings:
            if finding.rule != "A7":
                scene.name(finding.rule, finding.message)
        return
    area.must_fold()
    scene.look(area.process)


def hugetlb_unmapped(scene: Scene) -> None:
    """Two hugetlb pages, of which one is unmapped."""
    size = scene.layout.block // KIB
    assert scene.guest.hugetlb_pages(size, 2) == 2
    area = scene.spawn().map_hugetlb(2, size)
    area.write()
    scene.look(area.process)
    area.munmap(0, scene.layout.cont_pages)
    scene.look(area.process)


SCENES: dict[str, Callable[[Scene], object]] = {
    scene.__name__: scene
    for scene in (
        faulted,
        many,
        many_shared,
        many_dropped,
        larger_folio,
        written_once,
        written_once_and_forked,
        split_and_protected,
        hole_and_protected,
        half_and_forked,
        middle,
        shared_whole,
        shared_part,
        copied_on_write,
        private_file,
        swapped_back,
        swapped_and_shared,
        swapped_and_forked,
        moved_half,
        moved_and_kept,
        forked_and_protected,
        written_after_protection,
        child_gone_and_moved,
        moved_away,
        hugetlb_written,
        hugetlb_unmapped,
        *scenes_written.SCENES,
        *scenes_told.SCENES,
    )
}


def play(guest: Guest, name: str) -> Scene:
    """Plays a workload of the tour, or a scene whose name is in brackets."""
    scene = Scene(guest)
    if name.startswith("["):
        SCENES[name.strip("[]")](scene)
    else:
        scene.tour(name)
    return scene
