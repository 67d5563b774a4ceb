# SPDX-License-Identifier: GPL-2.0-only
"""The plugin as somebody else's tests load it: its options, its guests, what it keeps of a failure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from folioscope import machines

from command import COMMAND, ROOT

pytest_plugins = ["pytester"]

IMAGE = ROOT / "out" / "kernel-4k" / "Image"
BUNDLE = {"why.txt", "command.txt", "console.log", "channel.log", "registers.txt", "findings.txt", "tables.core"}


@pytest.fixture
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory of tests; logs and bundles stay in it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "plugin"))
    monkeypatch.setenv("FOLIOSCOPE_OUT", str(pytester.path / "out"))
    return pytester


def run(user: pytest.Pytester, *options: str) -> pytest.RunResult:
    """A pytest of its own, as a user would start it."""
    return user.runpytest_subprocess("-p", "folioscope.plugin", "-p", "no:cacheprovider", *options, timeout=600)


def collected(user: pytest.Pytester, *options: str) -> list[str]:
    """The ids that the options come to."""
    return re.findall(r"^\S+::(\S+)$", run(user, "--collect-only", "-q", *options).stdout.str(), re.MULTILINE)


def test_options_choose_the_dimensions(user: pytest.Pytester) -> None:
    """A test runs once per value of each dimension that it asks for, and only of those."""
    user.makepyfile(
        """
        def test_guest(folioscope_guest): pass
        def test_policy(folioscope_guest, folioscope_policy): pass
        def test_size(folioscope_layout): pass
        def test_nothing(): pass
        """
    )
    all_of_them = collected(user)
    assert sum(name.startswith("test_guest[") for name in all_of_them) == 3
    assert sum(name.startswith("test_policy[") for name in all_of_them) == 9
    assert sum(name.startswith("test_size[") for name in all_of_them) == 3
    assert "test_nothing" in all_of_them
    chosen = collected(
        user,
        "--folioscope-granule",
        "4k",
        "--folioscope-cpu",
        "max,cortex-a72",
        "--folioscope-policy",
        "retry",
        "-k",
        "guest or policy",
    )
    assert len(chosen) == 4
    assert all("4k" in name and machines.native() in name for name in chosen)
    assert sum("cortex-a72" in name for name in chosen) == 2
    assert all("retry" in name for name in chosen if "policy" in name)


def test_help_lists_the_options(user: pytest.Pytester) -> None:
    """In a group of their own."""
    said = run(user, "--help").stdout.str()
    assert "folioscope:" in said
    options = ["--folioscope-granule", "--folioscope-cpu", "--folioscope-policy", "--folioscope-machine"]
    options += [
        f"--folioscope-{name}" for name in ("kernel", "vmlinux", "initrd", "append", "memory", "smp", "deadline")
    ]
    for option in options:
        assert option in said


def test_a_failure_leaves_a_bundle(user: pytest.Pytester) -> None:
    """And the report says where; the tests after it go on in the same guest."""
    user.makepyfile(
        """
        SESSIONS = set()

        def test_wrong(folioscope_guest, folioscope_process, folioscope_layout):
            SESSIONS.add(folioscope_guest.session.pid)
            area = folioscope_process.blocks(1)
            area.write()
            assert folioscope_process.look().pattern(area) == "-"

        def test_right(folioscope_guest, folioscope_process, folioscope_layout):
            SESSIONS.add(folioscope_guest.session.pid)
            area = folioscope_process.blocks(1)
            area.write()
            assert folioscope_process.look().pattern(area) == "C"
            assert len(SESSIONS) == 1
        """
    )
    result = run(user, "--folioscope-granule", "4k", "-rA")
    result.assert_outcomes(failed=1, passed=1)
    (bundle,) = (user.path / "out" / "bundles").iterdir()
    assert str(bundle) in result.stdout.str()
    assert {path.name for path in bundle.iterdir()} >= BUNDLE
    assert re.search(r"test_wrong\[.*\] failed in its call: AssertionError", (bundle / "why.txt").read_text())


def test_without_a_guest_a_test_fails(user: pytest.Pytester) -> None:
    """It never skips: the sentence of the command is in the report."""
    user.makepyfile("def test_guest(folioscope_guest): pass")
    result = run(user, "--folioscope-granule", "4k", "--folioscope-initrd", "/nonexistent")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "initramfs at /nonexistent" in result.stdout.str()


@pytest.mark.parametrize(
    "options,sentence",
    [
        (["--folioscope-kernel", "nothing"], "nothing"),
        (["--folioscope-kernel", __file__], "not an arm64 kernel image"),
        (
            ["--folioscope-kernel", str(IMAGE), "--folioscope-granule", "16k"],
            "has 4k pages; leave --folioscope-granule out",
        ),
        (["--folioscope-granule", "8k"], "expected 4k, 16k or 64k and found 8k"),
    ],
    ids=["absent", "foreign", "granule", "unknown"],
)
def test_what_cannot_be_tested_is_told_first(user: pytest.Pytester, options: list[str], sentence: str) -> None:
    """One sentence before any test runs."""
    user.makepyfile("def test_guest(folioscope_guest): pass")
    result = run(user, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stderr.str() + result.stdout.str()
    assert re.search(rf"ERROR: .*{re.escape(sentence)}", said), said


def test_a_kernel_has_its_own_granule(user: pytest.Pytester) -> None:
    """--folioscope-kernel alone chooses the granule, by the image's header; a path is meant where pytest starts."""
    user.makepyfile("def test_guest(folioscope_guest): pass")
    (user.path / "mine").symlink_to(IMAGE)
    # As test_what_cannot_be_tested_is_told_first has it, with what is advised.
    assert collected(user, "--folioscope-kernel", "mine") == [f"test_guest[{machines.native()}-max-4k]"]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_logs_stay_where_pytest_was_started(
    user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    """Also if pytest takes a kernel's absolute path for one of tests, so that its root directory is above."""
    # Outside of a checkout, which has an out/ of its own.
    shutil.copytree(ROOT / "tests" / "plugin" / "folioscope", user.path / "site" / "folioscope")
    monkeypatch.setenv("PYTHONPATH", str(user.path / "site"))
    monkeypatch.setenv("FOLIOSCOPE", str(COMMAND))
    monkeypatch.delenv("FOLIOSCOPE_OUT")
    user.makepyfile("def test_guest(folioscope_guest): assert False")
    options = ["--folioscope-granule", "4k", "--folioscope-initrd", "/nonexistent", "-n", workers]
    image = str(IMAGE.resolve())
    run(user, *options, "--folioscope-kernel", image).assert_outcomes(errors=1)
    (logs,) = (user.path / "folioscope-out" / "tests").iterdir()
    assert list(logs.rglob("*.log"))
    # The tests' own directory is a root, wherever pytest is started.
    shutil.rmtree(user.path / "folioscope-out")
    tests = user.path
    monkeypatch.chdir("/")
    run(user, *options, str(tests)).assert_outcomes(errors=1)
    assert (tests / "folioscope-out" / "tests").exists()


def test_options_of_the_guest_and_the_policy(user: pytest.Pytester) -> None:
    """Each option reaches the guest, and a test that asks for a policy runs under it; the next one does not."""
    user.makepyfile(
        """
        KNOB = "/sys/kernel/mm/transparent_hugepage"

        def in_force(guest):
            return guest.knobs(f"{KNOB}/anon_order/policy")[f"{KNOB}/anon_order/policy"]

        def test_policy(folioscope_policy, folioscope_guest):
            assert in_force(folioscope_guest) == folioscope_policy

        def test_without(folioscope_guest):
            assert in_force(folioscope_guest) == "variable"

        def test_options(folioscope_guest):
            hello = folioscope_guest.hello
            assert hello.cpus == 3
            assert 200 << 20 < hello.memory_bytes < 384 << 20
            assert hello.cmdline.endswith("mine=1 other=2")
        """
    )
    options = ["--folioscope-append", "mine=1 other=2", "--folioscope-memory", "384M", "--folioscope-smp", "3"]
    result = run(user, "--folioscope-granule", "4k", "--folioscope-policy", "baseline,retry", *options)
    result.assert_outcomes(passed=4)


def test_a_hung_test_ends_and_leaves_a_bundle(user: pytest.Pytester) -> None:
    """At its deadline, in the middle of a call of the guest; the finding names it, and the same guest serves on."""
    user.makepyfile(
        """
        import pytest

        PIDS = set()

        @pytest.mark.timeout(8)
        def test_hangs(folioscope_guest, folioscope_process):
            PIDS.add(folioscope_guest.session.pid)
            folioscope_process.hold()
            folioscope_guest.run("/bin/busybox", "sleep", "12", seconds=25)

        def test_goes_on(folioscope_guest, folioscope_process):
            PIDS.add(folioscope_guest.session.pid)
            area = folioscope_process.blocks(1)
            area.write()
            assert folioscope_process.look().pattern(area) == "C"
            assert len(PIDS) == 1

        def test_has_one(request):
            assert not request.node.get_closest_marker("timeout")
        """
    )
    # The first test boots a guest within its deadline too; so does a run of none of them before it.
    result = run(user, "--folioscope-granule", "4k", "-o", "timeout_func_only=true", "--folioscope-deadline", "90")
    result.assert_outcomes(failed=1, passed=2)
    (bundle,) = (user.path / "out" / "bundles").iterdir()
    assert str(bundle) in result.stdout.str()
    assert {path.name for path in bundle.iterdir()} >= BUNDLE
    why = (bundle / "why.txt").read_text()
    assert "test_hangs" in why and "Timeout" in why and "8.0" in why, why


def test_what_a_cpu_lacks_is_left_out_by_name(user: pytest.Pytester) -> None:
    """cortex-a72 has no 16K granule: that is no failure, and it is said."""
    user.makepyfile("def test_guest(folioscope_guest): pass")
    result = run(user, "--folioscope-granule", "16k", "--folioscope-cpu", "cortex-a72", "-rs")
    result.assert_outcomes(skipped=1)
    assert "cortex-a72 has no 16K granule" in result.stdout.str()


@pytest.mark.parametrize("workers", [0, 2])
def test_machines_that_disagree_are_a_failure(user: pytest.Pytester, workers: int) -> None:
    """A test of every machine runs on each under one id; outcomes that differ are a table and a failure, also where
    each machine's tests ran on a worker of their own."""
    user.makepyfile(
        """
        import pytest

        @pytest.mark.folioscope_every_machine
        def test_alike(folioscope_machine, folioscope_layout, folioscope_cpu): pass

        @pytest.mark.folioscope_every_machine
        def test_left_out_on_one(folioscope_machine, folioscope_layout, folioscope_cpu):
            if folioscope_machine == "kvm": pytest.skip("a reason")

        def test_native(folioscope_machine, folioscope_layout, folioscope_cpu): pass
        """
    )
    options = ["--folioscope-machine", "tcg,kvm", "--folioscope-granule", "4k"]
    names = collected(user, *options)
    assert sorted(names) == sorted(
        f"{test}[{machine}-max-4k]"
        for test in ("test_alike", "test_left_out_on_one", "test_native")
        for machine in ("tcg", "kvm")
    )
    options += ["-n", str(workers)]
    result = run(user, *options)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "3 tests ran on several machines; 1 ended differently",
            "  *::test_left_out_on_one[[]*-max-4k]: skipped on kvm, passed on tcg",
        ]
    )
    alike = run(user, *options, "-k", "alike or native")
    assert alike.ret == 0
    alike.stdout.fnmatch_lines(["2 tests ran on several machines; 0 ended differently"])


def test_workers_boot_each_guest_once(user: pytest.Pytester) -> None:
    """All tests of a guest run on one worker, and none on all of them."""
    user.makepyfile(
        """
        import os
        from pathlib import Path
        import pytest

        @pytest.mark.parametrize("round", range(4))
        def test_guest(folioscope_guest, folioscope_granule, round):
            Path(f"{folioscope_granule} {folioscope_guest.session.pid} {os.getpid()}").touch()

        # Whatever else is in their ids, and wherever.
        CHOSEN = [(name, granule, "max") for name in ("a-1", "b-2", "c") for granule in ("4k", "16k")]

        @pytest.mark.parametrize("name,folioscope_granule,folioscope_cpu", CHOSEN)
        def test_chosen(folioscope_guest, folioscope_granule, name):
            test_guest(folioscope_guest, folioscope_granule, name)
        """
    )
    result = run(user, "--folioscope-granule", "4k,16k", "-n", "2")
    result.assert_outcomes(passed=14)
    seen = [path.name.split() for path in user.path.glob("*k *")]
    granules, guests, workers = (set(column) for column in zip(*seen, strict=True))
    assert len(seen) == len(granules) == len(guests) == len(workers) == 2


def test_auto_takes_carried_machines_for_tests_of_every_machine_alone(user: pytest.Pytester) -> None:
    """What this host has: natively for all, in a carrier for those that say so."""
    user.makepyfile(
        """
        import pytest

        @pytest.mark.folioscope_every_machine
        def test_every(folioscope_machine): pass

        def test_native(folioscope_machine): pass
        """
    )
    names = collected(user)
    natives = [name for name in names if name.startswith("test_native")]
    every = [name for name in names if name.startswith("test_every")]
    assert len(natives) == 1
    if natives == ["test_native[tcg]"]:
        assert set(every) == {"test_every[tcg]", "test_every[kvm-in-tcg]", "test_every[kvm-in-tcg-nvhe]"}
    else:
        assert every == ["test_every[kvm]"]
