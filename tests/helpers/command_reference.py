# SPDX-License-Identifier: GPL-2.0-only
"""Writes docs/commands.md: the help of each command, from the definitions of the command line.

Usage: python tests/helpers/command_reference.py out/folioscope > docs/commands.md
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HEAD = """# Commands

The help of each command, as `folioscope COMMAND --help` prints it. Made by
`python3 tests/helpers/command_reference.py out/folioscope > docs/commands.md`.
"""
# Neither the width of a terminal nor the user's own settings are in it.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "NO_COLOR": "1"}


def help_of(program: Path, words: list[str]) -> str:
    """The long help of a command."""
    ended = subprocess.run(
        [program, *words, "--help"], env=ENVIRONMENT, check=True, capture_output=True, text=True, timeout=60
    )
    return "\n".join(line.rstrip() for line in ended.stdout.splitlines())


def sections(program: Path, words: list[str]) -> Iterator[str]:
    """A command, and all below it."""
    text = help_of(program, words)
    yield f"\n## {' '.join(['folioscope', *words])}\n\n```\n{text}\n```\n"
    listed = re.search(r"^Commands:\n((?:  .*\n|\n)+)", text + "\n", re.MULTILINE)
    for name in re.findall(r"^  ([a-z]\S*)", listed[1], re.MULTILINE) if listed else []:
        if name != "help":
            yield from sections(program, [*words, name])


def document(program: Path) -> str:
    """The whole document."""
    return HEAD + "".join(sections(program, []))


if __name__ == "__main__":
    sys.stdout.write(document(Path(sys.argv[1]).absolute()))
