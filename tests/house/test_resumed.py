# SPDX-License-Identifier: GPL-2.0-only
"""``--resume`` leaves out what has passed on the same content, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import resumed
from resumed import Content

pytest_plugins = ["pytester"]

TESTS = """
    import os, pytest

    def test_good(): pass

    @pytest.mark.parametrize("which", ["a", "b b"])
    def test_each(which): pass

    def test_bad(): assert os.environ.get("MENDED")

    def test_skipped(): pytest.skip("not here")

    @pytest.fixture
    def torn():
        yield
        assert os.environ.get("MENDED")

    def test_torn(torn): pass
"""
CONFTEST = """
    from pathlib import Path
    import resumed

    def pytest_addoption(parser):
        resumed.add_options(parser)
        parser.addoption("--folioscope-append")

    def pytest_configure(config):
        resumed.register(config, Path(__file__).parent)
"""


@pytest.fixture
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A checkout with tests, of which some fail, and a cache of its own."""
    here = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{here / 'helpers'}:{here / 'plugin'}")
    monkeypatch.setenv("FOLIOSCOPE_CACHE", str(pytester.path / "cache"))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    (pytester.path / ".gitignore").write_text("cache\n__pycache__\n.pytest_cache\nout\n*.log\n")
    subprocess.run(["git", "init", "-q", str(pytester.path)], check=True, timeout=60)
    return pytester


def run(user: pytest.Pytester, *options: str) -> dict[str, int]:
    """How many ended how, and how many were left out."""
    ended = user.runpytest_subprocess("-p", "no:folioscope", *options, timeout=120)
    said = [line for line in ended.outlines if "have passed on this content before" in line]
    return {**ended.parseoutcomes(), "status": int(ended.ret), "left out": int(said[0].split()[0]) if said else 0}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_has_passed_is_left_out(user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str) -> None:
    """What failed, in its teardown too, and what was skipped runs again; then nothing is left, and that is good."""
    words = ("--resume", "-n", workers)
    first = run(user, *words)
    assert (first["passed"], first["failed"], first["errors"], first["skipped"]) == (4, 1, 1, 1)
    assert (first["status"], first["left out"]) == (1, 0)
    again = run(user, *words)
    assert (again["passed"], again["failed"], again["errors"], again["skipped"]) == (1, 1, 1, 1)
    assert (again["status"], again["left out"]) == (1, 3)
    monkeypatch.setenv("MENDED", "1")
    mended = run(user, *words)
    assert (mended["passed"], mended["skipped"], mended["status"], mended["left out"]) == (2, 1, 0, 3)
    rest = run(user, *words, "--deselect", "test_what_has_passed_is_left_out.py::test_skipped")
    assert (rest["status"], rest["left out"]) == (0, 5) and "passed" not in rest
    # Without the option, and with the other, all of them run.
    assert run(user, "-n", workers)["passed"] == 5
    assert run(user, *words, "--afresh")["passed"] == 5


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_failed_is_told_at_once(user: pytest.Pytester, workers: str) -> None:
    """With all that it said, once, and of every run, also of one that is stopped."""
    stopped = ("--resume", "-n", workers, "--maxfail", "1", "-k", "test_bad or test_torn")
    run(user, *stopped)
    first = (user.path / resumed.FAILED).read_text()
    assert first.startswith("==== ") and "::test_bad, call\n" in first
    assert first.count('assert os.environ.get("MENDED")') == len(first.split("==== ")) - 1
    run(user, "--resume", "-n", workers)
    both = (user.path / resumed.FAILED).read_text()
    assert both.startswith(first) and both[len(first) :].count("==== ") == 2 and "::test_torn, teardown\n" in both
    assert "test_good" not in both and "test_skipped" not in both


def test_a_later_test_finds_what_was_told(user: pytest.Pytester) -> None:
    """At once is before the next test begins."""
    later = (
        "from pathlib import Path\n\ndef test(): assert '::test_bad, call' in Path('out/logs/failed.log').read_text()"
    )
    user.makepyfile(test_with_one_that_fails="def test_bad(): assert False", test_with_one_that_looks=later)
    ended = run(user, "--resume", "-n", "0", "test_with_one_that_fails.py", "test_with_one_that_looks.py")
    assert (ended["failed"], ended["passed"]) == (1, 1)


def test_another_content_begins_anew(user: pytest.Pytester) -> None:
    """A file that git does not ignore, tracked or not, and what the options say of the guest."""
    assert run(user, "--resume")["left out"] == 0
    assert run(user, "--resume", "--folioscope-append", "quiet")["left out"] == 0
    (user.path / "ignored.log").write_text("x")
    assert run(user, "--resume")["left out"] == 3
    (user.path / "more.txt").write_text("x")
    assert run(user, "--resume")["left out"] == 0


def test_a_module_hangs_on_what_it_imports_and_runs(user: pytest.Pytester) -> None:
    """And not on other modules of tests; what these import in turn counts too, and what all of them share."""
    modules = {
        "test_base": "",
        "test_uses": "from test_base import something",
        "test_uses_it": "def test():\n    import test_uses",
        "test_runs": 'WORDS = ["-m", "pytest", f"test_{\'base\'}.py"]',
        "test_alone": "# The base of nothing: test_base",
        "helper": "",
    }
    for name, text in modules.items():
        (user.path / f"{name}.py").write_text(text + "\n")
    names = [name for name in modules if name.startswith("test_")]

    def changed(name: str) -> set[str]:
        before, file = Content(user.path), user.path / f"{name}.py"
        file.write_text(file.read_text() + "# changed\n")
        after = Content(user.path)
        return {name for name in names if before.of(name) != after.of(name)}

    assert changed("test_base") == {"test_base", "test_uses", "test_uses_it", "test_runs"}
    assert changed("test_uses") == {"test_uses", "test_uses_it"}
    assert changed("test_alone") == {"test_alone"}
    assert changed("helper") == set(names)
    # What a helper imports is every module's.
    (user.path / "helper.py").write_text("from test_alone import something\n")
    assert changed("test_alone") == set(names)


def test_sources_without_git(user: pytest.Pytester) -> None:
    """Nothing is left out, and it is said why."""
    shutil.rmtree(user.path / ".git")
    for _ in range(2):
        ended = run(user, "--resume")
        assert (ended["passed"], ended["left out"], ended["warnings"]) == (4, 0, 1)


def test_what_was_built_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that was not built anew has passed nothing for the source of now."""
    command = tmp_path / "folioscope"
    monkeypatch.setattr(resumed, "COMMAND", command)
    without = resumed.tools()
    command.write_bytes(b"one")
    one = resumed.tools()
    command.write_bytes(b"two")
    assert len({str(each) for each in (without, one, resumed.tools())}) == 3


def test_nothing_chosen_is_no_success(user: pytest.Pytester) -> None:
    """Only what has passed makes an empty run good."""
    assert run(user, "--resume", "-k", "nothing_of_this_name")["status"] == pytest.ExitCode.NO_TESTS_COLLECTED
