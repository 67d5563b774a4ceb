# SPDX-License-Identifier: GPL-2.0-only
"""The messages that advise something: found in the sources, so that a new one is noticed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from command import ROOT

LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
VERBS = (
    "add|append|ask|attach|boot|build|check|choose|close|compare|compile|copy|end|free|give|install|join|leave|let|link|"
    "list|look|make|move|name|print|put|record|remove|rename|run|save|say|see|set|start|stop|take|try|unpack|update|use"
)
# An advice is behind what was found, or all of what is given to one place that says what was found.
ADVICE = re.compile(
    rf"(?:[;:)] (?:or |and |then )?|, or )(?:{VERBS})\b|\. Start QEMU with|\b(?:makes|builds|installs) it\b"
    r"|^(?:build it with|check the path|give (?:arch|the Image)|choose another)"
)
# What an operation of the system was for, which its error is added to; and what pytest lists of its marks.
PURPOSE = re.compile(r"^[a-z' ]+(?: \{\w*\})?$|^start to |^\w+(?:\(name\))?: (?:run the test|boot the guest)")
SCRIPTS = ("vmm/setup/*.sh", "kernel-patches/*.sh", "rootfs/*.sh", "guest/*.sh")


def rust() -> Iterator[tuple[str, str]]:
    """The file and the text of each string of the programs' own code, without its tests and comments."""
    for path in sorted(ROOT.glob("vmm/*/src/**/*.rs")):
        if "tests" in path.parts or path.stem == "tests" or path.parts[-3:-1] == ("fuzz", "src"):
            continue
        code = path.read_text().split("#[cfg(test)]")[0]
        code = re.sub(r"^\s*//.*$|'\"'", "", code, flags=re.M)
        for literal in LITERAL.findall(code):
            yield str(path.relative_to(ROOT)), re.sub(r"\\\n\s*", "", literal)


def shell() -> Iterator[tuple[str, str]]:
    """The same of what the scripts refuse with."""
    for path in sorted(path for pattern in SCRIPTS for path in ROOT.glob(pattern)):
        for words in re.findall(r"\b(?:die|fail) (?:\"([^\"]*)\"|'([^']*)')", path.read_text()):
            yield str(path.relative_to(ROOT)), "".join(words)


def plugin() -> Iterator[tuple[str, str]]:
    """The same of the plugin; what is filled in is {}."""
    for path in sorted(ROOT.glob("tests/plugin/folioscope/**/*.py")):
        tree = ast.parse(path.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield str(path.relative_to(ROOT)), "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | inner:
                yield str(path.relative_to(ROOT)), node.value


def advising() -> list[tuple[str, str]]:
    """Those that advise."""
    every = (*rust(), *shell(), *plugin())
    return [(place, text) for place, text in every if ADVICE.search(text) and not PURPOSE.match(text)]


if __name__ == "__main__":
    for place, text in advising():
        print(f"{Path(place)}: {text}")
