# SPDX-License-Identifier: GPL-2.0-only
"""The dimensions of a guest: which machine, CPU and granule, under which order policy. A test runs once per value of
each that it asks for.

The fixtures are named ``folioscope_machine``, ``folioscope_cpu``, ``folioscope_granule`` and ``folioscope_policy``. A
conftest that gives them other names says so with ``rename``.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from . import machines
from .layout import LAYOUTS
from .locate import CommandNotFound, command

DIMENSIONS = ("machine", "cpu", "granule", "policy")
# The policy of tests on carried machines: that of `make run`.
CARRIED_POLICY = "variable"
IMAGE_SECONDS = 60

_NAMES = pytest.StashKey[dict[str, str]]()
_GRANULES = pytest.StashKey[list[str]]()


def rename(config: pytest.Config, names: dict[str, str]) -> None:
    """Gives dimensions other names, by which tests ask for them and choose their values."""
    config.stash[_NAMES] = names


def name(config: pytest.Config, dimension: str) -> str:
    """The fixture of a dimension."""
    return config.stash.get(_NAMES, {}).get(dimension, f"folioscope_{dimension}")


def of(item: pytest.Item) -> dict[str, str]:
    """The values that a test has, by dimension; none for those that it does not ask for."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    names = {dimension: name(item.config, dimension) for dimension in DIMENSIONS}
    return {dimension: str(params[named]) for dimension, named in names.items() if named in params}


def granules(config: pytest.Config) -> list[str]:
    """The granules to test on: those that were asked for, that of the kernel that was given, else all."""
    if _GRANULES not in config.stash:
        asked: str | None = config.getoption("--granule")
        kernel: str | None = config.getoption("--guest-kernel")
        chosen = asked.split(",") if asked else list(LAYOUTS)
        if unknown := [granule for granule in chosen if granule not in LAYOUTS]:
            raise pytest.UsageError(f"--granule: expected 4k, 16k or 64k and found {', '.join(unknown)}")
        if kernel and (has := granule_of(absolute(config, kernel))):
            if has not in chosen:
                raise pytest.UsageError(f"--granule {asked}: the kernel {kernel} has {has} pages; leave --granule out")
            chosen = [has]
        config.stash[_GRANULES] = chosen
    return config.stash[_GRANULES]


def granule_of(kernel: Path) -> str | None:
    """The granule of a kernel image, whatever it is packed in, by its header; None where that does not say."""
    try:
        found = command()
    except CommandNotFound as error:
        raise pytest.UsageError(str(error)) from error
    words = [str(found.path), "image", str(kernel), "--format", "json"]
    told = subprocess.run(words, check=False, capture_output=True, text=True, timeout=IMAGE_SECONDS)
    if told.returncode != 0:
        raise pytest.UsageError(f"--guest-kernel: {told.stderr.strip()}")
    page = json.loads(told.stdout)["page_size"]
    return next((granule for granule, layout in LAYOUTS.items() if layout.page == page), None)


def absolute(config: pytest.Config, path: str) -> Path:
    """A path as it was meant where pytest was started."""
    return config.invocation_params.dir / Path(path).expanduser()


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Gives a test its values; what the test itself chooses goes before the options."""
    config = metafunc.config
    for dimension in DIMENSIONS:
        named = name(config, dimension)
        if named not in metafunc.fixturenames or _chosen_by_test(metafunc, named):
            continue
        if dimension == "machine":
            every = metafunc.definition.get_closest_marker("every_machine") is not None
            only = metafunc.definition.get_closest_marker("only_machine")
            values = list(only.args) if only else machines.chosen(config.getoption("--machine"), every)
        elif dimension == "granule":
            values = granules(config)
        else:
            values = config.getoption(f"--{dimension}").split(",")
        metafunc.parametrize(named, values, scope="session")


def _chosen_by_test(metafunc: pytest.Metafunc, named: str) -> bool:
    return any(
        named in str(mark.args[0]).replace(" ", "").split(",")
        for mark in metafunc.definition.iter_markers("parametrize")
    )


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what was not asked for; tests of one guest follow each other, so that it boots once."""

    def unwanted(item: pytest.Item) -> bool:
        has = of(item)
        if "granule" in has and has["granule"] not in granules(config):
            return True
        # An emulated host is slow. Which machine runs a guest has nothing to do with its policy, and how a host that is
        # not at EL2 enters a guest has nothing to do with its granule: one will do, unless more are asked for by naming
        # the machine.
        if has.get("machine") not in machines.CARRIED or config.getoption("--machine") != "auto":
            return False
        if has.get("policy", CARRIED_POLICY) != CARRIED_POLICY:
            return True
        return has["machine"] == machines.NOT_AT_EL2 and has.get("granule") not in (None, granules(config)[0])

    left_out = [item for item in items if unwanted(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    def key(item: pytest.Item) -> tuple[bool | str, ...]:
        has = of(item)
        # What takes longest first, for the sake of the worker that would get it last: carried guests, others, modules.
        native, none = has.get("machine") not in machines.CARRIED, "machine" not in has
        return native, none, *(has.get(dimension, "") for dimension in ("machine", "cpu", "granule"))

    items.sort(key=key)
