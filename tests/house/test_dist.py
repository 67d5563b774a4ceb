# SPDX-License-Identifier: GPL-2.0-only
"""What `make dist` packs: it is whole, it runs on any distribution, and it installs where there is no compiler."""

from __future__ import annotations

import io
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from command import ROOT, SLOWER
from test_install import environment, examples

# The wheel's builder comes from a registry.
pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]

INSTALL = ROOT / "docs" / "how-to" / "install.md"
# Commands of that page that are run by no test, and why.
LEFT_OUT = {"make container": "buildah and mmdebstrap are no part of the set-up", "podman": "it runs that image"}
#: What builds a program.
COMPILERS = ("cc", "gcc", "cargo", "rustc", "ld", "as", "make", "aarch64-linux-gnu-gcc")
#: Of a system without them: a shell, what unpacks, an emulator, Python.
PROGRAMS = (
    *("bash", "sh", "env", "sha256sum", "tar", "gzip", "install", "mkdir", "rm", "cat", "uname", "qemu-system-aarch64"),
    *("dirname", "realpath", "tee", "sed"),
)
PACK_SECONDS, RUN_SECONDS = 240, 600
PT_INTERP, EM_X86_64, EM_AARCH64 = 3, 62, 183


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that is made of what `out/` has."""
    place = tmp_path_factory.mktemp("packed") / "dist"
    words = [ROOT / "vmm" / "setup" / "dist.sh", place]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PACK_SECONDS * SLOWER)
    assert ran.returncode == 0, ran.stderr
    return place


def version() -> str:
    """The workspace's."""
    return str(tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"])


def elf(path: Path) -> tuple[int, bool]:
    """The machine of an ELF file, and whether it names a dynamic loader."""
    data = path.read_bytes()
    assert data[:5] == b"\x7fELF\x02", path
    machine, offset, size, count = (
        *struct.unpack_from("<H", data, 18),
        *struct.unpack_from("<Q", data, 32),
        *struct.unpack_from("<HH", data, 54),
    )
    kinds = [struct.unpack_from("<I", data, offset + size * number)[0] for number in range(count)]
    assert kinds, path
    return machine, PT_INTERP in kinds


def checked(place: Path) -> subprocess.CompletedProcess[str]:
    """Compares the files with their checksums."""
    words = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    return subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)


def test_what_is_packed(packed: Path, tmp_path: Path) -> None:
    """All files of one version, their checksums, the sources of the checkout, kernels as they were built."""
    name = f"folioscope-{version()}"
    programs = [f"{name}-arm64"] + ([f"{name}-x86_64"] if os.uname().machine == "x86_64" else [])
    files = {f"{name}.tar.gz", f"{name}-py3-none-any.whl", f"{name}-guest.tar.gz", *programs}
    assert {path.name for path in packed.iterdir()} - {".folioscope"} == {*files, "SHA256SUMS"}
    assert set((packed / "SHA256SUMS").read_text().split()[1::2]) == files
    assert checked(packed).returncode == 0
    damaged = tmp_path / "damaged"
    shutil.copytree(packed, damaged)
    with (damaged / f"{name}-guest.tar.gz").open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)[0]
        file.seek(1000)
        file.write(bytes([byte ^ 1]))
    assert f"{name}-guest.tar.gz: FAILED" in checked(damaged).stdout

    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    with tarfile.open(packed / f"{name}.tar.gz") as source:
        there = {member.name.removeprefix(f"{name}/") for member in source if not member.isdir()}
    assert there == {path for path in listed.splitlines() if (ROOT / path).exists()}

    with tarfile.open(packed / f"{name}-guest.tar.gz") as guest:
        for path in (
            *(f"kernel-{granule}/Image" for granule in ("4k", "16k", "64k")),
            "initramfs.cpio",
            "carrier.cpio",
            "carrier-kernel/Image",
        ):
            # The carrier's kernel may be a link to the guest's.
            member = f"out/{path}"
            try:
                file = guest.extractfile(member)
            except KeyError:
                link = guest.getmember(str(Path(member).parent))
                file = guest.extractfile(f"out/{link.linkname}/{Path(member).name}")
            assert file and file.read() == (ROOT / "out" / path).read_bytes(), path


def test_the_command_is_one_program(packed: Path) -> None:
    """Static, so that it needs no library of the host; it starts and has the version of its file's name."""
    name = f"folioscope-{version()}"
    assert elf(packed / f"{name}-arm64") == (EM_AARCH64, False)
    own = packed / f"{name}-{'arm64' if os.uname().machine == 'aarch64' else 'x86_64'}"
    assert elf(own)[1] is False and elf(own)[0] in (EM_X86_64, EM_AARCH64)
    ran = subprocess.run([own, "--version"], env={}, capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"folioscope {re.escape(version())}( \(.*\))?\n", ran.stdout), ran.stdout


@pytest.mark.parametrize("variable", [{"KERNEL": str(ROOT / "out" / "kernel-4k" / "Image")}, {"DEBUG": "1"}])
def test_what_is_not_packed(variable: dict[str, str]) -> None:
    """Another kernel than the pinned one is refused, before anything is built; without it nothing is."""
    words = [ROOT / "vmm" / "setup" / "inputs.sh", "dist"]
    refused = subprocess.run(words, env=environment(**variable), capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and refused.stderr.startswith("folioscope: make dist packs"), refused.stderr
    assert refused.stderr.endswith("; leave it out\n") and refused.stderr.count("\n") == 1
    subprocess.run(words, env=environment(), check=True)


@pytest.mark.long
@pytest.mark.qemu
def test_it_installs_without_a_compiler(packed: Path, tmp_path: Path) -> None:
    """The page's commands in their order: the tour under QEMU, then a test by the wheel's plugin."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for program in PROGRAMS:
        (bin_ / program).symlink_to(str(shutil.which(program)))
    # By its own name: an environment is made of the interpreter that is run.
    (bin_ / "python3").write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$@"\n')
    (bin_ / "python3").chmod(0o755)
    assert not [name for name in COMPILERS if shutil.which(name, path=str(bin_))]
    place = tmp_path / "user"
    shutil.copytree(packed, place)
    (place / "test_mine.py").write_text(examples(ROOT / "README.md")["test_mine.py"])

    text = INSTALL.read_text()
    assert f"folioscope-{version()}" in text
    lines = re.findall(r"^ {4}(\S.*?)(?: +#.*)?$", text, re.M)
    run = [line for line in lines if not any(line.startswith(left) for left in LEFT_OUT)]
    assert len(run) == 7 and len(lines) == 10, lines
    if os.uname().machine == "aarch64":
        run = [line.replace("-x86_64 ", "-arm64 ") for line in run]
    # And what CI calls, from the source that is packed.
    judge = f"FOLIOSCOPE=out/folioscope folioscope-{version()}/.ci/judge out/kernel-16k/Image reports --only anon"
    run += [f"tar -xf folioscope-{version()}.tar.gz", judge]
    said = {}
    for line in run:
        ran = subprocess.run(
            ["bash", "-c", line],
            cwd=place,
            env=environment(PATH=str(bin_)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_SECONDS * SLOWER,
        )
        assert ran.returncode == 0, f"{line}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"
        said[line] = ran.stdout
    (tour,) = (text for line, text in said.items() if line.startswith("out/folioscope run"))
    assert tour.endswith("ok no error found (exit status 0)\n") and "policy variable" in tour, tour
    assert (place / "report.html").stat().st_size
    (tests,) = (text for line, text in said.items() if line.endswith("/pytest"))
    assert "3 passed" in tests and "skipped" not in tests, tests
    assert "16 KiB pages" in said[judge] and (place / "reports" / "junit.xml").exists()


def sources(root: Path) -> list[str]:
    """The scripts that a checkout would check."""
    script = ". vmm/setup/lib.sh; sources '*.sh' '.ci/*'"
    environment = {**os.environ, "FOLIOSCOPE_OUT": str(root / "out")}
    found = subprocess.run(
        ["bash", "-c", script], cwd=root, env=environment, check=True, capture_output=True, text=True
    )
    return sorted(found.stdout.split("\0")[:-1])


def test_what_was_unpacked_is_checked_without_git(tmp_path: Path) -> None:
    """A tarball's files are those of the commit, and what is built beside them is not."""
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        names = {name for name in files.getnames() if name.endswith(".sh") or name.startswith(".ci/")}
        files.extractall(tmp_path, filter="data")
    shutil.copy2(ROOT / "vmm" / "setup" / "lib.sh", tmp_path / "vmm" / "setup" / "lib.sh")
    for place in ("out", "target/debug", "tests/__pycache__"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "built.sh").touch()
    found = sources(tmp_path)
    assert len(found) > 40
    assert found == sorted(name for name in names if name != ".ci")
