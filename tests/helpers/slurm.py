# SPDX-License-Identifier: GPL-2.0-only
"""Slurm on hosts of a network (`hosts.py`): Debian's munge, slurmctld and slurmd, unpacked and laid over /usr there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from command import ROOT, SLOWER, wait_until
from hosts import Hosts

CONTROLLER, FIRST = 1, 2
_SETTINGS = """ClusterName=folioscope
SlurmctldHost=controller({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={place}/state
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/%n.pid
SlurmdSpoolDir={place}/spool-%n
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
#: The first release that can be told to leave cgroups alone.
_WITHOUT_CGROUPS = 23
#: Those that `skips.toml` lists.
NO_PACKAGES, NO_ROOT = "there is no apt here that has Slurm", "Slurm's daemons run as root"


class Slurm:
    """A controller on the host 1, and so many nodes on those behind it; all end with their hosts."""

    def __init__(self, hosts: Hosts, place: Path, nodes: int) -> None:
        self._hosts, self._place = hosts, place
        self._packages = program()
        munge = place / "munge.socket"
        lines = [
            f"NodeName=node{number} NodeAddr={hosts.address(FIRST + number)} CPUs=1 RealMemory=4096"
            for number in range(nodes)
        ]
        settings = _SETTINGS.format(
            controller=hosts.address(CONTROLLER), munge=munge, place=place, nodes="\n".join(lines)
        )
        place.chmod(0o755)
        (place / "state").mkdir()
        (place / "slurm.conf").write_text(settings)
        # A newer slurmd would start its steps by systemd; an older one does not know the word.
        version = self.said("slurmd", "-V").split()[-1]
        if int(version.partition(".")[0]) >= _WITHOUT_CGROUPS:
            (place / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        key = place / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        words = [f"--{name}-file={place}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self.start(0, "munged", ["munged", "--foreground", "--force", f"--socket={munge}", *words])
        self._wait(munge.exists, "munged")
        self.start(CONTROLLER, "slurmctld", ["slurmctld", "-D"], name="controller")
        for number in range(nodes):
            self.start(FIRST + number, f"slurmd-{number}", ["slurmd", "-D"], name=f"node{number}")
        self._wait(lambda: self.said("sinfo", "--noheader", "--format=%D %T") == f"{nodes} idle", "slurmctld")

    def environment(self) -> dict[str, str]:
        """What its commands need."""
        return {"SLURM_CONF": str(self._place / "slurm.conf")}

    def words(self, words: Sequence[object], name: str = "") -> list[str]:
        """A command where Slurm is installed, in a mount namespace, and on a host of this name."""
        script = 'mount -t overlay -o lowerdir="$0":/usr overlay /usr; [ -z "$1" ] || hostname "$1"; shift; exec "$@"'
        return ["unshare", "--mount", "--uts", "sh", "-ec", script, f"{self._packages}/usr", name, *map(str, words)]

    def start(
        self, host: int, log: str, words: Sequence[object], name: str = "", environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a program there."""
        more = {**self.environment(), **(environment or {})}
        return self._hosts.start(host, self.words(words, name), more, self._place / f"{log}.log")

    def said(self, *words: object) -> str:
        """What one of its commands says on the host 0."""
        ran = self._hosts.run(0, self.words(words), self.environment())
        return (ran.stdout if ran.returncode == 0 else ran.stderr).strip()

    def logs(self) -> str:
        """What its daemons have said."""
        return "".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self._place.glob("*.log")))

    def _wait(self, what: object, which: str) -> None:
        if not wait_until(what, 60):
            raise AssertionError(f"{which} did not come up\n{self.logs()}")


def program() -> str:
    """The directory of its packages, fetched where the cache has none."""
    if os.geteuid():
        pytest.skip(NO_ROOT)
    if not shutil.which("apt-get"):
        pytest.skip(NO_PACKAGES)
    script = ROOT / "vmm" / "setup" / "slurm.sh"
    made = subprocess.run([script], capture_output=True, text=True, timeout=600 * SLOWER, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
