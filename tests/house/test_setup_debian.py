# SPDX-License-Identifier: GPL-2.0-only
"""The set-up on a Debian that has nothing yet: its first commands, in the order in which a new user gives them."""

from __future__ import annotations

import pytest

from fresh_host import Host
from test_setup import SETUP, host
from test_setup_host import bare, system, untouched

__all__ = ["host"]


def test_a_stock_kernel_needs_no_set_up_before(host: Host) -> None:
    """apt gets arm64 by an option, whatever dpkg has; a series that backports lack comes from Debian itself."""
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


WEB = ["cargo-web", "rustc-web", "libstd-rust-web-dev:arm64"]
#: dpkg of a machine with Debian's own Rust, its library for arm64 and its clippy.
OWN_RUST = """for package; do :; done
case $1,$*,$package in
-S*) echo "rustc: $2" ;;
*Version*) echo 1.85.1+dfsg1-1 ;;
*,rustc | *,cargo | *,rust-clippy | *,libstd-rust-dev:arm64) echo install ok installed ;;
*) echo unknown ok not-installed ;;
esac"""


def to_install(stderr: str) -> list[str]:
    """The packages that a message lists."""
    (packages,) = [line.split(": to install: ")[1].split() for line in stderr.splitlines() if ": to install: " in line]
    return packages


@pytest.mark.parametrize("name", ["debian-12", "debian-13"])
@pytest.mark.parametrize("words", [["build"], ["run", "RECORD=1"], ["cross", "RECORD=1"], ["lab"]])
def test_an_empty_debian_gets_a_rust_for_the_plugins(host: Host, name: str, words: list[str]) -> None:
    """Debian's newest, also for what builds none of them, as the recorder may come next."""
    ended = bare(host, "make").run("make", *words, "SETUP=check", **system(host, name))
    assert ended.returncode == 0 and untouched(host), ended.stderr
    assert set(WEB) <= set(to_install(ended.stderr))
    assert " to remove: " not in ended.stderr


def with_own_rust(host: Host) -> Host:
    """A host with Debian's own Rust 1.85."""
    bare(host, "make", "realpath")
    host.program("dpkg-query", OWN_RUST)
    host.program("rustc", "echo 'rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)'")
    return host


def test_debians_own_rust_stays_while_it_is_new_enough(host: Host) -> None:
    """What it lacks has its version; for a plugin its place is taken, which is said."""
    with_own_rust(host)
    ended = host.run("make", "build", "SETUP=check", **system(host, "debian-13"))
    packages = to_install(ended.stderr)
    assert not [package for package in packages if "-web" in package] and " to remove: " not in ended.stderr
    for words in (["run", "RECORD=1"], ["cross", "RECORD=1"], ["lab"]):
        ended = host.run("make", *words, "SETUP=check", **system(host, "debian-13"))
        assert to_install(ended.stderr)[:3] == WEB, ended.stderr
        assert "folioscope: to remove: cargo rustc, whose place Debian's newer Rust takes\n" in ended.stderr


def test_a_plugin_that_needs_a_newer_rust_names_the_remedy(host: Host) -> None:
    """The packages where apt has them, else rustup."""
    with_own_rust(host).program("dpkg", "echo arm64")
    lacks = "folioscope: a plugin for QEMU needs Rust 1.88 or later and this machine's is 1.85;"
    ended = host.run(SETUP / "plugin.sh", **system(host, "debian-13"))
    assert (ended.returncode, ended.stderr) == (2, f"{lacks} as root: apt-get install {' '.join(WEB)}\n")
    ended = host.run(SETUP / "plugin.sh", **system(host, "arch"))
    assert (ended.returncode, ended.stderr) == (
        2,
        f"{lacks} install a newer one (rustup: https://rustup.rs) and try again\n",
    )
    host.program("rustup", "exit 1")
    ended = host.run(SETUP / "plugin.sh", "--where-possible", **system(host, "arch"))
    assert ended.returncode == 0 and "works without it (update it with: rustup update stable)" in ended.stderr


def test_an_image_needs_python_too(host: Host) -> None:
    """No kernel is built, and the initramfs is packed by a program in Python."""
    image = host.place / "Image"
    image.write_bytes(bytes(56) + b"ARM\x64" + bytes(4))
    bare(host, "make", "od", "tr")
    ended = host.run("make", "build", f"KERNEL={image}", "SETUP=check", **system(host, "debian-13"))
    packages = to_install(ended.stderr)
    assert "python3" in packages and "flex" not in packages


def test_the_tests_environment_needs_venv(host: Host) -> None:
    """One sentence in place of the interpreter's own words."""
    host.program("python3", "case $* in *version_info*) echo 3.13 ;; *) echo raw words >&2; exit 1 ;; esac")
    ended = host.run(SETUP / "python.sh")
    assert (ended.returncode, ended.stderr) == (
        2,
        "folioscope: Python's venv is missing; install Debian's python3-venv\n",
    )
    host.program("python3", "exit 127")
    ended = host.run(SETUP / "python.sh")
    assert ended.returncode == 2 and "Python 3.11 or later is needed and none was found" in ended.stderr
