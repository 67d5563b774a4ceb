# SPDX-License-Identifier: GPL-2.0-only
"""Every process is reached by its pid in one way: in a guest of `folioscope boot`, in a QEMU of one's own, in a core.

A workload of the agent waits at a checkpoint; of any other its task has the table. Which pages it has mapped is what
the guest's own /proc/PID/pagemap says.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from folioscope.layout import LAYOUTS
from folioscope.model import bytes_of

from command import BOOT_SECONDS, Ended, folioscope, wait_until
from held_guest import Held
from own_qemu import Guest

pytestmark = pytest.mark.qemu

PAGE = LAYOUTS["4k"].page
# /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst). Of what is no page of memory (VM_PFNMAP: [vvar]) it says
# nothing: walk_page_test() of mm/pagewalk.c.
PRESENT = 1 << 63
PFN = (1 << 55) - 1
KTHREADD = 2
BUSYBOX = 0x400000


@dataclass(frozen=True)
class Place:
    """Where processes are: how it is named on the command line, and who asks the guest itself."""

    source: list[str]
    command: Callable[..., Any]
    pids: dict[str, int]
    live: bool

    def __call__(self, name: str, *words: object, pid: int | None = None) -> Ended:
        """A command there, for a process."""
        named = [] if pid is None else ["--pid", pid]
        return folioscope(name, *words, *self.source, *named)

    def present(self, pid: int) -> dict[int, int]:
        """The pages that the guest's kernel says are present, and their frames."""
        found = {}
        for line in self.read(f"/proc/{pid}/maps", 0, 1 << 16).decode().splitlines():
            if "[vvar" in line:
                continue
            first, end = (int(word, 16) for word in line.split()[0].split("-"))
            words = self.read(f"/proc/{pid}/pagemap", first // PAGE * 8, (end - first) // PAGE * 8)
            for index, (word,) in enumerate(struct.iter_unpack("<Q", words)):
                if word & PRESENT:
                    found[first + index * PAGE] = word & PFN
        return found

    def vvar(self, pid: int) -> range:
        """What pagemap leaves out."""
        lines = self.read(f"/proc/{pid}/maps", 0, 1 << 16).decode().splitlines()
        (line,) = (line for line in lines if line.endswith("[vvar]"))
        first, end = (int(word, 16) for word in line.split()[0].split("-"))
        return range(first, end)

    def read(self, path: str, offset: int, most: int) -> bytes:
        """A piece of a file of the guest."""
        return bytes_of(self.command("read_file", path=path, offset=offset, max=most)["file"]["content"])


def started(command: Callable[..., Any], workload: int) -> dict[str, int]:
    """Processes of each kind."""
    # A shell asks for children that have ended before it becomes another program, so this one ends later.
    program = 'sleep 1000 & echo $!; sh -c "sleep 1 & echo \\$!; exec sleep 1000" & sh -c "echo \\$\\$"; sleep 1.5'
    said = command("run", argv=["sh", "-c", program])["program"]
    pids = [int(word) for word in said["stdout"]["text"].split()]
    states = {pid: command("read_file", path=f"/proc/{pid}/stat")["file"]["content"]["text"] for pid in pids[:1]}
    assert len(pids) == 3 and ") S " in states[pids[0]], said
    other, *rest = pids
    assert wait_until(lambda: any(is_zombie(command, pid) for pid in rest), BOOT_SECONDS)
    zombie, ended = sorted(rest, key=lambda pid: not is_zombie(command, pid))
    return {"workload": workload, "other": other, "init": 1, "zombie": zombie, "ended": ended, "kernel": KTHREADD}


def is_zombie(command: Callable[..., Any], pid: int) -> bool:
    """Whether it has ended, and its parent has not asked."""
    listed = command("run", argv=["sh", "-c", f"cat /proc/{pid}/stat 2>/dev/null || true"])["program"]["stdout"]
    return ") Z " in listed.get("text", "")


@pytest.fixture(scope="module")
def ours(held: Held) -> Place:
    """In a guest that `folioscope boot` holds."""

    def command(name: str, **more: Any) -> Any:
        return held.call("command", command={name: more})

    return Place(["--guest", held.socket], command, started(command, held.pid), live=True)


@pytest.fixture(scope="module")
def theirs(own: Guest) -> Place:
    """In a QEMU of one's own."""
    return Place(["--guest", str(own.qmp)], own.command, started(own.command, own.pid), live=True)


@pytest.fixture(scope="module")
def whole(ours: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """In a core of all RAM, saved for a process that is no workload."""
    core = tmp_path_factory.mktemp("whole") / "whole.core"
    folioscope("save", "--full", *ours.source, "--pid", ours.pids["other"], core).ok()
    yield Place([str(core)], ours.command, ours.pids, live=False)
    core.unlink()


@pytest.fixture(params=["ours", "theirs", "whole"])
def there(request: pytest.FixtureRequest) -> Place:
    """Each of them."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("kind", ["workload", "other", "init"])
def test_every_command_reaches(there: Place, kind: str, tmp_path: Path) -> None:
    """check, dump, explain, save, maps, watch, page and diff: the same pages, the same frames."""
    pid = there.pids[kind]
    # The way to its first checkpoint moves a workload's memory.
    there("dump", pid=pid).ok()
    before, report = there.present(pid), tmp_path / "report.json"
    assert "ok no error found (exit status 0)" in there("check", "--json", report, pid=pid).ok()
    (step,) = json.loads(report.read_text())["steps"]
    (process,) = step["processes"]
    assert process["process"]["pid"] == pid and not process["not_judged"]
    rows = json.loads(there("dump", "--format", "json", pid=pid).ok())
    found = {int(row["va"], 16): int(row["word"], 16) >> 12 & (1 << 36) - 1 for row in rows if row["level"] == 3}
    assert process["entries"]["pages"] == len(found) > 0
    vvar = there.vvar(pid)
    found = {va: frame for va, frame in found.items() if va not in vvar}
    # init is the agent itself, and asking it moves its memory.
    if kind != "init":
        assert found == before == there.present(pid)
    first = next(iter(before))
    said = there("explain", hex(first), pid=pid).out
    assert f"{first:#x} in process {pid} (" in said and f"mapped   to {before[first] * PAGE:#015x} by level 3" in said
    maps = json.loads(folioscope("maps", pid, *there.source, "--format", "json").ok())
    assert maps["task"]["pid"] == pid
    pages = json.loads(folioscope("page", hex(before[first]), *there.source, "--format", "json").ok())
    assert (pid, first) in [(it["pid"], int(it["va"], 16)) for it in pages["pages"][0]["mapped"]]
    if not there.live:
        return
    saved = [tmp_path / "tables.core", tmp_path / "full.core"]
    there("save", saved[0], pid=pid).ok()
    there("save", "--full", saved[1], pid=pid).ok()
    for core in saved:
        folioscope("check", core, "--pid", pid).ok()
    assert "nothing happened to 1 process" in folioscope("diff", saved[0], saved[0], "--pid", pid).ok()
    folioscope("watch", pid, *there.source, "--looks", "1", "--interval", "0.01").ok()


@pytest.mark.parametrize("kind", ["kernel", "zombie", "ended"])
def test_what_has_no_memory_is_a_sentence(there: Place, kind: str, tmp_path: Path) -> None:
    """A thread of the kernel, a zombie, a process that is gone: each command says the same."""
    pid = there.pids[kind]
    commands = [there(name, *words, pid=pid) for name, *words in (["check"], ["dump"], ["explain", hex(BUSYBOX)])]
    commands.append(folioscope("maps", pid, *there.source))
    if there.live:
        saves = [["save", tmp_path / "a"], ["save", "--full", tmp_path / "b"]]
        commands += [there(name, *words, pid=pid) for name, *words in saves]
        commands.append(folioscope("watch", pid, *there.source, "--looks", "1"))
        assert not list(tmp_path.iterdir())
    no_memory = rf"process {pid} \(.+\) has no memory of its own: "
    expected = {
        "kernel": no_memory + "it is a thread of the kernel",
        "zombie": no_memory + "it has ended",
        "ended": rf"the guest has no process {pid}; `folioscope ps` lists those it has",
    }[kind]
    for ended in commands:
        assert re.fullmatch(f"folioscope: {expected}", ended.sentence()), ended.arguments


def test_a_session_reaches_every_process(held: Held, ours: Place) -> None:
    """`look` takes a pid in the place of the agent's number; what it gives can be compared, and a page be asked for."""
    pid = ours.pids["other"]
    looks = [held.call("look", pid=pid) for _ in range(2)]
    present = ours.present(pid)
    for look in looks:
        assert look["verdict"]["process"]["pid"] == pid and not look["verdict"]["findings"]
        found = {int(row["va"], 16) for row in look["entries"] if row["level"] == 3}
        assert found - set(ours.vvar(pid)) == present.keys()
    found = held.call("diff", before=looks[0]["number"], after=looks[1]["number"], pid=pid)
    assert not [it["events"] for it in found["processes"] if it["events"]] and not found["notes"]
    first = next(iter(present))
    assert held.call("folio", look=looks[1]["number"], va=first)["pages"][0]["pfn"] == present[first]
    assert held.call("look", pid=ours.pids["workload"])["verdict"]["process"]["pid"] == ours.pids["workload"]


def test_a_broken_entry_of_any_process_is_found(held: Held, ours: Place) -> None:
    """A word of a reserved type in a table of a process that is no workload: A7 by `check` and by `look`."""
    pid = ours.pids["other"]
    entries = held.call("look", pid=pid)["entries"]
    spare = next(row for row in entries if row["level"] == 3)
    used = {int(row["address"], 16) for row in entries}
    table = int(spare["address"], 16) & -PAGE
    address = next(place for place in range(table + PAGE - 8, table, -8) if place not in used)
    (word,) = held.call("words", address=hex(address), count=1)["words"]
    assert int(word, 16) == 0
    held.call("poke", pokes=[{"address": hex(address), "word": "0x1"}])
    try:
        ended = ours("check", pid=pid)
        assert ended.status == 1 and re.search(r"^ +A7 ", ended.out, re.M), ended.out
        found = {each["rule"] for each in held.call("look", pid=pid)["verdict"]["findings"]}
        # Where the table reaches beyond its VMAs, L8 is another.
        assert "A7" in found <= {"A7", "L8"}
        # Another one is none the worse for it.
        ours("check", pid=ours.pids["workload"]).ok()
    finally:
        held.call("poke", pokes=[{"address": hex(address), "word": "0x0"}])
