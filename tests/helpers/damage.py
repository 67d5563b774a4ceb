# SPDX-License-Identifier: GPL-2.0-only
"""A core of all of a guest's RAM that can be damaged where a structure of its kernel is, found by drgn, and mended."""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drgn
from drgn.helpers.linux import mm, pid
from drgn.helpers.linux.list import list_for_each

from command import Ended, Running

# What the command may take: several times what it takes of a core that is whole.
SECONDS = 20.0
BYTES = 256 << 20

# PT_LOAD of a 64-bit program header, and where its fields are: file offset, physical address, bytes in the file.
LOAD = 1
HEADER = struct.Struct("<IIQQQQQQ")

# Nothing is mapped there; and a pointer that is not even canonical.
NOWHERE = 0xFFFF_8000_DEAD_B000
NO_ADDRESS = 0x6B6B_6B6B_6B6B_6B6B

Writes = list[tuple[int, bytes]]


def word(value: int, size: int = 8) -> bytes:
    """As memory has it."""
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def at(value: Any) -> int:
    """Where a drgn object is, in the kernel's addresses."""
    found: int = value.address_of_().value_()
    return found


class Core:
    """The file, what drgn sees in it, and a process of it."""

    def __init__(self, path: Path, vmlinux: Path, wanted: int) -> None:
        self.path, self.pid = path, wanted
        self.program = drgn.Program()
        self.program.set_core_dump(path)
        self.program.load_debug_info([vmlinux])
        self.task = pid.find_task(self.program, wanted)
        self.mm = self.task.mm
        with path.open("r+b") as file:
            self.data = mmap.mmap(file.fileno(), 0)
        (start,), (count,) = (struct.unpack_from(form, self.data, where) for form, where in (("<Q", 32), ("<H", 56)))
        headers = (HEADER.unpack_from(self.data, start + index * HEADER.size) for index in range(count))
        self.segments = [(paddr, size, offset) for kind, _, offset, _, paddr, size, *_ in headers if kind == LOAD]

    def close(self) -> None:
        """The file stays."""
        self.data.close()

    def place(self, va: int) -> int:
        """Where in the file a kernel address is."""
        physical = mm.follow_phys(self.program["init_mm"].address_of_(), va).value_()
        for start, size, offset in self.segments:
            if start <= physical < start + size:
                return int(physical - start + offset)
        raise AssertionError(f"{va:#x} is not in the core")

    @contextlib.contextmanager
    def damaged(self, *writes: tuple[int, bytes]) -> Iterator[None]:
        """With these bytes at these kernel addresses."""
        kept = []
        for va, data in writes:
            where = slice(start := self.place(va), start + len(data))
            kept.append((where, self.data[where]))
            assert kept[-1][1] != data, f"{va:#x} has this already"
            self.data[where] = data
        try:
            yield
        finally:
            for where, data in reversed(kept):
                self.data[where] = data

    def tell(self, *words: str) -> Ended:
        """A command over it: in time, in little memory, without a panic, and in a sentence where it cannot."""
        bound = ("prlimit", f"--data={BYTES}")
        with Running([*words, str(self.path)], prefix=bound) as running:
            ended = running.end(SECONDS)
        said = ended.out + ended.err
        assert ended.status in (0, 1, 2) and "panicked" not in said, f"{words}: {ended.status}\n{said[-2000:]}"
        assert not any(character < " " and character not in "\n\t" for character in said), f"{words}: {said!r}"
        if ended.status == 2 and not ended.out:
            ended.sentence()
        return ended

    def ask(self, command: str) -> Ended:
        """The command over it, of the process where it needs one."""
        return self.tell(command, *([str(self.pid)] if command == "maps" else []))

    # What is damaged.

    def tasks(self) -> list[Any]:
        """The processes in the order of the kernel's list, without the first."""
        head = self.program["init_task"].tasks.address_of_()
        return [drgn.container_of(node, "struct task_struct", "tasks") for node in list_for_each(head)]

    def vma(self, name: str) -> Any:
        """The first VMA of the process with this in its name."""
        for vma in mm.for_each_vma(self.mm):
            if name.encode() in (mm.vma_name(vma) or b""):
                return vma
        raise AssertionError(f"no {name}")

    def page(self, va: int) -> Any:
        """The page that the process has there."""
        return mm.follow_page(self.mm, va)

    def zone(self) -> Any:
        """The first zone that has pages."""
        zones = (zone for node in self.program["node_data"] if node for zone in node.node_zones)
        return next(zone for zone in zones if zone.present_pages.value_())
