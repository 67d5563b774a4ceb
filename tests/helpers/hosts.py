# SPDX-License-Identifier: GPL-2.0-only
"""Hosts of a network on one machine: network namespaces, joined by a bridge.

A host has an address, a loopback of its own, and no way out. All hosts are in one PID namespace, which ends with the
test however that ends, and takes all their processes with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import command
from campaigns import PLUGIN
from command import SLOWER

HELPERS = Path(__file__).parent
#: One that `skips.toml` lists.
NONE = "this user may make no network namespace"
_FIRST = 11
# The first process of the PID namespace. It ends with its standard input, which is the test's.
_INIT = """set -e
mount -t tmpfs run /run
mkdir /run/netns
ip link set lo up
ip link add hosts type bridge
ip address add 192.168.77.1/24 dev hosts
ip link set hosts up
for host in "$@"; do
    ip netns add "host$host"
    ip link add "to$host" type veth peer name eth0 netns "host$host"
    ip link set "to$host" master hosts up
    ip -n "host$host" address add "192.168.77.$host/24" dev eth0
    ip -n "host$host" link set eth0 up
    ip -n "host$host" link set lo up
done
echo up
exec cat
"""


class Hosts:
    """So many hosts, until the block ends. The host 0 is the bridge's own."""

    def __init__(self, count: int) -> None:
        # A user who is not root needs a user namespace too.
        user = os.geteuid() != 0
        own = ["--user", "--map-root-user"] if user else []
        self._enter = ["--mount", "--net", "--pid", *(["--user", "--preserve-credentials"] if user else [])]
        new = ["unshare", *own, "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        names = [str(_FIRST + number) for number in range(count)]
        if subprocess.run([*new, "true"], capture_output=True, check=False).returncode:
            pytest.skip(NONE)
        self._shell = subprocess.Popen(
            [*new, "sh", "-c", _INIT, "hosts", *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._shell.stdout and self._shell.stderr
        if self._shell.stdout.readline() != b"up\n":
            raise AssertionError(self._shell.stderr.read().decode())
        self._started: list[subprocess.Popen[bytes]] = []
        (self._init,) = command.children(self._shell.pid)

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.communicate(timeout=30 * SLOWER)
        for child in self._started:
            child.wait(30 * SLOWER)

    @staticmethod
    def address(host: int) -> str:
        """Of a host, by number."""
        return f"192.168.77.{_FIRST - 1 + host if host else 1}"

    def words(self, host: int, words: Sequence[object], directory: Path | None = None) -> list[str]:
        """What starts a program there, by default in this process's directory."""
        there = ["nsenter", f"--net=/run/netns/host{_FIRST - 1 + host}"] if host else []
        inside = ["nsenter", f"--target={self._init}", *self._enter]
        return [*inside, *there, "env", f"--chdir={directory or Path.cwd()}", *map(str, words)]

    def start(
        self,
        host: int,
        words: Sequence[object],
        environment: dict[str, str],
        log: Path,
        directory: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a program there, with its output in a file. What is returned waits for it: see `inside`."""
        with log.open("ab") as output:
            child = subprocess.Popen(
                self.words(host, words, directory),
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(child)
        return child

    def run(
        self, host: int, words: Sequence[object], environment: dict[str, str] | None = None, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program there to its end."""
        return subprocess.run(
            self.words(host, words),
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds * SLOWER,
            check=False,
        )

    def python(self, host: int, code: str, *words: object, environment: dict[str, str] | None = None) -> str:
        """Runs Python there, which finds the package and the helpers; returns its output."""
        path = os.pathsep.join(map(str, (PLUGIN, HELPERS)))
        more = {**(environment or {}), "PYTHONPATH": path}
        ran = self.run(host, [sys.executable, "-c", code, *words], more)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def inside(child: subprocess.Popen[bytes]) -> int | None:
    """A program on a host, by what has started it: its number here; none once it has ended."""
    found = command.children(child.pid)
    return found[0] if found else None


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kills a program on a host, and waits for that."""
    if pid := inside(child):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()
