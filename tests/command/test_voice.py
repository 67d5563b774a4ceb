# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own voice: what it reports of itself on the console is an error, with its lines."""

from __future__ import annotations

import html
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from folioscope import Guest, Process

from command import BOOT_SECONDS, folioscope, wait_until

pytest_plugins = ["pytester"]
# How a kernel words its reports does not depend on the granule.
pytestmark = pytest.mark.parametrize("granule", ["4k"])

# As __warn() of kernel/panic.c prints it.
WARNING = [
    "------------[ cut here ]------------",
    "WARNING: CPU: 0 PID: 1 at mm/memory.c:1 made_up+0x10/0x20",
    "Call trace:",
    " made_up+0x10/0x20",
    "---[ end trace 0000000000000000 ]---",
]
# Words of that kind that a kernel prints where all is well.
HARMLESS = [
    "WARNING: Unprivileged eBPF is enabled, data leaks possible via Spectre v2 BHB attacks!",
    "INFO: lockdep is turned off.",
    "made-up[1]: BUG: it is a program that says so",
]


def end(guest: Guest, process: Process) -> None:
    """Ends a process, and runs another one on its CPU, which lets go of the first one's memory map only then."""
    process.kill()
    guest.spawn(cpu=process.cpu).kill()


def say(guest: Guest, lines: list[str]) -> None:
    """Has the kernel print lines: what is written to /dev/kmsg looks like its own. A line without its end waits."""
    for line in lines:
        guest.write("/dev/kmsg", f"{line}\n")


def test_a_page_that_is_lost(guest: Guest, process: Process) -> None:
    """A page's entry is cleared from outside: the kernel finds out when the process ends (check_mm())."""
    area = process.map(4 * guest.layout.page, hint="nohugepage")
    area.write()
    with process.hold() as held:
        entry = held.judge().entry(area.address + guest.layout.page)
        assert entry
        guest.poke([(entry.address, 0)])
    with guest.provokes("BUG: Bad rss-counter state"):
        end(guest, process)


@pytest.mark.provokes("BUG: Bad page map in process", "BUG: Bad rss-counter state")
def test_a_page_that_is_none(guest: Guest, process: Process) -> None:
    """An entry that leads to where no page is: vm_normal_page() says so, and where it was called from."""
    area = process.map(4 * guest.layout.page, hint="nohugepage")
    area.write()
    with process.hold() as held:
        entry = held.judge().entry(area.address + guest.layout.page)
        assert entry
        guest.poke([(entry.address, entry.word & ~0x0000_FFFF_FFFF_F000 | 0x00FF_FFFF_F000)])
    end(guest, process)


def test_harmless_words(guest: Guest) -> None:
    """They are no reports; a test in which the kernel prints them passes."""
    say(guest, HARMLESS)
    # Another CPU may be at the console.
    assert wait_until(lambda: HARMLESS[-1] in guest.call("machine")["console"], 10)


NESTED = """
import pytest

WARNING = {warning!r}

def say(guest):
    lines = "; ".join(f"echo '{{line}}' >/dev/kmsg" for line in WARNING)
    assert guest.run("/bin/sh", "-c", lines).status == 0

sessions = []

@pytest.fixture(autouse=True)
def other_guest(folioscope_guest):
    assert folioscope_guest.session not in sessions
    yield
    if folioscope_guest.session.faulty:
        sessions.append(folioscope_guest.session)

def test_spoken(folioscope_guest):
    say(folioscope_guest)

@pytest.mark.folioscope_provokes("WARNING: CPU: 0 PID: 1 at mm/memory.c:1")
def test_named(folioscope_guest):
    say(folioscope_guest)

def test_named_inside(folioscope_guest):
    with folioscope_guest.provokes("made_up+0x10"):
        say(folioscope_guest)

@pytest.mark.folioscope_provokes("BUG: Bad page state")
def test_another_was_named(folioscope_guest):
    say(folioscope_guest)

def test_named_and_silent(folioscope_guest):
    with folioscope_guest.provokes("BUG: Bad page state"):
        pass

def test_spoken_at_its_end(folioscope_guest, request):
    request.addfinalizer(lambda: say(folioscope_guest) or folioscope_guest.call("voice"))

def test_silent(folioscope_guest):
    assert len(sessions) == 5
"""


def test_a_test_that_lets_the_kernel_speak_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, granule: str
) -> None:
    """With the lines; unless it names them, and then they have to come. Each guest that spoke is another one's last."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "plugin"))
    monkeypatch.setenv("FOLIOSCOPE_OUT", str(pytester.path / "out"))
    pytester.makepyfile(NESTED.format(warning=WARNING))
    options = ["-p", "folioscope.plugin", "-p", "no:cacheprovider", "-rA", "--folioscope-granule", granule]
    result = pytester.runpytest_subprocess(*options, timeout=900)
    result.assert_outcomes(passed=4, failed=3, errors=1)
    text = result.stdout.str()
    for failed in (
        "FAILED *::test_spoken[[]*",
        "FAILED *::test_another_was_named[[]*",
        "FAILED *::test_named_and_silent[[]*",
    ):
        result.stdout.fnmatch_lines([failed])
    result.stdout.fnmatch_lines(["ERROR *::test_spoken_at_its_end[[]*"])
    assert "the guest's kernel reports a fault of its own during this test" in text
    assert all(line in text for line in WARNING)
    assert "the kernel was to report ['BUG: Bad page state'] and did not" in text


def speaking(lines: list[str]) -> str:
    """The option that lets a script be the guest's first process: it has the kernel print lines, and becomes the agent.

    The kernel's command line, which it prints, has them all as well."""
    words = "; ".join(f"printf '%b\\n' '{line}' >/kmsg" for line in lines)
    return f'--append=rdinit=/bin/sh -- -c "busybox mknod /kmsg c 1 11; {words}; exec /init"'


@pytest.mark.parametrize(("lines", "status"), [(WARNING, 1), (HARMLESS, 0)], ids=["warning", "harmless"])
def test_run_ends_with_errors(tmp_path: Path, granule: str, lines: list[str], status: int) -> None:
    """The report has it in every form, and the exit status follows; the tables are judged as ever."""
    reports = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "ktap")}
    options = ["--granule", granule, speaking(lines), "--only", "zeropage"]
    options += [word for kind, path in reports.items() for word in (f"--{kind}", path)]
    ended = folioscope("run", *options, "--out", tmp_path / "out", seconds=BOOT_SECONDS)
    assert ended.status == status, ended.out + ended.err
    report = json.loads(reports["json"].read_text())
    assert report["totals"]["not_judged"] == 0
    assert report["totals"]["rules"].get("V1", 0) == report["totals"]["errors"] == status
    spoken = [step for step in report["steps"] if step["step"] == "console"]
    assert len(spoken) == status
    if not status:
        return
    (finding,) = spoken[0]["kernel"]["findings"]
    assert finding["message"].splitlines()[0] == f"the kernel reports: {WARNING[1]}"
    assert [line.strip() for line in finding["message"].splitlines()[1:]] == [line.strip() for line in WARNING]
    assert f"V1 the kernel reports: {WARNING[1]}" in ended.out
    assert WARNING[1] in reports["junit"].read_text()
    assert "not ok 1 console" in reports["ktap"].read_text()


def test_a_terminal_obeys_no_line_of_a_guest(tmp_path: Path, granule: str) -> None:
    """Bytes that a terminal obeys, and characters that reorder or hide text, are shown by number in every form."""
    said = "WARNING: mm/memory.c:1 at made_up+0x10/0x20 \x1b[31m\x07\u202ex\u200b\\<b>"
    lines = [
        r"WARNING: mm/memory.c:1 at made_up+0x10/0x20 \033[31m\007\342\200\256x\342\200\213\\<b>",
        "Call trace:",
        " made_up+0x10/0x20",
    ]
    shown = r"WARNING: mm/memory.c:1 at made_up+0x10/0x20 \u001b[31m\u0007\u202ex\u200b\\<b>"
    reports = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "ktap", "html")}
    options = ["--granule", granule, speaking(lines), "--only", "zeropage"]
    options += [word for kind, path in reports.items() for word in (f"--{kind}", path)]
    ended = folioscope("run", *options, "--out", tmp_path / "out", seconds=BOOT_SECONDS)
    assert ended.status == 1, ended.out + ended.err
    texts = {"text": ended.out, **{kind: path.read_bytes().decode() for kind, path in reports.items()}}
    for kind, text in texts.items():
        obeyed = [mark for mark in "\x1b\x07\r\u202e\u200b" if mark in text]
        assert not obeyed, f"{kind}: {obeyed}"
    for kind in ("text", "ktap"):
        assert shown in texts[kind], texts[kind]
    cases = ElementTree.fromstring(texts["junit"]).iter("failure")
    assert any(shown in f"{case.get('message')}{case.text}" for case in cases), texts["junit"]
    assert html.escape(shown) in texts["html"]
    (message,) = [
        finding["message"]
        for step in json.loads(texts["json"])["steps"]
        if step["step"] == "console"
        for finding in step["kernel"]["findings"]
    ]
    assert message.splitlines()[0] == f"the kernel reports: {shown}"
    # The log has what was said.
    assert any(said in log.read_text() for log in (tmp_path / "out").rglob("console.log"))


@pytest.mark.parametrize(("hidden", "said"), [("quiet", 1), ("loglevel=5", 0)])
def test_the_plugin_says_what_it_cannot_hear(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, granule: str, hidden: str, said: int
) -> None:
    """In the summary of warnings; the test itself passes."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "plugin"))
    monkeypatch.setenv("FOLIOSCOPE_OUT", str(pytester.path / "out"))
    pytester.makepyfile("def test_it(folioscope_process): assert not folioscope_process.look().errors")
    options = [
        "-p",
        "folioscope.plugin",
        "-p",
        "no:cacheprovider",
        "--folioscope-granule",
        granule,
        "--folioscope-append",
        hidden,
    ]
    result = pytester.runpytest_subprocess(*options, timeout=180)
    result.assert_outcomes(passed=1, warnings=said)
    assert ("a WARNING of this guest's kernel (V1) is not judged" in result.stdout.str()) == bool(said)


@pytest.mark.parametrize("hidden", ["quiet", "loglevel=3", "loglevel=5"])
def test_run_says_what_it_cannot_hear(tmp_path: Path, granule: str, hidden: str) -> None:
    """A console that shows no warnings has none to judge."""
    report = tmp_path / "report.json"
    options = ["--granule", granule, "--append", hidden, "--only", "zeropage", "--json", report]
    ended = folioscope("run", *options, "--out", tmp_path / "out", seconds=BOOT_SECONDS)
    assert ended.status == 0, ended.out + ended.err
    (kernel,) = [step["kernel"] for step in json.loads(report.read_text())["steps"] if "kernel" in step]
    notes = [note for note in kernel["notes"] if "WARNING of the kernel (V1) was not judged" in note]
    assert len(notes) == (hidden != "loglevel=5")
    assert all(note in ended.out for note in notes)
