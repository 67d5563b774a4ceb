# SPDX-License-Identifier: GPL-2.0-only
"""What messages and documents tell their reader to do can be done: the commands, options, scripts and goals exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import advice
from command import BOOT_SECONDS, ROOT, folioscope
from test_readme import commands as document_commands
from test_stock_kernel import Kernel, stock

# Goals of the kernel's Makefile that are named.
KERNELS_OWN = {"make mrproper", "make allnoconfig"}
# Options of other programs that are named, each with whose it is; and the label of QEMU's gdb stub.
OF_OTHERS = {"carrier": "vmm/setup/build.sh", "mem": "kvmtool", "params": "kvmtool", "gdb": "QEMU's label"}
# What stands before a command in a sentence.
BEFORE = r"(?:: |`|\bsee |\bwith |\bby )"


@cache
def commands() -> dict[str, set[str]]:
    """The options of each command, of those within others too; of the command itself under its name."""
    found = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop()
        text = folioscope(*words, "--help").ok()
        found[" ".join(words)] = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", text))
        listed = re.search(r"^Commands:\n((?: .*\n|\n)*)", text, re.M)
        names = re.findall(r"^  ([a-z][a-z-]*)", listed[1], re.M) if listed else []
        waiting += [(*words, name) for name in names if name != "help"]
    return found


def test_commands_and_options_that_messages_name() -> None:
    """`folioscope WORD`, and every `--option` behind it or in the sentence."""
    known = commands()
    options = set().union(*known.values()) | OF_OTHERS.keys()
    named, missing = 0, []
    for place, text in advice.rust():
        for word in re.findall(BEFORE + r"folioscope ([a-z]+)\b", text):
            named += 1
            # One that is for packagers is in no list of commands.
            if word not in known and folioscope(word, "--help").status:
                missing.append((place, f"folioscope {word}", text))
        for option in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", text):
            named += 1
            if option not in options:
                missing.append((place, f"--{option}", text))
    assert named > 60 and missing == []


def test_scripts_and_goals_that_messages_name() -> None:
    """`vmm/setup/NAME.sh` and `make GOAL`."""
    goals = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.M))
    named, missing = 0, []
    for place, text in advice.rust():
        for script in re.findall(r"vmm/setup/[\w-]+\.sh", text):
            named += 1
            if not (ROOT / script).is_file():
                missing.append((place, script))
        for goal in re.findall(BEFORE + r"make ([a-z][a-z0-9-]*)", text):
            named += 1
            if goal not in goals:
                missing.append((place, f"make {goal}", text))
    assert named > 4 and missing == []
    assert "--carrier" in (ROOT / OF_OTHERS["carrier"]).read_text()


@cache
def of_python() -> set[str]:
    """Options of the commands that are programs in Python: campaigns and the laboratory."""
    sources = (ROOT / "tests" / "plugin" / "folioscope").rglob("*.py")
    return {each for path in sources for each in re.findall(r'"--([a-z][a-z0-9-]*)"', path.read_text())}


def told_by(document: Path) -> list[str]:
    """The lines of its blocks of commands, and what it has in backticks."""
    text = document.read_text()
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [*document_commands(text), *(re.sub(r"\s+", " ", code) for code in re.findall(r"`([^`]+)`", plain))]


def unknown(line: str) -> Iterator[str]:
    """What a command line names and is not there."""
    makefile = (ROOT / "Makefile").read_text()
    if match := re.match(r"(?:out/|\w+=\S+ )*folioscope ([a-z]+)\b(.*)", line):
        name, rest = match[1], match[2].partition(" -- ")[0]
        below = [words for words in commands() if words.split()[:1] == [name]]
        said = folioscope(name, "--help")
        # One that is for packagers is in no list of commands.
        if said.status:
            yield f"folioscope {name}"
        options = set().union(*(commands()[words] for words in below))
        if "<WORD>..." in said.out:
            options |= of_python()
        yield from (f"--{each}" for each in re.findall(r"(?<!\S)--([a-z][a-z0-9-]*)", rest) if each not in options)
    if match := re.match(r"make ([a-z][a-z0-9-]*)", line):
        if line not in KERNELS_OWN and not re.search(rf"^{match[1]}:", makefile, re.M):
            yield line
        variables = makefile + (ROOT / "docs" / "environment.md").read_text()
        yield from (each for each in re.findall(r" ([A-Z_]+)=", line) if not re.search(rf"\b{each}\b", variables))
    script = re.match(r"(?:vmm|kernel-patches|rootfs|guest)/[\w/-]+\.sh\b", line)
    if script and not (ROOT / script[0]).is_file():
        yield script[0]


def test_commands_that_documents_name() -> None:
    """In blocks and in sentences of each document but that of releases, which are of their day."""
    patterns = ("*.md", "docs/**/*.md", "*/README.md", "tests/*/README.md")
    documents = [path for pattern in patterns for path in ROOT.glob(pattern) if path.name != "CHANGELOG.md"]
    lines = [(str(path.relative_to(ROOT)), line) for path in documents for line in told_by(path)]
    assert sum(bool(re.match(r"out/folioscope|folioscope|make ", line)) for _, line in lines) > 250
    missing = [(path, line, each) for path, line in lines for each in unknown(line)]
    assert missing == []


@pytest.mark.parametrize(
    "line",
    ["out/folioscope tape", "folioscope run --none anon", "make none", "make run NONE=4k", "vmm/setup/none.sh"],
)
def test_what_is_not_there_is_seen(line: str) -> None:
    """One fault each."""
    assert len(list(unknown(line))) == 1


@cache
def plain_kernel() -> str:
    """A kernel without our policies."""
    return str(stock(Kernel("4k", "6.12")))


# Words that are refused, the advice in the sentence, and the words that it comes to. KERNEL is one of Debian's.
REFUSED = [
    ("--granule 16k --cpu cortex-a72", "choose another CPU (max, neoverse-n1)", "--granule 16k --cpu neoverse-n1"),
    ("--hugepages", "leave it out", ""),
    ("--icount --tcg-thread multi", "leave one of them out", "--icount"),
    ("--icount --tcg-thread multi", "leave one of them out", "--tcg-thread multi"),
    ("--record --machine kvm", "leave --machine out or say --machine tcg", "--record --machine tcg"),
    ("--record --icount", "leave that out", "--record"),
    ("--policy retry --kernel KERNEL", "leave POLICY out", "--kernel KERNEL"),
]


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.network
@pytest.mark.parametrize(("words", "told", "instead"), REFUSED)
def test_what_a_refusal_advises_is_done(words: str, told: str, instead: str, tmp_path: Path) -> None:
    """The workload is played then, with nothing wrong."""
    options = ["run", "--only", "anon", "--out", str(tmp_path)]
    given = [plain_kernel() if word == "KERNEL" else word for word in words.split()]
    assert told in folioscope(*options, *given).sentence()
    given = [plain_kernel() if word == "KERNEL" else word for word in instead.split()]
    ended = folioscope(*options, *given, seconds=4 * BOOT_SECONDS)
    assert ended.status == 0, ended.out + ended.err
