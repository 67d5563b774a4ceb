#!/usr/bin/env bash
# Runs pytest on real guests, side by side where the host has CPUs for that. Arguments go to pytest.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# More of them have nothing left to do: the longest part is one guest's.
MOST_WORKERS=4

child vmm/setup/python.sh >"$LOGS/python.path"
# Each guest has two CPUs: with one of ours for each guest they would mostly wait for each other.
workers=$(($(nproc) / 2))
((workers <= MOST_WORKERS)) || workers=$MOST_WORKERS
((workers > 1)) || workers=0
# A later -n of the user's wins.
exec "$(cat "$LOGS/python.path")" -m pytest tests -n "$workers" "$@"
