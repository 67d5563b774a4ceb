# SPDX-License-Identifier: GPL-2.0-only
"""A workload process of the guest: what it may be asked to do, and how it is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from .area import Area, Protection
from .client import CommandFailed
from .expect import Expectation, Open, Stated
from .listing import Vma
from .model import Entry
from .view import View

if TYPE_CHECKING:
    from .guest import Guest

MapFlag = Literal[
    "private",
    "shared",
    "shared_validate",
    "fixed",
    "fixed_noreplace",
    "populate",
    "nonblock",
    "noreserve",
    "growsdown",
    "locked",
    "stack",
    "sync",
]

Place = Mapping[str, Any] | str


class Mapped(TypedDict, total=False):
    """How memory is mapped: the options of ``Process.map``."""

    offset: int
    hint: str | None
    place: Place | None
    prot: Sequence[Protection] | None
    flags: Sequence[MapFlag]


class MappedFile(TypedDict, total=False):
    """How a file is mapped: those of ``Process.map`` that are not its own."""

    hint: str | None
    place: Place | None
    prot: Sequence[Protection] | None


class MappedBlocks(Mapped, total=False):
    """How blocks are mapped: the options of ``Process.map``."""

    backing: Place


class Process:
    """A workload process of the guest. It does what it is asked, one operation at a time, and nothing else."""

    def __init__(self, guest: Guest, spawned: Mapping[str, Any]) -> None:
        self.guest = guest
        # The agent's number of it, and the guest kernel's.
        self.id: int = spawned["process"]
        self.pid: int = spawned["pid"]
        # The CPU that it is pinned to.
        self.cpu: int = spawned["cpu"]
        self._stated: list[Stated] = []
        self._newest: dict[int, int] = {}

    def op(self, name: str, /, *, seconds: float = 20.0, **params: object) -> dict[str, Any]:
        """One operation inside the process, by the name that it has in the agent's protocol; what the agent answers."""
        return self.guest.command("op", seconds=seconds, process=self.id, op={name: params})

    # Memory.

    def map(
        self,
        length: int,
        *,
        offset: int = 0,
        hint: str | None = "hugepage",
        place: Place | None = None,
        prot: Sequence[Protection] | None = None,
        flags: Sequence[MapFlag] = (),
        backing: Place = "anonymous",
    ) -> Area:
        """``mmap(2)``: an area on its own, ``offset`` bytes above an address that is aligned to a level-2 descriptor,
        with nothing mapped on either side.

        ``hint``: the advice that is given at once, none with None. ``place``, ``backing``: as the agent's protocol has
        them; for files, memfds and hugetlb there are methods.
        """
        more: dict[str, Any] = {} if prot is None else {"prot": list(prot)}
        mapped = self.op(
            "mmap",
            length=length,
            place=place or {"isolated": {"offset": offset}},
            flags=list(flags),
            backing=backing,
            **more,
        )["mapped"]
        area = Area(self, mapped["address"], length)
        if hint:
            area.madvise(hint)
        return area

    def blocks(self, count: int, **how: Unpack[MappedBlocks]) -> Area:
        """An area of whole contiguous blocks (64 KiB at 4K pages, 2 MiB at 16K and 64K); ``how`` as for ``map``."""
        return self.map(count * self.guest.layout.block, **how)

    def map_file(
        self, path: str, length: int, *, offset: int = 0, shared: bool = True, **how: Unpack[MappedFile]
    ) -> Area:
        """Maps a file of the guest from byte ``offset`` on; ``how`` as for ``map``, without a hint by default."""
        how.setdefault("hint", None)
        flags: list[MapFlag] = ["shared" if shared else "private"]
        return self.map(length, backing={"file": {"path": path, "offset": offset}}, flags=flags, **how)

    def map_memfd(
        self, length: int, *, size: int | None = None, hugetlb_kib: int | None = None, **how: Unpack[Mapped]
    ) -> Area:
        """Maps, shared, a file of ``memfd_create(2)`` that this mapping alone refers to; with ``hugetlb_kib`` one of
        hugetlb pages of that size."""
        how.setdefault("hint", None)
        how.setdefault("flags", ["shared"])
        fields = {"size": size, "hugetlb_kib": hugetlb_kib}
        backing = {"memfd": {name: value for name, value in fields.items() if value is not None}}
        return self.map(length, backing=backing, **how)

    def map_hugetlb(self, count: int, size_kib: int, **how: Unpack[Mapped]) -> Area:
        """Maps ``count`` private anonymous hugetlb pages of a size, from the pool (``Guest.hugetlb_pages``)."""
        how.setdefault("hint", None)
        return self.map(count * size_kib * 1024, backing={"hugetlb": {"size_kib": size_kib}}, **how)

    def peek(self, address: int, words: int = 1) -> list[int]:
        """64-bit words of its memory, as the process itself reads them."""
        found: list[int] = self.op("peek", address=address, words=words)["words"]["words"]
        return found

    def poke(self, address: int, words: Sequence[int]) -> None:
        """Stores 64-bit words, as the process itself writes them."""
        self.op("poke", address=address, words=list(words))

    def thp_disable(self, on: bool = True) -> None:
        """``prctl(PR_SET_THP_DISABLE)``: switches transparent huge pages of any size off (or on) for the process."""
        self.op("thp_disable", on=on)

    # Files of the guest; tmpfs is on /tmp and /dev/shm.

    def file_create(self, path: str, length: int) -> None:
        """Makes a file of this size, or empties the one that is there; nothing is written to it."""
        self.op("file_create", path=path, length=length)

    def file_truncate(self, path: str, length: int) -> None:
        """``truncate(2)``."""
        self.op("file_truncate", path=path, length=length)

    def file_write(self, path: str, offset: int, length: int, *, salt: int = 0, chunk: int | None = None) -> None:
        """Writes the pattern of each 8 bytes' offset and ``salt``, by ``pwrite(2)`` of ``chunk`` bytes (64 KiB)."""
        more = {} if chunk is None else {"chunk": chunk}
        self.op("file_write", path=path, offset=offset, length=length, salt=salt, **more)

    def file_read(self, path: str, offset: int, length: int) -> int:
        """Reads by ``pread(2)`` into a buffer that is thrown away: that brings the range into the page cache. Gives how
        many bytes there were before the file's end."""
        count: int = self.op("file_read", path=path, offset=offset, length=length)["read"]["bytes"]
        return count

    def file_allocate(self, path: str, offset: int, length: int) -> None:
        """``fallocate(2)``: gives the range memory."""
        self.op("file_allocate", path=path, offset=offset, length=length, punch=False)

    def file_punch_hole(self, path: str, offset: int, length: int) -> None:
        """``fallocate(2)`` with ``FALLOC_FL_PUNCH_HOLE``: takes the range's memory away."""
        self.op("file_allocate", path=path, offset=offset, length=length, punch=True)

    def file_unlink(self, path: str) -> None:
        """``unlink(2)``."""
        self.op("file_unlink", path=path)

    # The process itself.

    def fork(self, name: str = "") -> Process:
        """``fork(2)``; the child obeys like its parent."""
        return Process(self.guest, self.op("fork", name=name)["spawned"])

    def pin(self, cpu: int) -> None:
        """Pins it to a CPU."""
        self.op("pin", cpu=cpu)
        self.cpu = cpu

    def exit(self, status: int = 0) -> None:
        """Ends by itself."""
        self.op("exit", status=status)

    def kill(self) -> None:
        """Ends it; that it is gone already is well."""
        try:
            self.guest.command("kill", process=self.id)
        except CommandFailed as error:
            if error.kind not in ("process_lost", "bad_request"):
                raise

    def fail_allocations(self, order: int) -> None:
        """Every allocation of this process of at least ``order`` fails from now on."""
        self.guest.call("fail_allocations", process=self.id, order=order)

    def allow_allocations(self) -> None:
        """Allocations succeed again."""
        self.guest.call("allow_allocations", process=self.id)

    def maps(self) -> str:
        """``/proc/PID/maps``."""
        text: str = self.guest.command("maps", process=self.id)["maps"]["maps"]
        return text

    def smaps(self) -> str:
        """``/proc/PID/smaps``."""
        text: str = self.guest.command("maps", process=self.id, smaps=True)["maps"]["smaps"]
        return text

    def pagemap(self, address: int, pages: int) -> list[int]:
        """Raw entries of ``/proc/PID/pagemap``, fewer than asked for where the address space ends."""
        found = self.guest.command("pagemap", process=self.id, address=address, pages=pages)
        entries: list[int] = found["pagemap"]["entries"]
        return entries

    def vmas(self) -> list[Vma]:
        """Its VMAs, from the kernel's memory, and what its tables have in each, by state and folio order."""
        return self.guest.vmas(self.pid)

    # Looks.

    def state(self, expectation: Stated) -> None:
        """States something that the next look holds the tables against; ``Area`` has a method for each kind.

        A test that ends before a look has judged it fails."""
        self._stated.append(expectation)
        Open.add(expectation)

    def look(
        self,
        *,
        check: bool = True,
        again: bool = False,
        getters: bool = False,
        expectations: Iterable[Expectation] = (),
    ) -> View:
        """Lets the process wait in user mode, reads its tables from outside, judges them, and lets it go on.

        Raises ``LookFailed`` where an error is found, of any process that was looked at, or where something that was
        stated does not hold, and ``NotJudged`` where something that was to be judged could not be. With ``check=False``
        it does not: the test reads ``findings``, ``errors`` and ``not_judged`` of the view.

        With ``again=True`` only tables that were written to since the last time are read, where the machine tells, and
        no folios. With ``getters=True`` what the kernel says of that memory, inside, is held to them too (L17).
        """
        return self._seen("look", check, list(expectations), again=again, getters=getters)

    def kernel_half(self) -> list[Entry]:
        """The entries of the kernel's half of the tables, while this process waits in a ``hold``."""
        return [Entry.read(entry) for entry in self.guest.call("kernel_half", process=self.id)["entries"]]

    def hold(self) -> Held:
        """Stays where a look is taken, so that a test can change tables and judge again; to be used in a ``with``."""
        self.guest.call("hold", process=self.id)
        return Held(self)

    def _seen(self, method: str, check: bool, more: list[Expectation], **params: Any) -> View:
        for each in more:
            # A dictionary was taken once; one that is left out would be judged of nothing.
            if not isinstance(each, Expectation):
                raise TypeError(f"expected Expectation(start, end, what) and found {each!r}")
        stated, self._stated = self._stated, []
        expectations = [each.json() for each in [*stated, *more] if isinstance(each, Expectation)]
        raw = self.guest.call(method, process=self.id, expectations=expectations, **params)
        view = View(raw, self.guest.layout, stated=[*stated, *more], before=self._newest, call=self.guest.call)
        self._newest = view.newest()
        self.guest.last = view
        if check:
            Open.settle(stated)
            view.check()
        return view


class Held:
    """A process that waits at a checkpoint for as long as the block lasts."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        # A guest that was lost meanwhile has nothing to release, and its loss is what the test must see.
        if not self.process.guest.session.lost:
            self.process.guest.call("release", process=self.process.id)

    def judge(
        self,
        pokes: Iterable[tuple[int, int]] = (),
        *,
        check: bool | None = None,
        again: bool = False,
        getters: bool = False,
        expectations: Iterable[Expectation] = (),
    ) -> View:
        """Judges the live tables. ``pokes`` are (physical address, word), written into guest memory
        before and undone after, all within one pause: the guest never runs on a broken table.

        It raises as ``look`` does, unless there are ``pokes``: what a test breaks is the test's to expect.
        """
        words = [{"address": hex(address), "word": hex(word)} for address, word in pokes]
        checked = not words if check is None else check
        return self.process._seen("judge", checked, list(expectations), pokes=words, again=again, getters=getters)
