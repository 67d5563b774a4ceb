# SPDX-License-Identifier: GPL-2.0-only
"""Nothing of the user's is removed or overwritten, and nothing is half done, however a command ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from folioscope.scratch import MARK, WORDS, Scratch, clear

from command import MARK as TEST_MARK
from command import ROOT, Running, folioscope, marked, program, wait_until

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
# A PID that no process has: above the largest that Linux gives out.
NOBODY = 4194305
#: Where a pytest outside finds the plugin and the helpers of these tests.
HELPERS = f"{ROOT}/tests/plugin:{ROOT}/tests/helpers"
ENDED = f"{WORDS}\nboot {BOOT}\n"


def used(place: Path, mark: str | None = None) -> Path:
    """A directory in which somebody keeps something."""
    (place / "more").mkdir(parents=True)
    (place / "notes.txt").write_text("mine")
    if mark is not None:
        (place / MARK).write_text(mark)
    return place


def files(place: Path) -> set[Path]:
    """All files below a directory."""
    return {path for path in place.rglob("*") if path.is_file()}


@pytest.fixture
def theirs(tmp_path: Path) -> set[Path]:
    """What a user may have where our guests and logs go, with names as ours have them."""
    for place in (tmp_path / "guests", tmp_path / "carriers", tmp_path / "tests", tmp_path / "bundles"):
        used(place / f"{NOBODY}-{BOOT}")
        used(place / f"{NOBODY}")
        used(place / "4711-ab", "another program's mark\n")
        used(place / "notes-and-more")
        (place / "test_mine.py").write_text("def test_mine(): pass\n")
        (place / f"{NOBODY + 1}").symlink_to(place / "notes-and-more")
    os.utime(tmp_path / "guests" / "notes-and-more", (0, 0))
    return files(tmp_path)


def refused(out: Path) -> None:
    """A command that gets as far as to clear away what dead ones left, and no further."""
    folioscope("run", "--out", out, "--kernel", ROOT / "Makefile").sentence()


def test_the_command_removes_what_it_marked_and_nothing_else(tmp_path: Path, theirs: set[Path]) -> None:
    """`--out` may be any directory of a user's."""
    dead = used(tmp_path / "guests" / "whatever", ENDED)
    refused(tmp_path)
    assert not dead.exists()
    assert theirs <= files(tmp_path)


def test_pytest_removes_what_it_marked_and_nothing_else(tmp_path: Path, theirs: set[Path]) -> None:
    """The plugin's logs go to `tests` below FOLIOSCOPE_OUT, where a user may have tests."""
    dead = used(tmp_path / "tests" / "whatever", ENDED)
    (tmp_path / "test_one.py").write_text("def test_one(folioscope_logs): (folioscope_logs / 'log').touch()\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["folioscope.plugin"]\n')
    for _ in range(2):
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_one.py"]
        environment = {
            **os.environ,
            "FOLIOSCOPE_OUT": str(tmp_path),
            "PYTHONPATH": f"{ROOT}/tests/plugin:{ROOT}/tests/helpers",
        }
        subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=300)
    assert not dead.exists()
    assert theirs <= files(tmp_path)
    # Of our own two runs the second has cleared away the first.
    assert len(list((tmp_path / "tests").glob("*/log"))) == 1


def test_the_lock_says_what_is_in_use_and_not_the_pid(tmp_path: Path) -> None:
    """A process of another container has a PID that is nobody's here: neither clears the other's away."""
    scratch = Scratch(tmp_path / "guests")
    theirs = scratch.path.rename(tmp_path / "guests" / f"{NOBODY}-{BOOT}")
    refused(tmp_path)
    Scratch(tmp_path / "guests").close()
    assert theirs.is_dir()
    scratch.close()
    refused(tmp_path)
    assert not theirs.exists()


def test_a_namesake_shares_nothing(tmp_path: Path) -> None:
    """Two containers may give out the same PID at once."""
    one = Scratch(tmp_path)
    other = Scratch(tmp_path)
    assert one.path != other.path
    assert not clear(one.path)
    one.close()
    assert clear(one.path)
    assert other.path.is_dir()


def nohup(*words: str | Path) -> list[str]:
    """A command with SIGHUP and SIGINT ignored, as `nohup` and the background of a script have it."""
    return ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *map(str, words)]


def ignored(pid: int) -> set[signal.Signals]:
    """The signals that a process ignores."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:"))
    mask = int(line.split()[1], 16)
    return {number for number in (signal.SIGHUP, signal.SIGINT) if mask >> number - 1 & 1}


@pytest.mark.parametrize("command", ["boot", pytest.param("serve", marks=pytest.mark.qemu)])
def test_what_was_ignored_stays_ignored(tmp_path: Path, command: str) -> None:
    """Under `nohup` a command that stays outlives its terminal, and ends by SIGTERM with its guest."""
    words = {
        "boot": ["boot", "--out", str(tmp_path), "--memory", "256M"],
        "serve": ["carrier", "serve", "--socket", str(tmp_path / "sock"), "--out", str(tmp_path), "--memory", "1G"],
    }[command]
    with Running(words, prefix=tuple(nohup())) as running:
        assert running.child.stdout
        line = running.child.stdout.readline()
        assert line, running.child.stderr
        for number in (signal.SIGHUP, signal.SIGINT):
            running.child.send_signal(number)
        assert not wait_until(lambda: running.child.poll() is not None, 2.0), (
            "it ended by a signal that it was to ignore"
        )
        assert ignored(running.child.pid) == {signal.SIGHUP, signal.SIGINT}
        running.child.terminate()
        assert running.child.wait(timeout=5) in (0, -signal.SIGTERM)
        running.nothing_left()


def test_help_of_boot_says_how_it_ends() -> None:
    """Also where Ctrl-C does nothing."""
    said = folioscope("boot", "--help").ok()
    assert all(word in said for word in ("Ctrl-C", "SIGTERM", "nohup", "Ctrl-A x"))


def ours(place: Path, text: str) -> list[str | Path]:
    """A pytest with the conftest of these tests, and one file of tests."""
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "test_one.py").write_text(text)
    # Its other plugins are found by PYTHONPATH.
    shutil.copy(ROOT / "tests" / "conftest.py", place)
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", place / "test_one.py"]


def test_the_suite_s_commands_get_signals_whatever_it_inherits(tmp_path: Path) -> None:
    """`nohup make test` and a job in the background of a shell test what an interactive one tests."""
    words = ours(
        tmp_path,
        "import subprocess\n"
        "def test_one():\n"
        "    status = subprocess.run(['grep', 'SigIgn', '/proc/self/status'], capture_output=True, text=True).stdout\n"
        "    assert int(status.split()[1], 16) & 3 == 0\n",
    )
    environment = {
        **os.environ,
        "FOLIOSCOPE_OUT": str(tmp_path),
        "PYTHONPATH": f"{ROOT}/tests/plugin:{ROOT}/tests/helpers",
    }
    subprocess.run(nohup(*words), cwd=tmp_path, env=environment, check=True, timeout=300)


@pytest.mark.parametrize("refuses", ["", "trap '' TERM; "])
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os.killpg(0, signal.SIGINT)"])
def test_what_a_test_has_started_ends_with_pytest(tmp_path: Path, end: str, refuses: str) -> None:
    """However that ends: a build of a test's would go on beside the next run, and hold its locks."""
    (tmp_path / "ended.py").write_text(
        "import os, signal, subprocess\n"
        "def pytest_configure(config):\n"
        f"    words = ['sh', '-c', {refuses!r} 'setsid sleep 600 & echo; wait']\n"
        "    subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True).stdout.readline()\n"
        f"    open({str(tmp_path / 'started')!r}, 'w').close()\n"
        f"    {end}\n"
    )
    mark = str(tmp_path)
    environment = {**os.environ, "FOLIOSCOPE_OUT": mark, "PYTHONPATH": mark, TEST_MARK: mark}
    words = [ROOT / "vmm" / "setup" / "pytest.sh", "-n", "0", "-p", "ended", "--collect-only"]
    try:
        with subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as pytests:
            assert pytests.wait(timeout=300) != 0
        assert (tmp_path / "started").exists()
        assert wait_until(lambda: not marked(mark), 10)
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_skip_that_is_not_in_the_list_fails_the_run(tmp_path: Path, workers: int) -> None:
    """By name, with its reason; one of the list does not."""
    words = ours(
        tmp_path,
        "import pytest\n"
        "@pytest.mark.parametrize('on', ['tcg-cortex-a72-16k'])\n"
        "def test_listed(on):\n"
        "    pytest.skip('cortex-a72 has no 16K granule')\n"
        "@pytest.mark.parametrize('on', ['tcg-cortex-a72-16k'])\n"
        "def test_another_reason(on):\n"
        "    pytest.skip('no time')\n"
        "@pytest.mark.skipif(True, reason='no tool')\n"
        "def test_unlisted(): pass\n"
        "@pytest.mark.xfail(reason='known')\n"
        "def test_expected(): assert False\n",
    )
    environment = {
        **os.environ,
        "FOLIOSCOPE_OUT": str(tmp_path),
        "PYTHONPATH": f"{ROOT}/tests/plugin:{ROOT}/tests/helpers",
    }

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        everything = [*words, "-n", str(workers), *more]
        return subprocess.run(
            everything, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )

    ended = run()
    assert ended.returncode == 1
    assert "3 tests were left out and are not in skips.toml" in ended.stdout
    for line in ("test_another_reason[tcg-cortex-a72-16k]: no time", "test_unlisted: no tool", "test_expected: known"):
        assert f"test_one.py::{line}" in ended.stdout
    listed = run("-k", "listed and not un")
    assert listed.returncode == 0, listed.stdout
    assert "1 skipped" in listed.stdout


@pytest.mark.parametrize("killed", ["the script", "all shells"])
def test_a_build_ends_with_its_script(tmp_path: Path, killed: str) -> None:
    """Whoever kills a set-up script by SIGKILL finds no compiler left: of the script alone, or of all its shells."""
    script = f'. {ROOT}/vmm/setup/lib.sh; build() {{ with_us sleep 1000; }}; step build "a build" build'
    mark = uuid.uuid4().hex
    environment = {**os.environ, TEST_MARK: mark, "FOLIOSCOPE_CACHE": str(tmp_path), "FOLIOSCOPE_OUT": str(tmp_path)}
    with subprocess.Popen(["bash", "-c", script], env=environment, stderr=subprocess.DEVNULL) as shell:
        try:
            assert wait_until(lambda: "sleep" in map(program, marked(mark)) and len(marked(mark)) >= 4, 10)
            shells = [pid for pid in marked(mark) if program(pid) == "bash"]
            for pid in [shell.pid] if killed == "the script" else shells:
                os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda: not marked(mark), 10), [(pid, program(pid)) for pid in marked(mark)]
        finally:
            for pid in marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
