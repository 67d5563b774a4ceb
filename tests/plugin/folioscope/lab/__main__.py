# SPDX-License-Identifier: GPL-2.0-only
"""``python -m folioscope.lab``: runs the experiments, or compares what two labs have measured."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from .bench import Bench, Result, units
from .compare import bad_threshold, compared
from .documents import DOCUMENTS, RESULTS, all_grades, made
from .documents import results as results_in
from .experiments import EXPERIMENTS, Experiment, Setting
from .key import key_of
from .measured import measured_by
from .orders import SERIES, BadList, series
from .report import markdown
from .schema import FORMAT, SCHEMA, VERSION, check
from .side_by_side import results
from .statistics import LEAST_RUNS

EXIT_WORSE = 1
EXIT_INPUT = 2
EXIT_INTERRUPTED = 130
FULL_RUNS = 15
_NUMBERS = re.compile(r"\[[\s\d.,-]+\]")


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
        check(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        refuse(
            f"expected a lab's results (format {FORMAT}, version {VERSION}) in {path} and found {error}; "
            "make lab writes them"
        )
    return found


def keep(report: Result, path: Path) -> None:
    """Writes it whole, or leaves what was there."""
    new = path.with_suffix(".new")
    # The numbers of all runs on one line.
    text = _NUMBERS.sub(lambda found: " ".join(found[0].split()), json.dumps(report, indent=1))
    new.write_text(text + "\n")
    os.replace(new, path)


def mebibytes(text: str) -> int:
    """A guest's memory, as the command takes it: with K, M or G behind it; a bare number is of MiB here."""
    found = re.fullmatch(r"([0-9]+)([MG]?)", text, re.IGNORECASE)
    if not found or not int(found[1]):
        refuse(f"expected the guest's memory in MiB, or as 1024M or 1G, and found {text!r}; check MEM= or --memory")
    return int(found[1]) << (10 if found[2].upper() == "G" else 0)


def chosen(arguments: argparse.Namespace, memory: int) -> dict[str, Experiment]:
    """The experiments that were asked for, by name; all of them, but the long ones, where none is named."""
    known = dict(EXPERIMENTS)
    if arguments.series:
        try:
            known[SERIES.name] = series(arguments.series)
        except (OSError, BadList) as error:
            refuse(str(error))
    names = arguments.experiments or [name for name, one in known.items() if not one.long]
    for name in names:
        if name not in known:
            refuse(f"there is no experiment {name!r} in the laboratory; it has {', '.join(known)}")
        if name == SERIES.name and arguments.kernel:
            refuse(f"the experiment {name} is of the series' own kernels; leave --kernel out (KERNEL= of make lab)")
        if not known[name].settings:
            refuse(f"the experiment {name} is of kernels that --series lists; folioscope series --list does")
        # The load's memory, the kernel's own, and the initramfs; or what the experiment says.
        least = known[name].mib * 2 + 128
        if least > memory and not known[name].memory:
            refuse(
                f"expected {least} MiB or more for the load of {name} and found {memory}; "
                f"give the guest more by MEM={least}M (make lab) or --memory {least}M"
            )
    if not arguments.initrd.is_file():
        refuse(
            f"expected an initramfs with the loads at {arguments.initrd} and found none; vmm/setup/loads.sh makes it"
        )
    if any(known[name].programs for name in names) and not (arguments.programs and arguments.programs.is_file()):
        refuse(
            f"expected an initramfs with Debian's programs at --programs and found {arguments.programs}; "
            "vmm/setup/programs.sh makes it"
        )
    return {name: known[name] for name in names}


def run(arguments: argparse.Namespace) -> int:
    """The experiments that were asked for, each setting kept as it is measured."""
    for option, path in (("--out", arguments.out), ("--json", arguments.json)):
        if path == Path("-"):
            refuse(f"expected a path for {option} and found -; give another name")
    memory = mebibytes(arguments.memory)
    experiments = chosen(arguments, memory)
    words = ("kernel", "vmlinux", "cpu")
    more = [word for name in words if (value := getattr(arguments, name)) for word in (f"--{name}", value)]
    runs = LEAST_RUNS if arguments.quick else FULL_RUNS
    bench = Bench(
        arguments.initrd,
        arguments.out / "lab",
        arguments.granule,
        memory,
        tuple(more),
        runs,
        arguments.smp,
        arguments.programs,
        arguments.quick,
    )
    bench.out.mkdir(parents=True, exist_ok=True)
    part, whole = arguments.out / "lab.part.json", arguments.json or arguments.out / "lab.json"
    key = key_of(bench, (setting for one in experiments.values() for setting in one.settings))
    report: Result = {"format": FORMAT, "version": VERSION, "key": key, "runs": runs, "experiments": []}
    report["measured"] = measured_by(sys.argv)
    if part.exists():
        report["experiments"] = gone_on_with(part, key)
    kept = {each["name"]: each for each in report["experiments"]}
    wanted: list[tuple[Experiment, Setting]] = []
    for name, one in experiments.items():
        of = one.hurried() if bench.quick else one
        found = kept.setdefault(name, {"name": name, "unit": of.unit, "units": units(of), "settings": []})
        there = [each["name"] for each in found["settings"]]
        wanted += [(one, setting) for setting in one.settings if setting.name not in there]
    for name, result in results(bench, wanted):
        kept[name]["settings"].append(result)
        report["experiments"] = list(kept.values())
        keep(report, part)
    for name, one in experiments.items():
        order = [setting.name for setting in one.settings]
        kept[name]["settings"].sort(key=lambda each: order.index(each["name"]))
    # What was not asked for this time waits for the next.
    waiting = [each for name, each in kept.items() if name not in experiments]
    report["experiments"] = [kept[name] for name in experiments]
    keep(report, whole)
    if waiting:
        keep({**report, "experiments": waiting}, part)
    else:
        part.unlink(missing_ok=True)
    text = markdown(report)
    whole.with_suffix(".md").write_text(text)
    print(text)
    # What draws takes long to load, and a comparison needs none of it.
    from .page import written  # noqa: PLC0415
    from .plots import draw  # noqa: PLC0415

    pictures = draw(report, whole)
    page = whole.with_suffix(".html")
    page.write_text(written(report, pictures))
    print(f"folioscope: {whole}, {whole.with_suffix('.md')} and {page}", *pictures, sep=", ", file=sys.stderr)
    lost = any(setting["lost"] for each in report["experiments"] for setting in each["settings"])
    return EXIT_INPUT if lost else 0


def gone_on_with(part: Path, key: str) -> list[Result]:
    """What a lab of the same has measured before it was interrupted; one that was lost is tried again."""
    try:
        before = json.loads(part.read_text())
        same = before["version"] == VERSION and before["key"] == key
        if same:
            check(before)
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        print(
            "folioscope: what an interrupted lab has left is of other inputs, so all is measured anew", file=sys.stderr
        )
        return []
    for each in before["experiments"]:
        each["settings"] = [setting for setting in each["settings"] if not setting["lost"]]
    print("folioscope: going on with the lab that was interrupted", file=sys.stderr)
    found: list[Result] = before["experiments"]
    return found


def write_documents(checkout: Path) -> int:
    """Makes the tables and pictures of the documents from the results beside them."""
    from .plots import draw  # noqa: PLC0415

    try:
        found = results_in(checkout / RESULTS)
        grades = all_grades(found)
        texts = {path: made(path.read_text(), found, grades) for path in (checkout / name for name in DOCUMENTS)}
    except (OSError, ValueError) as error:
        refuse(f"expected documents and results ({RESULTS}) in the checkout {checkout} and found {error}; see --help")
    for path, text in texts.items():
        path.write_text(text)
    shown = {name for name in found if any(f"lab-{name}.svg" in text for text in texts.values())}
    for name in sorted(shown):
        draw(found[name], checkout / "docs" / "lab.json")
    return 0


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
    runs.add_argument("--memory", default="1G", metavar="SIZE", help="of the guest: 1G, 1024M, or MiB [default: 1G]")
    runs.add_argument(
        "--smp", type=int, default=4, metavar="N", help="CPUs where a load has several tasks [default: 4]"
    )
    runs.add_argument("--kernel", help="another kernel")
    runs.add_argument("--vmlinux", help="its vmlinux")
    runs.add_argument("--cpu", help="QEMU's CPU model [default: max]")
    runs.add_argument("--series", type=Path, metavar="LIST", help="what folioscope series --list has printed")
    two = commands.add_parser("compare", help="what moved from one lab's results to another's")
    two.add_argument("one", type=Path)
    two.add_argument("other", type=Path)
    two.add_argument("--threshold", type=float, metavar="PERCENT", help="status 1 where anything takes this much more")
    commands.add_parser("schema", help="print the JSON schema of the results")
    pages = commands.add_parser("tables", help="make the tables of a checkout's documents from its docs/lab")
    pages.add_argument("checkout", type=Path, nargs="?", default=Path(), help="[default: the working directory]")
    arguments = parser.parse_args()
    if arguments.command == "schema":
        print(json.dumps(SCHEMA, indent=1))
        return 0
    if arguments.command == "tables":
        return write_documents(arguments.checkout)
    if arguments.command == "run":
        try:
            return run(arguments)
        except KeyboardInterrupt:
            print("folioscope: interrupted; the same again goes on where this has come to", file=sys.stderr)
            return EXIT_INTERRUPTED
    if bad_threshold(arguments.threshold):
        refuse(f"expected a threshold in percent, 0 or more, and found {arguments.threshold}; check --threshold")
    found = compared(load(arguments.one), load(arguments.other), arguments.threshold)
    print("\n".join(found.lines))
    if found.unjudged:
        print(f"folioscope: {found.judged} judged, {found.unjudged} not judged", file=sys.stderr)
    if found.worse:
        return EXIT_WORSE
    return EXIT_INPUT if found.unjudged else 0


if __name__ == "__main__":
    sys.exit(main())
