# SPDX-License-Identifier: GPL-2.0-only
"""What an arm64 host shares with others, and how its user is told what it lacks: as far as that can be said anywhere.

That it works there is rehearsed by `make test-arm64`. Programs that tell which host this is have stand-ins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command import ROOT

SETUP = ROOT / "vmm" / "setup"
# As Debian 12's compiler says it on an arm64 host, and its cross compiler for arm64.
VERSION = """rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)
binary: rustc
commit-hash: ac68faa20c58cbccd01ee7208bf3b6e93a7d7f96
commit-date: 2026-05-25
host: {host}-unknown-linux-gnu
release: 1.96.0
LLVM version: 22.1.8
"""
NATIVE_GCC = "aarch64-linux-gnu-gcc (Debian {version}+deb12u1) {short}"


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A directory for programs that go before this machine's."""
    place = tmp_path / "bin"
    place.mkdir()
    return place


def program(place: Path, name: str, script: str) -> None:
    """A program in the place of this machine's."""
    (place / name).write_text(f"#!/bin/sh\n{script}\n")
    (place / name).chmod(0o755)


def run(place: Path, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with the stand-ins, and an `out/` of its own."""
    # A make that runs us has words for the makes that it starts.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment |= {"PATH": f"{place}:{os.environ['PATH']}", "FOLIOSCOPE_OUT": str(place.parent / "out")}
    for name in ("KERNEL", "MACHINE", "GRANULE"):
        environment.pop(name, None)
    return subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env=environment | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_program_for_arm64_has_one_key_wherever_it_is_built(stand_in: Path) -> None:
    """The compiler's host does not matter, its commit does."""

    def key(version: str) -> str:
        program(stand_in, "rustc", f"cat <<'END'\n{version}END")
        told = run(stand_in, "bash", "-c", f". {SETUP}/lib.sh; . {SETUP}/toolchain.sh; rust_key rustc")
        assert told.returncode == 0 and len(told.stdout.strip()) == 8, told.stderr
        return told.stdout

    here, there = (key(VERSION.format(host=host)) for host in ("x86_64", "aarch64"))
    assert here == there
    assert key(VERSION.format(host="aarch64").replace("ac68", "bc68")) != here


def test_a_kernel_has_one_key_by_the_cross_compiler_and_by_the_arm64_host_s_own(stand_in: Path) -> None:
    """Debian's point updates come to its own first. The kernel that was built here is found, not built."""
    cross = subprocess.check_output(["aarch64-linux-gnu-gcc", "--version"], text=True).splitlines()[0]
    version, short = cross.split("(Debian ")[1].split(") ")
    if "+deb" in version:
        version = version.split("+deb")[0]
    # It compiles nothing: whoever builds by it fails.
    program(stand_in, "aarch64-linux-gnu-gcc", f"echo '{NATIVE_GCC.format(version=version, short=short)}'")
    found = run(stand_in, ROOT / "kernel-patches" / "build.sh", "--granule", "4k")
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).samefile(ROOT / "out" / "kernel-4k")


def test_an_arm64_host_has_python_packages_of_its_own(stand_in: Path, tmp_path: Path) -> None:
    """Some of them are programs, and two hosts may share a cache."""
    make = 'case $1 in -c) echo 3.11 ;; -m) mkdir -p "$3/bin"; ln -s /bin/true "$3/bin/pip" ;; esac'
    program(stand_in, "python3", make)
    places = []
    for machine in ("x86_64", "aarch64"):
        program(stand_in, "uname", f"echo {machine}")
        made = run(stand_in, SETUP / "python.sh", FOLIOSCOPE_CACHE=str(tmp_path / "cache"))
        assert made.returncode == 0, made.stderr
        places.append(made.stdout.strip())
    assert places[0].endswith("-3.11/bin/python") and places[1].endswith("-3.11-aarch64/bin/python")


def test_what_an_arm64_host_installs(stand_in: Path) -> None:
    """Its own compiler builds for it, and its KVM needs no QEMU; whatever this machine has does not matter."""
    run_, test = (run(stand_in, SETUP / "packages.sh", "--list", goal).stdout.split() for goal in ("run", "test"))
    assert {"gcc", "make", "linux-source-6.12"} <= set(run_) <= set(test)
    assert {"python3-venv", "shellcheck"} <= set(test)
    assert any(name.startswith("cargo") for name in run_)
    assert not [name for name in test if "aarch64" in name or "cross" in name or "qemu" in name]


@pytest.mark.parametrize("goal", ["run", "boot"])
def test_kvm_on_a_host_that_is_not_arm64(stand_in: Path, goal: str) -> None:
    """It is told before anything is installed or built."""
    program(stand_in, "uname", "echo x86_64")
    told = run(stand_in, "make", goal, "MACHINE=kvm")
    said = [line for line in told.stderr.splitlines() if not line.startswith("make: ")]
    assert (told.returncode, len(said)) == (2, 1), told.stderr
    assert "needs an arm64 host and this one is x86_64" in said[0] and "kvm-in-tcg" in said[0]


# What a collection chooses, and what it leaves out for the mark.
CHOSEN = """
def pytest_deselected(items):
    print(*(f"left {item.nodeid}" for item in items if item.get_closest_marker("qemu")), sep="\\n")

def pytest_collection_finish(session):
    print(*(f"chosen {item.nodeid}" for item in session.items), sep="\\n")
"""


def test_what_assumes_qemu_is_marked(tmp_path: Path) -> None:
    """A host with KVM and without QEMU can leave it out: no test of a machine that is QEMU's is left."""
    (tmp_path / "tells.py").write_text(CHOSEN)
    words = ["tests", "--collect-only", "-q", "-s", "-n", "0", "-p", "tells", "--machine", "kvm", "-m", "not qemu"]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    ).stdout
    with_qemu, without = (re.findall(rf"^{which} (.*::.*)$", told, re.M) for which in ("left", "chosen"))
    assert not [name for name in without if "tcg" in name.partition("[")[2]]
    modules = {Path(name.partition("::")[0]).name for name in with_qemu}
    assert {"test_attach.py", "test_hugetlb_migrated.py", "test_oracle.py", "test_hung_guest.py"} <= modules
    on_kvm = re.compile(r"\[kvm-\d+k")  # and not kvm-in-tcg, which is QEMU's
    assert any(on_kvm.search(name) for name in without) and not any(on_kvm.search(name) for name in with_qemu)
