# SPDX-License-Identifier: GPL-2.0-only
"""Cells: what is judged on its own, and the key of all its content."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import content

#: Bump when the same content would give another result.
VERSION = 1


@dataclass(frozen=True)
class Kernel:
    """A kernel, known by its key before it is built."""

    name: str
    key: str
    #: Image and vmlinux on this machine; none before it is built.
    files: Mapping[str, str] = field(default_factory=dict)
    #: How ``kernel-patches/build.sh`` is called for it; none if it is given as an image.
    build: tuple[str, ...] = ()


@dataclass(frozen=True)
class Test:
    """What is done with a kernel: a kind of test, and its settings."""

    __test__ = False
    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: What its paths are relative to; not content, unlike the files.
    directory: str = "."


@dataclass(frozen=True)
class Cell:
    """One kernel on one machine under one policy, and one test. Its key is of all that makes its result."""

    kernel: Kernel
    test: Test
    granule: str = "4k"
    cpu: str = "max"
    machine: str = "auto"
    policy: str = ""
    memory: str = "1G"
    smp: int = 2
    append: str = ""
    #: The keys of the programs that run it, by name.
    rig: Mapping[str, str] = field(default_factory=dict)
    #: Seconds that it may take; how long it is waited for is not content.
    limit: float | None = None
    #: Which time it is judged, from 0; the others are cells of their own.
    repeat: int = 0

    def axes(self) -> dict[str, str]:
        """The values by which a cell is shown and chosen."""
        return {
            "kernel": self.kernel.name,
            "granule": self.granule,
            "cpu": self.cpu,
            "machine": self.machine,
            "policy": self.policy,
            "memory": self.memory,
            "smp": str(self.smp),
            "append": self.append,
            "test": self.test.name,
        }

    def content(self) -> dict[str, Any]:
        """All that the result comes of; names are not among it."""
        return {
            "version": VERSION,
            "kernel": self.kernel.key,
            "test": {"kind": self.test.kind, **self.test.settings},
            "rig": dict(self.rig),
            **{name: value for name, value in self.axes().items() if name not in ("kernel", "test")},
            **({"repeat": self.repeat} if self.repeat else {}),
        }

    @property
    def key(self) -> str:
        """The key of its content."""
        return content.of_values(self.content())

    def name(self) -> str:
        """Its values in one line, without those that are empty."""
        return " ".join(value for value in self.axes().values() if value)


@dataclass(frozen=True)
class Work:
    """A cell as it goes to an engine: values that JSON has."""

    key: str
    axes: dict[str, str]
    content: dict[str, Any]
    limit: float | None
    #: By name, the path on the machine of the campaign and, if it is in the store, the object.
    kernel: dict[str, tuple[str, str | None]]
    #: What paths of the test are relative to.
    directory: str = "."

    def as_json(self) -> dict[str, Any]:
        """As values of JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, cell: Cell, kernel: Mapping[str, tuple[str, str | None]]) -> Work:
        """The work of a cell whose kernel is there."""
        return cls(cell.key, cell.axes(), cell.content(), cell.limit, dict(kernel), cell.test.directory)
