# SPDX-License-Identifier: GPL-2.0-only
"""Names of options and marks. All begin with ``folioscope``, so that no other plugin has them.

A former, shorter name is refused by one sentence with the present name. Folioscope's own tests may use the shorter
names: their conftest asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

# What a test with a guest may take, its boot included; an emulated host is that much slower.
DEADLINE_SECONDS = 300.0


@dataclass(frozen=True)
class Option:
    """An option of pytest: ``--folioscope-`` and its name."""

    name: str
    # As it was called before.
    short: str
    help: str
    # What else pytest is to know of it.
    more: dict[str, Any] = field(default_factory=dict)


OPTIONS = (
    Option("granule", "--granule", "granules to test on, by comma [4k,16k,64k; a kernel that is given has its own]"),
    Option("cpu", "--cpu", "CPU models to test on, by comma [%(default)s]", {"default": "max"}),
    Option(
        "policy",
        "--policy",
        "order policies for tests that ask for one, by comma [%(default)s]",
        {"default": "simple,variable,retry"},
    ),
    Option(
        "machine",
        "--machine",
        "machines to test on, by comma: tcg, kvm, kvm-in-tcg (VHE), kvm-in-tcg-nvhe; auto: what this host has",
        {"default": "auto"},
    ),
    Option(
        "kernel",
        "--guest-kernel",
        "test these kernels instead of the pinned one, each test on each",
        {"metavar": "IMAGE", "nargs": "+", "action": "extend"},
    ),
    Option(
        "vmlinux",
        "--guest-vmlinux",
        "the vmlinux of each of these kernels, in the same order, for symbols and order records",
        {"metavar": "FILE", "nargs": "+", "action": "extend"},
    ),
    Option("initrd", "--guest-initrd", "the initramfs, with Folioscope's agent in it", {"metavar": "FILE"}),
    Option("append", "--guest-append", "more words for the guest's command line", {"metavar": "WORDS"}),
    Option("memory", "--guest-memory", "the guest's memory [1G]", {"metavar": "SIZE"}),
    Option("smp", "--guest-smp", "the guest's CPUs [2]", {"metavar": "N"}),
    Option(
        "tcg-thread",
        "--guest-tcg-thread",
        "how TCG runs the guest's CPUs: single, in turns, or multi, at the same time [%(default)s]",
        {"metavar": "HOW", "choices": ("single", "multi"), "default": "single"},
    ),
    Option(
        "deadline",
        "--guest-deadline",
        "what a test with a guest may take, unless it has a mark `timeout` [%(default)s]",
        {"metavar": "SECONDS", "type": float, "default": DEADLINE_SECONDS},
    ),
)

PREFIX = "folioscope_"
#: By name without the prefix, what the mark needs and is.
MARKS = {
    "every_machine": ("", "run the test on every machine of this host, carried ones too"),
    "only_machine": ("(name)", "run the test on this machine, whatever the host has"),
    "recorded": ("", "boot the guest with the recorder's plugin, for guest.recording()"),
    "parallel": ("", "the guest's CPUs run at the same time, under TCG as well"),
    "provokes": ("(text, ...)", "the guest's kernel reports these, and nothing else"),
}
_SHORT = pytest.StashKey[bool]()


def add_options(parser: pytest.Parser) -> None:
    """All of them, by the names that they have."""
    group = parser.getgroup("folioscope")
    for option in OPTIONS:
        group.addoption(f"--folioscope-{option.name}", help=option.help, **option.more)


def add_short_options(parser: pytest.Parser) -> None:
    """For a conftest: the shorter names too."""
    group = parser.getgroup("folioscope, by shorter names")
    for option in OPTIONS:
        name = f"--folioscope-{option.name}"
        dest = name.removeprefix("--").replace("-", "_")
        group.addoption(option.short, dest=dest, help=f"is {name}", **option.more)


def add_marks(config: pytest.Config) -> None:
    """All of them, by the names that they have."""
    for name, (needs, what) in MARKS.items():
        config.addinivalue_line("markers", f"{PREFIX}{name}{needs}: {what}")


def add_short_marks(config: pytest.Config) -> None:
    """For a conftest: the shorter names too."""
    config.stash[_SHORT] = True
    for name, (needs, _) in MARKS.items():
        config.addinivalue_line("markers", f"{name}{needs}: is {PREFIX}{name}")


def get(config: pytest.Config, name: str) -> Any:
    """What was given for an option."""
    return config.getoption(f"folioscope_{name.replace('-', '_')}")


def marks(item: pytest.Item | pytest.Function | Any, name: str) -> Iterator[pytest.Mark]:
    """The marks of a test by one of the names of ``MARKS``."""
    yield from item.iter_markers(PREFIX + name)
    if item.config.stash.get(_SHORT, False):
        yield from item.iter_markers(name)


def mark(item: Any, name: str) -> pytest.Mark | None:
    """The closest of them."""
    return next(marks(item, name), None)


def is_ours(item: pytest.Item) -> bool:
    """Whether a test has to do with guests."""
    return any(name.startswith(PREFIX) for name in getattr(item, "fixturenames", ()))


def refuse_old_options(unknown: list[str]) -> None:
    """One sentence on an option that has another name now; others are pytest's to refuse."""
    now = {option.short: f"--folioscope-{option.name}" for option in OPTIONS}
    for word in unknown:
        if new := now.get(word.partition("=")[0]):
            raise pytest.UsageError(f"the option {word.partition('=')[0]} is now {new}")


def refuse_old_marks(item: pytest.Item) -> None:
    """Fails a test of ours with a mark that has another name now, unless another plugin has one by that name."""
    if item.config.stash.get(_SHORT, False) or not is_ours(item):
        return
    known = {line.partition(":")[0].partition("(")[0].strip() for line in item.config.getini("markers")}
    for name in MARKS.keys() - known:
        if item.get_closest_marker(name):
            pytest.fail(f"the mark `{name}` is now `{PREFIX}{name}`", pytrace=False)
