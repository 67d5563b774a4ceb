# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel's own structures say, as values: tasks, VMAs, and the folio behind an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .model import Fields, Raw, number, plain
from .pages import Frame, Memcg


@dataclass(frozen=True, slots=True)
class Task(Fields):
    """A process, or a thread of the kernel."""

    pid: int
    name: str
    #: When it was started, in nanoseconds since boot: with the pid it names the process for ever.
    started_ns: int
    #: The ids of its threads, the leader's first.
    threads: tuple[int, ...]
    #: A thread of the kernel; and whether it has ended, and its parent has not asked how.
    is_kernel: bool
    has_ended: bool
    #: The address of its ``struct mm_struct``, and the physical one of its first table; None where it has no memory.
    mm: int | None
    table: int | None

    @classmethod
    def read(cls, raw: Raw) -> Task:
        """From JSON."""
        mm, table = (None if raw[name] is None else number(raw[name]) for name in ("mm", "table"))
        return cls(threads=tuple(raw["threads"]), mm=mm, table=table, **plain(cls, raw, "threads", "mm", "table"))


@dataclass(frozen=True, slots=True)
class Vma(Fields):
    """One VMA, and what the tables have in it."""

    #: The first address, and the first one behind it.
    start: int
    end: int
    permissions: str
    name: str
    #: ``VmFlags`` of smaps.
    flags: tuple[str, ...]
    #: Bytes from the start of its file, the file's device, and its inode's number; 0 for memory without a file.
    offset: int
    device: tuple[int, int]
    inode: int
    #: Bytes that are mapped, and those of them that are contiguous.
    mapped: int
    contiguous: int
    #: Bytes of the largest run that is mapped consecutively.
    largest_run: int
    #: By state ("folded", "eligible", "partial", ...), how many blocks.
    blocks: dict[str, int]
    #: By order, how many bytes folios of it map here.
    folios: dict[int, int]

    @classmethod
    def read(cls, raw: Raw) -> Vma:
        """From JSON."""
        given: dict[str, Any] = {
            "start": number(raw["start"]),
            "end": number(raw["end"]),
            "flags": tuple(raw["flags"]),
            "device": (raw["device"][0], raw["device"][1]),
            "folios": {int(order): size for order, size in raw.get("folios", {}).items()},
        }
        return cls(**given, **plain(cls, raw, *given))


@dataclass(frozen=True, slots=True)
class VmArea(Fields):
    """One area of vmalloc, modules or ioremap."""

    #: The first address, and the first one behind it; the guard page is within.
    start: int
    end: int
    #: Which function asked for it, with the distance from its start; None where that is not known.
    caller: str | None
    #: What it is for, in the words of ``/proc/vmallocinfo``.
    kinds: tuple[str, ...]
    #: Pages of the smallest size that it has of its own, and the order of the blocks that it tried for.
    pages: int
    order: int | None
    #: Bytes by Linux's name of the size that maps them.
    mapped: dict[str, int]

    @classmethod
    def read(cls, raw: Raw) -> VmArea:
        """From JSON."""
        given: dict[str, Any] = {
            "start": number(raw["start"]),
            "end": number(raw["end"]),
            "kinds": tuple(raw["kinds"]),
        }
        return cls(**given, **plain(cls, raw, *given))


@dataclass(frozen=True, slots=True)
class KernelMap(Fields):
    """The kernel's own half: by what sizes it is mapped."""

    #: By part (``linear map``, ``kernel image``, ...) and Linux's name of the size (PTE, CONTPTE, ...), in bytes.
    parts: dict[str, dict[str, int]]
    #: By address; None where the kernel does not tell.
    areas: tuple[VmArea, ...] | None

    @classmethod
    def read(cls, raw: Raw) -> KernelMap:
        """From JSON."""
        areas = raw["areas"]
        parts = {part["name"]: part["mapped"] for part in raw["parts"]}
        return cls(parts, None if areas is None else tuple(map(VmArea.read, areas)))


@dataclass(frozen=True, slots=True)
class Mapping(Fields):
    """A place where a page is mapped."""

    pid: int
    name: str
    va: int
    #: The lookup level of the entry: 3 for a page, less for a block that holds it; and the raw entry.
    level: int
    word: int

    @classmethod
    def read(cls, raw: Raw) -> Mapping:
        """From JSON."""
        return cls(raw["pid"], raw["name"], number(raw["va"]), raw["level"], number(raw["word"]))


@dataclass(frozen=True, slots=True)
class Folio(Frame):
    """The page that was mapped at an address, its folio, and who mapped it."""

    #: What the page is, in words.
    what: str
    #: Where this very page was mapped, by the tables of all processes.
    mapped: tuple[Mapping, ...]

    @classmethod
    def read(cls, raw: Raw) -> Folio:
        """From one of the pages of a listing."""
        given: dict[str, Any] = {
            "flags": tuple(raw["flags"]),
            "folio_flags": tuple(raw["folio_flags"]),
            "memcg": Memcg.read(raw["memcg"]),
            "what": raw["is"],
            "mapped": tuple(map(Mapping.read, raw["mapped"])),
        }
        return cls(**given, **plain(cls, raw["page"], *given))
