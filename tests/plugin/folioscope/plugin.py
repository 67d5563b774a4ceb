# SPDX-License-Identifier: GPL-2.0-only
"""pytest plugin: small dimension fixtures, composed into guests that live as long as they are useful.

It is loaded by itself where the package is installed. A test that asks for ``folioscope_guest`` runs once per granule;
one that asks for ``folioscope_policy`` too once per order policy, which is then in force, and one with the mark
``folioscope_every_machine`` once per machine of this host. The dimensions are chosen with ``--folioscope-granule``,
``--folioscope-cpu``, ``--folioscope-kernel``, ``--folioscope-policy`` and ``--folioscope-machine``. With pytest-xdist,
``-n`` runs several guests side by side.
"""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from . import agreement, dimensions, kernels, machines, names, parallel, scratch, voice
from .client import GuestLost
from .expect import Open
from .guest import Guest
from .layout import LAYOUTS, Layout
from .process import Process
from .rig import Rig, Wanted

__all__ = ["Rig", "Wanted"]

CPUS_WITHOUT_16K = {"cortex-a53", "cortex-a57", "cortex-a72"}
# So much slower is an emulated host.
CARRIED_FACTOR = 2.0
# So many findings of a failed test are shown; all are in its bundle.
MOST_FINDINGS = 10
# So many statements that no look has judged are named.
MOST_STATED = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    names.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> Generator[None, None, None]:
    """A script may still have the names that options had; conftests have added theirs by then."""
    result = yield
    names.refuse_old_options(parser.parse_known_and_unknown_args(args)[1])
    return result


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | None, int | None]:
    """Before anything is distributed to workers."""
    if config.pluginmanager.hasplugin("xdist"):
        parallel.by_group(config)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    names.add_marks(config)
    config.pluginmanager.register(agreement.Agreement())
    config.pluginmanager.register(voice.Voice())
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(parallel, "folioscope.parallel")
    if names.get(config, "kernel") or names.get(config, "granule"):
        # What cannot be tested is told before anything runs.
        dimensions.granules(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    dimensions.parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts tests by guest, and gives each that has one a deadline. pytest-xdist sends all of a guest to one worker."""
    dimensions.arrange(config, items)
    # Without pytest-xdist the mark is unknown, and an error by `--strict-markers`.
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        if (guest := dimensions.guest_of(item)) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(guest))
    if not config.pluginmanager.hasplugin("timeout"):
        return
    for item in items:
        if "folioscope_rig" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            factor = CARRIED_FACTOR if dimensions.of(item).get("machine") in machines.CARRIED else 1.0
            item.add_marker(pytest.mark.timeout(names.get(config, "deadline") * factor))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """What another test has stated, and failed before a look at it, is nothing to this one."""
    names.refuse_old_marks(item)
    Open.take()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Fails a test that has stated something which no look has judged."""
    result = yield
    if still := Open.take():
        first = ", ".join(str(expectation) for expectation in still[:MOST_STATED])
        more = f" and {len(still) - MOST_STATED} more" if len(still) > MOST_STATED else ""
        what = f"no look has judged what this test stated: {first}{more}"
        pytest.fail(f"{what}; look() at the process after the statement, or read what a look(check=False) found", False)
    return result


def _worker(config: pytest.Config) -> str | None:
    """The name of this worker of pytest-xdist; none where one process runs all tests, or hands them out."""
    name: str | None = getattr(config, "workerinput", {}).get("workerid")
    return name


@pytest.fixture(scope="session")
def folioscope_logs(pytestconfig: pytest.Config) -> Path:
    """This run's own directory of logs, or this worker's part of it; the next run clears it away."""
    if worker := _worker(pytestconfig):
        return Path(pytestconfig.workerinput[scratch.WORKERS]) / worker  # type: ignore[attr-defined]
    return scratch.of_run(pytestconfig)


@pytest.fixture(scope="session")
def folioscope_rig(folioscope_logs: Path) -> Iterator[Rig]:
    """The owner of all guests of this run, or of this worker's part of it."""
    rig = Rig(folioscope_logs)
    yield rig
    rig.close()


@pytest.fixture
def folioscope_kernel(pytestconfig: pytest.Config) -> kernels.Kernel | None:
    """The kernel that was given; None for the pinned one. With several a test runs once for each."""
    return next(iter(kernels.given(pytestconfig)), None)


@pytest.fixture
def folioscope_layout(folioscope_granule: str) -> Layout:
    """Sizes and orders of the granule."""
    return LAYOUTS[folioscope_granule]


@pytest.fixture
def folioscope_wanted(
    folioscope_granule: str,
    folioscope_cpu: str,
    folioscope_machine: str,
    folioscope_kernel: kernels.Kernel | None,
    pytestconfig: pytest.Config,
    request: pytest.FixtureRequest,
) -> Wanted:
    """The guest that the test's dimensions and the options come to; a test with the mark `folioscope_recorded` has one
    with the recorder's plugin, which needs what the mark `folioscope_parallel` asks for."""
    if folioscope_granule == "16k" and folioscope_cpu in CPUS_WITHOUT_16K:
        pytest.skip(f"{folioscope_cpu} has no 16K granule")
    options = _options(pytestconfig, folioscope_kernel)
    if names.mark(request.node, "recorded"):
        options += ("--record",)
    elif folioscope_machine == "tcg":
        how = "multi" if names.mark(request.node, "parallel") else names.get(pytestconfig, "tcg-thread")
        options += ("--tcg-thread", how) if how != "single" else ()
    else:
        # The process of a guest on KVM writes below its --out alone, unless it is told of more: bundles, tests' files.
        temporary: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
        for place in (scratch.output_of(pytestconfig), temporary):
            place.mkdir(parents=True, exist_ok=True)
            options += ("--writable", str(place))
    return Wanted(folioscope_granule, folioscope_cpu, folioscope_machine, options)


def _options(config: pytest.Config, kernel: kernels.Kernel | None) -> tuple[str, ...]:
    """The options of the guest, as ``folioscope session`` takes them."""
    words = []
    if kernel:
        words += ["--kernel", str(kernel.image)]
        words += ["--vmlinux", str(kernel.vmlinux)] if kernel.vmlinux else []
    elif symbols := names.get(config, "vmlinux"):
        words += ["--vmlinux", str(kernels.absolute(config, symbols[0]))]
    if path := names.get(config, "initrd"):
        words += ["--initrd", str(kernels.absolute(config, path))]
    for name in ("append", "memory", "smp"):
        if value := names.get(config, name):
            words.append(f"--{name}={value}")
    return tuple(words)


@pytest.fixture
def folioscope_guest(folioscope_rig: Rig, folioscope_wanted: Wanted, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """A guest in its default state, under the test's policy where it has one. If it is lost, the test fails, a bundle
    stays, and the next test gets another; so it does after a test in which its kernel reported a fault."""
    guest = folioscope_rig.guest(folioscope_wanted)
    named = dimensions.name(request.config, "policy")
    policy = request.getfixturevalue(named) if named in request.fixturenames else None
    if policy and not guest.has_policies:
        pytest.skip("this kernel has no order policies: they are Folioscope's patches")
    guest.reset(policy)
    yield guest
    if guest.session.lost or guest.session.faulty:
        folioscope_rig.drop(folioscope_wanted)


@pytest.fixture
def folioscope_process(folioscope_guest: Guest) -> Iterator[Process]:
    """A workload process of the guest, ended after the test."""
    process = folioscope_guest.spawn()
    yield process
    if not folioscope_guest.session.lost:
        process.kill()


def _keep_bundle(guest: Guest, node: pytest.Item, why: str) -> Path:
    """Asks the host for what it has; it makes its own bundle when it loses the guest by itself."""
    name = "".join(c if c.isalnum() or c in "-._[]" else "_" for c in node.name)
    place = scratch.kept(scratch.output_of(node.config) / "bundles", f"{name}-{int(time.time())}")
    try:
        guest.call("bundle", path=str(place), why=why, looks=guest.last is not None)
    except GuestLost as error:
        # The host's own bundle of the guest that it lost goes with the logs when the next run begins.
        if made := re.search(r"what there was of it is in (.+)$", str(error)):
            shutil.copytree(made[1], place, dirs_exist_ok=True)
        words = " ".join(guest.session.command_line)
        (place / "lost.txt").write_text(f"{why}\n{error}\n{words}\n")
    return place


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    guest: Guest | None = getattr(item, "funcargs", {}).get("folioscope_guest")
    # A failed set-up may be another fixture's, that has asked something of the guest.
    if report.failed and report.when in ("setup", "call") and guest and call.excinfo:
        first = (str(call.excinfo.value).splitlines() or [""])[0]
        why = f"test {item.nodeid} failed in its {report.when}: {call.excinfo.typename}: {first}"
        report.sections.append(("folioscope", "\n".join(_found(guest, _keep_bundle(guest, item, why)))))
    return report


def _found(guest: Guest, bundle: Path) -> Iterator[str]:
    """What was wrong at the last look, in words; where it is kept, and how to ask further."""
    errors = guest.last.errors if guest.last else []
    for error in errors[:MOST_FINDINGS]:
        yield f"{error.rule} {error.va:#x} {error.message}"
    if len(errors) > MOST_FINDINGS:
        yield f"and {len(errors) - MOST_FINDINGS} more"
    yield f"bundle: {bundle}"
    if errors and (bundle / "look.core").exists():
        yield shlex.join(["folioscope", "explain", hex(errors[0].va), str(bundle / "look.core")])
    if errors and (bundle / "before.core").exists():
        yield shlex.join(["folioscope", "diff", str(bundle / "before.core"), str(bundle / "look.core")])
