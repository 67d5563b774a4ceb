# SPDX-License-Identifier: GPL-2.0-only
"""Folioscope's own tests use the plugin as a user's would; here alone its fixtures have short names."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from folioscope import Area, Guest, Layout, Process, dimensions, machines, names
from folioscope.rig import Rig, Wanted

import long_campaign
import resumed
from command import ROOT, SLOWER
from skips import Skips
from without import SWITCHES, Without

pytest_plugins = ["folioscope.plugin", "held_guest", "own_qemu"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make test-long` asks for, and what turns features off to see whether tests are about them."""
    names.add_short_options(parser)
    resumed.add_options(parser)
    parser.addoption("--without", metavar="SWITCH", choices=sorted(SWITCHES), help="drop what switches this on")


def pytest_configure(config: pytest.Config) -> None:
    """A skip is one of the list. Dimensions go by short names too, also in marks.

    What the tests start gets signals as from an interactive shell, also under `nohup` and in the background of a
    script, where SIGHUP and SIGINT are ignored, and what is ignored is inherited. This process goes on ignoring them:
    a handler that does nothing is not inherited."""
    config.pluginmanager.register(Skips())
    if switch := config.getoption("--without"):
        config.pluginmanager.register(Without(switch))
    resumed.register(config, ROOT)
    names.add_short_marks(config)
    dimensions.rename(config, {dimension: dimension for dimension in ("machine", "cpu", "granule", "policy")})
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs QEMU has a mark, so that a host without it can leave it out: our own monitor alone does not.

    In `make test` all that has a granule runs with the first; with the others what is marked ``every_granule`` or
    chooses its granules, and that under one policy. An emulated host is slow, so of the machines that are carried each
    has one granule there: the first without VHE, the last with; what has a policy is about the kernel and not about
    the machine, so the last has that alone, as has a host that is emulated (``make test-arm64``). The rest is
    long, unless the user names it, and a cell where the campaign of ``make test-long`` has it. What takes longest comes
    first, and a module without guests stays together."""

    items.sort(key=dimensions.key)
    celled = long_campaign.modules()
    first, last = dimensions.granules(config)[0], dimensions.granules(config)[-1]
    for item in items:
        only = names.mark(item, "only_machine")
        if dimensions.guest_of(item) is None and not item.get_closest_marker("xdist_group"):
            # A module's fixtures are made once.
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
        has = dimensions.of(item)
        machine = has.get("machine") or (only.args[0] if only else "kvm")
        if machine != "kvm":
            item.add_marker("qemu")
        granule = has.get("granule")
        if SLOWER > 1 and other_policy(item):
            again = True
        elif machine in machines.CARRIED:
            elsewhere = "policy" in has if machine == machines.NOT_AT_EL2 else granule not in (None, last)
            again = names.get(config, "machine") == "auto" and elsewhere
        else:
            again = not names.get(config, "granule") and granule not in (None, first) and not on_every_granule(item)
        if again:
            item.add_marker("long")
            if (item.path, machine, granule) in celled:
                item.add_marker("cell")


def other_policy(item: pytest.Item) -> bool:
    """Whether a test's policy is another one than `make run`'s."""
    return dimensions.of(item).get("policy", dimensions.CARRIED_POLICY) != dimensions.CARRIED_POLICY


def on_every_granule(item: pytest.Item) -> bool:
    """Whether a test shows something with every granule that it does not with the first."""
    if other_policy(item):
        return False
    chooses = any("granule" in str(mark.args[0]).split(",") for mark in item.iter_markers("parametrize"))
    return chooses or item.get_closest_marker("every_granule") is not None


@pytest.fixture
def folioscope_machine(machine: str) -> str:
    """What runs the guest."""
    return machine


@pytest.fixture
def folioscope_cpu(cpu: str) -> str:
    """The CPU model."""
    return cpu


@pytest.fixture
def folioscope_granule(granule: str) -> str:
    """The page size, by name."""
    return granule


@pytest.fixture(scope="session")
def logs(folioscope_logs: Path) -> Path:
    """Where logs go."""
    return folioscope_logs


@pytest.fixture(scope="session")
def rig(folioscope_rig: Rig) -> Rig:
    """The owner of the guests."""
    return folioscope_rig


@pytest.fixture
def layout(folioscope_layout: Layout) -> Layout:
    """Sizes and orders of the granule."""
    return folioscope_layout


@pytest.fixture
def wanted(folioscope_wanted: Wanted) -> Wanted:
    """The guest that the test's dimensions come to."""
    return folioscope_wanted


@pytest.fixture
def guest(folioscope_guest: Guest) -> Guest:
    """A guest in its default state."""
    return folioscope_guest


@pytest.fixture
def process(folioscope_process: Process) -> Process:
    """A workload process of the guest."""
    return folioscope_process


@pytest.fixture
def folded(process: Process) -> Area:
    """Two blocks, written and folded."""
    area = process.blocks(2)
    area.write()
    return area


@pytest.fixture
def paged(process: Process, layout: Layout) -> Area:
    """A block's worth of single pages, written."""
    area = process.blocks(1, hint="nohugepage")
    area.write()
    assert process.look().pattern(area.address, area.length) == "-"
    return area
