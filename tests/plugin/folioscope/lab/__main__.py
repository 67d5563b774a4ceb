"""``python -m folioscope.lab``: runs the experiments, or compares what two labs have measured."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

from ..locate import command
from .bench import Bench, Result, units
from .experiments import EXPERIMENTS
from .plots import draw
from .report import FORMAT, SCHEMA, VERSION, compared, markdown
from .side_by_side import results
from .statistics import LEAST_RUNS

EXIT_WORSE = 1
EXIT_INPUT = 2
EXIT_INTERRUPTED = 130
FULL_RUNS = 15


def refuse(sentence: str) -> NoReturn:
    """What the user said cannot be meant."""
    print(f"folioscope: {sentence}", file=sys.stderr)
    sys.exit(EXIT_INPUT)


def load(path: Path) -> Result:
    """What a lab has measured."""
    try:
        found: Result = json.loads(path.read_text())
        if found["format"] != FORMAT or found["version"] != VERSION:
            raise ValueError(f"format {found['format']!r}, version {found['version']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        refuse(
            f"expected a lab's results (format {FORMAT}, version {VERSION}) in {path} and found {error}; "
            "make lab writes them"
        )
    return found


def keep(report: Result, path: Path) -> None:
    """Writes it whole, or leaves what was there."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(report, indent=1) + "\n")
    os.replace(new, path)


def key_of(bench: Bench) -> str:
    """What results depend on, so that only a lab of the same is gone on with."""
    digest = hashlib.sha256(
        repr((VERSION, bench.granule, bench.memory_mib, bench.runs, bench.cpus, bench.more, bench.programs)).encode()
    )
    package = sorted(Path(__file__).parent.glob("*.py"))
    root = command().directory
    kernel = bench.more[bench.more.index("--kernel") + 1] if "--kernel" in bench.more else ""
    image = Path(kernel) if kernel else root / "out" / f"kernel-{bench.granule}" / "Image"
    for path in (bench.initrd, root / "out" / "libcounter_plugin.so", command().path, image, *package):
        digest.update(path.read_bytes() if path.is_file() else str(path).encode())
    return digest.hexdigest()[:20]


def run(arguments: argparse.Namespace) -> int:
    """The experiments that were asked for, each setting kept as it is measured."""
    names = arguments.experiments or list(EXPERIMENTS)
    for name in names:
        if name not in EXPERIMENTS:
            refuse(f"there is no experiment {name!r} in the laboratory; it has {', '.join(EXPERIMENTS)}")
        # The load's memory, the kernel's own, and the initramfs; or what the experiment says.
        least = EXPERIMENTS[name].mib * 2 + 128
        if least > arguments.memory and not EXPERIMENTS[name].memory:
            refuse(
                f"expected {least} MiB or more for the load of {name} and found {arguments.memory}; "
                "give the guest more by --memory"
            )
    if not arguments.initrd.is_file():
        refuse(
            f"expected an initramfs with the loads at {arguments.initrd} and found none; vmm/setup/loads.sh makes it"
        )
    if any(EXPERIMENTS[name].programs for name in names) and not (arguments.programs and arguments.programs.is_file()):
        refuse(
            f"expected an initramfs with Debian's programs at --programs and found {arguments.programs}; "
            "vmm/setup/programs.sh makes it"
        )
    more = [
        word for name in ("kernel", "vmlinux") if (value := getattr(arguments, name)) for word in (f"--{name}", value)
    ]
    runs = LEAST_RUNS if arguments.quick else FULL_RUNS
    bench = Bench(
        arguments.initrd,
        arguments.out / "lab",
        arguments.granule,
        arguments.memory,
        tuple(more),
        runs,
        arguments.smp,
        arguments.programs,
    )
    bench.out.mkdir(parents=True, exist_ok=True)
    part, whole = arguments.out / "lab.part.json", arguments.json or arguments.out / "lab.json"
    key = key_of(bench)
    report: Result = {"format": FORMAT, "version": VERSION, "key": key, "runs": runs, "experiments": []}
    if part.exists():
        before = load(part)
        if before["key"] == key:
            # One that was lost is tried again.
            for each in before["experiments"]:
                each["settings"] = [setting for setting in each["settings"] if not setting["lost"]]
            report["experiments"] = before["experiments"]
            print("folioscope: going on with the lab that was interrupted", file=sys.stderr)
    kept = {each["name"]: each for each in report["experiments"]}
    wanted: list[tuple[str, str]] = []
    for name in names:
        one = EXPERIMENTS[name]
        found = kept.setdefault(name, {"name": name, "unit": one.unit, "units": units(one), "settings": []})
        there = [each["name"] for each in found["settings"]]
        wanted += [(name, setting.name) for setting in one.settings if setting.name not in there]
    for name, result in results(bench, wanted):
        kept[name]["settings"].append(result)
        report["experiments"] = list(kept.values())
        keep(report, part)
    for name in names:
        order = [setting.name for setting in EXPERIMENTS[name].settings]
        kept[name]["settings"].sort(key=lambda each: order.index(each["name"]))
    report["experiments"] = [kept[name] for name in names]
    keep(report, whole)
    part.unlink(missing_ok=True)
    text = markdown(report)
    whole.with_suffix(".md").write_text(text)
    print(text)
    print(f"folioscope: {whole} and {whole.with_suffix('.md')}", *draw(report, whole), sep=", ", file=sys.stderr)
    lost = any(setting["lost"] for each in report["experiments"] for setting in each["settings"])
    return EXIT_INPUT if lost else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run experiments")
    runs.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    runs.add_argument("--initrd", type=Path, required=True, help="the initramfs with the loads")
    runs.add_argument("--programs", type=Path, help="the one with Debian's programs")
    runs.add_argument("--out", type=Path, default=Path("out").absolute(), help="where results and logs go")
    runs.add_argument("--json", type=Path, help="the results [default: lab.json there]; Markdown goes beside")
    runs.add_argument("--quick", action="store_true", help=f"{LEAST_RUNS} runs of each instead of {FULL_RUNS}")
    runs.add_argument("--granule", default="4k", choices=["4k"], help="the experiments are for pages of 4K")
    runs.add_argument("--memory", type=int, default=1024, metavar="MIB", help="of the guest")
    runs.add_argument(
        "--smp", type=int, default=4, metavar="N", help="CPUs where a load has several tasks [default: 4]"
    )
    runs.add_argument("--kernel", help="another kernel")
    runs.add_argument("--vmlinux", help="its vmlinux")
    two = commands.add_parser("compare", help="what moved from one lab's results to another's")
    two.add_argument("one", type=Path)
    two.add_argument("other", type=Path)
    two.add_argument("--threshold", type=float, metavar="PERCENT", help="status 1 where anything takes this much more")
    commands.add_parser("schema", help="print the JSON schema of the results")
    arguments = parser.parse_args()
    if arguments.command == "schema":
        print(json.dumps(SCHEMA, indent=1))
        return 0
    if arguments.command == "run":
        try:
            return run(arguments)
        except KeyboardInterrupt:
            print("folioscope: interrupted; the same again goes on where this has come to", file=sys.stderr)
            return EXIT_INTERRUPTED
    lines, worse = compared(load(arguments.one), load(arguments.other), arguments.threshold)
    print("\n".join(lines))
    return EXIT_WORSE if worse else 0


if __name__ == "__main__":
    sys.exit(main())
