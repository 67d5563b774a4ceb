# SPDX-License-Identifier: GPL-2.0-only
"""``python -m folioscope.campaign``: runs a matrix of cells, here or on many machines."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .commands import matrix
from .errors import Refused
from .matrix import SCHEMA as MATRIX
from .result import SCHEMA as RESULT
from .table import SCHEMA as TABLE

EXIT_INPUT = 2
EXIT_INTERRUPTED = 130
_SCHEMAS = {"matrix": MATRIX, "result": RESULT, "table": TABLE}


def _jobs(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number of cells and found {text!r}")
    return int(text)


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
    one.add_argument("--dry-run", action="store_true", help="print cells, kernels to build and the time expected")
    schema = commands.add_parser("schema", help="print a JSON schema")
    schema.add_argument("name", choices=_SCHEMAS)
    arguments = parser.parse_args()
    if arguments.command == "schema":
        print(json.dumps(_SCHEMAS[arguments.name], indent=1))
        return 0
    try:
        return matrix(arguments)
    except Refused as error:
        print(f"folioscope: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("folioscope: interrupted; the same again goes on where this has come to", file=sys.stderr)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
