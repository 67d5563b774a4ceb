# SPDX-License-Identifier: GPL-2.0-only
"""What the set-up says of a host before it changes it: what is lacking, what would be done, and why it cannot be."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

import pytest

from command import ROOT
from fresh_host import Host
from test_setup import host

__all__ = ["host"]

SETUP = ROOT / "vmm" / "setup"
PACKAGES = SETUP / "packages.sh"
# What changes a machine.
CHANGES = ("apt-get", "sudo", "pip", "cargo")
SYSTEMS = {
    "debian-12": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12 (bookworm)"\n',
    "debian-13": 'ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n',
    "ubuntu": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="25.10"\nPRETTY_NAME="Ubuntu 25.10"\n',
    "fedora": 'ID=fedora\nVERSION_ID=43\nPRETTY_NAME="Fedora Linux 43"\n',
    "arch": 'ID=arch\nPRETTY_NAME="Arch Linux"\n',
    "suse": 'ID=opensuse-leap\nID_LIKE="suse opensuse"\nVERSION_ID="16.0"\nPRETTY_NAME="openSUSE Leap 16.0"\n',
}


def bare(host: Host, *there: str) -> Host:
    """A host whose PATH has what the scripts themselves run, and no tool of a build; what would change it is noted."""
    plain = host.place / "plain"
    plain.mkdir()
    base = [
        "bash",
        "sh",
        "env",
        "uname",
        "id",
        "df",
        "awk",
        "grep",
        "sed",
        "cat",
        "mkdir",
        "rm",
        "dirname",
        "sleep",
        "sort",
        "true",
    ]
    for name in (*base, *there):
        (plain / name).symlink_to(str(shutil.which(name)))
    for name in CHANGES:
        host.program(name, "exit 1")
    host.program("dpkg-query", "echo unknown ok not-installed")
    host.program("dpkg", "exit 0")
    host.environment["PATH"] = f"{host.bin}:{plain}"
    return host


def system(host: Host, name: str) -> dict[str, str]:
    """The environment of a host that is this system."""
    path = host.place / "os-release"
    path.write_text(SYSTEMS[name])
    return {"FOLIOSCOPE_OS_RELEASE": str(path)}


def untouched(host: Host) -> bool:
    """Whether nothing was started that changes a host."""
    return not [line for line in host.said.read_text().splitlines() if line.split()[0] in CHANGES]


def test_what_would_be_done_is_shown_and_not_done(host: Host) -> None:
    """Packages, apt's sources, the foreign architecture and downloads, once."""
    ended = bare(host).run(PACKAGES, "run", **system(host, "debian-13"), SETUP="check")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert "make run needs more on this machine (Debian GNU/Linux 13 (trixie)" in lines[0]
    (packages,) = [line.split(": to install: ")[1].split() for line in lines if ": to install: " in line]
    assert {"flex", "linux-source-6.12", "qemu-system-arm", "python3"} <= set(packages)
    assert {"cargo-web", "rustc-web", "libstd-rust-web-dev:arm64"} <= set(packages)
    assert sum("to add to dpkg: the architecture arm64" in line for line in lines) == (os.uname().machine == "x86_64")
    assert sum("to download: these packages" in line for line in lines) == 1
    assert lines[-1].endswith("SETUP=check: nothing was changed")
    assert untouched(host)


def test_nothing_is_ever_installed_by_no(host: Host) -> None:
    """The same list, and an end that says what root would do."""
    ended = bare(host).run(PACKAGES, "run", **system(host, "debian-13"), SETUP="no")
    assert ended.returncode == 2 and untouched(host)
    add = "dpkg --add-architecture arm64 && apt-get update && " if os.uname().machine == "x86_64" else ""
    assert f"SETUP=no installs none; as root: {add}apt-get install " in ended.stderr.splitlines()[-1]
    other = host.run(PACKAGES, "run", SETUP="perhaps")
    assert other.returncode == 2 and "found 'perhaps'" in other.stderr


def test_a_check_goes_no_further(host: Host) -> None:
    """`make run SETUP=check` neither builds nor boots."""
    planned = host.run("make", "-n", "run", "SETUP=check", "RECORD=1").stdout.splitlines()
    done = [line for line in planned if not line.startswith("true ")]
    assert done == ["vmm/setup/inputs.sh run", "vmm/setup/packages.sh run"]
    assert len(planned) == 6


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("ubuntu", "apt-get install make gcc libc6-dev "),
        ("fedora", "dnf install make gcc glibc-devel "),
        ("arch", "pacman -S make gcc "),
    ],
)
def test_another_system_gets_the_list_in_its_own_names(host: Host, name: str, install: str) -> None:
    """Nothing is installed there; what no package has is named too."""
    ended = bare(host).run(PACKAGES, "test", **system(host, name))
    assert ended.returncode == 2 and untouched(host)
    assert "packages are installed on Debian 12 and 13 alone, and this is " in ended.stderr
    (command,) = [line for line in ended.stderr.splitlines() if "as root: " in line]
    assert f"as root: {install}" in command
    own = {"ubuntu": "libelf-dev", "fedora": "elfutils-libelf-devel", "arch": "pahole"}[name]
    assert own in command.split() or Path("/usr/include/libelf.h").exists()
    for what in (
        "Rust 1.85 or later",
        "QEMU 10.0 or later for arm64",
        "a static busybox for arm64",
    ):
        assert f"folioscope:   {what}" in ended.stderr, ended.stderr


def test_an_unknown_system_is_not_told_of_apt(host: Host) -> None:
    """Its packages may have other names, and apt is not its installer."""
    ended = bare(host).run(PACKAGES, "build", **system(host, "suse"))
    assert ended.returncode == 2 and untouched(host)
    assert "this is openSUSE Leap 16.0; make build needs what it lacks:" in ended.stderr
    assert "their packages on Ubuntu, which may have other names here: make gcc libc6-dev " in ended.stderr
    assert "apt-get" not in ended.stderr


def test_another_system_that_has_all_goes_on(host: Host) -> None:
    """What is there is looked for, not which package it is from."""
    busybox = host.place / "cache" / "busybox-static-arm64" / "busybox"
    busybox.parent.mkdir(parents=True)
    busybox.touch(0o755)
    tarball = host.place / "linux-source.tar.xz"
    tarball.touch()
    more = {**system(host, "arch"), "FOLIOSCOPE_KERNEL_TARBALL": str(tarball)}
    assert host.run(PACKAGES, "run", **more).stderr == ""
    ended = host.run(PACKAGES, "run", **more, SETUP="check")
    assert (ended.returncode, ended.stderr) == (0, "folioscope: Arch Linux has all that make run needs\n")
    busybox.unlink()
    lacking = host.run(PACKAGES, "run", **more)
    assert lacking.returncode == 2 and lacking.stderr.count("folioscope:   ") == 1


def test_too_little_room_is_said_first(host: Host) -> None:
    """Of the disk and of memory; a cache that has kernels needs little more, but for a kernel of each patch."""
    bare(host).program("df", "echo Filesystem; echo /dev/x 100 50 3145728 50% /")
    told = system(host, "debian-13")
    ended = host.run(PACKAGES, "run", **told)
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and untouched(host)
    assert "a build needs 5 GiB in" in ended.stderr and "and 3 GiB are free there" in ended.stderr
    kernel = host.place / "cache" / "kernels" / "4k-x" / "Image"
    kernel.parent.mkdir(parents=True)
    kernel.touch()
    assert host.run(PACKAGES, "run", **told, SETUP="check").returncode == 0
    assert "a build needs 14 GiB in" in host.run(PACKAGES, "series", **told, SETUP="check").stderr
    little = host.place / "meminfo"
    little.write_text("MemTotal:         996148 kB\n")
    ended = host.run(PACKAGES, "run", **told, FOLIOSCOPE_MEMINFO=str(little))
    assert ended.returncode == 2 and "need 4 GiB of memory and this machine has 1 GiB" in ended.stderr
    # A machine of 4 GiB, whose firmware and kernel keep some.
    little.write_text("MemTotal:        3801228 kB\n")
    assert host.run(PACKAGES, "run", **told, FOLIOSCOPE_MEMINFO=str(little), SETUP="check").returncode == 0


def test_a_password_that_nobody_could_give(host: Host) -> None:
    """Without a terminal sudo is not asked to install, unless it asks for nothing."""
    bare(host, "setsid").program("id", "echo 1000")
    # Without a terminal of its own, whatever this test is started from.
    ended = host.run("setsid", "--wait", PACKAGES, "run", **system(host, "debian-13"))
    assert ended.returncode == 2
    assert "sudo would ask for a password, and there is no terminal to answer on" in ended.stderr
    asked = [line for line in host.said.read_text().splitlines() if line.startswith("sudo")]
    assert asked == ["sudo -n true"]


@pytest.mark.parametrize("words", [["lab"], ["run", "RECORD=1"], ["cross", "RECORD=1"]])
def test_a_rust_that_is_too_old_for_the_plugins_is_said_first(host: Host, words: list[str]) -> None:
    """Before anything is installed or built, where it is no package that apt could replace."""
    host.program("rustc", "echo 'rustc 1.85.0 (4d91de4e4 2025-02-17)'")
    for name in ("apt-get", "dpkg-query", "sudo", "cargo"):
        host.program(name, "exit 1")
    ended = host.run("make", *words)
    sentences = [line for line in ended.stderr.splitlines() if not line.startswith("make: ")]
    assert (ended.returncode, len(sentences)) == (2, 1), ended.stderr
    assert f"make {' '.join(words)} needs a plugin for QEMU" in sentences[0]
    assert "needs Rust 1.88 or later, and this machine's is 1.85" in sentences[0]
    assert {line.split()[0] for line in host.said.read_text().splitlines()} <= {"rustc", "dpkg-query"}


def test_no_rust_at_all_is_said_as_well(host: Host) -> None:
    """On an empty machine that is no Debian, too, the laboratory's need comes before any other."""
    ended = bare(host).run(SETUP / "inputs.sh", "lab", **system(host, "arch"))
    assert ended.returncode == 2 and untouched(host)
    assert "needs Rust 1.88 or later, and this machine's is missing; install a newer one" in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


#: What each goal has to install on a bare Debian, and what it must not.
PACKAGES_OF = {
    "lint": (
        {"shellcheck", "rustfmt-web", "rust-web-clippy", "git"},
        {"qemu-system-arm", "chromium", "gdb-multiarch", "flex", "gcc-aarch64-linux-gnu"},
    ),
    "lab": (
        {"qemu-system-arm", "git", "python3-venv", "gcc-aarch64-linux-gnu", "linux-source-6.12", "flex"},
        {"chromium", "chromium-driver", "gdb-multiarch", "shellcheck", "rustfmt-web", "rust-web-clippy"},
    ),
    "series": (
        {"qemu-system-arm", "git", "python3-venv", "gcc-aarch64-linux-gnu", "linux-source-6.12", "patch"},
        {"chromium", "chromium-driver", "gdb-multiarch", "shellcheck", "rustfmt-web", "rust-web-clippy"},
    ),
    "dist": (
        {"git", "python3-venv", "gcc-aarch64-linux-gnu", "linux-source-6.12", "cargo-web"},
        {"qemu-system-arm", "chromium", "gdb-multiarch", "shellcheck", "rust-web-clippy"},
    ),
    "docs": (
        {"python3", "python3-venv"},
        {"qemu-system-arm", "cargo-web", "rustc-web", "gcc-aarch64-linux-gnu", "linux-source-6.12", "flex", "git"},
    ),
}


@pytest.mark.parametrize("goal", PACKAGES_OF)
def test_a_goal_installs_what_it_needs_alone(host: Host, goal: str) -> None:
    """No browser for the laboratory, no machine to check the style."""
    needed, foreign = PACKAGES_OF[goal]
    # An arm64 host's compiler is gcc.
    needed = needed - ({"gcc-aarch64-linux-gnu"} if os.uname().machine == "aarch64" else set())
    planned = host.run("make", "-n", goal).stdout.splitlines()
    assert f"vmm/setup/packages.sh {goal}" in planned[:2]
    ended = bare(host).run(PACKAGES, goal, **system(host, "debian-13"), SETUP="check")
    (packages,) = [
        line.split(": to install: ")[1].split() for line in ended.stderr.splitlines() if ": to install: " in line
    ]
    assert needed <= set(packages) and not foreign & set(packages), packages


def test_a_container_without_its_tools(host: Host) -> None:
    """One sentence, which names the packages, before anything is built; a look goes on."""
    bare(host, "make")
    names = "(on Debian, as root: apt-get install --no-install-recommends buildah mmdebstrap uidmap)"
    ended = host.run("make", "container", **system(host, "debian-13"))
    assert ended.returncode == 2 and untouched(host)
    sentences = [line for line in ended.stderr.splitlines() if not line.startswith("make: ")]
    assert sentences == [f"folioscope: make container needs buildah, mmdebstrap {names}; install and try again"]
    looked = host.run("make", "container", "SETUP=check", **system(host, "debian-13"))
    assert looked.returncode == 0 and untouched(host), looked.stderr
    assert f"make container needs buildah, mmdebstrap {names}\n" in looked.stderr
    assert "make dist needs more on this machine" in looked.stderr


@pytest.mark.parametrize("target", ["audit", "fuzz"])
def test_tools_that_are_not_packages_are_looked_for(host: Host, target: str) -> None:
    """SETUP=check names those that are missing, and starts none."""
    bare(host, "make")
    ended = host.run("make", target, "SETUP=check", **system(host, "debian-13"))
    assert ended.returncode == 0, ended.stderr
    tool = {"audit": "cargo-deny (cargo install", "fuzz": "cargo-fuzz (install it with"}[target]
    assert f"make {target} needs {tool}" in ended.stderr
    other = host.run("make", target, "SETUP=perhaps", **system(host, "debian-13"))
    assert other.returncode == 2 and "found 'perhaps'" in other.stderr


@pytest.mark.parametrize("target", ["cross", "boot", "build", "bench", "rootfs"])
def test_the_target_is_named(host: Host, target: str) -> None:
    """What is needed is that of the target which the user gave."""
    assert f"packages.sh {target}" in host.run("make", "-n", target).stdout
    ended = bare(host).run(PACKAGES, target, **system(host, "debian-13"), SETUP="check")
    assert f"make {target} needs more on this machine" in ended.stderr
    assert ("flex" in ended.stderr.split()) == (target != "rootfs"), "no kernel is built for an initramfs"


def entry(host: Host, name: str, days: float) -> Path:
    """An entry of the cache that was last used so many days ago, of 3 MiB."""
    place = host.place / "cache" / name
    place.mkdir(parents=True)
    (place / "data").write_bytes(bytes(3 << 20))
    (place / "complete").touch()
    then = time.time() - days * 86400
    for path in (place / "complete", place):
        os.utime(path, (then, then))
    return place


def test_the_cache_is_shown_and_pruned(host: Host) -> None:
    """By age, by size, the oldest first; what this checkout uses stays, and so does what is no entry."""
    old, used, newer, newest = (
        entry(host, name, days)
        for name, days in (("agent/old", 40), ("command/used", 60), ("agent/newer", 10), ("initramfs/newest", 0))
    )
    other = host.place / "cache" / "notes" / "mine"
    other.mkdir(parents=True)
    (host.place / "out").mkdir(exist_ok=True)
    (host.place / "out" / "folioscope").symlink_to(used / "data")
    shown = host.run("make", "cache").stdout.splitlines()
    assert [line.split()[4] for line in shown[:-1]] == ["command/used", "agent/old", "agent/newer", "initramfs/newest"]
    assert [line.split()[0] for line in shown[:-1]] == ["60", "40", "10", "0"] and ": 12 MiB in builds" in shown[-1]
    by_age = host.run("make", "cache", "DAYS=30").stdout
    assert not old.exists() and used.exists() and newer.exists() and newest.exists() and other.exists()
    assert "(in use by this checkout, stays)" in by_age and "3 MiB removed" in by_age
    host.run("make", "cache", "GIB=0")
    assert used.exists() and not newer.exists() and not newest.exists() and other.exists()
    assert host.run("make", "cache", "DAYS=soon").returncode == 2


def test_the_cache_shows_and_prunes_what_else_grows(host: Host) -> None:
    """What builders keep without a mark, what a killed one left, logs and locks, and this checkout's bundles; results
    go by their age alone."""
    cache, out = host.place / "cache", host.place / "out"
    old = {
        "check/source": cache / "check" / "source",
        "mypy/3.11": cache / "mypy" / "3.11",
        "agent/.part.x": cache / "agent" / ".part.x",
        "kernels/.4k-key.abcdef": cache / "kernels" / ".4k-key.abcdef",
        "campaigns": cache / "campaigns",
        "out/bundles/mine": out / "bundles" / "mine",
    }
    files = [cache / "logs" / "kernel-4k-key.log", cache / "locks" / "4k-key", cache / "tarball-key"]
    theirs = out / "bundles" / "theirs"
    for path in [*old.values(), theirs]:
        path.mkdir(parents=True)
    (old["out/bundles/mine"] / ".folioscope").write_text("folioscope bundle\n")
    held = cache / "locks" / "16k-key"
    for path in [*files, held]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    builds = cache / "agent" / ".part.now"
    builds.mkdir()
    then = time.time() - 40 * 86400
    for path in [*old.values(), *files, held]:
        os.utime(path, (then, then))
    shown = {
        line.split()[4].rstrip(","): line.split()[0] for line in host.run("make", "cache").stdout.splitlines()[:-1]
    }
    assert shown == dict.fromkeys([*old, "logs", "locks", "tarball"], "40") | {"agent/.part.now": "0"}
    host.run("make", "cache", "GIB=0")
    results = {"campaigns", "out/bundles/mine"}
    assert {name for name, path in old.items() if path.exists()} == results and builds.exists()
    with held.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = host.run("make", "cache", "DAYS=30").stdout
    assert not any(path.exists() for path in [*old.values(), *files])
    assert theirs.exists() and builds.exists() and held.exists(), said
