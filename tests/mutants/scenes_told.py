# SPDX-License-Identifier: GPL-2.0-only
"""Scenes of what the kernel tells of memory, read inside and held to what is seen from outside (L17)."""

from __future__ import annotations

from folioscope import Area
from scene import Scene

SPARED = "/sys/module/mutant/parameters/spared"


def _asks_itself(scene: Scene) -> None:
    """The agent is who reads: it is not spared here."""
    scene.guest.write(SPARED, "nobody")


def _shared_in_part(scene: Scene, bytes_of_it: int, hint: str | None = "hugepage") -> Area:
    """A folio that a child has as well, but for a part in its middle."""
    area = scene.spawn().map(bytes_of_it, hint=hint)
    area.write(salt=1)
    child = area.in_process(area.process.fork())
    child.madvise("dontneed", 3, 5)
    _asks_itself(scene)
    return area


def block_shared_in_part(scene: Scene) -> None:
    """A block of level 2: pages that the child has given back are the parent's alone."""
    area = _shared_in_part(scene, scene.layout.pmd)
    entry = scene.told_of(area.process).entry(area.address)
    assert entry and entry.level == 2


def folio_shared_in_part(scene: Scene) -> None:
    """The same of a folio whose pages have an entry each."""
    scene.told_of(_shared_in_part(scene, scene.layout.block).process)


def file_copied_in_part(scene: Scene) -> None:
    """A private mapping of a file, of which one page was written: that one is no file's any more."""
    process = scene.spawn()
    path = "/tmp/told"
    process.file_create(path, scene.layout.block)
    process.file_write(path, 0, scene.layout.block)
    area = process.map_file(path, scene.layout.block, shared=False)
    area.read()
    area.write(2, 1, salt=6)
    _asks_itself(scene)
    scene.told_of(process)
    process.file_unlink(path)


SCENES = (block_shared_in_part, folio_shared_in_part, file_copied_in_part)
