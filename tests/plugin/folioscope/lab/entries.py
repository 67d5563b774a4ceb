# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel was entered for, and what it executed for that: by exception, and by system call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from .statistics import LEAST_RUNS, changed, ratio

_SYSCALL = "syscall "
#: All system calls together.
SYSCALLS = "syscall"
#: Numbers of arm64 (include/uapi/asm-generic/unistd.h), of those that a compiler and an engine come to most.
NAMES = {
    48: "faccessat",
    56: "openat",
    57: "close",
    62: "lseek",
    63: "read",
    64: "write",
    73: "ppoll",
    78: "readlinkat",
    79: "newfstatat",
    93: "exit",
    94: "exit_group",
    98: "futex",
    214: "brk",
    215: "munmap",
    220: "clone",
    221: "execve",
    222: "mmap",
    226: "mprotect",
    233: "madvise",
    260: "wait4",
}
#: So many system calls are shown.
MOST = 10


def named(cause: str) -> str:
    """As the counter calls it, with the name of a system call where that is known."""
    if not cause.startswith(_SYSCALL):
        return cause
    return NAMES.get(int(cause.removeprefix(_SYSCALL)), cause)


def instructions_for(setting: dict[str, Any], cause: str) -> list[int]:
    """Of each run, by a cause's name, or by ``SYSCALLS``; nothing where entries were not counted."""
    wanted = [
        each["instructions"]
        for name, each in setting["entries"].items()
        if named(name) == cause or (cause == SYSCALLS and name.startswith(_SYSCALL))
    ]
    return [sum(run) for run in zip(*wanted, strict=True)]


def table(settings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Millions of instructions for each cause, how often it came, and against the first setting."""
    counted = [setting for setting in settings if setting["entries"]]
    if not counted:
        return
    first = counted[0]
    calls = {name for name in first["entries"] if name.startswith(_SYSCALL)}
    most = sorted(calls, key=lambda name: -median(first["entries"][name]["instructions"]))[:MOST]
    others = [name for name in first["entries"] if name not in calls]
    others.sort(key=lambda name: -median(first["entries"][name]["instructions"]))
    yield ""
    yield f"| kernel, million instructions (times) | {' | '.join(setting['name'] for setting in counted)} |"
    yield "|---|" + "---:|" * len(counted)
    for cause in (*map(named, others), SYSCALLS, *map(named, most)):
        yield f"| {cause} | {' | '.join(_cell(setting, first, cause) for setting in counted)} |"


def _cell(setting: dict[str, Any], first: dict[str, Any], cause: str) -> str:
    runs, others = (instructions_for(each, cause) for each in (setting, first))
    if not runs:
        return ""
    times = sum(
        median(each["times"])
        for name, each in setting["entries"].items()
        if named(name) == cause or (cause == SYSCALLS and name.startswith(_SYSCALL))
    )
    text = f"{median(runs) / 1e6:,.1f} ({times:,.0f})"
    if setting is not first and min(len(runs), len(others)) >= LEAST_RUNS and median(others):
        against = ratio(runs, others)
        text += f" {against.times - 1:+.1%}" if changed(against) else " ~"
    return text
