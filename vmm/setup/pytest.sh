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

# What a test has started, and what that has, ends with the tests however these end: a build whose test is killed would go
# on beside the next run, and hold its locks. Each has this mark, whoever its parent is by then.
mark=$$.$EPOCHREALTIME
export FOLIOSCOPE_TESTS=$mark
marked() { grep -lzxFs "FOLIOSCOPE_TESTS=$mark" /proc/[0-9]*/environ | cut -d/ -f3; }
end_marked() {
    local signal tries pids
    trap '' INT TERM HUP
    # What this runs itself is not of them.
    export -n FOLIOSCOPE_TESTS
    # Until pytest ends, as only pytest has the other end of this pipe: what Python starts is given no such file.
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

# A later -n of the user's wins.
exec "$(cat "$LOGS/python.path")" -m pytest tests -n "$workers" "$@"
