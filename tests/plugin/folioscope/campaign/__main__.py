# SPDX-License-Identifier: GPL-2.0-only
"""``python -m folioscope.campaign``: runs cells, of a matrix or of a series of patches, here or on many machines."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .bisect import bisect
from .commands import matrix
from .errors import Refused
from .found import SCHEMA as BISECT
from .matrix import SCHEMA as MATRIX
from .patches import SCHEMA as SERIES
from .reply import reply
from .result import SCHEMA as RESULT
from .series import series
from .table import SCHEMA as TABLE

EXIT_INPUT = 2
EXIT_INTERRUPTED = 130
_SCHEMAS = {"bisect": BISECT, "matrix": MATRIX, "result": RESULT, "series": SERIES, "table": TABLE}


def _jobs(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number of 1 or more and found {text!r}")
    return int(text)


def _of_a_tree(parser: argparse.ArgumentParser) -> None:
    """The options of what builds the commits of a tree."""
    parser.add_argument("--tree", type=Path, required=True, help="git tree of the kernel; it is only read")
    parser.add_argument("--granule", choices=("4k", "16k", "64k"), default="4k", help="[default: 4k]")
    parser.add_argument("--config", metavar="FILE", help="options of a .config that are set too")
    parser.add_argument("--cpu", default="max", help="model of the CPU [default: max]")
    parser.add_argument("--machine", default="auto", help="[default: auto]")
    parser.add_argument("--only", metavar="NAMES", help="workloads of the tour, as of folioscope run [all]")
    parser.add_argument("--store", metavar="PLACE", help="a directory, or a URL that fsspec knows [in the cache]")
    parser.add_argument("--out", type=Path, help="where the table, the page and logs go")
    parser.add_argument("--engine", default="local", metavar="NAME", help="local, or dask=ADDRESS [default: local]")
    parser.add_argument("--jobs", type=_jobs, metavar="N", help="cells at once on this machine [by CPUs and memory]")


def _outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kcidb", type=Path, metavar="FILE", help="also write a submission to KCIDB")
    parser.add_argument("--ktap", type=Path, metavar="FILE", help="also write the table in the kernel's TAP")


def _series(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="RANGE|MBOX|MAILDIR", help="BASE..TIP, or a file or directory of messages")
    parser.add_argument("--base", metavar="REV", help="what the patches go on top of [as they name it, else HEAD]")
    parser.add_argument("--no-costs", action="store_true", help="do not count what a fault costs")
    parser.add_argument(
        "--off", action="store_true", help="judge the last patch once more without each option that the series adds"
    )
    parser.add_argument("--again", action="store_true", help="judge what has a verdict once more")
    parser.add_argument("--list", action="store_true", help="only print number, subject and Image, or -, of each patch")
    _of_a_tree(parser)
    _outputs(parser)


def _bisect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("good", metavar="GOOD", help="the older commit")
    parser.add_argument("bad", metavar="BAD", help="the newer commit, of which the condition has another answer")
    said = "a condition on the verdict, such as 'rule(\"C1\") or coverage < 0.9', or a pytest file, which fails"
    parser.add_argument("--when", required=True, metavar="EXPR|FILE.py", help=said)
    parser.add_argument("--repeat", type=_jobs, default=1, metavar="N", help="ask each commit N times [default: 1]")
    take = "what was not judged, where that could change the answer: skip the commit, or take it as absent"
    parser.add_argument("--unjudged", choices=("skip", "take"), default="skip", help=f"{take} [default: skip]")
    _of_a_tree(parser)


_COMMANDS = {"bisect": bisect, "matrix": matrix, "reply": reply, "series": series}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("matrix", help="run the cells of a matrix; what has a result is not run again")
    one.add_argument("file", type=Path, help="the matrix, TOML")
    one.add_argument("--store", metavar="PLACE", help="a directory, or a URL that fsspec knows [that of the file]")
    one.add_argument("--engine", default="local", metavar="NAME", help="local, or dask=ADDRESS [default: local]")
    one.add_argument("--jobs", type=_jobs, metavar="N", help="cells at once on this machine [by CPUs and memory]")
    one.add_argument("--out", type=Path, help="where the page, JSON and JUnit go [out/matrix]")
    one.add_argument("--again", action="store_true", help="run what has a result once more")
    one.add_argument("--dry-run", action="store_true", help="print cells, kernels to build and the time expected")
    _outputs(one)
    _series(commands.add_parser("series", help="build and judge each patch of a range, an mbox or a Maildir"))
    _bisect(commands.add_parser("bisect", help="find the commit with which a condition on the verdict begins to hold"))
    answer = commands.add_parser("reply", help="print what a series came to as text for a mail")
    answer.add_argument("store", metavar="STORE", help="a directory, or a URL that fsspec knows")
    answer.add_argument("--series", metavar="KEY", help="the series [the newest]")
    schema = commands.add_parser("schema", help="print a JSON schema")
    schema.add_argument("name", choices=_SCHEMAS)
    arguments = parser.parse_args()
    if arguments.command == "schema":
        print(json.dumps(_SCHEMAS[arguments.name], indent=1))
        return 0
    try:
        return _COMMANDS[arguments.command](arguments)
    except Refused as error:
        print(f"folioscope: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("folioscope: interrupted; the same again goes on where this has come to", file=sys.stderr)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
