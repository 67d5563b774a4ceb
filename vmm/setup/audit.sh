#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks what is depended on: licences and sources of Rust crates (cargo-deny, deny.toml), and advisories on these and on the
# tests' Python packages (pip-audit). A tool that is missing and a network that does not answer are named; nothing is installed.
# SETUP=check only looks which tools are there.
# Usage: audit.sh [--strict]   (--strict: an advisory, a missing tool and a missing network are failures too)
# An advisory comes from outside: that of tomorrow does not make today's tree fail, so lint.sh only prints it.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

has_deny() { cargo deny --version >/dev/null 2>&1; }
audit=$(command -v pip-audit || true)
DENY='cargo-deny (cargo install --locked cargo-deny)' AUDIT='pip-audit (pipx install pip-audit)'
if only_look; then
    lacks=()
    has_deny || lacks+=("$DENY")
    [ -n "$audit" ] || lacks+=("$AUDIT")
    report_lacks audit ${lacks[@]+"${lacks[@]}"}
fi

# Seconds that a service may take to answer.
PATIENCE=60
strict=''
[ "${1:-}" != --strict ] || strict=yes
rc=0
# problem SENTENCE: prints it; a failure if --strict was given.
problem() {
    say "lint: $*"
    [ -z "$strict" ] || rc=1
}

# no_network LOG: whether cargo-deny failed, by its status and its log, as the network does not answer. Names of crates and texts of
# advisories are in the log too.
no_network() {
    [ $status -eq 124 ] || { [ $status -ne 0 ] && grep -qiE 'failed to (fetch|download)|dns error|could not (resolve|connect)' "$1"; }
}

# It reads deny.toml of the working directory.
if has_deny; then
    for workspace in . vmm/recorder-plugin; do
        status=0
        # It downloads the crates of all systems, so --offline fails where only this system's were built.
        timeout $PATIENCE cargo deny --manifest-path $workspace/Cargo.toml --log-level error check --hide-inclusion-graph licenses bans sources \
            >"$LOGS/licences.log" 2>&1 || status=$?
        if no_network "$LOGS/licences.log"; then
            problem "licences of the crates of $workspace/Cargo.toml were not checked: no network"
        elif [ $status -ne 0 ]; then
            cat "$LOGS/licences.log" >&2
            say "lint: cargo-deny rejects a licence or a source of a crate of $workspace/Cargo.toml, see above"
            rc=1
        fi
    done
    status=0
    timeout $PATIENCE cargo deny check --hide-inclusion-graph advisories >"$LOGS/advisories.log" 2>&1 || status=$?
    if no_network "$LOGS/advisories.log"; then
        problem 'advisories on Rust crates were not checked: no network'
    elif [ $status -ne 0 ]; then
        problem "advisories on Rust crates: $LOGS/advisories.log"
    fi
else
    problem 'licences of and advisories on Rust crates were not checked: no '"$DENY"
fi

if [ -n "$audit" ]; then
    lists=()
    for list in tests/requirements*.txt docs/site/requirements.txt; do [ ! -f "$list" ] || lists+=(-r "$list"); done
    status=0
    timeout $PATIENCE "$audit" --no-deps --disable-pip --progress-spinner off "${lists[@]}" >"$LOGS/pip-audit.log" 2>&1 || status=$?
    if [ $status -eq 124 ] || grep -qE 'ConnectionError|ServiceError|Max retries|HTTPError|Timeout' "$LOGS/pip-audit.log"; then
        problem 'advisories on Python packages were not checked: no network'
    elif grep -q 'could not be audited' "$LOGS/pip-audit.log"; then
        problem "advisories on Python packages were not checked: the registry lacks $(grep -c 'could not be audited' "$LOGS/pip-audit.log") packages; $LOGS/pip-audit.log"
    elif [ $status -ne 0 ]; then
        problem "advisories on Python packages: $LOGS/pip-audit.log"
    fi
else
    problem 'advisories on Python packages were not checked: no '"$AUDIT"
fi
exit $rc
