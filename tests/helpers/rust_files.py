# SPDX-License-Identifier: GPL-2.0-only
"""Which file of a Rust crate uses which, by their paths as text: imports, and paths in the code."""

from __future__ import annotations

import re
from pathlib import Path

from command import ROOT

COMMENT = re.compile(r"//[^\n]*")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod tests \{.*\Z", re.DOTALL)
USE = re.compile(r"\b(pub(?:\([^)]*\))? )?use ([^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
RENAMED = re.compile(r"\s+as\s+\w+")


def crates() -> list[Path]:
    """The folders of the sources of all crates."""
    found = [path.parent for path in ROOT.glob("vmm/**/src/lib.rs")] + list(ROOT.glob("guest/*/src"))
    return sorted(path for path in set(found) if "fuzz" not in path.parts)


def modules(crate: Path) -> dict[str, str]:
    """The text of each file by its module's path (``""`` is the crate), without comments and tests."""
    found = {}
    for file in crate.rglob("*.rs"):
        parts = list(file.relative_to(crate).with_suffix("").parts)
        if parts[-1] in ("mod", "lib", "main"):
            parts.pop()
        if not any(part in ("tests", "testing") or part.endswith("_tests") for part in parts):
            found["::".join(parts)] = TESTS.sub("", COMMENT.sub("", file.read_text()))
    return found


def paths(tree: str) -> list[str]:
    """The paths that a ``use`` names, braces written out."""
    before, brace, inner = tree.strip().partition("{")
    if not brace:
        return [RENAMED.sub("", before)]
    items, depth, item = [], 0, ""
    for letter in inner.rpartition("}")[0]:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            items.append(item)
            item = ""
        else:
            item += letter
    return [path for item in [*items, item] if item.strip() for path in paths(before + item.strip())]


class Crate:
    """The modules of a crate, and what each hands on of others."""

    def __init__(self, crate: Path) -> None:
        self.texts = modules(crate)
        self.handed: dict[tuple[str, str], str] = {}
        for module, text in self.texts.items():
            for public, tree in USE.findall(text):
                for path in paths(tree) if public else []:
                    self.handed[module, path.rpartition("::")[2]] = self.module_of(module, path) or module

    def module_of(self, module: str, path: str) -> str | None:
        """The module that defines what a path in a module means; None where it is another crate's."""
        here, parts = module.split("::") if module else [], path.split("::")
        if parts[0] == "crate":
            here, parts = [], parts[1:]
        elif parts[0] == "self":
            parts = parts[1:]
        elif parts[0] == "super":
            while parts and parts[0] == "super":
                here, parts = here[:-1], parts[1:]
        elif "::".join([*here, parts[0]]) not in self.texts:
            return None
        while parts and "::".join([*here, parts[0]]) in self.texts:
            here, parts = [*here, parts[0]], parts[1:]
        found = "::".join(here)
        return self.handed.get((found, parts[0]), found) if parts else found

    def arrows(self) -> dict[str, set[str]]:
        """From each file to those that it uses. What a file only hands on it does not use."""
        arrows: dict[str, set[str]] = {}
        for module, text in self.texts.items():
            handed = {path for public, tree in USE.findall(text) if public for path in paths(tree)}
            code = USE.sub("", text)
            named = {path for _, tree in USE.findall(text) for path in paths(tree)} | set(PATH.findall(code))
            used = (path for path in named if path not in handed or re.search(rf"\b{path.split('::')[-1]}\b", code))
            # The crate's own file hands on, and every file may use what it does.
            of = {self.module_of(module, path) for path in used}
            arrows[module] = {to for to in of if to} - {module} if module else set()
        return arrows


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Files that lead to each other."""
    reached: dict[str, set[str]] = {}
    for start in arrows:
        seen: set[str] = set()
        left = [start]
        while left:
            for to in arrows.get(left.pop(), set()) - seen:
                seen.add(to)
                left.append(to)
        reached[start] = seen
    found: list[set[str]] = []
    for file in sorted(arrows):
        circle = {other for other in reached[file] if file in reached.get(other, set())}
        if circle and circle not in found:
            found.append(circle)
    return found


PUBLIC = re.compile(r"^\s*pub (?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)
# Programs: no other crate uses their types.
PROGRAMS = {"folioscope", "recorder-plugin", "carrier", "agent"}


def public_types() -> dict[str, set[str]]:
    """The library crates that define a public type of this name, by name; without tests."""
    found: dict[str, set[str]] = {}
    for crate in crates():
        name = crate.relative_to(ROOT).parts[1]
        if name not in PROGRAMS:
            for text in modules(crate).values():
                for of in PUBLIC.findall(text):
                    found.setdefault(of, set()).add(name)
    return found
