# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of tests that a cell can have: the program of each, what it is made of, and how its files are read."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .. import locate
from .cell import Work
from .errors import Lost, Refused

QEMU = "qemu-system-aarch64"
#: What ``folioscope boot`` and its like keep of a guest that was lost.
_BUNDLE = "why.txt"
PLUGIN = "librecorder_plugin.so"
_CELLS = ("green", "red", "not_judged", "left_out")
REPORT, JUNIT, PAGE, CONSOLE = "report.json", "junit.xml", "report.html", "said.txt"


@dataclass(frozen=True)
class Read:
    """What a test's files come to."""

    outcome: str
    status: int
    summary: str
    rules: dict[str, int] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of test."""

    name: str
    about: str
    #: Its settings: what JSON's schema says of each.
    settings: Mapping[str, dict[str, Any]]
    #: The programs and files that make its result, by name.
    parts: Callable[[Mapping[str, Any], Path], Mapping[str, Path]]
    #: Its command line; it runs in the directory of the command ``folioscope``, and writes into ``place``.
    words: Callable[[Work, Path, Mapping[str, Path]], Sequence[str]]
    read: Callable[[Path, int, str], Read]
    has_kernel: bool = True


def _rig(*_: object) -> dict[str, Path]:
    """The command, the initramfs, and QEMU."""
    try:
        found = locate.command()
    except locate.CommandNotFound as error:
        raise Refused(str(error)) from error
    qemu = shutil.which(QEMU)
    if qemu is None:
        raise Refused(f"expected {QEMU} on PATH and found none; install Debian's qemu-system-arm")
    return {"folioscope": found.path, locate.BESIDE: found.directory / "out" / locate.BESIDE, QEMU: Path(qemu)}


def _recorded(settings: Mapping[str, Any], _: Path) -> dict[str, Path]:
    """The recorder's plugin too, where sequences are judged."""
    parts = _rig()
    if settings.get("record"):
        parts["recorder"] = locate.command().directory / "out" / PLUGIN
        if not parts["recorder"].exists():
            raise Refused(
                f"expected the recorder's plugin at {parts['recorder']} and found none; "
                "make run RECORD=1 builds it, or leave `record` out"
            )
    return parts


def _machine(work: Work) -> list[str]:
    axes = work.axes
    words = ["--machine", axes["machine"], "--cpu", axes["cpu"], "--memory", axes["memory"], "--smp", axes["smp"]]
    words += [f"--append={axes['append']}"] if axes["append"] else []
    return words + (["--policy", axes["policy"]] if axes["policy"] else [])


def _kernel(kernel: Mapping[str, Path], option: str = "--") -> list[str]:
    words = [f"{option}kernel", str(kernel["Image"])]
    return words + ([f"{option}vmlinux", str(kernel["vmlinux"])] if "vmlinux" in kernel else [])


def _played(command: str) -> Callable[[Work, Path, Mapping[str, Path]], list[str]]:
    """The command line of ``folioscope run`` and its like."""

    def words(work: Work, place: Path, kernel: Mapping[str, Path]) -> list[str]:
        settings = work.content["test"]
        more = [f"--{name}={settings[name]}" for name in ("only", "depth", "sample", "seed") if name in settings]
        more += [f"--{name}" for name in ("quick", "record") if settings.get(name)]
        reports = [f"--json={place / REPORT}", f"--junit={place / JUNIT}", f"--html={place / PAGE}"]
        more += reports if command == "run" else reports[:1]
        found = str(locate.command().path)
        return [found, command, *_kernel(kernel), *_machine(work), f"--out={place / 'guests'}", *more]

    return words


def _verdict(place: Path, status: int, said: str) -> Read:
    """The verdict of ``folioscope``, by its report."""
    for bundle in sorted(place.rglob(_BUNDLE)):
        raise Lost(f"the guest was lost: {' '.join(bundle.read_text().split())}")
    try:
        report = json.loads((place / REPORT).read_text())
        totals = report["totals"]
        rules = {str(name): int(count) for name, count in totals["rules"].items()}
        pages, contiguous = _pages(report)
    except (OSError, ValueError, KeyError, TypeError) as error:
        lines = [line for line in said.splitlines() if line.startswith("folioscope: ")]
        why = lines[-1].removeprefix("folioscope: ") if lines else f"status {status} and no report"
        raise Lost(why) from error
    summary = next(iter(re.findall(r"^\d+ checkpoints?, .*", said, re.MULTILINE)), f"{totals['errors']} errors")
    figures = {"steps": float(totals["steps"]), "errors": float(totals["errors"])}
    if pages:
        figures["coverage"] = contiguous / pages
    outcome = {0: "unjudged" if totals.get("not_judged") else "pass", 1: "fail"}.get(status, "unjudged")
    if crossing := report.get("crossing"):
        played = Counter(str(each["outcome"]) for row in crossing["rows"] for each in row["cells"])
        figures |= {name: float(count) for name, count in sorted(played.items())}
    return Read(outcome, status, str(report.get("reason") or summary), rules, figures)


def enough(read: Read, settings: Mapping[str, Any]) -> Read:
    """What a crossing comes to by the share of its cells that have to be green: too few say nothing of the kernel."""
    green, all_cells = read.figures.get("green", 0.0), sum(read.figures.get(name, 0.0) for name in _CELLS)
    if read.outcome != "pass" or green >= settings.get("least", 0) * all_cells:
        return read
    summary = f"expected {settings['least']:.0%} of {all_cells:.0f} cells to be green and found {green:.0f}"
    return replace(read, outcome="unjudged", summary=summary)


def _pages(report: Mapping[str, Any]) -> tuple[int, int]:
    """Pages that were mapped at the checkpoints, and those of them in contiguous blocks."""
    entries = [process["entries"] for step in report["steps"] for process in step["processes"]]
    return sum(one["pages"] for one in entries), sum(one["contiguous_pages"] for one in entries)


def _selected(settings: Mapping[str, Any], directory: Path, setting: str = "select") -> dict[str, Path]:
    """The files and directories of a pytest selection, by the words that select tests in them."""
    words = settings.get(setting, [])
    found = {word: directory / Path(word.partition("::")[0]).expanduser() for word in words}
    for path in found.values():
        if not path.exists():
            what = "tests" if setting == "select" else "what the tests read"
            raise Refused(f"expected {what} at {path} and found none; check `{setting}` in the matrix")
    return found


def _pytest_parts(settings: Mapping[str, Any], directory: Path) -> dict[str, Path]:
    selected = _selected(settings, directory)
    beside = {path.parent / "conftest.py" for path in selected.values()}
    tests = {path.name: path for path in (*selected.values(), *(each for each in beside if each.is_file()))}
    needed = _selected(settings, directory, "needs")
    return {**_rig(), "package": Path(__file__).parent.parent, **tests, **needed}


def _pytest_words(work: Work, place: Path, kernel: Mapping[str, Path]) -> list[str]:
    axes, settings, option = work.axes, work.content["test"], "--folioscope-"
    words = [sys.executable, "-m", "pytest", "-p", "folioscope.plugin", "-p", "no:cacheprovider", "-q"]
    for word, path in _selected(settings, Path(work.directory)).items():
        words.append(f"{path}{word[len(word.partition('::')[0]) :]}")
    words += [f"{option}{name}={axes[name]}" for name in ("cpu", "machine", "memory", "smp")]
    words += [f"{option}policy={axes['policy']}"] if axes["policy"] else []
    words += [f"{option}append={axes['append']}"] if axes["append"] else []
    words += ["-k", settings["keyword"]] if "keyword" in settings else []
    return [*words, f"--junit-xml={place / JUNIT}", *_kernel(kernel, option)]


def _pytest_read(place: Path, status: int, said: str) -> Read:
    """The verdict of pytest, by its JUnit. Status 5 is that no test was chosen."""
    try:
        root = ElementTree.parse(place / JUNIT).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise Lost(f"pytest ended with status {status} and no report") from error
    suites = list(root.iter("testsuite"))
    count = {
        name: sum(int(each.get(name, 0)) for each in suites) for name in ("tests", "failures", "errors", "skipped")
    }
    summary = said.strip().splitlines()[-1].strip("= ") if said.strip() else ""
    outcome = "pass" if status == 0 else "fail" if status == 1 and count["failures"] else "unjudged"
    if outcome == "pass" and count["tests"] == count["skipped"]:
        outcome = "unjudged"
    return Read(outcome, status, summary, figures={name: float(value) for name, value in count.items()})


def _costs_script() -> Path:
    root = locate.checkout()
    if root is None:
        raise Refused("costs are counted by a script of a checkout of folioscope and this is none; leave costs out")
    return root / "kernel-patches" / "tests" / "costs.sh"


def _costs_parts(*_: object) -> dict[str, Path]:
    script = _costs_script()
    sources = {path.name: path for path in (script, script.with_name("guest.sh"), script.with_name("init.c"))}
    return {**sources, **{path.name: path for path in script.parent.glob("*.h")}, QEMU: _rig()[QEMU]}


def _costs_words(work: Work, _: Path, kernel: Mapping[str, Path]) -> list[str]:
    return [str(_costs_script()), str(kernel["Image"]), work.axes["cpu"]]


def _costs_read(_: Path, status: int, said: str) -> Read:
    """Instructions of a page and faults by policy, of the second round: the first one sets up what later ones find."""
    found: dict[str, float] = {}
    for policy, instructions, faults in re.findall(
        r"^# (\w+), record 0: (\d+) ns per page, (\d+) faults", said, re.MULTILINE
    ):
        found[f"{policy} instructions"], found[f"{policy} faults"] = float(instructions), float(faults)
    if status or not found:
        raise Lost((said.strip().splitlines() or [f"no costs were counted, status {status}"])[-1])
    return Read("pass", 0, f"costs of {len(found) // 2} policies", figures=found)


def _wait_words(work: Work, _: Path, __: Mapping[str, Path]) -> list[str]:
    return ["sleep", str(work.content["test"].get("seconds", 0))]


def _wait_read(_: Path, status: int, __: str) -> Read:
    if status:
        raise Lost(f"it ended with status {status}")
    return Read("pass", 0, "waited")


_WORD = {"type": "string"}
_FLAG = {"type": "boolean"}
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("tour", "`folioscope run`", {"only": _WORD, "record": _FLAG}, _recorded, _played("run"), _verdict),
        Kind(
            "crossing",
            "`folioscope cross`",
            {
                "only": _WORD,
                **dict.fromkeys(("depth", "sample", "seed"), {"type": "integer"}),
                **dict.fromkeys(("quick", "record"), _FLAG),
                "least": {"type": "number"},
            },
            _recorded,
            _played("cross"),
            _verdict,
        ),
        Kind(
            "pytest",
            "tests of your own",
            {"select": {"type": "array", "items": _WORD}, "keyword": _WORD, "needs": {"type": "array", "items": _WORD}},
            _pytest_parts,
            _pytest_words,
            _pytest_read,
        ),
        Kind("costs", "what a fault costs, by QEMU's count", {}, _costs_parts, _costs_words, _costs_read),
        Kind(
            "wait",
            "nothing, for so many seconds: it tries an engine and a store",
            {"seconds": {"type": "number"}, "number": {"type": "integer"}},
            lambda *_: {},
            _wait_words,
            _wait_read,
            has_kernel=False,
        ),
    )
}
