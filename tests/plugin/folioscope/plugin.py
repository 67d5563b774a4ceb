# SPDX-License-Identifier: GPL-2.0-only
"""pytest plugin: small dimension fixtures, composed into guests that live as long as they are useful.

It is loaded by itself where the package is installed. A test that asks for ``folioscope_guest`` runs once per granule;
one that asks for ``folioscope_policy`` too once per order policy, which is then in force, and one with the mark
``every_machine`` once per machine of this host. The dimensions are chosen with ``--granule``, ``--cpu``,
``--policy`` and ``--machine``, the kernel and its machine with ``--guest-...``. With pytest-xdist, ``-n`` runs several
guests side by side.
"""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from . import agreement, dimensions, machines, scratch, voice
from .client import GuestLost
from .guest import Guest
from .layout import LAYOUTS, Layout
from .locate import output
from .process import Process
from .rig import Rig, Wanted

__all__ = ["Rig", "Wanted"]

CPUS_WITHOUT_16K = {"cortex-a53", "cortex-a57", "cortex-a72"}
# What a test with a guest may take, its boot included; an emulated host is that much slower.
DEADLINE_SECONDS = 300.0
CARRIED_FACTOR = 2.0
# So many findings of a failed test are shown; all are in its bundle.
MOST_FINDINGS = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("folioscope")
    group.addoption("--granule", help="granules to test on, by comma [4k,16k,64k; a kernel that is given has its own]")
    group.addoption("--cpu", default="max", help="CPU models to test on, by comma [%(default)s]")
    group.addoption(
        "--policy",
        default="simple,variable,retry",
        help="order policies for tests that ask for one, by comma [%(default)s]",
    )
    group.addoption(
        "--machine",
        default="auto",
        help="machines to test on, by comma: tcg, kvm, kvm-in-tcg (VHE), kvm-in-tcg-nvhe; auto: what this host has",
    )
    group.addoption("--guest-kernel", metavar="IMAGE", help="test this kernel instead of the pinned one")
    group.addoption("--guest-vmlinux", metavar="FILE", help="its vmlinux, for symbols and order records")
    group.addoption("--guest-initrd", metavar="FILE", help="the initramfs, with Folioscope's agent in it")
    group.addoption("--guest-append", metavar="WORDS", help="more words for the guest's command line")
    group.addoption("--guest-memory", metavar="SIZE", help="the guest's memory [1G]")
    group.addoption("--guest-smp", metavar="N", help="the guest's CPUs [2]")
    group.addoption(
        "--guest-tcg-thread",
        metavar="HOW",
        choices=("single", "multi"),
        default="single",
        help="how TCG runs the guest's CPUs: single, in turns, or multi, at the same time [%(default)s]",
    )
    group.addoption(
        "--guest-deadline",
        metavar="SECONDS",
        type=float,
        default=DEADLINE_SECONDS,
        help="what a test with a guest may take, unless it has a mark `timeout` [%(default)s]",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_machine: run the test on every machine of this host, carried ones too")
    config.addinivalue_line("markers", "only_machine(name): run the test on this machine, whatever the host has")
    config.addinivalue_line("markers", "recorded: boot the guest with the recorder's plugin, for guest.recording()")
    config.addinivalue_line("markers", "parallel: the guest's CPUs run at the same time, under TCG as well")
    config.addinivalue_line("markers", "provokes(text, ...): the guest's kernel reports these, and nothing else")
    config.pluginmanager.register(agreement.Agreement())
    config.pluginmanager.register(voice.Voice())
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.import_plugin("folioscope.parallel")
    if config.getoption("--guest-kernel") or config.getoption("--granule"):
        # What cannot be tested is told before anything runs.
        dimensions.granules(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    dimensions.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts tests by guest, and gives each that has one a deadline."""
    dimensions.arrange(config, items)
    if not config.pluginmanager.hasplugin("timeout"):
        return
    for item in items:
        if "folioscope_rig" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            factor = CARRIED_FACTOR if dimensions.of(item).get("machine") in machines.CARRIED else 1.0
            item.add_marker(pytest.mark.timeout(config.getoption("--guest-deadline") * factor))


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
def folioscope_layout(folioscope_granule: str) -> Layout:
    """Sizes and orders of the granule."""
    return LAYOUTS[folioscope_granule]


@pytest.fixture
def folioscope_wanted(
    folioscope_granule: str,
    folioscope_cpu: str,
    folioscope_machine: str,
    pytestconfig: pytest.Config,
    request: pytest.FixtureRequest,
) -> Wanted:
    """The guest that the test's dimensions and the options come to; a test with the mark `recorded` has one with the
    recorder's plugin, which needs what the mark `parallel` asks for."""
    if folioscope_granule == "16k" and folioscope_cpu in CPUS_WITHOUT_16K:
        pytest.skip(f"{folioscope_cpu} has no 16K granule")
    options = _options(pytestconfig)
    marked = {mark.name for mark in request.node.iter_markers()}
    if "recorded" in marked:
        options += ("--record",)
    elif folioscope_machine == "tcg":
        how = "multi" if "parallel" in marked else pytestconfig.getoption("--guest-tcg-thread")
        options += ("--tcg-thread", how) if how != "single" else ()
    else:
        # The process of a guest on KVM writes below its --out alone, unless it is told of more: bundles, tests' files.
        temporary: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
        for place in (output(pytestconfig.rootpath), temporary):
            place.mkdir(parents=True, exist_ok=True)
            options += ("--writable", str(place))
    return Wanted(folioscope_granule, folioscope_cpu, folioscope_machine, options)


def _options(config: pytest.Config) -> tuple[str, ...]:
    """The options of the guest, as ``folioscope session`` takes them."""
    words = []
    for name in ("kernel", "vmlinux", "initrd"):
        if path := config.getoption(f"--guest-{name}"):
            words += [f"--{name}", str(dimensions.absolute(config, path))]
    for name in ("append", "memory", "smp"):
        if value := config.getoption(f"--guest-{name}"):
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
    place = scratch.kept(output(node.config.rootpath) / "bundles", f"{name}-{int(time.time())}")
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
