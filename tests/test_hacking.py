# SPDX-License-Identifier: GPL-2.0-only
"""docs/hacking.md can be followed: its paths are there, and its rule compiles and finds what it is about."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from command import ROOT

TEXT = (ROOT / "docs" / "hacking.md").read_text()
RECIPES = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
# What a recipe makes.
MADE = re.compile(r"FAMILY|NAME|l99|outcomes")
PATH = re.compile(r"`((?:vmm|guest|tests|docs)/[\w./-]+)`")


def section(recipe: str) -> str:
    """The text of a recipe."""
    return TEXT.split(f"## {recipe}\n", 1)[1].split("\n## ", 1)[0]


def test_there_are_seven() -> None:
    """Each of what the house is made of has one."""
    assert len(RECIPES) == 7


@pytest.mark.parametrize("recipe", RECIPES)
def test_paths_are_there(recipe: str) -> None:
    """Each file that a recipe names is in the tree, and so is each variant and field."""
    named = [path for path in PATH.findall(section(recipe)) if not MADE.search(path)]
    assert named
    missing = [path for path in named if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("guest/protocol/src/operation.rs", "pub enum Operation"),
        ("vmm/folioscope/src/tour.rs", "pub const WORKLOADS"),
        ("vmm/report/src/formats.rs", "pub static FORMATS"),
        ("vmm/folioscope/src/machines.rs", "pub static BACKENDS"),
        ("vmm/machine/src/lib.rs", "pub trait Machine"),
        ("vmm/folioscope/src/control/methods.rs", "methods! {"),
    ],
)
def test_what_recipes_speak_of_is_there(path: str, words: str) -> None:
    """A type that is moved or renamed takes its recipe along."""
    assert words in (ROOT / path).read_text()


def test_the_compiler_names_what_is_missing() -> None:
    """No arm of these matches takes what it does not know."""
    for path, function in [
        ("guest/agent/src/workload/mod.rs", "fn operate("),
        ("vmm/folioscope/src/machines.rs", "pub fn backend("),
        ("vmm/folioscope/src/control/methods.rs", "fn of_command("),
    ]:
        text = (ROOT / path).read_text().split(function, 1)[1].split("\n}\n", 1)[0]
        assert not re.search(r"^        _ =>", text, re.MULTILINE), path


# The crate whose tests run, which of them, and at least how many. Of a rule all tests of what rules say of themselves
# run, but for the one that compares docs/rules.md.
EXAMPLES = [
    ("A rule", "verdict", ["l99", "rules::tests", "--skip", "the_text_in_the_documentation"], 6),
    ("A report format", "report", ["outcomes", "reports"], 2),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("recipe", "crate", "which", "least"), EXAMPLES, ids=[recipe for recipe, *_ in EXAMPLES])
def test_the_example_of_a_recipe(tmp_path: Path, recipe: str, crate: str, which: list[str], least: int) -> None:
    """By the recipe alone: the patch applies, compiles, and the example's tests run."""
    (patch,) = re.findall(r"```diff\n(.*?)```", section(recipe), re.DOTALL)
    tree = tmp_path / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    for name in listed.decode().split("\0"):
        source = ROOT / name
        # Of the vendored and the large no crate needs anything.
        if name and source.is_file() and (name.startswith(("vmm/", "guest/", "tests/", "docs/")) or "/" not in name):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(source.read_bytes())
            (tree / name).chmod(source.stat().st_mode)
    apply = ["git", "apply", "--unsafe-paths", "--directory", str(tree)]
    subprocess.run(apply, cwd=tmp_path, input=patch.encode(), check=True)
    cache = Path(os.environ.get("FOLIOSCOPE_CACHE") or Path.home() / ".cache" / "folioscope")
    environment = {"CARGO_TARGET_DIR": str(cache / "cargo" / "recipes"), **os.environ}
    command = ["cargo", "test", "--locked", "--quiet", "-p", crate, "--lib", "--", *which]
    ended = subprocess.run(command, cwd=tree, env=environment, text=True, capture_output=True, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    ran = re.search(r"(\d+) passed", ended.stdout)
    assert ran and int(ran[1]) >= least, ended.stdout
