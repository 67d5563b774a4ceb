# SPDX-License-Identifier: GPL-2.0-only
"""Each message that advises something, by words of it: the test that follows it, or the reason why none does."""

from __future__ import annotations

_HERE = "test_advice_followed.py::"
_GUESTS = "test_advice_guests.py::"
_REFUSAL = "test_advice.py::test_what_a_refusal_advises_is_done"

# The test does what the message says, and does not see the message again.
FOLLOWED: dict[str, str] = {
    "name tests before this option": "test_plugin_names.py::test_each_test_runs_on_each_kernel",
    "make dist packs": "test_dist.py::test_what_is_not_packed",
    "give it from the test's own directory": "test_own_program.py::test_a_file_that_is_not_there",
    "build it for arm64": "test_own_program.py::test_a_program_that_was_built_elsewhere",
    **dict.fromkeys(
        (
            "leave it out, or see --machine",
            "--icount has all CPUs run in one thread",
            "thread for each CPU or --icount",
            "expected the counter's plugin at",
            "say --smp 1, or leave it out",
            "check --functions",
            "which emulates such a host, or tcg",
            "choose another CPU (max, neoverse-n1)",
            "leave --machine out or say --machine tcg",
            "or --tcg-thread single it has one for all",
            "check the path given with --kernel",
            "check the path given with --vmlinux",
            "build it with: make rootfs",
            "expected the recorder's plugin at",
        ),
        _HERE + "test_options",
    ),
    **dict.fromkeys(
        (
            "give arch/arm64/boot/Image of an arm64 build",
            "give the Image that was built from it",
            "give the Image file itself",
            "unpack it first, or build the kernel",
            "payload is cut short: copy it again",
            "copy or unpack it again",
            "give the ELF file `vmlinux`",
            "give the arm64 one",
            "give the vmlinux before it was stripped",
        ),
        _HERE + "test_kernels_and_symbols",
    ),
    **dict.fromkeys(
        ("compile it with: aarch64-linux-gnu-gcc", "link it with -static"),
        _HERE + "test_programs",
    ),
    **dict.fromkeys(
        (
            "words in one request",
            "addresses in one request",
            "is none of the agent's workloads",
            "leave in_place out",
            "holds several processes",
        ),
        _HERE + "test_requests",
    ),
    **dict.fromkeys(
        (
            "the snapshot is cut short",
            "save it with --full",
            "of which no changes are kept; leave --since out",
            "leave --vmlinux out",
            "by folioscope diff",
            "would overwrite {what}",
            "print to another file",
            "leave out --guest",
        ),
        _HERE + "test_snapshots",
    ),
    **dict.fromkeys(
        (
            "give the one of QEMU's option -qmp",
            "QEMU serves one client of a QMP socket",
            "that `folioscope boot` prints, or that of a QEMU",
            "is private to QEMU",
        ),
        _HERE + "test_qemus",
    ),
    "give the vmlinux of that very build": _HERE + "test_vmlinux_of_that_very_build",
    **dict.fromkeys(
        ("was killed; give it more time with --deadline", "which begins with FOLIOREC"),
        _HERE + "test_a_program_and_a_trace",
    ),
    **dict.fromkeys(
        (
            "boot one with: folioscope boot",
            "choose one with --guest",
            "expected one workload process to look at",
        ),
        _HERE + "test_which_guest",
    ),
    "with --console this guest": _HERE + "test_a_console_without_a_socket",
    "boot it with --record": _HERE + "test_a_guest_that_is_recorded",
    **dict.fromkeys(
        ("found a trace, which has all that happened", "leave --pid out, or name one of these"),
        _HERE + "test_explaining_a_trace",
    ),
    "compare it earlier, or save a core": "test_diff.py::test_looks_are_kept_for_a_while",
    **dict.fromkeys(
        ("give one of this host by a path with a slash", "take what the guest has, as #!/bin/sh"),
        "test_record_program.py::test_what_the_guest_does_not_have",
    ),
    "name another one with --qemu": "test_programs.py::test_no_qemu",
    "from the recorder's plugin and found": "test_programs.py::test_a_plugin_of_another_kind",
    "so --policy {policy} cannot be had": _REFUSAL,
    "give {instead}./- for one of that name": "test_bad_snapshot.py::test_output_named_like_standard_output",
    **dict.fromkeys(("folioscope carrier serve --socket", "of arguments and environment"), _GUESTS + "test_a_carrier"),
    "give its vmlinux (--vmlinux)": _GUESTS + "test_symbols_that_the_kernel_does_not_say",
    "as the guest's first line": _GUESTS + "test_a_program_that_is_no_agent",
    "play them by themselves with --only": "test_hang.py::test_a_run_in_which_all_workloads_hang",
    "give it more memory with --memory or MEM=": "test_tour.py::test_a_node_without_room_for_a_block",
    **dict.fromkeys(
        ("take it at a checkpoint", "in {} looks; leave out --pid"),
        _GUESTS + "test_a_process_that_is_not_seen",
    ),
    **dict.fromkeys(
        ("save the snapshot at a checkpoint", "the snapshot is damaged"),
        _GUESTS + "test_cores_that_are_saved_again",
    ),
    "give that": _GUESTS + "test_a_thread_and_a_vfork",
    "start QEMU with -machine": _GUESTS + "test_a_machine_without_memory",
    "give a socket that QEMU opened": _GUESTS + "test_a_socket_that_qemu_did_not_open",
    "`gdbserver none`": _GUESTS + "test_a_stub_that_cannot_be_used",
    "leave --folioscope-granule out": "test_plugin.py::test_a_kernel_has_its_own_granule",
    "as many as it serves at once here": "test_hostile_clients.py::test_clients_without_number",
}

# Why no test does it.
_FAILING = "what fails is a kernel or QEMU that does not work; the advice is where to look"
_BUILT = "it comes where what `make build` makes is missing, and building takes minutes; the goal is seen to be there"
_ROOT = "it changes the packages of this machine, or needs a machine without them"
_KVM = "it needs an arm64 host with KVM, or one whose KVM lacks something"
_USER = "it needs a second user"
_CHANCE = "it comes where a guest does what it does at that moment; the advice is to try again"
_OTHER = "it needs an older or newer folioscope"
_SCRIPT = "what is advised builds a kernel, or runs the laboratory"
_LABORATORY = "what is advised builds or runs what the laboratory needs"
_NONE = "no QEMU at hand leads to it: one lacks a register, or is no QEMU; without Linux other words come first"
_LARGE = "its limit needs more than a test can make"
_PLUGIN = "every other test with the plugin looks after what it states"
_SITE = "it asks for other words in a document, and there all are as they must be"
_CAMPAIGN = "what is advised is another store, machine or build; the refusals are those of the tests of campaigns"
NOT_FOLLOWED: dict[str, str] = {
    "look() at the process after the statement": _PLUGIN,
    "a site has none; link to a file in it": _SITE,
    "make room, or set FOLIOSCOPE_CACHE": _LARGE,
    **dict.fromkeys(
        (
            "see whether this kernel boots",
            "see what it says",
            "try it: folioscope boot",
            "see whether KVM works here",
        ),
        _FAILING,
    ),
    **dict.fromkeys(
        (
            "expected its hello and found",
            "vmm/setup/build.sh --carrier 4k",
            "build both sides from the same source",
            "not measured: no {PLUGIN}",
            "make build",
            "make dist makes them",
            "make dist builds it",
            "build it with guest/build.sh",
        ),
        _BUILT,
    ),
    **dict.fromkeys(
        (
            "install Debian's qemu-system-arm",
            "install Debian's cargo",
            "install a static C library",
            "install gcc-aarch64-linux-gnu",
            "install it (Debian: gcc-aarch64-linux-gnu)",
            "run this from one, or as root",
            "install libstd-rust-web-dev:arm64",
            "apt-get",
            "by --busybox",
            "what is wanted is a Debian package",
            "install and try again",
            "add it: rustup target add",
            "add Debian's $codename-security",
            "add that suite by hand",
            "move it elsewhere",
            "'make lab' installs it",
            "'make test' installs it",
            "install a newer qemu-system-arm",
            "install Debian's linux-source-6.12",
            "install Debian's python3",
            "make lab installs and builds them",
        ),
        _ROOT,
    ),
    **dict.fromkeys(
        (
            "--marks, --icount and --tcg-thread are for guests under TCG",
            "KVM can run an arm64 guest",
            "there is no /dev/kvm",
            "/dev/kvm may not be opened",
            "update the host's kernel",
            "intermediate physical addresses",
            "give the guest more memory (or a smaller load offset)",
            "out of huge pages",
            "writes only below",
            "expected a directory at {}, for --writable",
        ),
        _KVM,
    ),
    **dict.fromkeys(("run this command as that user", "run this command as QEMU's user"), _USER),
    **dict.fromkeys(
        (
            "may keep it busy",
            "cannot serve one more client now",
            "let it go on and look again",
            "look again when the guest has less to do",
            "for a moment while the kernel sets up its own; look again",
            "attach when that is over",
            "try again while nobody else controls it",
            "expected the recording to have ended",
        ),
        _CHANCE,
    ),
    **dict.fromkeys(
        (
            "use the command that boots it",
            "use the folioscope that wrote it",
            "use the one that wrote it",
            "take both from one checkout",
        ),
        _OTHER,
    ),
    **dict.fromkeys(
        (
            "GRANULE is $GRANULE; leave it out",
            "MACHINE is $MACHINE; leave it out",
            "perhaps a vmlinux: give the Image",
            "give one of them",
            "give a source tree by KERNEL=",
            "check VMLINUX=",
            "check BUILDROOT=",
        ),
        _SCRIPT,
    ),
    **dict.fromkeys(
        (
            "check MEM= or --memory",
            "vmm/setup/loads.sh makes it",
            "vmm/setup/programs.sh makes it",
            "check --threshold",
            "make lab writes them",
            "leave --kernel out (KERNEL=",
            "give the guest more by MEM=",
            "and found -; give another name",
            "in the checkout {} and found {}; see --help",
            "make series builds it",
            "take a file of --marks",
            "folioscope series --list makes it",
        ),
        _LABORATORY,
    ),
    **dict.fromkeys(
        (
            "look at the guest later in its boot",
            "use another CPU model or QEMU",
            "more than {0} pieces of RAM",
            "a CPU model without FEAT_S1PIE",
            "or a CPU model without them",
        ),
        _NONE,
    ),
    **dict.fromkeys(
        (
            "which is the most of one answer; ask for less",
            "a request's line to end within",
            "page frames in one request",
            "record less at a time",
            "ask for fewer pages",
        ),
        _LARGE,
    ),
    **dict.fromkeys(
        (
            "see that it is installed",
            "this campaign builds none; build it first",
            "make room, or set TMPDIR",
            "install Debian's qemu-system-arm",
            "check `{}` in the matrix",
            "build the same commit on both",
            "found {}; make build makes it",
            "found other files; name another place",
            "update it, or name another store",
            "remove it, and the results that name it",
            "make it usable, or name another store",
            "use local, or dask=ADDRESS",
            "name a directory or a URL",
            "check [[exclude]]",
            "install it with: pip install distributed",
            "name another --out",
            "expected to write {} and found {}; name another file",
            "give images in [kernels]",
            "update this program, or the file",
            "see docs/how-to/campaigns.md",
            "this is no TOML",
            "leave config and debug out",
            "leave vmlinux out",
            "start it again, and then the campaign",
            "after the campaign began; start it again",
            "install the same folioscope there",
            "install the same commit on both",
            "start one with: dask scheduler",
            "leave costs out",
            "name the series' mbox",
            "name an mbox of one series",
            "name an mbox or a Maildir",
            "run folioscope series first",
            "name the commit that the series is for with --base",
            "name an mbox, a Maildir or a range",
            "name an older one and a newer one",
            "name their merge base, {}, in its place",
            "for GOOD and for BAD alike; name other commits",
            "the range is reversed; name the older one first",
            "gives no answer: {}; name another commit",
            "git bisect ended without an answer",
            "characters; use at most",
            "compare it, as in x > 0",
            "is a pytest file; leave --only out",
            "choose a range of patches only",
            "check the name, or fetch it",
            "found {}; set FOLIOSCOPE_CACHE",
        ),
        _CAMPAIGN,
    ),
}
# What only looks like advice.
NO_ADVICE = (
    "without one: say what is there",
    "copy and verdict, beside guest RAM",
    "contiguous only where Linux makes it so",
    "see above",
    "skip the commit, or take it as absent",
    "that the cache should have had",
)
