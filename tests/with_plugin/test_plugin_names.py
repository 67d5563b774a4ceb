# SPDX-License-Identifier: GPL-2.0-only
"""The plugin beside others: its names are its own, tests of others stay where they are, and it is typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from command import ROOT
from test_plugin import collected, run, user

__all__ = ["user"]

pytest_plugins = ["pytester"]

KERNELS = [str(ROOT / "out" / f"kernel-{granule}" / "Image") for granule in ("4k", "16k")]
#: Every option that had another name in 0.1.0.
OLD = {
    "--granule=4k": "--folioscope-granule",
    "--cpu=max": "--folioscope-cpu",
    "--policy=retry": "--folioscope-policy",
    "--machine=tcg": "--folioscope-machine",
    "--guest-kernel=Image": "--folioscope-kernel",
    "--guest-vmlinux=vmlinux": "--folioscope-vmlinux",
    "--guest-initrd=cpio": "--folioscope-initrd",
    "--guest-append=quiet": "--folioscope-append",
    "--guest-memory=1G": "--folioscope-memory",
    "--guest-smp=2": "--folioscope-smp",
    "--guest-tcg-thread=multi": "--folioscope-tcg-thread",
    "--guest-deadline=10": "--folioscope-deadline",
}
#: Every mark that had, as a test bears it.
OLD_MARKS = ["every_machine", 'only_machine("tcg")', "recorded", "parallel", 'provokes("anything")']

# What a user's type checker has to accept, and what it has to refuse, by the words of its error.
RIGHT = """
import folioscope

def test_block(folioscope_guest: folioscope.Guest, folioscope_process: folioscope.Process) -> None:
    area = folioscope_process.blocks(2, hint="nohugepage", flags=["shared"])
    area.write(0, 1, salt=3, order="backward")
    area.must_fold(0, 16).written().order(4)
    view = folioscope_process.look(getters=True, check=False)
    words: list[str] = view.not_judged
    assert not words and view.pattern(area) == "C."
"""
WRONG = {
    "folioscope_process.blocks(2, hints=1)": 'Unexpected keyword argument "hints" for "blocks"',
    "folioscope_process.blocks(2).write(salz=1)": 'Unexpected keyword argument "salz" for "write"',
    'folioscope_process.blocks(2).read(salt="a")': 'Argument "salt" to "read" of "Area" has incompatible type',
    "folioscope_process.look(checked=False)": 'Unexpected keyword argument "checked" for "look"',
    'folioscope_process.map_file("/f", 4096, flags=["shared"])': 'Unexpected keyword argument "flags"',
    "folioscope_process.look().failures": '"View" has no attribute "failures"',
}


@pytest.mark.parametrize("old", OLD, ids=[f"option-{at}" for at in range(len(OLD))])
def test_an_option_that_has_another_name_now(user: pytest.Pytester, old: str) -> None:
    """One sentence with that name, and nothing runs."""
    user.makepyfile("def test_it(): pass")
    result = run(user, old)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stderr.str()
    assert f"ERROR: the option {old.partition('=')[0]} is now {OLD[old]}\n" in said + "\n", said


def test_an_option_that_nobody_has_is_refused_by_pytest(user: pytest.Pytester) -> None:
    """What is not ours is not spoken of, and another plugin may have a name that we had."""
    result = run(user, "--granules=4k")
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "is now" not in result.stderr.str()
    user.makeconftest("def pytest_addoption(parser): parser.addoption('--cpu', type=int)")
    user.makepyfile("def test_it(request): assert request.config.getoption('--cpu') == 3")
    run(user, "--cpu=3").assert_outcomes(passed=1)


def test_a_mark_that_has_another_name_now(user: pytest.Pytester) -> None:
    """The test fails with one sentence; one of another plugin's, or without a guest, is left alone."""
    ours = "\n".join(
        f"@pytest.mark.{mark}\ndef test_{number}(folioscope_granule): pass\n" for number, mark in enumerate(OLD_MARKS)
    )
    others = """
@pytest.mark.theirs
def test_of_another(folioscope_granule): pass

@pytest.mark.provokes("anything")
def test_without(): pass
"""
    user.makepyfile(f"import pytest\n\n{ours}{others}")
    result = run(user, "--folioscope-granule=4k", "-rA")
    result.assert_outcomes(errors=len(OLD_MARKS), passed=2)
    for mark in OLD_MARKS:
        name = mark.partition("(")[0]
        assert f"the mark `{name}` is now `folioscope_{name}`" in result.stdout.str()
    user.makepyfile("import pytest\n\n@pytest.mark.parallel\ndef test_theirs(folioscope_granule): pass\n")
    run(user, "--folioscope-granule=4k", "-o", "markers=parallel: another plugin's").assert_outcomes(passed=1)


def test_the_marks_and_options_begin_with_the_name(user: pytest.Pytester) -> None:
    """All that pytest lists of ours."""
    marks = re.findall(r"^@pytest\.mark\.(\w+)\S* ", run(user, "--markers").stdout.str(), re.MULTILINE)
    assert sum(mark.startswith("folioscope_") for mark in marks) == 5
    assert not {"every_machine", "only_machine", "recorded", "parallel", "provokes"} & set(marks)
    (ours,) = re.findall(r"^folioscope:\n((?: .*\n)+)", run(user, "--help").stdout.str() + "\n", re.MULTILINE)
    options = re.findall(r"^  (-\S+)", ours, re.MULTILINE)
    assert len(options) == 12 and all(option.startswith("--folioscope-") for option in options)


def test_each_test_runs_on_each_kernel(user: pytest.Pytester) -> None:
    """Each with its own granule; what has no kernel runs once per granule, as it did."""
    user.makepyfile(
        """
        def test_guest(folioscope_guest, folioscope_kernel):
            assert folioscope_guest.hello.page_size == folioscope_guest.layout.page
            assert folioscope_kernel.granule == folioscope_guest.layout.granule
            assert str(folioscope_kernel.image).endswith(f"kernel-{folioscope_kernel.granule}/Image")
        def test_size(folioscope_layout): pass
        def test_nothing(): pass
        """
    )
    given = ["--folioscope-kernel", *KERNELS, "--folioscope-machine=tcg"]
    assert sorted(collected(user, *given)) == [
        "test_guest[tcg-max-16k-kernel-16k.Image]",
        "test_guest[tcg-max-4k-kernel-4k.Image]",
        "test_nothing",
        "test_size[16k]",
        "test_size[4k]",
    ]
    run(user, *given, "-k", "test_guest").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    "options,sentence",
    [
        (["--folioscope-kernel", *KERNELS, "--folioscope-granule=4k"], "has 16k pages; leave --folioscope-granule out"),
        (["--folioscope-kernel", KERNELS[0], "test_it.py"], "name tests before this option"),
        (
            ["--folioscope-kernel", *KERNELS, "--folioscope-vmlinux", "a"],
            "expected one vmlinux for each of 2 kernels, and found 1",
        ),
    ],
)
def test_kernels_that_make_no_sense(user: pytest.Pytester, options: list[str], sentence: str) -> None:
    """One sentence before any test runs."""
    user.makepyfile(test_it="def test_it(folioscope_guest): pass")
    result = run(user, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in result.stderr.str() + result.stdout.str()


def test_tests_of_others_stay_where_they_are(user: pytest.Pytester) -> None:
    """Tests with a guest change places among themselves alone."""
    user.makepyfile(
        """
        import pytest

        def test_first(): pass
        @pytest.mark.parametrize("folioscope_cpu", ["max", "cortex-a72"])
        def test_guest(folioscope_cpu): pass
        def test_second(): pass
        def test_third(folioscope_machine): pass
        def test_last(): pass
        """
    )
    names = collected(user, "--folioscope-machine=tcg")
    assert [name for name in names if "[" not in name] == ["test_first", "test_second", "test_last"]
    assert [names.index(name) for name in ("test_first", "test_second", "test_last")] == [0, 3, 5]


def test_workers_go_by_the_mark_of_xdist(user: pytest.Pytester) -> None:
    """A user's own group goes before ours, ids are as they are without workers, another way is the user's choice."""
    user.makepyfile(
        """
        import os
        from pathlib import Path
        import pytest

        @pytest.mark.parametrize("round", range(6))
        @pytest.mark.parametrize("folioscope_cpu", ["max", "cortex-a72"])
        def test_ours(folioscope_machine, folioscope_cpu, folioscope_granule, round):
            Path(f"{folioscope_cpu} {os.getpid()}").touch()

        @pytest.mark.xdist_group("mine")
        @pytest.mark.parametrize("folioscope_cpu", ["max", "cortex-a72"])
        def test_mine(folioscope_machine, folioscope_cpu, folioscope_granule):
            Path(f"mine {os.getpid()}").touch()
        """
    )
    options = ["--folioscope-machine=tcg", "--folioscope-granule=4k", "-n2", "-v"]
    result = run(user, *options)
    result.assert_outcomes(passed=14)
    seen = [path.name.split()[0] for path in user.path.glob("* *")]
    assert sorted(seen) == ["cortex-a72", "max", "mine"]
    assert "test_ours[tcg-max-0-4k]" in result.stdout.str() or "test_ours[tcg-4k-max-0]" in result.stdout.str()
    assert "]@" not in result.stdout.str()
    chosen = run(user, *options, "--dist=worksteal")
    assert "scheduling tests via WorkStealingScheduling" in chosen.stdout.str()
    assert "scheduling tests via LoadGroupScheduling" in result.stdout.str()


def test_it_is_typed(tmp_path: Path) -> None:
    """For `mypy --strict`: what is right is accepted, and each mistake is named."""
    head = RIGHT.splitlines()
    start = len(head) + 1
    text = "\n".join([*head, *(f"    {line}" for line in WRONG), ""])
    (tmp_path / "test_right.py").write_text(RIGHT)
    (tmp_path / "test_wrong.py").write_text(text)

    def mypy(name: str) -> str:
        words = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir",
            str(tmp_path / "cache"),
            name,
        ]
        path = {"MYPYPATH": str(ROOT / "tests" / "plugin"), "PATH": "/usr/bin:/bin"}
        return subprocess.run(words, cwd=tmp_path, env=path, check=False, capture_output=True, text=True).stdout

    assert mypy("test_right.py") == ""
    said = mypy("test_wrong.py")
    for number, words in enumerate(WRONG.values(), start):
        assert re.search(rf"^test_wrong\.py:{number}: error: .*{re.escape(words)}", said, re.MULTILINE), said
