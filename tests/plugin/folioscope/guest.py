# SPDX-License-Identifier: GPL-2.0-only
"""A booted guest: its knobs, files and programs, and the processes that are started in it."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, overload

from . import program
from .area import Area
from .client import CommandFailed, Session
from .counts import Counts
from .layout import LAYOUTS
from .listing import KernelMap, Task, Vma
from .model import Hello, Program, bytes_of, number
from .pages import Page, Space
from .process import Held, Process
from .program import Judged, ProgramRun
from .trace import Trace
from .view import View
from .voice import Heard

__all__ = ["Area", "Guest", "Held", "Process", "View", "number"]

THP = "/sys/kernel/mm/transparent_hugepage"
HUGETLB = "/sys/kernel/mm/hugepages"
# What every test starts from, unless it asks for another one.
POLICY = "variable"
# include/linux/kern_levels.h. The console shows what is below its own level.
KERN_WARNING = 4


class Guest:
    """A booted guest."""

    def __init__(self, session: Session, granule: str) -> None:
        self.session = session
        self.layout = LAYOUTS[granule]
        #: The last look at any of its processes.
        self.last: View | None = None
        self.hello = Hello.read(session.ready["hello"])
        if self.hello.page_size != self.layout.page:
            raise ValueError(f"expected {self.layout.page} byte pages and the guest has {self.hello.page_size}")
        # Or kcompactd moves pages of a process that waits, between two looks of a test at them.
        with contextlib.suppress(CommandFailed):  # a kernel without compaction
            self.write("/proc/sys/vm/compaction_proactiveness", "0")
        # What came with that was said at boot: the next guest would say it too.
        session.faulty = False
        with contextlib.suppress(CommandFailed):  # a kernel without printk
            level = int(self.read("/proc/sys/kernel/printk").split()[0])
            if level <= KERN_WARNING:
                why = f"its console shows nothing of that level (console_loglevel {level}, by quiet or loglevel=)"
                warnings.warn(f"a WARNING of this guest's kernel (V1) is not judged: {why}", stacklevel=2)

    def call(self, method: str, *, seconds: float = 20.0, **params: object) -> dict[str, Any]:
        """A method of the session; what it answers."""
        return self.session.call(method, seconds=seconds, **params)

    def command(self, name: str, /, *, seconds: float = 20.0, **params: object) -> dict[str, Any]:
        """A command of the guest's agent, by the protocol's name; what the agent answers."""
        return self.session.call("command", seconds=seconds, command={name: params})

    @contextlib.contextmanager
    def provokes(self, *texts: str) -> Iterator[None]:
        """What is done inside lets the kernel report faults of its own; each of these texts is in a line of one."""
        yield

        def ask() -> bool:
            if not self.session.lost:
                self.call("voice")
            return not self.session.lost

        ask()
        Heard.wait_for(texts, ask)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Trace]:
        """What the recorder sees of what is done inside (docs/recorder.md): findings, TLB maintenance, what was done
        under whose call. The guest has to be booted for that: a mark `recorded` on the test, or
        ``folioscope session --record``. Other processes of the guest, and its kernel, are seen too."""
        self.call("record_begin")
        trace = Trace()
        yield trace
        trace.take_in(self.call("record_end"))

    def spawn(self, name: str = "test", *, cpu: int | None = None, randomize: bool = False) -> Process:
        """A new workload process, pinned to a CPU; addresses repeat from run to run unless ``randomize``."""
        more = {} if cpu is None else {"cpu": cpu}
        return Process(self, self.command("spawn", name=name, randomize=randomize, **more)["spawned"])

    def read(self, path: str) -> str:
        """A file of the guest, whole."""
        content, end = b"", False
        while not end:
            piece = self.command("read_file", path=path, offset=len(content))["file"]
            content, end = content + bytes_of(piece["content"]), piece["end"]
        return content.decode(errors="replace")

    def write(self, path: str, text: str) -> None:
        """A knob of the guest, by one ``write(2)``."""
        self.command("write_file", path=path, text=text)

    @overload
    def run(
        self,
        argv: Sequence[str],
        *words: str,
        files: Sequence[str | PathLike[str]],
        input: str | None = None,
        seconds: float = 60.0,
        judged: Judged = "marks",
        check: bool = True,
    ) -> ProgramRun: ...

    @overload
    def run(self, argv: Sequence[str], *words: str, input: str | None = None, seconds: float = 60.0) -> Program: ...

    def run(
        self,
        argv: Sequence[str],
        *words: str,
        files: Sequence[str | PathLike[str]] = (),
        input: str | None = None,
        seconds: float = 60.0,
        judged: Judged = "marks",
        check: bool = True,
    ) -> Program | ProgramRun:
        """Runs a program to its end: one of the initramfs, by its words in a list or one by one.

        With ``files`` one of this host's: ``run(["./prog"], files=["prog.c"])``. The files are copied to a directory
        of the guest, in which the program starts; a source in C is compiled for it, with ``folioscope.h``. Its
        processes are judged

        - ``judged="marks"``: where they call ``folioscope_mark(name, start, length)`` of ``folioscope.h``;
        - ``judged="exit"``: when a process that includes ``folioscope.h`` comes to its end by ``exit()``;
        - ``judged="always"``: all the time, whatever the program is made of.

        What is wrong raises as ``Process.look`` does, unless ``check`` is false: ``LookFailed``, ``NotJudged`` also
        where the program ended and was never judged. The views are in ``marks`` of what this gives.
        """
        line = [argv, *words] if isinstance(argv, str) else [*argv, *words]
        if not files:
            more = {} if input is None else {"input": input}
            return Program.read(self.command("run", seconds=seconds, argv=line, **more)["program"])
        with tempfile.TemporaryDirectory(prefix="folioscope-") as place:
            return program.run(
                self, line, files, input=input, seconds=seconds, judged=judged, check=check, place=Path(place)
            )

    def look(self, pid: int, *, check: bool = True) -> View:
        """Reads and judges any process at this instant, by its pid in the guest; see ``Process.look``. One that runs is
        looked at several times, as one that waits."""
        view = View(self.call("look", pid=pid), self.layout, call=self.call)
        self.last = view
        if check:
            view.check()
        return view

    def poke(self, words: Iterable[tuple[int, int]]) -> None:
        """Writes words into the guest's physical memory, which stay: (address, word)."""
        self.call("poke", pokes=[{"address": hex(address), "word": hex(word)} for address, word in words])

    def words(self, address: int, count: int) -> list[int]:
        """64-bit words of the guest's physical memory, from outside."""
        return [number(word) for word in self.call("words", address=hex(address), count=count)["words"]]

    def page(self, pfn: int) -> Page:
        """A page and its folio, as the kernel's own structures have them at this instant."""
        return Page.read(self.call("page", pfn=pfn))

    def space(self, pid: int) -> Space:
        """What the kernel counts of a process's address space at this instant, and where."""
        return Space.read(self.call("space", pid=pid))

    def tasks(self) -> list[Task]:
        """All tasks at this instant, from the kernel's memory: processes, and threads of the kernel."""
        return [Task.read(task) for task in self.call("tasks")["tasks"]]

    def vmas(self, pid: int) -> list[Vma]:
        """The VMAs of any process at this instant, from the kernel's memory, and what its tables have in each."""
        return [Vma.read(vma) for vma in self.call("maps", pid=pid)["vmas"]]

    def kernel_map(self) -> KernelMap:
        """By what sizes the kernel's own half is mapped, part by part, and each area of vmalloc."""
        return KernelMap.read(self.call("kernel_map"))

    def counts(self) -> Counts:
        """How often each order was decided on, and what became of contiguous blocks, as the patched kernel counts it.

        Orders are counted while ``anon_order/record`` is 1, which is so from the start; blocks while
        ``anon_order/contpte`` is.
        """
        return Counts.read(self.call("counts"))

    @property
    def has_policies(self) -> bool:
        """Whether the kernel has Folioscope's order policies."""
        return self.hello.anon_order_policy is not None

    @property
    def policies(self) -> list[str]:
        """The order policies that the kernel has; none on an unpatched one."""
        if not self.has_policies:
            return []
        return self.read(f"{THP}/anon_order/policy").replace("[", "").replace("]", "").split()

    def set_policy(self, name: str) -> None:
        """Selects the order policy."""
        self.write(f"{THP}/anon_order/policy", name)

    def sizes(self) -> Iterator[int]:
        """The mTHP sizes, in KiB."""
        for size in self.hello.mthp:
            yield size.size_kib

    def hugetlb_pages(self, size_kib: int, count: int) -> int:
        """Asks for a pool of ``count`` hugetlb pages of a size; gives how many there are now."""
        knob = f"{HUGETLB}/hugepages-{size_kib}kB/nr_hugepages"
        self.write(knob, str(count))
        return int(self.read(knob))

    def swap_on(self, path: str, *, format: bool = True) -> None:
        """``swapon(2)``, with a header that is written first unless ``format`` is false."""
        self.command("swap_on", path=path, format=format)

    def swap_off(self, path: str) -> None:
        """``swapoff(2)``, which brings back what is there."""
        self.command("swap_off", path=path)

    def mount_erofs(self, device: str, directory: str, length: int) -> str:
        """Makes a file system on a block device and mounts it read-only, where the kernel has EROFS.

        Gives the path of its one file, ``length`` bytes (whole 4 KiB) of the pattern by offset, salt 0: of a file that
        has to be read from a disk, unlike one on tmpfs.
        """
        self.command("mount_erofs", device=device, directory=directory, length=length)
        return f"{directory}/file"

    def unmount(self, directory: str) -> None:
        """``umount2(2)``."""
        self.command("unmount", directory=directory)

    def knobs(self, *paths: str) -> dict[str, str]:
        """What is selected in each of these files of sysfs: what is in brackets, or all where nothing is."""
        shown = self.run("/bin/busybox", "grep", "-H", "", *paths).stdout
        lines = (line.partition(":") for line in shown.splitlines())
        return {path: text.partition("[")[2].partition("]")[0] or text for path, _, text in lines}

    def defaults(self, policy: str | None = None) -> dict[str, str]:
        """What each knob is at the start of a test, by its path.

        Where no policy of ours decides about a hinted area, sysfs does: there the size of a contiguous block is enabled
        for hinted areas, so that ``process.blocks()`` folds on any kernel.
        """
        defaults = {f"{THP}/anon_order/policy": policy or POLICY} if self.has_policies else {}
        for name, value in self.hello.switches.items():
            # Records are kept from the start, so that a test can look back.
            if name != "record":
                defaults[f"{THP}/{name}" if name == "page_cache" else f"{THP}/anon_order/{name}"] = value
        for size in self.hello.mthp:
            block = size.size_kib * 1024 == self.layout.block and not self.has_policies
            for knob, choice in (("enabled", size.enabled), ("shmem_enabled", size.shmem_enabled)):
                if choice is not None:
                    hinted = block and knob == "enabled"
                    defaults[f"{THP}/hugepages-{size.size_kib}kB/{knob}"] = "madvise" if hinted else choice
        return defaults

    def reset(self, policy: str | None = None) -> None:
        """What every test starts from: no process, knobs as at boot, and this order policy (``variable``)."""
        self.last = None
        for info in self.command("processes")["processes"]["processes"]:
            self.command("kill", process=info["process"])
        defaults = self.defaults(policy)
        # One program reads them all; a write costs as much for each.
        selected = self.knobs(*defaults) if defaults else {}
        for path, value in defaults.items():
            if selected.get(path) != value:
                self.write(path, value)
