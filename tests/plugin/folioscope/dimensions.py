# SPDX-License-Identifier: GPL-2.0-only
"""The dimensions of a guest: which machine, CPU and granule, under which order policy. A test runs once per value of
each that it asks for.

The fixtures are named ``folioscope_machine``, ``folioscope_cpu``, ``folioscope_granule``, ``folioscope_kernel`` and
``folioscope_policy``. A conftest that gives them other names says so with ``rename``.
"""

from __future__ import annotations

import pytest

from . import kernels, machines, names
from .layout import LAYOUTS

DIMENSIONS = ("machine", "cpu", "granule", "kernel", "policy")
# The policy of tests on carried machines: that of `make run`.
CARRIED_POLICY = "variable"

_NAMES = pytest.StashKey[dict[str, str]]()
_GRANULES = pytest.StashKey[list[str]]()
_ID = pytest.StashKey[str]()


def rename(config: pytest.Config, others: dict[str, str]) -> None:
    """Gives dimensions other names, by which tests ask for them and choose their values."""
    config.stash[_NAMES] = others


def name(config: pytest.Config, dimension: str) -> str:
    """The fixture of a dimension."""
    return config.stash.get(_NAMES, {}).get(dimension, f"folioscope_{dimension}")


def of(item: pytest.Item) -> dict[str, str]:
    """The values that a test has, by dimension; none for those that it does not ask for."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    fixtures = {dimension: name(item.config, dimension) for dimension in DIMENSIONS}
    return {dimension: str(params[named]) for dimension, named in fixtures.items() if named in params}


def nodeid(item: pytest.Item) -> str:
    """A test's id without the group that pytest-xdist adds to it for its scheduler."""
    return item.stash.get(_ID, item.nodeid)


def granules(config: pytest.Config) -> list[str]:
    """The granules to test on: those that were asked for, those of the kernels that were given, else all."""
    if _GRANULES not in config.stash:
        asked: str | None = names.get(config, "granule")
        chosen = asked.split(",") if asked else list(LAYOUTS)
        if unknown := [granule for granule in chosen if granule not in LAYOUTS]:
            raise pytest.UsageError(f"--folioscope-granule: expected 4k, 16k or 64k and found {', '.join(unknown)}")
        given = kernels.given(config)
        for kernel in given:
            if kernel.granule and kernel.granule not in chosen:
                what = f"the kernel {kernel.image} has {kernel.granule} pages; leave --folioscope-granule out"
                raise pytest.UsageError(f"--folioscope-granule {asked}: {what}")
        if given and all(kernel.granule for kernel in given):
            chosen = [granule for granule in chosen if any(kernel.granule == granule for kernel in given)]
        config.stash[_GRANULES] = chosen
    return config.stash[_GRANULES]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Gives a test its values; what the test itself chooses goes before the options."""
    config = metafunc.config
    for dimension in DIMENSIONS:
        named = name(config, dimension)
        if named not in metafunc.fixturenames or _chosen_by_test(metafunc, named):
            continue
        if dimension == "machine":
            every = names.mark(metafunc.definition, "every_machine") is not None
            only = names.mark(metafunc.definition, "only_machine")
            values = list(only.args) if only else machines.chosen(names.get(config, "machine"), every)
        elif dimension == "granule":
            values = granules(config)
        elif dimension == "kernel":
            # One kernel is no dimension: the ids of tests are those of the pinned kernel.
            if len(given := kernels.given(config)) > 1:
                metafunc.parametrize(named, given, ids=str, scope="session")
            continue
        else:
            values = names.get(config, dimension).split(",")
        metafunc.parametrize(named, values, scope="session")


def _chosen_by_test(metafunc: pytest.Metafunc, named: str) -> bool:
    return any(
        named in str(mark.args[0]).replace(" ", "").split(",")
        for mark in metafunc.definition.iter_markers("parametrize")
    )


def guest_of(item: pytest.Item) -> str | None:
    """What the tests of one guest have in common, or of one carrier, in which guests follow each other; None for a
    test without a guest."""
    has = of(item)
    if "machine" not in has or "granule" not in has:
        return None
    parts = ("machine", "cpu") if has["machine"] in machines.CARRIED else ("machine", "cpu", "granule", "kernel")
    return "-".join(has[part] for part in parts if part in has)


def key(item: pytest.Item) -> tuple[bool | str, ...]:
    """Sorts by guest. What takes longest comes first, for the sake of the worker that would get it last: carried
    guests, others, and what has none."""
    has = of(item)
    native, none = has.get("machine") not in machines.CARRIED, "machine" not in has
    return native, none, *(has.get(dimension, "") for dimension in ("machine", "cpu", "granule", "kernel"))


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what was not asked for. Tests of one guest follow each other, so that it boots once; others stay where
    they are."""
    for item in items:
        item.stash[_ID] = item.nodeid
    granule_of = {str(kernel): kernel.granule for kernel in kernels.given(config)}

    def unwanted(item: pytest.Item) -> bool:
        has = of(item)
        if "granule" in has and has["granule"] not in granules(config):
            return True
        if "granule" in has and "kernel" in has and granule_of[has["kernel"]] not in (None, has["granule"]):
            return True
        # An emulated host is slow. Which machine runs a guest has nothing to do with its policy, and how a host that is
        # not at EL2 enters a guest has nothing to do with its granule: one will do, unless more are asked for by naming
        # the machine.
        if has.get("machine") not in machines.CARRIED or names.get(config, "machine") != "auto":
            return False
        if has.get("policy", CARRIED_POLICY) != CARRIED_POLICY:
            return True
        return has["machine"] == machines.NOT_AT_EL2 and has.get("granule") not in (None, granules(config)[0])

    left_out = [item for item in items if unwanted(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    ours = [at for at, item in enumerate(items) if of(item)]
    for at, item in zip(ours, sorted((items[at] for at in ours), key=key), strict=True):
        items[at] = item
