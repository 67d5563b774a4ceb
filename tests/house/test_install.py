# SPDX-License-Identifier: GPL-2.0-only
"""The plugin as a package: installed in a fresh environment, used from anywhere, by its documentation's examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command import COMMAND, ROOT

pytestmark = pytest.mark.network

# A test that has nothing to do with guests, and a fixture whose name is like one of our dimensions.
OTHER = """
import pytest

@pytest.fixture
def policy(): return 1

def test_other(policy): assert policy == 1
"""
INSTALL_SECONDS = 300
RUN_SECONDS = 300


def examples(document: Path) -> dict[str, str]:
    """The files of a document in Python and C, by the name in their first line; not programs that start workers."""
    blocks = re.findall(r"^```(?:python|c)\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    named = {}
    for block in blocks:
        if re.match(r"# \w+_workers\.py\n", block):
            continue
        name = re.match(r"(?:# (?=test_\w+\.py\n)|/\* (?=\w+\.c \*/\n))(\S+)", block)
        assert name, f"an example of {document.name} does not begin with its file's name:\n{block}"
        named[name[1]] = block
    return named


def environment(**more: str) -> dict[str, str]:
    """A user's: nothing of ours is in it."""
    ours = ("FOLIOSCOPE", "PYTHONPATH", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the package and what it needs."""
    place = tmp_path_factory.mktemp("venv")
    python = place / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=INSTALL_SECONDS)
    # The checkout stays as it is: what a build leaves behind is left in a copy.
    copy = tmp_path_factory.mktemp("source") / "plugin"
    subprocess.run(["cp", "-r", str(ROOT / "tests" / "plugin"), str(copy)], check=True)
    words = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(copy)]
    made = subprocess.run(words, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    assert made.returncode == 0, made.stderr
    return python


def run(python: Path, where: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Pytest of that environment, in a directory of the user's."""
    words = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        words, cwd=where, env=environment(**variables), check=False, capture_output=True, text=True, timeout=RUN_SECONDS
    )


def test_examples_run_from_anywhere(installed: Path, tmp_path: Path) -> None:
    """All complete examples of the documents, as their reader would run them."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    files = {name: text for document in documents for name, text in examples(document).items()}
    assert len(files) >= 12
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = run(installed, tmp_path, "--folioscope-granule", "4k", "-v", FOLIOSCOPE=str(COMMAND))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "passed" in ran.stdout and "skipped" not in ran.stdout, ran.stdout
    for name in (name for name in files if name.endswith(".py")):
        assert re.search(rf"^{name}::test_\w+\[.*4k.*\] PASSED", ran.stdout, re.MULTILINE), ran.stdout
    # Logs are beside the tests, and nothing else is.
    assert {path.name for path in tmp_path.iterdir()} == {*files, "folioscope-out"}


def test_the_command_is_found_on_path(installed: Path, tmp_path: Path) -> None:
    """By a link as well, and where it is not, one sentence says what to do."""
    ask = "from folioscope.locate import command; found = command(); print(found.path, found.directory)"
    words = [str(installed), "-c", ask]
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "folioscope").symlink_to(COMMAND)

    def located(**variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=environment(**variables), check=False, capture_output=True, text=True, timeout=60
        )

    by_path = located(PATH=f"{bin_}:{os.environ['PATH']}")
    assert by_path.stdout.split() == [str(bin_ / "folioscope"), str(ROOT)], by_path.stderr
    named = located(FOLIOSCOPE=str(COMMAND), PATH="/usr/bin:/bin")
    assert named.stdout.split() == [str(COMMAND), str(ROOT)], named.stderr
    assert "make build" in located(PATH="/usr/bin:/bin").stderr
    assert "found no program there" in located(FOLIOSCOPE="/nonexistent").stderr


def test_it_is_typed_and_bothers_nobody(installed: Path, tmp_path: Path) -> None:
    """A marker for type checkers is in it; a test that is none of its own runs without the command."""
    where = subprocess.run(
        [str(installed), "-c", "import folioscope; print(folioscope.__path__[0])"],
        cwd=tmp_path,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert (Path(where) / "py.typed").exists() and "site-packages" in where
    (tmp_path / "test_other.py").write_text(OTHER)
    ran = run(installed, tmp_path, "--fixtures", "-v", PATH="/usr/bin:/bin")
    ours = re.findall(r"^(\w+)(?: \[.*\])? -- .*folioscope/plugin", ran.stdout, re.MULTILINE)
    assert len(ours) >= 6 and all(name.startswith("folioscope_") for name in ours), ran.stdout
    assert run(installed, tmp_path, PATH="/usr/bin:/bin").returncode == 0
