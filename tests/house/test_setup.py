# SPDX-License-Identifier: GPL-2.0-only
"""The set-up scripts as their user meets them: what is refused, what is installed, what is left when they are ended.

What would change this machine (apt, sudo) or take minutes (cargo, a kernel's build) has stand-ins here, found by PATH.
"""

from __future__ import annotations

import os
import platform
import select
import shutil
import signal
import time
from pathlib import Path

import pytest

from command import CACHE, ROOT, folioscope, wait_until
from fresh_host import Host, read

SETUP = ROOT / "vmm" / "setup"
# A script asks for a moment before it ends what it began.
GONE_SECONDS = 8.0
# What cargo and compilers run: a child, and one of that.
LONG = "sleep 300 & sh -c 'sleep 301; true'"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """This machine, some of whose programs the test replaces."""
    return Host(tmp_path)


@pytest.fixture
def built(host: Host) -> Host:
    """A host whose cache has what this machine's has of the programs; the rest of it is empty."""
    (host.place / "cache").mkdir()
    for name in ("command", "arm64-command", "agent", "initramfs", "cargo", "venv", "busybox-static-arm64"):
        (host.place / "cache" / name).symlink_to(CACHE / name)
    return host


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """As much of a Linux tree as a build by make takes; what takes long there is to sleep."""
    tree = tmp_path / "linux"
    (tree / "arch" / "arm64").mkdir(parents=True)
    (tree / "Makefile").write_text(
        "allnoconfig:\n\tcp $(KCONFIG_ALLCONFIG) $(O)/.config\nImage:\n\t@echo '  CC  x'\n\t@" + LONG + "\n"
    )
    return tree


# What was said.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["KERNEL=/nonexistent/linux"], "found nothing there"),
        (["KERNEL=~/linux"], "begins with a ~"),
        (["KERNEL=Makefile"], "no kernel for arm64"),
        (["KERNEL=docs"], "no Linux tree"),
        (["KERNEL=/bin/true"], "give the Image of the same build"),
        (["VMLINUX=/nonexistent/vmlinux"], "found no file there"),
        (["VMLINUX=Makefile"], "no ELF file"),
        (["GRANULE=5k"], "4k 16k 64k"),
        (["MACHINE=qemu"], "kvm-in-tcg"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("goal", ["run", "test"])
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    host: Host, goal: str, words: list[str], said: str
) -> None:
    """One sentence; no package is looked for and nothing is built."""
    for name in ("apt-get", "dpkg-query", "sudo", "cargo"):
        host.program(name, "exit 1")
    ended = host.run("make", goal, *words)
    sentences = [line for line in ended.stderr.splitlines() if not line.startswith("make: ")]
    assert (ended.returncode, len(sentences)) == (2, 1), ended.stderr
    assert said in sentences[0]
    assert host.said.read_text() == ""
    assert not any((host.place / "cache").iterdir())


def test_an_image_is_not_what_make_test_tests(host: Host, tmp_path: Path) -> None:
    """It says so at once; `make run` and `make bench` take one."""
    image = tmp_path / "Image"
    image.write_bytes(bytes(56) + b"ARM\x64" + bytes(4))
    for goal in ("test", "test-long"):
        ended = host.run("make", goal, f"KERNEL={image}")
        assert ended.returncode == 2
        assert "takes a source tree by KERNEL= and no image" in ended.stderr
    for goal in ("run", "bench"):
        planned = host.run("make", "-n", goal, f"KERNEL={image}").stdout
        assert f"--kernel '{image}'" in planned
        assert "build.sh 4k" not in planned
        assert host.run(SETUP / "inputs.sh", goal, KERNEL=str(image)).returncode == 0


def test_debug_is_for_kernels_that_are_built(host: Host, tree: Path, tmp_path: Path) -> None:
    """An image is what it is; a tree is built so. Whatever else the variable says is not meant for us, and said."""
    image = tmp_path / "Image"
    image.write_bytes(bytes(56) + b"ARM\x64" + bytes(4))
    refused = host.run(SETUP / "inputs.sh", "run", KERNEL=str(image), DEBUG="1")
    assert refused.returncode == 2 and "is built already" in refused.stderr
    taken = host.run(SETUP / "inputs.sh", "run", KERNEL=str(tree), DEBUG="1")
    assert (taken.returncode, taken.stderr) == (0, "")
    other = host.run(SETUP / "inputs.sh", "run", DEBUG="verbose")
    assert other.returncode == 0 and "DEBUG=verbose is not 1" in other.stderr


def test_a_base_is_for_what_is_run(host: Host, tree: Path) -> None:
    """Either a base or a kernel; the build is told; what is of the pinned base alone says so, and builds that."""
    for words, said in [
        ({"BASE": "8.x"}, "expected BASE to be one of 6.12 7.x and found '8.x'"),
        ({"BASE": "7.x", "KERNEL": str(tree)}, "give one of them"),
    ]:
        refused = host.run(SETUP / "inputs.sh", "run", **words)
        assert refused.returncode == 2 and said in refused.stderr
    ended = host.run(SETUP / "inputs.sh", "test", BASE="7.x")
    assert ended.returncode == 0 and "of the pinned base: BASE=7.x is not used" in ended.stderr
    for goal, told in [("run", True), ("boot", True), ("build", True), ("test", False), ("series", False)]:
        planned = host.run("make", "-n", goal, "BASE=7.x").stdout
        assert planned and ("--base 7.x" in planned) == told, goal


def test_make_test_says_what_it_does_with_a_tree(host: Host, tree: Path) -> None:
    """It is built for every granule, and tested."""
    ended = host.run(SETUP / "inputs.sh", "test", KERNEL=str(tree))
    assert (ended.returncode, ended.stderr.count("\n")) == (0, 1)
    assert f"testing on kernels built from {tree}" in ended.stderr


# How it ends.


def begun(host: Host, kind: str, tree: Path) -> list[str | Path]:
    """A command whose long step is one of a kind."""
    if kind == "cargo":
        host.program("cargo", LONG)
        return ["make", "build"]
    if kind == "apt":
        host.program("apt-get", LONG)
        return [SETUP / "install.sh", "none", "some-package"]
    return [ROOT / "kernel-patches" / "build.sh", "--granule", "4k", "--source", tree]


@pytest.mark.parametrize("kind", ["cargo", "apt", "kernel"])
@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM", "SIGHUP"])
def test_a_long_step_ends_with_us(host: Host, tree: Path, kind: str, how: str) -> None:
    """Cargo, apt and the kernel's make, with all that they have started; the cache has nothing of it."""
    words = begun(host, kind, tree)
    with host.terminal(*words) as (script, terminal):
        host.long_step(terminal)
        if how == "ctrl-c":
            os.write(terminal, b"\x03")
        else:
            # To the script alone, as `kill` does, or to all in the foreground of a terminal that is closed.
            (os.killpg if how == "SIGHUP" else os.kill)(script, getattr(signal, how))
        assert wait_until(lambda: not host.programs(), GONE_SECONDS), host.programs()
    made = [path for path in (host.place / "cache").rglob("*") if path.name in ("complete", "Image")]
    assert not made


def test_a_build_that_is_killed_leaves_nothing_that_looks_whole(host: Host) -> None:
    """Not even where the very end was missing; the next one builds it, and clears away what was left."""
    kind = "arm64-command" if platform.machine() == "aarch64" else "command"
    release = f"$CARGO_TARGET_DIR/{platform.machine()}-unknown-linux-gnu/release"
    host.program("cargo", f"mkdir -p {release}; echo half >{release}/folioscope; {LONG}")
    with host.terminal("make", "build") as (_, terminal):
        host.long_step(terminal)
        host.kill()
    commands = host.place / "cache" / kind
    (left,) = (path for path in commands.iterdir() if path.is_dir())
    assert left.name.startswith(".part.")
    # Cargo ends well and has made nothing: copying the result fails.
    host.program("cargo", f"rm -f {release}/folioscope")
    assert host.run(SETUP / "build.sh").returncode != 0
    assert not list(commands.glob("*/complete"))
    host.program("cargo", f"echo whole >{release}/folioscope; [ $1 = build ] && case $* in *agent*) exit 1;; esac")
    host.run(SETUP / "build.sh")
    (whole,) = (path for path in commands.iterdir() if path.is_dir())
    assert (whole / "folioscope").read_text() == "whole\n"
    assert not left.exists()


def test_a_checkout_gets_what_is_built_of_it(host: Host) -> None:
    """Two share the directory of builds, and the files of the one that builds later are older."""
    said = []
    for name in ("newer", "older", "newer"):
        place = host.place / name
        if not place.exists():
            shutil.copytree(SETUP, place / "vmm" / "setup")
            (place / "src").mkdir()
            (place / "Cargo.toml").write_text('[package]\nname = "tried-here"\nversion = "0.1.0"\nedition = "2021"\n')
            # As cargo tells a test where its program is: no name of a shell's variable.
            (place / "tests").mkdir()
            (place / "tests" / "runs.rs").write_text('const _: &str = env!("CARGO_BIN_EXE_tried-here");\n')
            unused = "let unused = 1; " if name == "older" else ""
            (place / "src" / "main.rs").write_text(f'fn main() {{ {unused}println!("{name}") }}\n')
            if name == "older":
                for path in (place / "Cargo.toml", place / "src" / "main.rs"):
                    os.utime(path, (0, 0))
        script = "cd $0 && . vmm/setup/lib.sh && . vmm/setup/toolchain.sh && cargo -q run && cargo -q test --no-run && "
        script += 'if cargo -q clippy -- "${CLIPPY_OPTIONS[@]}"; then echo content; else echo discontent; fi'
        ran = host.run("bash", "-c", script, place, CARGO_TARGET_DIR=str(host.place / "builds"))
        said.append(ran.stdout.split())
    assert said == [["newer", "content"], ["older", "discontent"], ["newer", "content"]]


def test_a_checkout_gets_a_library_that_is_built_of_it(host: Host) -> None:
    """Of these cargo keeps no more than one, whoever has built it."""
    library = host.place / "builds" / "debug" / "libtried_here.so"
    for name in ("newer", "older", "newer"):
        place = host.place / name
        if not place.exists():
            shutil.copytree(SETUP, place / "vmm" / "setup")
            (place / "src").mkdir()
            text = (
                '[package]\nname = "tried-here"\nversion = "0.1.0"\nedition = "2021"\n[lib]\ncrate-type = ["cdylib"]\n'
            )
            (place / "Cargo.toml").write_text(text)
            (place / "src" / "lib.rs").write_text(f'#[no_mangle]\npub static OF: &[u8; 7] = b"<{name}>";\n')
            if name == "older":
                for path in (place / "Cargo.toml", place / "src" / "lib.rs"):
                    os.utime(path, (0, 0))
        script = "cd $0 && . vmm/setup/lib.sh && . vmm/setup/toolchain.sh && "
        script += 'forget_libraries "$CARGO_TARGET_DIR/debug" tried_here && cargo -q build'
        host.run("bash", "-c", script, place, CARGO_TARGET_DIR=str(host.place / "builds"))
        found = library.read_bytes()
        assert [each for each in (b"<newer>", b"<older>") if each in found] == [f"<{name}>".encode()]


def test_the_question_of_sudo_can_be_read_and_answered(host: Host) -> None:
    """It is asked once, in the terminal, with nothing drawn over it and nothing else reading."""
    host.program("id", "echo 1000")
    host.program("dpkg-query", "echo unknown ok not-installed")
    host.program("apt-get", "exit 0")
    host.program("dpkg", "echo arm64")
    # As sudo asks: of the terminal, whatever its own streams are.
    asks = 'printf "[sudo] password for user: " >/dev/tty; read -r word </dev/tty; [ "$word" = secret ] || exit 1'
    host.program("sudo", asks + '; exec "$@"')
    with host.terminal(SETUP / "packages.sh", "run") as (_, terminal):
        shown = read(terminal, "password for user: ")
        assert shown.endswith("password for user: ")
        # Longer than the steps' progress takes to be drawn again.
        time.sleep(1.0)
        assert not select.select([terminal], [], [], 0)[0], "something was drawn over the question"
        os.write(terminal, b"secret\n")
        rest = read(terminal, "Debian packages: done")
        assert "package lists: done" in rest
        assert wait_until(lambda: not host.programs(), 30)
    calls = host.said.read_text().splitlines()
    assert [call.split()[0] for call in calls].count("sudo") == 1
    assert any(call.startswith("apt-get") and " install -y " in call for call in calls)


def test_one_part_of_make_test_that_fails_fails_it(built: Host) -> None:
    """What runs beside pytest is not lost behind it; both carriers serve the whole run, and end with it."""
    built.program("cargo", "[ $1 != fmt ] || { echo 'a line is too long'; exit 1; }")
    (built.place / "out").mkdir()
    carrier = built.place / "out" / "folioscope"
    carrier.write_text(f'#!/bin/sh\necho "carrier $*" >>{built.said}\necho ready\ncat\necho end >>{built.said}\n')
    carrier.chmod(0o755)
    # Other folders take longer to collect than all the rest of this takes.
    one = ["-k", "test_help_of_boot_says_how_it_ends", "-n", "0", "--ignore-glob", "tests/[!h]*"]
    ended = built.run(SETUP / "test.sh", *one, seconds=300, FOLIOSCOPE=str(ROOT / "out" / "folioscope"))
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == 2
    assert "a line is too long" in ended.stderr
    assert "lint failed with status 1" in ended.stderr
    calls = built.said.read_text().splitlines()
    assert not any(call.startswith("cargo test") and "--no-run" not in call for call in calls), "it went on"
    if platform.machine() != "aarch64":
        serving = [call for call in calls if call.startswith("carrier carrier serve")]
        assert sorted("--nvhe" in call for call in serving) == [False, True]
        assert wait_until(lambda: built.said.read_text().count("end\n") == 2, 10)
    assert wait_until(lambda: not built.programs(), 10), built.programs()


# What is left.


def test_clean_removes_what_we_made_and_nothing_else(host: Host) -> None:
    """Links into the cache, logs, and what has our mark; not what somebody has put there."""
    out = host.place / "out"
    host.run(SETUP / "inputs.sh", "run")
    cached = host.place / "cache" / "command" / "x"
    cached.mkdir(parents=True)
    (out / "folioscope").symlink_to(cached)
    mine = [
        out / "guests" / "4711-ab" / "notes",
        out / "saved.core",
        out / "tests" / "test_mine.py",
        out / "bundles" / "a",
    ]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (out / "theirs").symlink_to("/nonexistent")
    ours = [out / "guests" / "4712-ab", out / "bundles" / "1-2"]
    for path in ours:
        path.mkdir(parents=True)
        (path / ".folioscope").write_text("folioscope scratch\n")
    ended = host.run("make", "clean")
    assert ended.returncode == 0, ended.stderr
    assert all(path.read_text() == "mine" for path in mine)
    assert not any(path.exists() for path in [*ours, out / "logs"])
    assert not (out / "folioscope").is_symlink()
    assert (out / "theirs").is_symlink()
    assert "saved.core" in ended.stderr
    shutil.rmtree(out)
    assert host.run("make", "clean").returncode == 0
    assert not out.exists()


def test_a_file_in_the_way_of_a_link_stays(host: Host) -> None:
    """`out/folioscope` may be somebody's own."""
    (host.place / "out").mkdir()
    place = host.place / "out" / "folioscope"
    place.write_text("mine")
    ended = host.run("bash", "-c", f". {SETUP}/lib.sh; link /nonexistent folioscope")
    assert (ended.returncode, place.read_text()) == (2, "mine")
    assert "in the way" in ended.stderr


# The initramfs.

# A stand-in for Buildroot, with what rootfs/ uses of it: a configuration by name, packages by stamp, a script after the
# build, cpio, and the variable of a package's build directory, which is Buildroot's own (package/pkg-generic.mk).
BUILDROOT = r"""
BR2_EXTERNAL_FOLIOSCOPE_PATH := $(BR2_EXTERNAL)
TARGET_DIR := $(O)/target
INSTALL := install
generic-package :=
-include $(O)/.config
BR_BUILDING := $(if $(filter-out all,$(MAKECMDGOALS)),,y)
FOLIOSCOPE_AGENT_DIR = $(O)/build/folioscope-agent-local
.DEFAULT_GOAL := all
include $(BR2_EXTERNAL)/external.mk
folioscope_defconfig:
	@test -z "$(KERNEL)$(MACHINE)$(GRANULE)" || { echo 'variables of another make came through'; false; }
	cp $(BR2_EXTERNAL)/configs/folioscope_defconfig $(O)/.config
folioscope-agent-dirclean:
	rm -rf $(FOLIOSCOPE_AGENT_DIR)
$(FOLIOSCOPE_AGENT_DIR)/.stamp:
	mkdir -p $(@D) $(TARGET_DIR)
	cp $(FOLIOSCOPE_AGENT_SITE)/* $(@D)
	$(FOLIOSCOPE_AGENT_INSTALL_TARGET_CMDS)
	touch $@
all: $(FOLIOSCOPE_AGENT_DIR)/.stamp
	$(BR2_ROOTFS_POST_BUILD_SCRIPT) $(TARGET_DIR)
	mkdir -p $(O)/images
	printf 'node\tdev/console\t600\tc\t5\t1\ntree\t%s\n' $(TARGET_DIR) | python3 $(NEWC) >$(O)/images/rootfs.cpio
"""


def test_make_rootfs_packs_what_boots(built: Host) -> None:
    """And names the file."""
    ended = built.run("make", "rootfs", seconds=600)
    assert ended.returncode == 0, ended.stderr
    made = built.place / "out" / "initramfs.cpio"
    assert ended.stdout == f"{made}\n"
    assert made.read_bytes().startswith(b"070701")


@pytest.mark.qemu
def test_make_rootfs_by_buildroot(built: Host, tmp_path: Path) -> None:
    """With a stand-in, the agent just built becomes its init, also over an older one, and a guest boots by it."""
    tree = tmp_path / "buildroot"
    (tree / "support" / "scripts").mkdir(parents=True)
    words = ["make", "rootfs", f"BUILDROOT={tree}", "MACHINE=tcg", "GRANULE=4k"]
    refused = built.run(*words)
    assert refused.returncode == 2
    assert "expected an unpacked Buildroot" in refused.stderr
    (tree / "support" / "scripts" / "br2-external").touch()
    (tree / "Makefile").write_text(BUILDROOT.replace("$(NEWC)", str(ROOT / "rootfs" / "newc.py")))
    old = built.place / "cache" / "buildroot" / "output"
    (old / "build" / "folioscope-agent-local").mkdir(parents=True)
    (old / "build" / "folioscope-agent-local" / ".stamp").touch()
    (old / "target").mkdir()
    (old / "target" / "init").write_text("an older one")
    ended = built.run(*words, seconds=600)
    log = built.place / "out" / "logs" / "buildroot.log"
    assert ended.returncode == 0, ended.stderr + (log.read_text() if log.exists() else "")
    made = built.place / "out" / "initramfs.cpio"
    assert ended.stdout == f"{made}\n"
    folioscope("run", "--only", "munmap", "--memory", "256M", "--initrd", made, "--out", tmp_path / "run").ok()


@pytest.mark.parametrize("git", [True, False], ids=["checkout", "tarball"])
def test_what_a_user_leaves_is_none_of_our_sources(host: Host, git: bool) -> None:
    """Lint looks at files that .gitignore does not name, with and without git, and at none that was removed."""
    place = host.place / "tree"
    shutil.copytree(SETUP, place / "vmm" / "setup")
    shutil.copy(ROOT / ".gitignore", place)
    theirs = ["venv/bin/x.sh", "folioscope-out/logs/x.sh", "trace/names", "protects", "test_protect.py", "Image-6.12"]
    ours = ["guest/x.sh", "docs/trace", "removed.sh"]
    for name in [*theirs, *ours, "out/x.sh", "target/x.sh", "guest/__pycache__/x.sh"]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    if git:
        host.run("git", "-C", place, "init", "-q")
        host.run("git", "-C", place, "add", ".")
    (place / "removed.sh").unlink()
    script = "cd $0 && . vmm/setup/lib.sh && sources '*' && printf '|\\0' && sources '*.sh'"
    listed, _, scripts = host.run("bash", "-c", script, place).stdout.partition("|\0")
    names = {name for name in listed.split("\0") if name and not name.startswith("vmm/setup/")}
    assert names == {".gitignore", "guest/x.sh", "docs/trace"}
    assert {name for name in scripts.split("\0") if name and not name.startswith("vmm/")} == {"guest/x.sh"}
