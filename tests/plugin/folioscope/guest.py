"""What a test holds: a guest, a workload process in it, an area of that process, a look from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .client import CommandFailed, Session
from .layout import LAYOUTS, Layout

THP = "/sys/kernel/mm/transparent_hugepage"
FAIL = "/sys/kernel/debug/fail_page_alloc"


def number(text: str | int) -> int:
    """A word or an address: hexadecimal strings in the tool's JSON, plain numbers in the guest's."""
    return int(text, 16) if isinstance(text, str) else text


class View:
    """One process's tables at one instant, as the rig saw and judged them."""

    def __init__(self, raw: dict[str, Any], layout: Layout) -> None:
        self.raw = raw
        self.layout = layout
        self.pid: int = raw["verdict"]["process"]["pid"]
        self.entries: list[dict[str, Any]] = raw["entries"]
        self.records: list[dict[str, Any]] = raw.get("records", [])
        self.findings: list[dict[str, Any]] = raw["verdict"]["findings"]
        self.not_judged: list[str] = raw["verdict"]["not_judged"]
        self._by_place = {(entry["level"], number(entry["va"])): entry for entry in self.entries}

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The findings that are errors."""
        return [finding for finding in self.findings if finding["severity"] == "error"]

    def rules(self) -> set[str]:
        """The rules that were broken."""
        return {finding["rule"] for finding in self.errors}

    def entry(self, va: int) -> dict[str, Any] | None:
        """The level-3 entry of a page, or the block that maps it."""
        page = self._by_place.get((3, va & ~(self.layout.page - 1)))
        return page or self._by_place.get((2, va & ~(self.layout.pmd - 1)))

    def word(self, va: int) -> int:
        """The raw level-3 word of a page; 0 where there is no table."""
        entry = self._by_place.get((3, va))
        return number(entry["word"]) if entry else 0

    def pattern(self, address: int, length: int) -> str:
        """A character per block: ``C`` every entry valid and contiguous, ``.`` nothing valid,
        ``B`` mapped by a level-2 block, ``-`` full without the bit, ``p`` partly valid, ``!`` the bit on some.

        Computed here from the raw words, not taken from the tool's own classification.
        """
        page, pages = self.layout.page, self.layout.cont_pages
        out = []
        for block in range(address, address + length, self.layout.block):
            words = [self.word(va) for va in range(block, block + pages * page, page)]
            if (2, block & ~(self.layout.pmd - 1)) in self._by_place:
                out.append("B")
                continue
            valid = [word for word in words if word & 1]
            contiguous = [word for word in valid if word >> 52 & 1]
            if not valid:
                out.append(".")
            elif len(contiguous) == pages:
                out.append("C")
            elif contiguous:
                out.append("!")
            else:
                out.append("-" if len(valid) == pages else "p")
        return "".join(out)

    def pages(self, address: int, length: int) -> str:
        """A character per page: ``c`` valid and contiguous, ``v`` valid, ``.`` not valid."""
        out = []
        for va in range(address, address + length, self.layout.page):
            word = self.word(va)
            out.append("." if not word & 1 else "c" if word >> 52 & 1 else "v")
        return "".join(out)

    def output(self, va: int) -> int | None:
        """The output address of a page, from the tool's decoding."""
        entry = self.entry(va)
        return number(entry["output_address"]) if entry and entry.get("output_address") else None

    def orders(self, address: int, length: int) -> list[tuple[int, int]]:
        """(page index of the fault, chosen order) of each record in a range, oldest first."""
        found = [r for r in self.records if address <= number(r["address"]) < address + length]
        return [((number(r["address"]) - address) // self.layout.page, r["chosen"]) for r in found]

    def record(self, address: int) -> dict[str, Any]:
        """The newest record of the fault at an address."""
        page = address & ~(self.layout.page - 1)
        found = [r for r in self.records if number(r["address"]) & ~(self.layout.page - 1) == page]
        assert found, f"no order record for {address:#x}"
        return found[-1]


@dataclass
class Area:
    """A range of a process, with the operations that a test does on it."""

    process: Process
    address: int
    length: int
    pages: int = field(init=False)

    def __post_init__(self) -> None:
        self.pages = self.length // self.process.guest.layout.page

    def _range(self, first: int, pages: int | None) -> tuple[int, int]:
        page = self.process.guest.layout.page
        count = self.pages - first if pages is None else pages
        return self.address + first * page, count * page

    def touch(
        self, first: int = 0, pages: int | None = None, *, access: str = "write", order: Any = "forward", **more: Any
    ) -> dict[str, Any]:
        """Accesses one word in each of ``pages`` pages from page ``first`` on."""
        address, length = self._range(first, pages)
        order = {order: {}} if isinstance(order, dict) else order
        return self.process.op("touch", address=address, length=length, access=access, order=order, **more)["touched"]

    def write(self, first: int = 0, pages: int | None = None, **more: Any) -> dict[str, Any]:
        """One write per page."""
        return self.touch(first, pages, access="write", **more)

    def read(self, first: int = 0, pages: int | None = None, **more: Any) -> dict[str, Any]:
        """One read per page."""
        return self.touch(first, pages, access="read", **more)

    def madvise(self, advice: str, first: int = 0, pages: int | None = None) -> None:
        """``madvise(2)``."""
        address, length = self._range(first, pages)
        self.process.op("madvise", address=address, length=length, advice=advice)

    def mprotect(self, prot: list[str], first: int = 0, pages: int | None = None) -> None:
        """``mprotect(2)``."""
        address, length = self._range(first, pages)
        self.process.op("mprotect", address=address, length=length, prot=prot)

    def munmap(self, first: int = 0, pages: int | None = None) -> None:
        """``munmap(2)``."""
        address, length = self._range(first, pages)
        self.process.op("munmap", address=address, length=length)

    def verify(self, first: int = 0, pages: int | None = None, **expect: Any) -> dict[str, Any]:
        """Compares one word per page with what a write stored there."""
        address, length = self._range(first, pages)
        found = self.process.op("verify", address=address, length=length, expect={"pattern": expect})
        return found["verified"]


class Process:
    """A workload process of the guest."""

    def __init__(self, guest: Guest, spawned: dict[str, Any]) -> None:
        self.guest = guest
        self.id: int = spawned["process"]
        self.pid: int = spawned["pid"]
        self.cpu: int = spawned["cpu"]

    def op(self, name: str, /, *, seconds: float = 20.0, **params: Any) -> dict[str, Any]:
        """One operation inside the process, by the protocol's name."""
        return self.guest.command("op", seconds=seconds, process=self.id, op={name: params})

    def map(self, length: int, *, offset: int = 0, hint: str | None = "hugepage", **more: Any) -> Area:
        """An area on its own; hinted unless ``hint`` is None or another advice."""
        place = {"isolated": {"offset": offset}}
        mapped = self.op("mmap", length=length, place=more.pop("place", place), **more)["mapped"]
        area = Area(self, mapped["address"], length)
        if hint:
            area.madvise(hint)
        return area

    def blocks(self, count: int, **more: Any) -> Area:
        """An area of whole contiguous blocks."""
        return self.map(count * self.guest.layout.block, **more)

    def fork(self) -> Process:
        """``fork(2)``; the child obeys like its parent."""
        return Process(self.guest, self.op("fork")["spawned"])

    def look(self, **params: Any) -> View:
        """Checkpoint, capture from outside, judge, release."""
        raw = self.guest.call("look", process=self.id, **params)
        return View(raw, self.guest.layout)

    def hold(self) -> Held:
        """Stays at the checkpoint, so that a test can change tables and judge again."""
        self.guest.call("hold", process=self.id)
        return Held(self)

    def fail_allocations(self, order: int) -> None:
        """Every allocation of this process of at least ``order`` fails from now on."""
        self.guest.call("fail_allocations", process=self.id, order=order)

    def allow_allocations(self) -> None:
        """Allocations succeed again."""
        self.guest.call("allow_allocations", process=self.id)

    def kill(self) -> None:
        """Ends it; that it is gone already is well."""
        try:
            self.guest.command("kill", process=self.id)
        except CommandFailed as error:
            if error.kind not in ("process_lost", "bad_request"):
                raise


class Held:
    """A process at its checkpoint, as a context manager that releases it."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        # A guest that was lost meanwhile has nothing to release, and its loss is what the test must see.
        if not self.process.guest.session.lost:
            self.process.guest.call("release", process=self.process.id)

    def judge(self, pokes: list[tuple[int, int]] | None = None, **params: Any) -> View:
        """Judges the live tables. ``pokes`` are (physical address, word), written into guest memory
        before and undone after, all within one pause: the guest never runs on a broken table."""
        words = [{"address": hex(address), "word": hex(word)} for address, word in pokes or []]
        raw = self.process.guest.call("judge", process=self.process.id, pokes=words, **params)
        return View(raw, self.process.guest.layout)


class Guest:
    """A booted guest."""

    def __init__(self, session: Session, granule: str) -> None:
        self.session = session
        self.layout = LAYOUTS[granule]
        self.hello: dict[str, Any] = session.ready["hello"]
        if self.hello["page_size"] != self.layout.page:
            raise ValueError(f"expected {self.layout.page} byte pages and the guest has {self.hello['page_size']}")
        # Or kcompactd moves pages of a process that waits, between two looks of a test at them.
        with contextlib.suppress(CommandFailed):  # a kernel without compaction
            self.write("/proc/sys/vm/compaction_proactiveness", "0")

    def call(self, method: str, **params: Any) -> Any:
        """A method of the session."""
        return self.session.call(method, **params)

    def command(self, name: str, /, *, seconds: float = 20.0, **params: Any) -> Any:
        """A command of the guest's agent, by the protocol's name."""
        return self.session.call("command", seconds=seconds, command={name: params})

    def spawn(self, name: str = "test", **more: Any) -> Process:
        """A new workload process."""
        return Process(self, self.command("spawn", name=name, **more)["spawned"])

    def read(self, path: str) -> str:
        """A file of the guest."""
        return self.command("read_file", path=path)["file"]["content"]["text"]

    def write(self, path: str, text: str) -> None:
        """A knob of the guest."""
        self.command("write_file", path=path, text=text)

    def run(self, *argv: str, seconds: float = 60.0) -> dict[str, Any]:
        """A program of the initramfs."""
        return self.command("run", seconds=seconds, argv=list(argv))["program"]

    @property
    def policies(self) -> list[str]:
        """The order policies that the kernel has; none on an unpatched one."""
        if self.hello["anon_order_policy"] is None:
            return []
        return self.read(f"{THP}/anon_order_policy").replace("[", "").replace("]", "").split()

    def set_policy(self, name: str) -> None:
        """Selects the order policy."""
        self.write(f"{THP}/anon_order_policy", name)

    def sizes(self) -> Iterator[int]:
        """The mTHP sizes, in KiB."""
        for size in self.hello["mthp"]:
            yield size["size_kib"]

    def knobs(self, *paths: str) -> dict[str, str]:
        """What is selected in each of these files of sysfs, which show it in brackets."""
        shown = self.run("/bin/busybox", "grep", "-H", "", *paths)["stdout"]["text"]
        lines = (line.partition(":") for line in shown.splitlines())
        return {path: text.partition("[")[2].partition("]")[0] for path, _, text in lines}

    def reset(self) -> None:
        """What every test starts from: no process, default knobs."""
        for info in self.command("processes")["processes"]["processes"]:
            self.command("kill", process=info["process"])
        defaults = {} if self.hello["anon_order_policy"] is None else {f"{THP}/anon_order_policy": "variable"}
        for size in self.hello["mthp"]:
            for knob in ("enabled", "shmem_enabled"):
                if size[knob] is not None:
                    defaults[f"{THP}/hugepages-{size['size_kib']}kB/{knob}"] = size[knob]
        # One program reads them all; a write costs as much for each.
        selected = self.knobs(*defaults) if defaults else {}
        for path, value in defaults.items():
            if selected.get(path) != value:
                self.write(path, value)
