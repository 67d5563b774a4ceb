# SPDX-License-Identifier: GPL-2.0-only
"""docs/hacking.md can be followed: its paths are there, and each example applies, compiles and runs."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from folioscope import machines

from command import CACHE, ROOT

TEXT = (ROOT / "docs" / "hacking.md").read_text()
RECIPES = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
# What a recipe makes.
MADE = re.compile(r"FAMILY|NAME")
PATH = re.compile(r"`((?:vmm|guest|tests|docs)/[\w./-]+)`")


def section(recipe: str) -> str:
    """The text of a recipe, with its example."""
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
        ("vmm/structures/src/all.rs", "pub static STRUCTURES"),
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
        assert not re.search(r"^ +_ =>", text, re.MULTILINE), path


@dataclass(frozen=True)
class Example:
    """What runs of a recipe's example, once the tree has it."""

    # Parts of the names of its Rust tests; or its file of tests in a guest, with an expression for pytest's -k.
    rust: list[str] = field(default_factory=list)
    guest: tuple[str, str] | None = None
    machine: str = field(default_factory=machines.native)
    # The least number of tests that pass.
    least: int = 1


EXAMPLES = {
    "A rule": Example(["l99", "rules::tests::"], least=6),
    "An operation of workloads": Example(["memory_is_written_back"]),
    # Under two policies.
    "A checkpoint of the tour": Example(
        guest=("tests/tour/test_tour.py", "test_pages and twice and not other"), least=2
    ),
    "A report format": Example(["outcomes", "reports"], least=2),
    "A machine": Example(guest=("tests/guests/test_tcg_multi.py", "test_tcg_multi"), machine="tcg-multi"),
    "A kernel structure": Example(guest=("tests/command/test_first_task.py", "test_first_task")),
    "A method of the session": Example(guest=("tests/guests/test_granule.py", "test_granule")),
}
# The crates whose tests these are.
CRATES = ["verdict", "report", "folioscope-agent"]
# How all examples are compiled: few tests run, so that compiling is the cost. A crate that is touched is compiled again
# in a fifth of the time if it is incremental.
PROFILE = ["--locked", "--profile", "dev"]
COMPILED = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "1"}


def patch(recipe: str) -> bytes:
    """The example of a recipe."""
    (found,) = re.findall(r"```diff\n(.*?)```", section(recipe), re.DOTALL)
    return str(found).encode()


def apply(tree: Path, recipe: str, *options: str) -> None:
    """Applies the example of a recipe to a tree, which is no repository."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    command = ["git", "apply", "--whitespace=error", *options]
    subprocess.run(command, cwd=tree, env=environment, input=patch(recipe), check=True)


def copied(tree: Path) -> None:
    """Copies what the crates and the tests need of this checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    for name in listed.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file() and (name.startswith(("vmm/", "guest/", "tests/", "docs/")) or "/" not in name):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name)


def synchronise(source: Path, tree: Path) -> None:
    """Makes a tree the same as another. A file that does not change keeps its time, so that cargo compiles it once."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    present = {path.relative_to(tree) for path in tree.rglob("*") if path.is_file() or path.is_symlink()}
    for name in present - wanted:
        (tree / name).unlink()
    for name in wanted:
        if name not in present or (tree / name).read_bytes() != (source / name).read_bytes():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, tree / name)


@dataclass(frozen=True)
class Tree:
    """A copy of the checkout with all examples."""

    path: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Runs a command there, which has to succeed; its output."""
        ended = subprocess.run(
            command, cwd=self.path, env=self.environment, text=True, capture_output=True, check=False
        )
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
        return ended.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """One copy for all recipes, which one test run at a time uses: each crate is compiled once, and again only if
    the checkout has changed."""
    place = Path(os.environ.get("CARGO_TARGET_DIR") or CACHE / "cargo") / "recipes"
    (path := place / "tree").mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = tmp_path_factory.mktemp("recipes") / "tree"
        copied(fresh)
        for recipe in RECIPES:
            apply(fresh, recipe, "--check")
        for recipe in RECIPES:
            apply(fresh, recipe)
        synchronise(fresh, path)
        out = path / "out"
        out.mkdir(exist_ok=True)
        for built in (ROOT / "out").iterdir():
            if built.name.startswith("kernel-") or built.name == "initramfs.cpio":
                (out / built.name).symlink_to(built.resolve())
        (out / "folioscope").symlink_to(place / "target" / "debug" / "folioscope")
        tests = {
            "FOLIOSCOPE": str(out / "folioscope"),
            "FOLIOSCOPE_OUT": str(fresh.parent / "out"),
            "PYTHONPATH": str(path / "tests" / "plugin"),
        }
        environment = {**os.environ, "CARGO_TARGET_DIR": str(place / "target"), **COMPILED, **tests}
        # vmm/setup/rustc.sh tells checkouts apart. This tree has one path, and its files the times of their changes.
        environment.pop("RUSTC_WORKSPACE_WRAPPER", None)
        yield Tree(path, environment)


@pytest.fixture(scope="module")
def passed(tree: Tree) -> list[str]:
    """The Rust tests that pass, by name: one call of cargo, so that each crate is compiled once."""
    crates = [word for crate in CRATES for word in ("-p", crate)]
    names = [name for example in EXAMPLES.values() for name in example.rust]
    # It compares docs/rules.md, which is made after the rule.
    names += ["--skip", "the_text_in_the_documentation"]
    ended = tree.run("cargo", "test", *PROFILE, *crates, "--lib", "--test", "stdio", "--", *names)
    return re.findall(r"^test (\S+) \.\.\. ok$", ended, re.MULTILINE)


@pytest.fixture(scope="module")
def passed_in_guests(tree: Tree) -> list[str]:
    """The tests in guests that pass, by file and name: one call of pytest for each machine, with one guest for all."""
    tree.run("cargo", "build", *PROFILE, "--quiet", "-p", "folioscope")
    passed = []
    for machine in sorted({example.machine for example in EXAMPLES.values()}):
        chosen = [example.guest for example in EXAMPLES.values() if example.guest and example.machine == machine]
        which = ["-k", " or ".join(f"({expression})" for _, expression in chosen), *(file for file, _ in chosen)]
        options = ["-v", "-n", "0", "-p", "no:cacheprovider", "--granule", "4k", "--machine", machine]
        ended = tree.run(sys.executable, "-m", "pytest", *options, *which)
        passed += re.findall(r"^(tests/\S+) PASSED", ended, re.MULTILINE)
    return passed


def test_each_recipe_has_an_example() -> None:
    """And each example runs something."""
    assert list(EXAMPLES) == RECIPES
    assert all(bool(example.rust) != bool(example.guest) for example in EXAMPLES.values())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", [recipe for recipe, example in EXAMPLES.items() if example.rust])
def test_the_example_of_a_recipe(passed: list[str], recipe: str) -> None:
    """By the recipe alone: its patch, which applies by itself, compiles beside the others, and its tests pass."""
    example = EXAMPLES[recipe]
    found = [name for name in passed if any(part in name for part in example.rust)]
    assert len(found) >= example.least, passed


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recipe", [recipe for recipe, example in EXAMPLES.items() if example.guest])
def test_the_example_of_a_recipe_in_a_guest(passed_in_guests: list[str], recipe: str) -> None:
    """The same, of what needs a guest."""
    example = EXAMPLES[recipe]
    assert example.guest
    found = [name for name in passed_in_guests if name.startswith(f"{example.guest[0]}::")]
    assert len(found) >= example.least, passed_in_guests
