#!/usr/bin/env bash
# Runs the measurements and prints them as a table; the figures go to out/bench.json. Arguments go to the command.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
exec out/folioscope bench --json "$OUT/bench.json" "$@"
