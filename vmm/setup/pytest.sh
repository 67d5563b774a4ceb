#!/usr/bin/env bash
# Runs pytest on real guests, side by side where the host has CPUs for that. Arguments go to pytest.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# More of them have nothing left to do: the longest part is one guest's.
MOST_WORKERS=4

child vmm/setup/python.sh >"$LOGS/python.path"
# A guest has two CPUs, and leaves them idle while it is asked and judged: on two of ours two guests are 1.7 times as fast.
workers=$(nproc)
((workers <= MOST_WORKERS)) || workers=$MOST_WORKERS
((workers > 1)) || workers=0
# A later -n of the user's wins.
exec "$(cat "$LOGS/python.path")" -m pytest tests -n "$workers" "$@"
