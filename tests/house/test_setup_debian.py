# SPDX-License-Identifier: GPL-2.0-only
"""The set-up on a Debian that has nothing yet: its first commands, in the order in which a new user gives them."""

from __future__ import annotations

from fresh_host import Host
from test_setup import SETUP, host
from test_setup_host import system

__all__ = ["host"]


def test_a_stock_kernel_needs_no_set_up_before(host: Host) -> None:
    """apt is told of arm64 by its options, whatever dpkg has; a series that backports lack comes from Debian itself."""
    host.program("dpkg", '[ "$1" != --print-architecture ] || echo amd64')
    host.program(
        "apt-get",
        "case $* in *indextargets*) echo trixie http://mirror/debian/;; esac",
    )
    host.program(
        "apt-cache",
        """case $* in
        *stock/trixie/lists*pkgnames\\ linux-image-6.12.*) echo linux-image-6.12.9+deb13-cloud-arm64 ;;
        *stock/trixie/lists*show*linux-image-6.12.9+deb13-cloud-arm64:arm64) echo SHA256: 0123456789abcdef0123456789 ;;
        esac""",
    )
    kernel = host.place / "cache/stock/linux-image-6.12.9+deb13-cloud-arm64-0123456789abcdef0123/vmlinuz"
    kernel.parent.mkdir(parents=True)
    (kernel.parent / "complete").touch()
    ended = host.run(SETUP / "stock.sh", "4k", "6.12", **system(host, "debian-13"))
    assert (ended.returncode, ended.stdout) == (0, f"{kernel}\n"), ended.stderr
    calls = [
        line for line in host.said.read_text().splitlines() if line.startswith("apt-") and "indextargets" not in line
    ]
    assert calls and all("-o APT::Architectures::=arm64" in line for line in calls), calls
    updated = [line for line in calls if line.endswith(" update")]
    assert len(updated) == 2 and "/stock/trixie/" not in updated[0] and "/stock/trixie/" in updated[1]
    for suite in ("trixie-backports", "trixie"):
        (source,) = (host.place / "cache/stock" / suite / "sources.list").read_text().splitlines()
        assert source.startswith("deb [arch=arm64 ") and source.endswith(f" http://mirror/debian/ {suite} main")


def test_a_module_needs_xz(host: Host) -> None:
    """The command says so before it fetches anything."""
    plain = host.place / "plain"
    plain.mkdir()
    for name in ("bash", "dirname", "mkdir", "rm"):
        (plain / name).symlink_to(f"/usr/bin/{name}")
    ended = host.run(SETUP / "stock.sh", "4k", "7", "brd", PATH=str(plain))
    assert (ended.returncode, ended.stderr) == (2, "folioscope: xz is missing; as root: apt-get install xz-utils\n")
