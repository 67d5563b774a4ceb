# SPDX-License-Identifier: GPL-2.0-only
"""Pages and what they belong to, as the command says them: folios, memory cgroups, files, address spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .model import Fields, Raw, number, plain


@dataclass(frozen=True, slots=True)
class Memcg(Fields):
    """A memory cgroup: the id of its state, the inode of its directory, and its path from the root of the hierarchy."""

    css: int
    """The id of its state."""
    inode: int
    """The inode of its directory."""
    path: str
    """Its path from the root of the hierarchy."""

    @classmethod
    def read(cls, raw: Raw | None) -> Memcg | None:
        """From JSON; None where a folio is charged to none."""
        return cls(**plain(cls, raw)) if raw else None


@dataclass(frozen=True, slots=True)
class Frame(Fields):
    """A page frame and its folio, as ``struct page`` and ``struct folio`` have them. Counts are 0 for none."""

    pfn: int
    """Its number."""
    head: int
    """The page frame of the folio's first page."""
    order: int
    """The folio's pages as a power of two."""
    refcount: int
    """The folio's references."""
    mapcount: int | None
    """Entries of level 3 on this very page; None where the kernel does not count so."""
    entire: int
    """Blocks that map the whole folio."""
    large: int | None
    """Entries and blocks on any part of it; None for a single page."""
    kind: str
    """One of "anonymous", "ksm", "file", "movable" and "unowned"."""
    mapping: int | None
    """The folio's ``mapping`` without its low bits; None for a page without one."""
    index: int | None
    """Pages from the start of the file, or of the numbering of an anonymous VMA, of the folio's first page; None for a
    page without one."""
    exclusive: bool
    """PG_anon_exclusive of this page."""
    swapbacked: bool
    """PG_swapbacked."""
    swapcache: bool
    """It is in the swap cache."""
    hugetlb: bool
    """A hugetlb page."""
    poisoned: bool
    """PG_hwpoison of this page."""
    flags: tuple[str, ...]
    """The names of the flags of the page, as a page of its kind uses these bits."""
    folio_flags: tuple[str, ...]
    """The same of the folio."""
    memcg: Memcg | None
    """The memory cgroup that the folio is charged to; None where that is none, or the kernel has no memory cgroups."""


@dataclass(frozen=True, slots=True)
class Page(Frame):
    """A page frame, and where to write to what the kernel has of it."""

    at: int
    """The physical address of the page's ``struct page``."""
    head_at: int
    """The physical address of that of the folio's first page."""

    @classmethod
    def read(cls, raw: Raw) -> Page:
        """From the session's answer."""
        page = raw["page"]
        own = plain(cls, page, "flags", "folio_flags", "memcg", "at", "head_at")
        return cls(
            **own,
            flags=tuple(raw["flags"]),
            folio_flags=tuple(raw["folio_flags"]),
            memcg=Memcg.read(raw["memcg"]),
            at=number(raw["at"]),
            head_at=number(raw["head_at"]),
        )


@dataclass(frozen=True, slots=True)
class FileCache(Fields):
    """The page cache of a file, in pages."""

    mapping: int
    """The address of its ``struct address_space``, as in ``Folio.mapping``."""
    counted: int
    """Its ``nrpages``."""
    counted_at: int
    """The physical address of ``nrpages``."""
    found: int
    """The pages of the folios that are in it."""
    gone: int
    """Places of pages that are in swap, and shadow entries."""
    shmem: dict[str, tuple[int, int]]
    """Counters of shmem for the file, with their physical addresses: "alloced", "swapped". Empty for other files."""

    @classmethod
    def read(cls, raw: Raw) -> FileCache:
        """From the session's answer."""
        own = number(raw["mapping"]), raw["counted"], number(raw["counted_at"])
        counts = raw["shmem"] or {"at": []}
        shmem = {
            name: (counts[name], number(at)) for name, at in zip(("alloced", "swapped"), counts["at"], strict=False)
        }
        return cls(*own, raw["found"], raw["gone"], shmem)


@dataclass(frozen=True, slots=True)
class Space(Fields):
    """An address space: what the kernel counts as mapped, in pages."""

    mm: int
    """The address of its ``struct mm_struct``."""
    table: int
    """The physical address of its root table."""
    rss: dict[str, int] | None
    """Pages by kind: "file", "anonymous", "swapped" and "shmem"."""
    rss_at: tuple[int, ...]
    """The physical addresses of the shared parts of these counters, in this order."""
    tables_bytes: int | None
    """The bytes of page tables that the kernel counts."""
    tables_bytes_at: int | None
    """The physical address of that counter."""
    hugetlb: dict[str, Any] | None
    """The hugetlb pages that it counts ("pages", and "may_share" where that says nothing)."""
    hugetlb_at: int | None
    """The physical address of that counter."""
    huge_zero: dict[str, Any] | None
    """The huge zero folio ("pfn"), and whether it has a reference on it ("is_holder")."""
    flags_at: int | None
    """The physical address of its flags."""
    files: tuple[FileCache, ...]
    """The page caches of the files that it maps."""

    @classmethod
    def read(cls, raw: Raw) -> Space:
        """From the session's answer."""
        at = tuple(number(word) for word in raw["rss_at"])
        tables_at = raw["tables_bytes_at"] and number(raw["tables_bytes_at"])
        hugetlb_at = raw["hugetlb_at"] and number(raw["hugetlb_at"])
        own = (number(raw["mm"]), number(raw["table"]), raw["rss"], at)
        files = tuple(FileCache.read(file) for file in raw["files"])
        flags_at = raw["flags_at"] and number(raw["flags_at"])
        tables = (raw["tables_bytes"], tables_at)
        return cls(*own, *tables, raw["hugetlb"], hugetlb_at, raw["huge_zero"], flags_at, files)
