#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs the measurements and prints them as a table; the figures go to out/bench.json. Arguments go to the command.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
# With KVMTOOL=, also the monitor beside it; in a carrier if this host has no KVM.
if [ -n "${KVMTOOL:-}" ] && [ "$(uname -m)" != aarch64 ]; then
    KVMTOOL=$(realpath "$KVMTOOL")
    export KVMTOOL
    out/folioscope bench --machine kvm-in-tcg --only boot --json "$OUT/bench-kvm.json" "$@"
fi
out/folioscope bench --json "$OUT/bench.json" "$@"
# A measurement that is named runs alone.
[ $# -eq 0 ] || exit 0
if ! python3 -c 'import ensurepip' 2>/dev/null; then
    say "drgn and the guest's own getters were not measured beside it: that needs Debian's python3-venv"
    exit 0
fi
child vmm/setup/python.sh >"$LOGS/python.path"
echo
PYTHONPATH=tests/plugin exec "$(cat "$LOGS/python.path")" tests/helpers/measure_others.py --json "$OUT/bench-others.json"
