# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Shared by the set-up scripts: paths, progress, errors, and the end of all child processes.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${FOLIOSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/folioscope}
OUT=${FOLIOSCOPE_OUT:-$ROOT/out}
LOGS=$OUT/logs
# The file that marks a directory as ours, as in vmm/folioscope/src/scratch.rs. Only a directory with it is ever
# removed.
MARK=.folioscope
mkdir -p "$CACHE" "$LOGS"
[ -e "$LOGS/$MARK" ] || echo 'folioscope logs' >"$LOGS/$MARK"
export FOLIOSCOPE_CACHE=$CACHE FOLIOSCOPE_LOG_DIR=$LOGS

say() { printf 'folioscope: %s\n' "$*" >&2; }

# Status 2 is "could not be judged", here as in the command itself.
die() {
    say "$*"
    exit 2
}

# only_look: whether SETUP asks for a look at this host and nothing else; another word than its two ends us.
only_look() {
    case ${SETUP:-} in
    '' | no) return 1 ;;
    check) ;;
    *) die "expected SETUP to be check (only look), no (never install) or nothing, and found '$SETUP'" ;;
    esac
}

# report_lacks TARGET [WHAT...]: ends with what make TARGET needs and this machine lacks, and by SETUP=check in any case.
report_lacks() {
    local target=$1 what
    shift
    what=$(printf '%s, ' "$@")
    if only_look; then
        if [ $# -eq 0 ]; then say "this machine has the tools that make $target needs"; else say "make $target needs ${what%, }"; fi
        exit 0
    fi
    [ $# -eq 0 ] || die "make $target needs ${what%, }; install and try again"
}

# content FILE-OR-DIRECTORY...: prints one hash over names and bytes, the same in every checkout.
content() {
    (cd "$ROOT" && find "$@" -type f -not -path '*/target/*' -not -path '*/__pycache__/*' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-20)
}

# is_git_checkout: whether git knows this tree. An unpacked tarball has no git.
is_git_checkout() { [ "$(git -C "$ROOT" rev-parse --show-toplevel 2>/dev/null)" -ef "$ROOT" ]; }

# sources PATTERN...: prints our own files by patterns of `git ls-files`, each with a NUL behind it: those that .gitignore
# does not name, also without git.
sources() (
    cd "$ROOT"
    if is_git_checkout; then
        git ls-files -z -co --exclude-standard -- "$@" | while IFS= read -r -d '' file; do
            # A file that was removed is in git's list until that is committed.
            [ ! -e "$file" ] || printf '%s\0' "$file"
        done
        return
    fi
    match=() ignored=(-name .git)
    for pattern in "$@"; do match+=(-o -path "./$pattern"); done
    while IFS= read -r pattern; do
        case $pattern in
        '' | '#'*) ;;
        /*) ignored+=(-o -path ".${pattern%/}") ;;
        *) ignored+=(-o -name "${pattern%/}") ;;
        esac
    done <.gitignore
    find . \( "${ignored[@]}" \) -prune -o -type f \( "${match[@]:1}" \) -printf '%P\0' | LC_ALL=C sort -z
)

# link TARGET NAME: makes out/NAME a link to it, atomically. Only a link of ours is replaced.
link() {
    local place=$OUT/$2
    if [ -e "$place" ] && [ ! -L "$place" ]; then die "$place is in the way of a link that belongs there; move it elsewhere"; fi
    ln -sfn "$1" "$place.$$"
    mv -fT "$place.$$" "$place"
}

# The process groups of our children. A child of a script ignores Ctrl-C if it runs in the background, and its own
# children get no signal of ours. Each child therefore has a group of its own, which ends when we do.
RUNNING=()

# Directories that end with us.
TEMPORARY=()

# begin COMMAND...: starts it in the background, in a group of its own, and sets $begun to its number. Its standard
# input is empty.
begin() {
    set -m
    "$@" </dev/null 9>&- &
    begun=$!
    set +m
    RUNNING+=("$begun")
}

# finish PID: waits for a process that was begun, and returns its status.
finish() {
    local rc=0 pid rest=()
    wait "$1" || rc=$?
    for pid in ${RUNNING[@]+"${RUNNING[@]}"}; do [ "$pid" = "$1" ] || rest+=("$pid"); done
    RUNNING=(${rest[@]+"${rest[@]}"})
    return "$rc"
}

# child COMMAND...: runs it to its end.
child() {
    begin "$@"
    finish "$begun"
}

# alive: whether any process that was begun is alive.
alive() {
    local pid
    for pid in ${RUNNING[@]+"${RUNNING[@]}"}; do ! kill -0 -- "-$pid" 2>/dev/null || return 0; done
    return 1
}
# end_running [SIGNAL]: ends all processes that were begun: by our own signal, then with less patience.
end_running() {
    local pid signal tries
    trap '' INT TERM HUP
    rm -rf ${TEMPORARY[@]+"${TEMPORARY[@]}"}
    for signal in "${1:-TERM}" TERM KILL; do
        for pid in ${RUNNING[@]+"${RUNNING[@]}"}; do kill -s "$signal" -- "-$pid" 2>/dev/null || true; done
        for ((tries = 0; tries < 30; tries++)); do
            alive || break 2
            sleep 0.1
        done
    done
    RUNNING=()
}
# shellcheck disable=SC2317,SC2329 # called by the traps
end_by() {
    end_running "$1"
    trap - EXIT "$1"
    # As the signal ends a program without traps, so that our parent sees it.
    kill -s "$1" "$BASHPID"
}
# A signal that was ignored when we began stays ignored: bash does so.
for signal in INT TERM HUP; do
    # shellcheck disable=SC2064 # now
    trap "end_by $signal" "$signal"
done
trap end_running EXIT

# with_us COMMAND...: runs a program that ends by SIGTERM when the shell that runs it has gone, be it by SIGKILL.
with_us() {
    if setpriv --pdeathsig TERM true 2>/dev/null; then setpriv --pdeathsig TERM "$@"; else "$@"; fi
}

# A process of ours that shows its own progress: on a terminal, where there is one line for it, no other is shown meanwhile.
BESIDE=''

# shown PID LOG TITLE: prints how long PID has run, and the last line of its log, until that ends. If we end first, be it by
# SIGKILL, PID is ended.
shown() {
    local last=0 now start=$SECONDS
    while kill -0 "$1" 2>/dev/null && [ -e /proc/$$/exe ]; do
        sleep 0.2
        now=$((SECONDS - start))
        if [ -n "$BESIDE" ] && [ -t 2 ] && kill -0 "$BESIDE" 2>/dev/null; then
            continue
        elif [ -t 2 ]; then
            printf '\r\033[K%s, %02d:%02d  %s' "$3" $((now / 60)) $((now % 60)) \
                "$(tail -n 1 "$2" 2>/dev/null | tr -dc '[:print:]' | cut -c1-60)" >&2
        elif ((now >= last + 30)); then
            last=$now
            say "$3, ${now} s: $(tail -n 1 "$2" | tr -dc '[:print:]' | cut -c1-80)"
        fi
    done
    [ -e /proc/$$/exe ] || kill -s TERM -- "-$1" 2>/dev/null || true
    [ -t 2 ] && printf '\r\033[K' >&2
    return 0
}

# step LOG TITLE COMMAND...: runs a long command, its output into out/logs, and prints how long it has run. Another
# process prints: bash drops a Ctrl-C that comes while it waits for a short program, but not in `wait`.
step() {
    local log=$LOGS/$1.log title=$2 start=$SECONDS pid rc=0
    shift 2
    : >"$log"
    begin "$@" >"$log" 2>&1
    pid=$begun
    begin shown "$pid" "$log" "$title"
    finish "$pid" || rc=$?
    finish "$begun"
    if ((rc != 0)); then
        tail -n 20 "$log" >&2
        die "$title failed with status $rc; the whole output is in $log"
    fi
    say "$title: done in $((SECONDS - start)) s"
}

# built KIND KEY BUILDER: sets $built to the cache directory of KIND/KEY, made by BUILDER DIR if it does not exist. It
# is made under another name, so that it is whole or absent however a build ends. Not for $(...), where no error ends
# anything.
built() {
    built=$CACHE/$1/$2
    if [ -e "$built/complete" ]; then
        # The time of its last use, by which `make cache` goes. A cache may be another user's.
        touch -c "$built/complete" 2>/dev/null || true
        return 0
    fi
    mkdir -p "$CACHE/$1"
    exec 9>"$CACHE/$1/lock"
    flock 9
    if [ ! -e "$built/complete" ]; then
        local part
        # Under the lock: a directory with our mark was left by a build that was killed.
        for part in "$CACHE/$1"/.part.*/; do [ ! -e "$part$MARK" ] || rm -rf "$part"; done
        part=$(mktemp -d "$CACHE/$1/.part.XXXXXX")
        touch "$part/$MARK"
        "$3" "$part"
        touch "$part/complete"
        chmod a+rx "$part"
        # The unfinished directory of an older version of this script.
        rm -rf "$built"
        mv -T "$part" "$built"
    fi
    exec 9>&-
}
