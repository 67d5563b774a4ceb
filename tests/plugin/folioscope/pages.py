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
    inode: int
    path: str

    @classmethod
    def read(cls, raw: Raw | None) -> Memcg | None:
        """From JSON; None where a folio is charged to none."""
        return cls(**plain(cls, raw)) if raw else None


@dataclass(frozen=True, slots=True)
class Frame(Fields):
    """A page frame and its folio, as ``struct page`` and ``struct folio`` have them. Counts are 0 for none."""

    pfn: int
    #: The page frame number of the folio's first page, and the folio's pages as a power of two.
    head: int
    order: int
    #: The folio's references.
    refcount: int
    #: Entries of level 3 on this very page; None where the kernel does not count so.
    mapcount: int | None
    #: Blocks that map the whole folio.
    entire: int
    #: Entries and blocks on any part of it; None for a single page.
    large: int | None
    #: "anonymous", "ksm", "file", "movable" or "unowned".
    kind: str
    #: None for a page without a mapping.
    mapping: int | None
    #: Pages from the start of the file, or of the numbering of an anonymous VMA, of the folio's first page; None
    #: for a page without one.
    index: int | None
    exclusive: bool
    swapbacked: bool
    swapcache: bool
    hugetlb: bool
    poisoned: bool
    #: The names of what is set in the page's flags, and in its folio's, as a page of its kind uses their bits.
    flags: tuple[str, ...]
    folio_flags: tuple[str, ...]
    #: What the folio is charged to; None where that is nothing, or the kernel has no memory cgroups.
    memcg: Memcg | None


@dataclass(frozen=True, slots=True)
class Page(Frame):
    """A page frame, and where to write to what the kernel has of it."""

    #: The physical addresses of the page's ``struct page``, and of that of the folio's first page.
    at: int
    head_at: int

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

    #: The address of its ``struct address_space``, as in ``Folio.mapping``.
    mapping: int
    #: ``nrpages``, and its physical address.
    counted: int
    counted_at: int
    #: The pages of the folios that are in it.
    found: int
    #: Places of pages that are in swap, or of which something is remembered.
    gone: int
    #: What shmem counts of the file, and where: "alloced", "swapped". Empty for other files.
    shmem: dict[str, tuple[int, int]]

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
    table: int
    #: "file", "anonymous", "swapped" and "shmem".
    rss: dict[str, int] | None
    #: The physical addresses of the shared parts of these counters, in this order.
    rss_at: tuple[int, ...]
    #: The bytes of page tables that the kernel counts, and where it does.
    tables_bytes: int | None
    tables_bytes_at: int | None
    #: The pages of hugetlb that it counts ("pages", and "may_share" where that says nothing), and where it does.
    hugetlb: dict[str, Any] | None
    hugetlb_at: int | None
    #: The page caches of the files that it maps.
    files: tuple[FileCache, ...]

    @classmethod
    def read(cls, raw: Raw) -> Space:
        """From the session's answer."""
        at = tuple(number(word) for word in raw["rss_at"])
        tables_at = raw["tables_bytes_at"] and number(raw["tables_bytes_at"])
        hugetlb_at = raw["hugetlb_at"] and number(raw["hugetlb_at"])
        own = (number(raw["mm"]), number(raw["table"]), raw["rss"], at)
        files = tuple(FileCache.read(file) for file in raw["files"])
        return cls(*own, raw["tables_bytes"], tables_at, raw["hugetlb"], hugetlb_at, files)
