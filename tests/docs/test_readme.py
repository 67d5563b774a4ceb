# SPDX-License-Identifier: GPL-2.0-only
"""What README, tutorial and how-to pages show works: each command is run as it stands there, or left out with a reason.

A block of commands is indented, and a command in an example begins with `$`: each such line is one. Names that stand
for a user's own files are replaced by such files; `out/` is this checkout's.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import BOOT_SECONDS, CACHE, ROOT, folioscope
from held_guest import LAYOUT, Held
from recorder import plugin
from test_install import INSTALL_SECONDS, examples
from test_install import environment as user_environment

__all__ = ["plugin"]

# Commands that are run by no test of this file, and why.
LEFT_OUT = {
    "make test": "it is what runs this",
    "out/folioscope boot --machine kvm --console --kernel Image --initrd my.cpio --cpus 4 --memory 2G": (
        "it needs an arm64 host; test_kvm.py types at such a guest in a carrier"
    ),
    **dict.fromkeys(
        [
            "out/folioscope cross --only folded,write --append nokaslr --tcg-thread multi "
            "--marks marks --executed blocks",
            "python3 tests/helpers/executed.py out/kernel-4k/vmlinux blocks mm/ arch/arm64/mm/",
            "python3 tests/helpers/executed.py out/kernel-4k/vmlinux blocks mm/rmap.c --tree ~/linux",
        ],
        "test_executed.py lists the lines of a program, and executed.rs has the blocks",
    ),
    "cat test_buffer.py": "it shows the file that test_a_test_that_wanted_64k runs",
    **dict.fromkeys(
        (
            "make build",
            "python3 -m venv ~/venv",
            "~/venv/bin/pip install ~/folioscope/tests/plugin",
            "export FOLIOSCOPE=~/folioscope/out/folioscope",
        ),
        "test_install.py does so, and runs the examples",
    ),
    **dict.fromkeys(
        (
            "export AWS_ENDPOINT_URL=http://HOST:8333 AWS_ACCESS_KEY_ID=campaigns AWS_SECRET_ACCESS_KEY=SECRET",
            "weed=$(vmm/setup/s3_server.sh)",
            "cat >rights.json <<'END'",
            'mkdir s3 && "$weed" server -dir=s3 -ip=HOST -filer -s3 -s3.config=rights.json -master.telemetry=false',
            "echo 's3.bucket.create -name BUCKET' | \"$weed\" shell -master=HOST:9333",
        ),
        "test_campaign_s3.py has this server by s3_server.py, on addresses of its own",
    ),
    **dict.fromkeys(
        (
            "dask scheduler --port 8786 --no-dashboard",
            "PYTHONPATH=tests/plugin dask worker tcp://HOST:8786 --nthreads 1 --resources guest=1 --death-timeout 60 "
            "--no-dashboard",
        ),
        "test_campaign_dask.py has these by dask_cluster.py, on ports of their own",
    ),
    **dict.fromkeys(
        (
            "cat >Containerfile.worker <<'END'",
            "podman build --file Containerfile.worker --tag REGISTRY/folioscope-worker",
        ),
        "no test starts Kubernetes, as the page says",
    ),
    **dict.fromkeys(
        (
            "out/folioscope matrix matrix.toml --dry-run",
            "out/folioscope matrix matrix.toml",
            "out/folioscope matrix matrix.toml --store s3://BUCKET/campaigns",
            "out/folioscope matrix matrix.toml --store sftp://HOST/campaigns --engine dask=tcp://HOST:8786",
        ),
        "its cells take hours; test_matrix.py, test_campaign_dask.py and test_campaign_s3.py run smaller ones",
    ),
    **dict.fromkeys(
        (
            "out/folioscope series v6.12..topic --tree ~/linux",
            "out/folioscope series series.mbox --tree ~/linux --base v6.12 --store ~/campaigns",
            "out/folioscope reply ~/campaigns",
            "out/folioscope bisect v6.12 topic --tree ~/linux --when 'rule(\"L6\") or coverage < 0.9'",
            "out/folioscope bisect v6.12 topic --tree ~/linux --when test_mine.py --repeat 3",
            "out/folioscope bisect v6.12 topic --tree ~/linux --only anon --when 'chosen[4] == 0'",
            "out/folioscope bisect v6.12 topic --tree ~/linux --only anon --when 'order[4] == 0'",
        ),
        "it builds a kernel for each patch; test_campaign_series.py, test_campaign_bisect.py and test_order_bisect.py "
        "have prebuilt ones",
    ),
}

# Run by test_a_qemu_of_ones_own.
QEMU = "qemu-system-aarch64 "

# What stands for something of the user's.
TREE = "~/linux"
VMLINUZ = "/boot/vmlinuz-6.12.0-arm64"
# What the README's QEMU leaves to its user: an init that says when it is up, and where the consoles go.
REST = (
    "-initrd out/initramfs.cpio -append console=ttyAMA0 -display none -serial file:console.log "
    "-serial unix:agent.sock,server=on,wait=off"
)


def commands(text: str) -> list[str]:
    """The command lines of a document, without their comments. A block of a language has none."""
    found = []
    text = re.sub(r"^```\w+\n.*?^```$", "", text.replace("\\\n", " "), flags=re.M | re.S)
    for number, part in enumerate(re.split(r"^```$", text, flags=re.M)):
        begin = re.escape("$ " if number % 2 else "    ")
        for line in re.findall(rf"^{begin}([^\s#].*)$", part, re.M):
            found.append(re.sub(r"\s+", " ", re.sub(r"\s+#.*", "", line)).strip())
    return found


DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / name) for name in ("tutorial.md", "testing.md", "reading.md", "faults.md", "reports.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
TEXT = "\n".join(path.read_text() for path in DOCUMENTS)
README = commands(TEXT)


class Shell:
    """A user's directory in which the commands work: `out/` is ours."""

    def __init__(self, place: Path, checkout: Path = ROOT) -> None:
        self.place, self.checkout = place, checkout
        (place / "out").symlink_to(ROOT / "out")
        for name in ("Image", "vmlinux"):
            (place / name).symlink_to(ROOT / "out" / "kernel-4k" / name)
        self.ran: set[str] = set()
        # As from a shell, not as from make.
        inherited = ("MAKE", "MFLAGS", "KERNEL", "BASE", "VMLINUX", "MACHINE", "GRANULE", "BUILDROOT")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(inherited)}

    def start(self, line: str, **replaced: str) -> subprocess.Popen[str]:
        """Starts a line of a document; names in it are replaced."""
        assert line in README, f"no document has {line!r}"
        self.ran.add(line)
        for name, value in {"...": REST, **replaced}.items():
            line = line.replace(name, value)
        # Scripts and make find what they need from the checkout.
        ours = line.startswith(("make", "vmm/", "guest/", "rootfs/"))
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "bash", "-c", re.sub(r"((?:\w+=\S+ )*)", r"\1exec ", line, count=1)],
            cwd=self.checkout if ours else self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, line: str, seconds: float = 2 * BOOT_SECONDS, status: int = 0, **replaced: str) -> str:
        """Runs one to its end, which has to be of this status; gives its words."""
        with self.start(line, **replaced) as child:
            try:
                said, _ = child.communicate(timeout=seconds)
            finally:
                child.kill()
        assert child.returncode == status, f"{line}: status {child.returncode}\n{said}"
        return said

    def plugin(self) -> None:
        """Makes the environment of README and tutorial, of a copy of the plugin: what a build leaves is left in it."""
        shutil.copytree(ROOT / "tests" / "plugin", self.place / "tests" / "plugin")
        self.run("python3 -m venv venv", seconds=INSTALL_SECONDS)
        self.run("venv/bin/pip install ./tests/plugin", seconds=INSTALL_SECONDS)
        self.environment = user_environment()

    @contextlib.contextmanager
    def running(self, line: str, until: str, **replaced: str) -> Iterator[str]:
        """Starts one that stays, and gives its words up to some."""
        with self.start(line, **replaced) as child:
            try:
                yield read(child, until)
            finally:
                child.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=10)
                child.kill()


def shown(line: str) -> list[str]:
    """What a document shows below a command, up to the next one."""
    text = TEXT.partition(f"\n$ {line}\n")[2]
    return re.split(r"^(?:```|\$ .*)$", text, maxsplit=1, flags=re.M)[0].splitlines()


def replayed(line: str, said: str) -> None:
    """Each line that the document shows was said, in that order; numbers may differ, `[...]` stands for any lines."""

    def plain(text: str) -> str:
        return re.sub(r"\b0x[0-9a-f]+\b|\b[0-9a-f]{8,16}\b|\d+(\.\d+)?([KMG]\b)?", "#", text.rstrip())

    lines = iter(map(plain, said.splitlines()))
    wanted = [plain(each) for each in shown(line)]
    assert wanted
    for each in wanted:
        assert each == "[...]" or each in lines, f"{line} does not say {each!r} (or not there):\n{said}"


def read(child: subprocess.Popen[str], until: str) -> str:
    """What it says, up to a line that has those words."""
    said = b""
    end = time.monotonic() + 2 * BOOT_SECONDS
    assert child.stdout
    # Not by the file's own lines: those that it has read ahead make nothing ready.
    while until.encode() not in said or not said.endswith(b"\n"):
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"no line with {until!r} came: {said.decode()}"
        got = os.read(child.stdout.fileno(), 65536)
        assert got, f"it ended: {said.decode()}"
        said += got
    return said.decode()


@pytest.fixture
def another(tmp_path: Path) -> Shell:
    """A checkout of its own beside that shell, for what puts other kernels into `out/`."""
    checkout = tmp_path / "checkout"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    (tmp_path / "place").mkdir()
    return Shell(tmp_path / "place", checkout)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The user's shell."""
    return Shell(tmp_path_factory.mktemp("readme"))


def test_every_command_is_run_or_left_out_with_a_reason() -> None:
    """A new one belongs into a test here, or into LEFT_OUT."""
    run = set(re.findall(r'(?:shell|another)\.(?:run|running)\(\s*"([^"]+)"', Path(__file__).read_text()))
    run |= {command for command in README if command.startswith(QEMU)}
    run |= set(re.findall(r'self\.run\("([^"]+)"', Path(__file__).read_text()))
    # The tutorial's are run by test_tutorial.py, in their order.
    run |= set(commands((ROOT / "docs" / "tutorial.md").read_text()))
    # Those of what is packed by test_dist.py, but for the container's.
    run |= set(commands((ROOT / "docs" / "how-to" / "install.md").read_text()))
    assert set(README) - run - set(LEFT_OUT) == set()
    assert (run | set(LEFT_OUT)) - set(README) == set(), "no document has them any more"


def test_the_crossing_is_as_large_as_it_says() -> None:
    """States and operations of the README's table are those of the command, and its cells are all pairs."""
    states, operations = folioscope("cross", "--list").ok().removeprefix("states:\n").split("operations:\n")
    size = [len(states.splitlines()), len(operations.splitlines())]
    readme = (ROOT / "README.md").read_text()
    head, *rows = re.findall(r"^\| (?:\d+ states|judged|not judged|left out).*$", readme, re.M)
    assert list(map(int, re.findall(r"\d+", head))) == size
    cells = [[int(cell.replace(",", "")) for cell in re.findall(r"\| ([\d,]+) (?=\|)", row)] for row in rows]
    assert {sum(column) for column in zip(*cells, strict=True)} == {size[0] * size[1]}
    assert f"{size[0]} states (" in TEXT and f"{size[1]} operations to each" in TEXT
    assert f"a table of {3 * size[0] * size[1]:,} cells" in TEXT


def test_cells_with_a_knob(shell: Shell) -> None:
    """What is written first is there when the cells are played."""
    said = shell.run(
        "out/folioscope cross --only zero,write --knob /sys/kernel/mm/transparent_hugepage/anon_order/zero_page=1"
    )
    assert "\n3 cells: 3 green, 0 red, 0 not judged; 0 pairs left out\n" in said


def test_make_run(shell: Shell) -> None:
    """The first of the two commands."""
    said = shell.run("make run")
    assert said.endswith(
        "ok no error found (exit status 0)\nevery state of memory under every operation: make cross\n"
    ), said
    readme = re.search(r"\n```\n(\d+ checkpoints, .*?)```\n", (ROOT / "README.md").read_text(), re.S)
    assert readme and "\n".join(shown("make run")).endswith(readme[1].rstrip())
    # A remark on a block that could be folded is legal. KVM has no models of CPUs.
    if os.uname().machine == "x86_64":
        replayed("make run", re.sub(r"\d+ remarks?, (.*?)(?: \(I-.*\))?$", r"0 remarks, \1", said, flags=re.M))


@pytest.mark.long
def test_make_run_with_a_kernel_of_ones_own(shell: Shell) -> None:
    """An Image with its vmlinux: by `make` the tour once more."""
    image = {"arch/arm64/boot/Image": "out/kernel-4k/Image", "=vmlinux": "=out/kernel-4k/vmlinux"}
    said = shell.run("make run KERNEL=arch/arm64/boot/Image VMLINUX=vmlinux", **image)
    assert "ok no error found (exit status 0)" in said


@pytest.mark.qemu
@pytest.mark.usefixtures("plugin")
def test_make_run_with_sequences(shell: Shell) -> None:
    """States and sequences of the tour in one run."""
    said = shell.run("make run RECORD=1", seconds=4 * BOOT_SECONDS)
    assert "ok no error found (exit status 0)" in said
    assert re.search(r"^\d+ stores to descriptors, .*\n0 findings$", said, re.M)


@pytest.mark.qemu
@pytest.mark.usefixtures("plugin")
def test_make_lab(shell: Shell) -> None:
    """One experiment, quickly."""
    said = shell.run("make lab EXP=zap QUICK=1", seconds=300)
    assert re.search(r"^\| on \| .* \(-\d\d\.\d%\) ", said, re.M)


@pytest.mark.qemu
@pytest.mark.usefixtures("plugin")
def test_a_trace(shell: Shell) -> None:
    """A trace of a workload is judged again alike, and has the sequences at an address."""
    said = shell.run("out/folioscope record --only mprotect --trace trace", seconds=4 * BOOT_SECONDS)
    counts = re.search(r"^\d+ stores to descriptors, \d+ TLBIs, \d+ barriers", said, re.M)
    again = shell.run("out/folioscope record --judge trace")
    assert counts and counts[0] in again and "\n0 findings\n" in said and again.endswith("\n0 findings\n")
    steps = shell.run("out/folioscope explain 0xfffff7c01000 trace --last 3")
    assert len(re.findall(r"^  sequence \d+ of \d+", steps, re.M)) == 3


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.usefixtures("plugin")
def test_sequences_alone(shell: Shell) -> None:
    """The tour has no finding: in make test by test_make_run_with_sequences, which has the same workloads."""
    assert "\n0 findings\n" in shell.run("out/folioscope record", seconds=4 * BOOT_SECONDS)


@pytest.mark.qemu
@pytest.mark.network
def test_a_test_of_ones_own(tmp_path: Path) -> None:
    """The README's, by the plugin that it installs."""
    shell = Shell(tmp_path)
    (tmp_path / "test_mine.py").write_text(examples(ROOT / "README.md")["test_mine.py"])
    shell.plugin()
    options = {"test_mine.py": "test_mine.py --folioscope-granule 4k --folioscope-machine tcg"}
    said = shell.run("FOLIOSCOPE=out/folioscope venv/bin/pytest test_mine.py", seconds=4 * BOOT_SECONDS, **options)
    assert "1 passed" in said


@pytest.mark.qemu
@pytest.mark.usefixtures("plugin")
def test_a_program_of_ones_own(shell: Shell) -> None:
    """A static one, compiled as the README says; its stores are seen, and its status is."""
    (shell.place / "prog.c").write_text("int main(void) { return 7; }\n")
    shell.run("aarch64-linux-gnu-gcc -static -o prog prog.c")
    said = shell.run("out/folioscope record -- ./prog", seconds=4 * BOOT_SECONDS)
    assert "ended with status 7\n" in said and "0 findings" in said


@pytest.mark.long
@pytest.mark.network
def test_make_run_with_a_distributions_kernel(shell: Shell) -> None:
    """The tour on it is in make test already, by the command itself."""
    fetched = subprocess.run(
        [ROOT / "vmm/setup/stock.sh", "4k"], check=True, capture_output=True, text=True, timeout=300
    )
    said = shell.run("make run KERNEL=/boot/vmlinuz-6.12.0-arm64", **{VMLINUZ: fetched.stdout.strip()})
    assert "ok no error found (exit status 0)" in said


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_make_run_with_a_tree_of_ones_own(another: Shell, tmp_path: Path) -> None:
    """It is built out of tree, and left as it was."""
    tarball = os.environ.get("FOLIOSCOPE_KERNEL_TARBALL", "/usr/src/linux-source-6.12.tar.xz")
    tree = tmp_path / "linux"
    tree.mkdir()
    subprocess.run(["tar", "-xf", tarball, "-C", tree, "--strip-components=1"], check=True)
    before = {path for path in tree.rglob("*") if path.is_file()}
    said = another.run("make run KERNEL=~/linux", seconds=3600, **{TREE: str(tree)})
    assert "ok no error found (exit status 0)" in said
    assert {path for path in tree.rglob("*") if path.is_file()} == before


@pytest.mark.long
@pytest.mark.network
@pytest.mark.timeout(3600)
def test_make_run_with_a_newer_base(another: Shell) -> None:
    """Fetched, patched, built and judged."""
    said = another.run("make run BASE=7.x", seconds=3600)
    assert "guest: Linux 7." in said and "policy variable" in said
    assert "ok no error found (exit status 0)" in said


@pytest.mark.qemu
def test_carriers(shell: Shell) -> None:
    """A program of one's own runs in one, by itself and in one that serves."""
    shutil.copy(next(CACHE.glob("busybox-*/busybox")), shell.place)
    program = {"./static-arm64-program": "./busybox"}
    assert "BusyBox" in shell.run("out/folioscope carrier exec -- ./static-arm64-program", **program)
    with shell.running("out/folioscope carrier serve --socket carrier.sock", '"ready"'):
        shell.environment["FOLIOSCOPE_CARRIER"] = "carrier.sock"
        try:
            assert "BusyBox" in shell.run("out/folioscope carrier exec -- ./static-arm64-program", **program)
        finally:
            del shell.environment["FOLIOSCOPE_CARRIER"]


@pytest.mark.long
def test_cargo_for_arm64(shell: Shell) -> None:
    """What cargo runs itself runs in a carrier."""
    assert "test result: ok" in shell.run("vmm/setup/arm64.sh test -p stage1", seconds=1800)


def test_looking_around(shell: Shell) -> None:
    """A guest that stays, and all that looks into it, then at what was saved of it."""
    with shell.running("make boot", "end:") as said:
        assert (found := re.search(r"--guest (\S+)", said))

        def this(command: str) -> dict[str, str]:
            # Where somebody has another guest too.
            return {f"folioscope {command}": f"folioscope {command} --guest {found[1]}"}

        assert "ok no error found (exit status 0)" in shell.run("out/folioscope check", **this("check"))
        rows = shell.run("out/folioscope dump --contiguous --va 0xfffff7c00000-0xfffff7c40000", **this("dump"))
        assert "0000fffff7c00000" in rows
        assert "chosen" in shell.run("out/folioscope explain 0xfffff7c05000", **this("explain"))
        assert re.search(r"^ +1 +1 .* init$", shell.run("out/folioscope ps", **this("ps")), re.M)
        assert (pid := re.search(r"^process (\d+)", said, re.M))
        maps = {"folioscope maps 42": f"folioscope maps {pid[1]} --guest {found[1]}"}
        replayed("out/folioscope maps 42", shell.run("out/folioscope maps 42", **maps))
        kernel = shell.run("out/folioscope kernel", **this("kernel"))
        assert re.search(r"^linear map +[0-9a-f]{16}-[0-9a-f]{16} +\S+ CONTPMD ", kernel, re.M), kernel
        assert re.search(r"^[0-9]+ areas of vmalloc, modules and ioremap$", kernel, re.M), kernel
        watch = {"folioscope watch 42": f"folioscope watch {pid[1]} --guest {found[1]}"}
        with shell.running("out/folioscope watch 42", "pages are mapped", **watch):
            pass
        assert "guest memory" in shell.run("out/folioscope save saved.core", **this("save"))
        full = {"save --full full.core": f"save --guest {found[1]} --full full.core"}
        assert "all 1024 MiB of guest memory" in shell.run("out/folioscope save --full full.core", **full)
    assert "0 not judged" in shell.run("out/folioscope check full.core")
    assert "page frame 0x41200 " in shell.run("out/folioscope page 0x41200 full.core")
    cores = {"one.core": "saved.core", "other.core": "full.core"}
    assert "nothing happened to 1 process(es)" in shell.run("out/folioscope diff one.core other.core", **cores)
    said = shell.run("out/folioscope explain 0xfffff780a000 saved.core")
    assert "order 4  would start before the VMA" in said
    replayed("out/folioscope explain 0xfffff780a000 saved.core", said)


def test_from_a_red_line_to_the_reason(shell: Shell, held: Held) -> None:
    """A block in which one entry has lost the Contiguous bit."""
    spawned, address = held.area("tour", 2 * LAYOUT.block, 2 * LAYOUT.block)
    assert address == 0xFFFFF7C00000
    entries = held.call("look", process=spawned["process"])["entries"]
    (entry,) = (entry for entry in entries if int(entry["va"], 16) == address + 5 * LAYOUT.page)
    word = int(entry["word"], 16)
    held.call("poke", pokes=[{"address": entry["address"], "word": hex(word & ~(1 << 52))}])
    try:
        core = ["save", "--guest", held.socket, "--pid", str(spawned["pid"]), shell.place / "broken.core"]
        folioscope(*core).ok()
    finally:
        held.call("poke", pokes=[{"address": entry["address"], "word": hex(word)}])
    replayed("out/folioscope check broken.core", shell.run("out/folioscope check broken.core", status=1))
    said = shell.run("out/folioscope explain 0xfffff7c05000 broken.core")
    replayed("out/folioscope explain 0xfffff7c05000 broken.core", said)


@pytest.mark.qemu
def test_a_test_that_wanted_64k(tmp_path: Path) -> None:
    """What is shown of it, and both ways to make it green."""
    lines = shown("cat test_buffer.py")
    shell = Shell(tmp_path)
    shell.environment |= {"PYTHONPATH": str(ROOT / "tests" / "plugin"), "FOLIOSCOPE_OUT": str(tmp_path / "kept")}
    options = {
        "pytest": f"{sys.executable} -m pytest -p folioscope.plugin -p no:cacheprovider --folioscope-machine tcg"
    }

    def asked(status: int, *changed: str) -> str:
        (shell.place / "test_buffer.py").write_text("\n".join(changed) + "\n")
        return shell.run(
            "pytest test_buffer.py --folioscope-granule 4k", status=status, seconds=2 * BOOT_SECONDS, **options
        )

    said = asked(1, *lines)
    replayed("pytest test_buffer.py --folioscope-granule 4k", said)
    (explain,) = re.findall(r"^folioscope explain 0xfffff7c00000 (.*)$", said, re.M)
    ((before, look),) = re.findall(r"^folioscope diff (\S+) (\S+)$", said, re.M)
    assert look == explain
    cores = {"folioscope ": "out/folioscope ", " look.core": f" {look}", " before.core": f" {before}"}
    said = shell.run("folioscope explain 0xfffff7c00000 look.core", **cores)
    replayed("folioscope explain 0xfffff7c00000 look.core", said)
    replayed("folioscope diff before.core look.core", shell.run("folioscope diff before.core look.core", **cores))
    read, write = lines[3], lines[4]
    assert "read" in read and "write" in write
    asked(0, *lines[:3], write, read, *lines[5:])
    switch = "/sys/kernel/mm/transparent_hugepage/anon_order/zero_page"
    on, off = (f'    folioscope_process.guest.write("{switch}", "{value}")' for value in (1, 0))
    asked(0, *lines[:3], on, *lines[3:], off)


@pytest.mark.qemu
def test_a_qemu_of_ones_own(shell: Shell) -> None:
    """The arguments that are shown are enough, also where QEMU has no ROMs for network cards."""
    (line,) = (command for command in README if command.startswith(QEMU))
    with shell.start(line) as qemu:
        try:
            console = shell.place / "console.log"
            end = time.monotonic() + BOOT_SECONDS
            while not console.exists() or "ready on Uart" not in console.read_text(errors="replace"):
                assert qemu.poll() is None, qemu.stdout and qemu.stdout.read()
                assert time.monotonic() < end, console.exists() and console.read_text(errors="replace")
                time.sleep(0.1)
            assert "Linux 6.12" in shell.run("out/folioscope attach qmp.sock")
            assert re.search(r"^ +2 +1 +\S+ - +\[kthreadd\]$", shell.run("out/folioscope attach qmp.sock ps"), re.M)
            said = shell.run("out/folioscope attach qmp.sock check")
            assert "ok no error found (exit status 0)" in said
            lists = re.compile(r".*were not judged.*|not asked: .*")
            stated = [line for line in shown("out/folioscope attach qmp.sock check") if lists.fullmatch(line)]
            assert len(stated) == 2 and not [line for line in stated if line.removesuffix("[...]") not in said]
        finally:
            qemu.kill()
