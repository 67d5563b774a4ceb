# SPDX-License-Identifier: GPL-2.0-only
"""A range of a process, with the operations that a test does on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from .expect import Expectation, OrderExpected, What
from .model import Touched, Verified

if TYPE_CHECKING:
    from .process import Process

Access = Literal["read", "write", "read_write"]
Protection = Literal["read", "write", "exec", "bti", "mte"]
UffdMode = Literal["missing", "write_protect", "minor"]
# `forward`, `backward`, the steps themselves, or as the protocol says it: {"random": {"seed": 1}}.
Order = str | Sequence[int] | Mapping[str, Any]


class Touching(TypedDict, total=False):
    """How memory is accessed: the options of ``Area.touch``."""

    order: Order
    """The order in which pages are accessed."""
    salt: int
    """Selects the words that are written."""
    stride: int | None
    """Pages from one step to the next, for the orders that take one."""
    seconds: float
    """The longest time that it may take."""


@dataclass
class Area:
    """A range of a process. Ranges within it are in pages: ``first``, from 0, and how many; to its end if left out."""

    process: Process
    """The process that has it."""
    address: int
    """The first address."""
    length: int
    """Bytes."""
    pages: int = field(init=False)

    def __post_init__(self) -> None:
        self.pages = self.length // self.process.guest.layout.page

    def _range(self, first: int, pages: int | None) -> tuple[int, int]:
        page = self.process.guest.layout.page
        count = self.pages - first if pages is None else pages
        return self.address + first * page, count * page

    def part(self, first: int = 0, pages: int | None = None) -> Area:
        """A part of it, as an area of its own; nothing happens in the guest."""
        return Area(self.process, *self._range(first, pages))

    def in_process(self, process: Process) -> Area:
        """The same addresses in another process: what a child has after ``fork``."""
        return Area(process, self.address, self.length)

    # What a process does with its memory.

    def touch(
        self,
        first: int = 0,
        pages: int | None = None,
        *,
        access: Access = "write",
        order: Order = "forward",
        salt: int = 0,
        stride: int | None = None,
        seconds: float = 20.0,
    ) -> Touched:
        """Accesses one 64-bit word in each page (or at each ``stride`` bytes). A write stores a pattern of address and
        ``salt``, which ``verify`` compares.

        Raises ``CommandFailed`` of kind ``signal`` where an access raised SIGSEGV or SIGBUS, and of kind ``deadline``
        where it did not end within ``seconds``.
        """
        address, length = self._range(first, pages)
        steps = order if isinstance(order, str | Mapping) else {"list": {"steps": list(order)}}
        more = {} if stride is None else {"stride": stride}
        touched = self.process.op(
            "touch", address=address, length=length, access=access, order=steps, salt=salt, seconds=seconds, **more
        )
        return Touched.read(touched["touched"])

    def write(self, first: int = 0, pages: int | None = None, **how: Unpack[Touching]) -> Touched:
        """One write per page; ``how`` as for ``touch``."""
        return self.touch(first, pages, access="write", **how)

    def read(self, first: int = 0, pages: int | None = None, **how: Unpack[Touching]) -> Touched:
        """One read per page; ``how`` as for ``touch``."""
        return self.touch(first, pages, access="read", **how)

    def verify(
        self,
        first: int = 0,
        pages: int | None = None,
        *,
        salt: int = 0,
        origin: int | None = None,
        zero: bool = False,
        stride: int | None = None,
    ) -> Verified:
        """Compares one word per page with what a write of this ``salt`` stored there, or with zero.

        ``origin``: the address at which it was written (or the offset in a file), where that is another one: after
        ``mremap``, or in a second mapping.
        """
        address, length = self._range(first, pages)
        pattern = {"salt": salt} | ({} if origin is None else {"origin": origin})
        expect: Any = "zero" if zero else {"pattern": pattern}
        more = {} if stride is None else {"stride": stride}
        found = self.process.op("verify", address=address, length=length, expect=expect, **more)
        return Verified.read(found["verified"])

    def peek(self, first: int = 0, words: int = 1) -> list[int]:
        """The 64-bit words at the start of page ``first``."""
        return self.process.peek(self._range(first, 0)[0], words)

    def poke(self, first: int, words: Sequence[int]) -> None:
        """Stores 64-bit words at the start of page ``first``."""
        self.process.poke(self._range(first, 0)[0], words)

    # System calls.

    def madvise(self, advice: str, first: int = 0, pages: int | None = None) -> None:
        """``madvise(2)``: ``hugepage``, ``nohugepage``, ``dontneed``, ``free``, ``cold``, ``pageout``, ``collapse``,
        ``populate_write``, ... (the name behind ``MADV_``)."""
        address, length = self._range(first, pages)
        self.process.op("madvise", address=address, length=length, advice=advice)

    def swap_out(self, first: int = 0, pages: int | None = None) -> None:
        """Asks the kernel to reclaim the range (``MADV_PAGEOUT``): anonymous memory goes to swap, if there is one."""
        self.madvise("pageout", first, pages)

    def swap_in(self, first: int = 0, pages: int | None = None) -> Touched:
        """Brings the range back by reading it."""
        return self.read(first, pages)

    def mprotect(self, prot: Sequence[Protection], first: int = 0, pages: int | None = None) -> None:
        """``mprotect(2)``; an empty list is ``PROT_NONE``."""
        address, length = self._range(first, pages)
        self.process.op("mprotect", address=address, length=length, prot=list(prot))

    def munmap(self, first: int = 0, pages: int | None = None) -> None:
        """``munmap(2)``."""
        address, length = self._range(first, pages)
        self.process.op("munmap", address=address, length=length)

    def mremap(self, to: int | None = None, *, length: int | None = None, keep: bool = False) -> Area:
        """``mremap(2)`` of the whole area; gives the area that it is now.

        ``to``: the new address (``MREMAP_FIXED``); the kernel chooses where it is left out and the area cannot stay.
        ``length``: the new length in bytes. ``keep``: the old mapping stays, without its pages (``MREMAP_DONTUNMAP``).
        """
        flags = ["maymove"] + (["fixed"] if to is not None else []) + (["dontunmap"] if keep else [])
        new = self.length if length is None else length
        where = {} if to is None else {"new_address": to}
        mapped = self.process.op(
            "mremap", address=self.address, length=self.length, new_length=new, flags=flags, **where
        )["mapped"]
        return Area(self.process, mapped["address"], mapped["length"])

    def mlock(self, first: int = 0, pages: int | None = None, *, onfault: bool = False) -> None:
        """``mlock2(2)``, with ``MLOCK_ONFAULT`` where that is asked for."""
        address, length = self._range(first, pages)
        self.process.op("mlock", address=address, length=length, flags=["onfault"] if onfault else [])

    def munlock(self, first: int = 0, pages: int | None = None) -> None:
        """``munlock(2)``."""
        address, length = self._range(first, pages)
        self.process.op("munlock", address=address, length=length)

    def move_to_node(self, node: int, first: int = 0, pages: int | None = None) -> None:
        """``move_pages(2)``: moves the range's folios to a NUMA node, as far as they can be; ``nodes`` tells where
        they are then."""
        address, length = self._range(first, pages)
        self.process.op("move_pages", address=address, length=length, node=node)

    def nodes(self, first: int = 0, pages: int | None = None) -> list[int]:
        """The NUMA node of each page; a negative errno where there is none (-2: nothing is mapped)."""
        address, length = self._range(first, pages)
        found: list[int] = self.process.op("move_pages", address=address, length=length)["nodes"]["nodes"]
        return found

    # userfaultfd: what it would have to resolve raises SIGBUS (``CommandFailed`` of kind ``signal``).

    def uffd_register(self, *modes: UffdMode, first: int = 0, pages: int | None = None) -> None:
        """Registers the range: ``missing`` pages, writes to protected ones (``write_protect``), pages of a file that
        are in its page cache and not mapped (``minor``)."""
        address, length = self._range(first, pages)
        self.process.op("uffd_register", address=address, length=length, modes=list(modes))

    def uffd_unregister(self, first: int = 0, pages: int | None = None) -> None:
        """``UFFDIO_UNREGISTER``."""
        address, length = self._range(first, pages)
        self.process.op("uffd_unregister", address=address, length=length)

    def uffd_copy(
        self, first: int = 0, pages: int | None = None, *, salt: int = 0, write_protect: bool = False
    ) -> None:
        """``UFFDIO_COPY``: fills missing pages with what ``write`` would leave there."""
        address, length = self._range(first, pages)
        self.process.op("uffd_copy", address=address, length=length, salt=salt, write_protect=write_protect)

    def uffd_zeropage(self, first: int = 0, pages: int | None = None) -> None:
        """``UFFDIO_ZEROPAGE``: maps the zero page."""
        address, length = self._range(first, pages)
        self.process.op("uffd_zeropage", address=address, length=length)

    def uffd_writeprotect(self, on: bool = True, first: int = 0, pages: int | None = None) -> None:
        """``UFFDIO_WRITEPROTECT``: catches writes to the range from now on, or no longer."""
        address, length = self._range(first, pages)
        self.process.op("uffd_writeprotect", address=address, length=length, on=on)

    # What is known of the step that was just done; the next look holds the tables against it.

    def _state(self, what: What, first: int, pages: int | None, reason: str | None = None) -> Area:
        address, length = self._range(first, pages)
        self.process.state(Expectation(address, address + length, what, reason))
        return self

    def must_fold(self, first: int = 0, pages: int | None = None) -> Area:
        """At the next look every aligned block in the range must carry the contiguous bit (rule C1)."""
        address, length = self._range(first, pages)
        block = self.process.guest.layout.block
        if -(-address // block) >= (address + length) // block:
            what = f"a range with a whole block of {block // 1024} KiB"
            raise ValueError(
                f"expected {what} and {address:#x}-{address + length:#x} has none: it cannot be contiguous"
            )
        return self._state("contiguous", first, pages)

    def must_fold_if_possible(self, first: int = 0, pages: int | None = None) -> Area:
        """At the next look every aligned block in the range carries the contiguous bit (rule C1), if it could: its
        pages are of one folio and are alike."""
        return self._state("contiguous-if-possible", first, pages)

    def must_not_fold(self, reason: str, first: int = 0, pages: int | None = None) -> Area:
        """At the next look no entry of the range may carry it (rule C2); ``reason`` says why, in the finding."""
        return self._state("not-contiguous", first, pages, reason)

    def written(self, first: int = 0, pages: int | None = None) -> Area:
        """Every page of the range was written by this process, and not cleaned, forked, moved or reclaimed since: each
        must be dirty (rule L6)."""
        return self._state("written", first, pages)

    def not_written(self, first: int = 0, pages: int | None = None) -> Area:
        """No page of any folio in the range was ever written through this mapping: none may be dirty (rule L6)."""
        return self._state("not-written", first, pages)

    def fresh(self, first: int = 0, pages: int | None = None) -> Area:
        """Anonymous memory that was faulted in by the last step, and that nothing has changed since: each folio that
        the kernel recorded must be mapped whole (rule L11)."""
        return self._state("freshly-faulted", first, pages)

    def accessed(self, first: int = 0, pages: int | None = None, *, write: bool = False) -> Area:
        """Every page was read (or written) by an instruction of the process just now, so another one would not fault:
        each has AF, and may be written (rule L5)."""
        return self._state("writable" if write else "readable", first, pages)

    def raw(self, state: Literal["young", "old", "dirty", "clean"], first: int = 0, pages: int | None = None) -> Area:
        """Every raw entry of the range is so, one by one (rules L5, L6): for what software has set, cleared or carried
        over (fork, mremap, split, mprotect) and nothing has accessed since."""
        return self._state(state, first, pages)

    def mapped(self, first: int = 0, pages: int | None = None) -> Area:
        """The kernel had no leave to take a page of the range away: each is mapped, and not by the zero page (rule
        L5)."""
        return self._state("mapped", first, pages)

    def unheld(self, first: int = 0, pages: int | None = None) -> Area:
        """Nothing but entries, the page cache and the swap cache holds a folio of the range: each has their references
        and no more (rule C4), keeps what was written to it (C5), is marked as locked only where a locked VMA maps it
        (C6), and is charged to a memory cgroup (C7). What batches of the LRU lists hold is counted."""
        return self._state("unheld", first, pages)

    def exclusive(self, first: int = 0, pages: int | None = None) -> Area:
        """No other mapping ever had the anonymous pages of the range: since they were written its process was not
        forked, and KSM has not looked at them. Each is exclusive (rule L8)."""
        return self._state("exclusive", first, pages)

    def order(self, order: int, first: int = 0, pages: int | None = None) -> Area:
        """Each fault in the range since the look before got a folio of this order, by the kernel's record."""
        address, length = self._range(first, pages)
        self.process.state(OrderExpected(address, address + length, order))
        return self
