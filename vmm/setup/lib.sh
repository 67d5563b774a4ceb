# shellcheck shell=bash
# Shared by the set-up scripts: where things are, how progress and errors look.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${FOLIOSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/folioscope}
OUT=${FOLIOSCOPE_OUT:-$ROOT/out}
LOGS=$OUT/logs
mkdir -p "$CACHE" "$LOGS"
export FOLIOSCOPE_CACHE=$CACHE FOLIOSCOPE_LOG_DIR=$LOGS

say() { printf 'folioscope: %s\n' "$*" >&2; }

# Status 2 is "could not be judged", here as in the command itself.
die() {
    say "$*"
    exit 2
}

# content FILE-OR-DIRECTORY...: one hash over names and bytes, the same in every checkout.
content() {
    (cd "$ROOT" && find "$@" -type f -not -path '*/target/*' -not -path '*/__pycache__/*' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-20)
}

# step LOG TITLE COMMAND...: runs a long command, its output into out/logs, and says how long it has run.
step() {
    local log=$LOGS/$1.log title=$2 start=$SECONDS pid last=0 rc=0 now
    shift 2
    "$@" >"$log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        now=$((SECONDS - start))
        if [ -t 2 ]; then
            printf '\r\033[K%s, %02d:%02d  %s' "$title" $((now / 60)) $((now % 60)) \
                "$(tail -n 1 "$log" 2>/dev/null | tr -dc '[:print:]' | cut -c1-60)" >&2
        elif ((now >= last + 30)); then
            last=$now
            say "$title, ${now} s: $(tail -n 1 "$log" | tr -dc '[:print:]' | cut -c1-80)"
        fi
    done
    [ -t 2 ] && printf '\r\033[K' >&2
    wait "$pid" || rc=$?
    if ((rc != 0)); then
        tail -n 20 "$log" >&2
        die "$title failed with status $rc; the whole output is in $log"
    fi
    say "$title: done in $((SECONDS - start)) s"
}
