#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs pytest on real guests, side by side if the host has CPUs for that. Arguments go to pytest.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

# More workers would be idle: the longest part is one guest's.
MOST_WORKERS=4

child vmm/setup/python.sh >"$LOGS/python.path"
# A guest has two CPUs, which are idle while it is queried and judged: on two of ours two guests are 1.7 times as fast.
workers=$(nproc)
((workers <= MOST_WORKERS)) || workers=$MOST_WORKERS
((workers > 1)) || workers=0

# All processes that a test has started end with the tests however these end: a build whose test is killed would
# otherwise run on beside the next run, and hold its locks. Each process has this mark, whatever its parent is by then.
mark=$$.$EPOCHREALTIME
export FOLIOSCOPE_TESTS=$mark
marked() { grep -lzxFs "FOLIOSCOPE_TESTS=$mark" /proc/[0-9]*/environ | cut -d/ -f3; }
end_marked() {
    local signal tries pids
    trap '' INT TERM HUP
    # Our own processes are not among them.
    export -n FOLIOSCOPE_TESTS
    # Until pytest ends, as only pytest has the other end of this pipe: Python's children do not inherit it.
    cat
    for signal in TERM KILL; do
        for ((tries = 0; tries < 30; tries++)); do
            mapfile -t pids < <(marked)
            ((${#pids[@]})) || return 0
            ((tries)) || kill -s "$signal" "${pids[@]}" 2>/dev/null || true
            sleep 0.1
        done
    done
}
exec {_}> >(end_marked &>/dev/null)

# A module may be named without its folder: tests/test_x.py. Names are unique.
words=()
for word in "$@"; do
    if [[ $word =~ ^(tests/)?(test_[a-z0-9_]+\.py)(::.*)?$ ]] && [ ! -e "${word%%::*}" ]; then
        place=(tests/*/"${BASH_REMATCH[2]}")
        if [ ! -e "${place[0]}" ]; then die "no folder of tests has ${BASH_REMATCH[2]}"; fi
        word=${place[0]}${BASH_REMATCH[3]}
    fi
    words+=("$word")
done

# A later -n of the user's takes precedence.
exec "$(cat "$LOGS/python.path")" -m pytest tests -n "$workers" "${words[@]}"
