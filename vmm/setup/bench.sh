#!/usr/bin/env bash
# Runs the measurements and prints them as a table; the figures go to out/bench.json. Arguments go to the command.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
# With KVMTOOL=, the monitor beside it; where this host has no KVM, in a carrier.
if [ -n "${KVMTOOL:-}" ] && [ "$(uname -m)" != aarch64 ]; then
    KVMTOOL=$(realpath "$KVMTOOL")
    export KVMTOOL
    out/folioscope bench --machine kvm-in-tcg --only boot --json "$OUT/bench-kvm.json" "$@"
fi
exec out/folioscope bench --json "$OUT/bench.json" "$@"
