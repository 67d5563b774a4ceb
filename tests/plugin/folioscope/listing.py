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
    started_ns: int
    """When it was started, in nanoseconds since boot: with the pid it names the process for ever."""
    threads: tuple[int, ...]
    """The ids of its threads, the leader's first."""
    is_kernel: bool
    """A thread of the kernel."""
    has_ended: bool
    """It has ended, and its parent has not asked for its status."""
    mm: int | None
    """The address of its ``struct mm_struct``; None where it has no memory."""
    table: int | None
    """The physical address of its root table; None likewise."""

    @classmethod
    def read(cls, raw: Raw) -> Task:
        """From JSON."""
        mm, table = (None if raw[name] is None else number(raw[name]) for name in ("mm", "table"))
        return cls(threads=tuple(raw["threads"]), mm=mm, table=table, **plain(cls, raw, "threads", "mm", "table"))


@dataclass(frozen=True, slots=True)
class Vma(Fields):
    """One VMA, and what the tables have in it."""

    start: int
    """The first address."""
    end: int
    """The first address after it."""
    permissions: str
    """As in ``/proc/PID/maps``: "rw-p"."""
    name: str
    """Its file or its name; empty where it has none."""
    flags: tuple[str, ...]
    """``VmFlags`` of smaps."""
    offset: int
    """Bytes from the start of its file; 0 for memory without a file."""
    device: tuple[int, int]
    """The major and minor number of its file's device."""
    inode: int
    """The number of its file's inode."""
    mapped: int
    """Bytes that are mapped."""
    contiguous: int
    """Bytes that are mapped contiguously."""
    largest_run: int
    """Bytes of the largest naturally aligned range that is mapped without a gap."""
    blocks: dict[str, int]
    """Number of blocks by state ("folded", "eligible", "partial", ...)."""
    folios: dict[int, int]
    """Bytes that folios map here, by their order."""

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

    start: int
    """The first address."""
    end: int
    """The first address after it; the guard page is within."""
    caller: str | None
    """The function that asked for it, with the distance from its start; None where that is not known."""
    kinds: tuple[str, ...]
    """Its purpose, in the words of ``/proc/vmallocinfo``."""
    pages: int
    """Its pages of the smallest size."""
    order: int | None
    """The order of the blocks that it tried for."""
    mapped: dict[str, int]
    """Bytes by Linux's name of the size that maps them."""

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

    parts: dict[str, dict[str, int]]
    """Bytes by part (``linear map``, ``kernel image``, ...) and by Linux's name of the size (PTE, CONTPTE, ...)."""
    areas: tuple[VmArea, ...] | None
    """The areas in the order of addresses; None where the kernel does not tell."""

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
    """The process."""
    name: str
    """Its name."""
    va: int
    """The address."""
    level: int
    """The lookup level of the entry: 3 for a page, less for a block that contains it."""
    word: int
    """The raw descriptor."""

    @classmethod
    def read(cls, raw: Raw) -> Mapping:
        """From JSON."""
        return cls(raw["pid"], raw["name"], number(raw["va"]), raw["level"], number(raw["word"]))


@dataclass(frozen=True, slots=True)
class Folio(Frame):
    """The page that was mapped at an address, its folio, and who mapped it."""

    what: str
    """What the page is, in words."""
    mapped: tuple[Mapping, ...]
    """Each place where this page was mapped, by the tables of all processes."""

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
