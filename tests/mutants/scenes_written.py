# SPDX-License-Identifier: GPL-2.0-only
"""Scenes of writes to zero pages and to folios that fork() has shared, with the switches of ``anon_order/``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from folioscope import Area
from scene import Scene

SWITCHES = "/sys/kernel/mm/transparent_hugepage/anon_order"


@contextmanager
def _switched(scene: Scene, name: str) -> Iterator[None]:
    scene.guest.write(f"{SWITCHES}/{name}", "1")
    try:
        yield
    finally:
        scene.guest.write(f"{SWITCHES}/{name}", "0")


def _block(scene: Scene) -> Area:
    area = scene.spawn().blocks(1)
    area.write(salt=1)
    return area


def zero_page_beside(scene: Scene) -> None:
    """A page is there, another was read, and a third is written: what is there stays."""
    with _switched(scene, "zero_page"):
        area = scene.spawn().blocks(1, hint="nohugepage")
        area.write(0, 1, salt=1)
        area.madvise("hugepage")
        area.read(2, 1)
        area.write(3, 1, salt=1)
        scene.look(area.process)
        scene.holds(area, 0, 1, salt=1)


def reused_while_shared(scene: Scene) -> None:
    """A child has the folio, and the parent writes."""
    with _switched(scene, "reuse"):
        area = _block(scene)
        child = area.in_process(area.process.fork())
        area.write(5, 1, salt=2)
        scene.look(area.process)
        scene.look(child.process)


def reused(scene: Scene) -> None:
    """A child has come and gone, and the parent writes."""
    with _switched(scene, "reuse"):
        area = _block(scene)
        area.process.fork().exit()
        area.write(5, 1, salt=2)
        scene.look(area.process)


def reused_in_part(scene: Scene) -> None:
    """The same, and half of the folio had been unmapped."""
    with _switched(scene, "reuse"):
        area = _block(scene)
        half = scene.layout.cont_pages // 2
        area.madvise("dontneed", 0, half)
        area.process.fork().exit()
        area.write(half + 1, 1, salt=2)
        scene.look(area.process)
        scene.holds(area, half + 2, salt=1)


def reused_in_two_vmas(scene: Scene) -> None:
    """The same, and the other half may not be written to."""
    with _switched(scene, "reuse"):
        area = _block(scene)
        area.process.fork().exit()
        half = scene.layout.cont_pages // 2
        area.mprotect(["read"], half)
        area.write(1, 1, salt=2)
        scene.look(area.process)


def copied(scene: Scene) -> None:
    """A child writes to a folio that it shares with its parent."""
    with _switched(scene, "copy"):
        area = _block(scene)
        theirs = area.in_process(area.process.fork())
        theirs.write(5, 1, salt=2)
        scene.look(theirs.process)
        scene.look(area.process)
        scene.holds(theirs, 6, salt=1)


def copied_beside_its_own(scene: Scene) -> None:
    """The same, and the child has a page of its own there."""
    with _switched(scene, "copy"):
        area = _block(scene)
        theirs = area.in_process(area.process.fork())
        scene.guest.set_policy("baseline")
        theirs.write(0, 1, salt=2)
        scene.guest.set_policy("variable")
        theirs.write(5, 1, salt=2)
        scene.look(theirs.process)
        scene.holds(theirs, 0, 1, salt=2)


SCENES = (
    zero_page_beside,
    reused_while_shared,
    reused,
    reused_in_part,
    reused_in_two_vmas,
    copied,
    copied_beside_its_own,
)
