# SPDX-License-Identifier: GPL-2.0-only
"""What the command says of itself: help, rules, completions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from command import COMMAND, ROOT, folioscope
from command_reference import document, sections
from test_reports import COLUMNS

SUBCOMMANDS = ["run", "boot", "attach", "dump", "check", "explain", "save", "schema", "rules", "completions", "bench"]
SUBCOMMANDS += ["session", "image", "ps", "maps", "page", "kernel", "diff", "watch", "record", "lab", "matrix"]
SUBCOMMANDS += ["series", "reply"]


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_has_an_example(name: str) -> None:
    """And the example names the subcommand."""
    assert re.search(rf"^Example: .*folioscope {name}", folioscope(name, "--help").ok(), re.MULTILINE)


def test_help_lists_subcommands_and_exit_statuses() -> None:
    """All that is tested here, at least."""
    said = folioscope("--help").ok()
    listed = re.findall(r"^  ([a-z]+) ", said, re.MULTILINE)
    assert set(SUBCOMMANDS) <= set(listed)
    assert "Exit status: 0 no error found; 1 errors found; 2 could not be judged." in said


def test_rules_are_those_of_the_documentation() -> None:
    """The document is docs/rules.md; on a terminal each rule has its paragraph, in lines that fit."""
    document = folioscope("rules", "--markdown").ok()
    assert document == (ROOT / "docs" / "rules.md").read_text()
    said = folioscope("rules").ok().splitlines()
    names = re.findall(r"^## (\S+): ", document, re.MULTILINE)
    assert names[0] == "A1" and {"L5", "C1", "K2"} <= set(names)
    assert [line.split()[0] for line in said if line and not line.startswith(" ")] == names
    assert max(map(len, said)) <= COLUMNS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell: str) -> None:
    """They name the subcommands, and the shell, where it is here, can read them."""
    said = folioscope("completions", shell).ok()
    assert all(name in said for name in SUBCOMMANDS)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=said, text=True, check=True, timeout=30)
    else:
        assert shell != "bash"


def test_the_command_reference() -> None:
    """docs/commands.md has the help of each command, and of those below them."""
    how = "run: python3 tests/helpers/command_reference.py out/folioscope > docs/commands.md"
    assert document(COMMAND) == (ROOT / "docs" / "commands.md").read_text(), how
    found = "".join(sections(COMMAND, []))
    assert all(f"\n## folioscope {name}\n" in found for name in [*SUBCOMMANDS, "carrier exec"])


def test_the_version_has_the_commit() -> None:
    """The last one that changed the sources, where the build knew it."""
    assert re.fullmatch(r"folioscope \d+\.\d+\.\d+( \([0-9a-f]{12}(-modified)?\))?\n", folioscope("--version").ok())
    manifest = (ROOT / "Cargo.toml").read_text()
    assert f'version = "{folioscope("--version").ok().split()[1]}"\n' in manifest


def test_man_pages(tmp_path: Path) -> None:
    """One for each command, with its options and its example, in a directory that is made."""
    place = tmp_path / "man" / "man1"
    folioscope("man", place).ok()
    pages = {path.name for path in place.iterdir()}
    assert pages >= {"folioscope.1", "folioscope-carrier-exec.1", *(f"folioscope-{name}.1" for name in SUBCOMMANDS)}
    assert "folioscope-man.1" not in pages
    check = (place / "folioscope-check.1").read_text()
    assert ".TH " in check and "\\-\\-json" in check and "Example: folioscope check" in check.replace("\\-", "-")
