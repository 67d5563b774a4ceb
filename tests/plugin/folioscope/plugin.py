"""pytest plugin: small dimension fixtures, composed into guests that live as long as they are useful.

Load it in a ``conftest.py`` with ``pytest_plugins = ["folioscope.plugin"]``. A test that asks for
``guest`` runs once per granule; one that asks for ``policy`` as well runs once per policy, and one with the mark
``every_machine`` once per machine of this host. The dimensions are chosen with ``--granule``, ``--cpu``,
``--policy`` and ``--machine``. With pytest-xdist, ``-n`` runs several guests side by side.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import machines, scratch
from .client import OUT, GuestLost, Session
from .guest import Guest, Process
from .layout import LAYOUTS, Layout

# Guests that stay booted side by side; each takes the memory that its kernel touches, some 100 MiB.
KEEP = 4
# The policy of tests on carried machines: that of `make run`.
CARRIED_POLICY = "variable"
CPUS_WITHOUT_16K = {"cortex-a53", "cortex-a57", "cortex-a72"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("folioscope")
    group.addoption("--granule", default="4k,16k,64k", help="granules to test on, by comma")
    group.addoption("--cpu", default="max", help="CPU models to test on, by comma")
    group.addoption("--policy", default="simple,variable,retry", help="order policies for tests that ask for one")
    group.addoption(
        "--machine",
        default="auto",
        help="machines to test on, by comma: tcg, kvm, kvm-in-tcg (VHE), kvm-in-tcg-nvhe; auto: what this host has",
    )
    group.addoption("--guest-kernel", default=None, help="test this kernel instead of the pinned one")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_machine: run the test on every machine of this host, carried ones too")
    config.addinivalue_line("markers", "only_machine(name): run the test on this machine, whatever the host has")
    config.pluginmanager.register(machines.Agreement())
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.import_plugin("folioscope.parallel")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for dimension in ("machine", "cpu", "granule", "policy"):
        if dimension in metafunc.fixturenames and not _parametrized(metafunc, dimension):
            option = metafunc.config.getoption(f"--{dimension}")
            every = metafunc.definition.get_closest_marker("every_machine") is not None
            only = metafunc.definition.get_closest_marker("only_machine")
            values = machines.chosen(option, every) if dimension == "machine" else option.split(",")
            if dimension == "machine" and only:
                values = list(only.args)
            metafunc.parametrize(dimension, values, scope="session")


def _parametrized(metafunc: pytest.Metafunc, name: str) -> bool:
    return any(
        name in str(mark.args[0]).replace(" ", "").split(",")
        for mark in metafunc.definition.iter_markers("parametrize")
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out granules that were not asked for; tests of one guest follow each other, so that it boots once."""
    granules = config.getoption("--granule").split(",")

    def unwanted(item: pytest.Item) -> bool:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("granule", granules[0]) not in granules:
            return True
        # An emulated host is slow, and which machine runs a guest has nothing to do with its policy: one will do,
        # unless more are asked for by naming the machine.
        carried = params.get("machine") in machines.CARRIED and config.getoption("--machine") == "auto"
        return carried and params.get("policy", CARRIED_POLICY) != CARRIED_POLICY

    left_out = [item for item in items if unwanted(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    def key(item: pytest.Item) -> tuple[bool | str, ...]:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        # What takes longest first, for the sake of the worker that would get it last.
        native = params.get("machine") not in machines.CARRIED
        return native, *(str(params.get(name, "")) for name in ("machine", "cpu", "granule"))

    items.sort(key=key)


@dataclass(frozen=True)
class Wanted:
    """What identifies a guest: two tests that want the same share it."""

    granule: str
    cpu: str
    machine: str
    more: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """As ``folioscope session`` takes them."""
        return ["--granule", self.granule, "--cpu", self.cpu, *machines.arguments(self.machine), *self.more]

    def __str__(self) -> str:
        return "-".join([self.granule, self.cpu, self.machine, *(word.strip("-") for word in self.more)])


class Rig:
    """Owns every guest: boots it when first asked for, replaces one that is lost, ends all at the end."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._guests: dict[Wanted, Guest] = {}
        self._carriers = machines.Carriers(out)
        self._booted = 0

    def guest(self, wanted: Wanted) -> Guest:
        """A live guest; the one that others use as well, if there is one."""
        if (guest := self._guests.get(wanted)) and not guest.session.lost:
            self._guests[wanted] = self._guests.pop(wanted)
            return guest
        self.drop(wanted)
        # Another carrier than the one that there is, or none, ends the guests in that one.
        for other in list(self._guests):
            if other.machine in machines.CARRIED and (other.machine, other.cpu) != (wanted.machine, wanted.cpu):
                self.drop(other)
        environment = self._carriers.environment(wanted.machine, wanted.cpu)
        while len(self._guests) >= KEEP:
            self.drop(next(iter(self._guests)))
        self._booted += 1
        name = "".join(c if c.isalnum() or c in "-." else "_" for c in str(wanted))
        place = self._out / f"{self._booted:03d}-{name}"
        session = Session(
            [*wanted.arguments(), "--out", str(place)], log=place / "session.log", environment=environment
        )
        self._guests[wanted] = Guest(session, wanted.granule)
        return self._guests[wanted]

    def drop(self, wanted: Wanted) -> None:
        """Ends a guest."""
        if guest := self._guests.pop(wanted, None):
            guest.session.close()

    def close(self) -> None:
        """Ends all guests."""
        for wanted in list(self._guests):
            self.drop(wanted)
        self._carriers.close()


def _worker(config: pytest.Config) -> str | None:
    """The name of this worker of pytest-xdist; none where one process runs all tests, or hands them out."""
    return getattr(config, "workerinput", {}).get("workerid")


@pytest.fixture(scope="session")
def logs(pytestconfig: pytest.Config) -> Path:
    """This run's own directory of logs, or this worker's part of it; the next run clears it away."""
    if worker := _worker(pytestconfig):
        return Path(pytestconfig.workerinput[scratch.WORKERS]) / worker  # type: ignore[attr-defined]
    return scratch.of_run(pytestconfig)


@pytest.fixture(scope="session")
def rig(logs: Path) -> Iterator[Rig]:
    """The owner of all guests of this run, or of this worker's part of it."""
    rig = Rig(logs)
    yield rig
    rig.close()


@pytest.fixture
def layout(granule: str) -> Layout:
    """Sizes and orders of the granule."""
    return LAYOUTS[granule]


@pytest.fixture
def wanted(granule: str, cpu: str, machine: str, request: pytest.FixtureRequest) -> Wanted:
    """The guest that the test's dimensions come to."""
    if granule == "16k" and cpu in CPUS_WITHOUT_16K:
        pytest.skip(f"{cpu} has no 16K granule")
    kernel = request.config.getoption("--guest-kernel")
    return Wanted(granule, cpu, machine, ("--kernel", kernel) if kernel else ())


@pytest.fixture
def guest(rig: Rig, wanted: Wanted) -> Iterator[Guest]:
    """A guest in its default state. If it is lost, the test fails, a bundle stays, and the next test gets another."""
    guest = rig.guest(wanted)
    guest.reset()
    yield guest
    if guest.session.lost:
        rig.drop(wanted)


@pytest.fixture
def process(guest: Guest) -> Iterator[Process]:
    """A workload process of the guest, ended after the test."""
    process = guest.spawn()
    yield process
    if not guest.session.lost:
        process.kill()


def _keep_bundle(guest: Guest, node: pytest.Item) -> Path:
    """Asks the host for what it has; it makes its own bundle when it loses the guest by itself."""
    name = "".join(c if c.isalnum() or c in "-._[]" else "_" for c in node.name)
    place = scratch.kept(OUT / "bundles", f"{name}-{int(time.time())}")
    try:
        guest.call("bundle", path=str(place), why=f"test {node.nodeid} failed")
    except GuestLost as error:
        # The host's own bundle of the guest that it lost goes with the logs when the next run begins.
        if made := re.search(r"what there was of it is in (.+)$", str(error)):
            shutil.copytree(made[1], place, dirs_exist_ok=True)
        (place / "lost.txt").write_text(f"{error}\n{' '.join(guest.session.command_line)}\n")
    return place


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    guest = getattr(item, "funcargs", {}).get("guest")
    if report.when == "call" and report.failed and guest:
        report.sections.append(("folioscope", f"bundle: {_keep_bundle(guest, item)}"))
