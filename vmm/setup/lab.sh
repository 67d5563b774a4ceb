#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs the laboratory's experiments, or compares two results. The plugin for QEMU has to be built.
# Usage: lab.sh run [EXPERIMENT...] [--quick] | compare A.json B.json [--threshold PERCENT] | schema
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

words=()
if [ "${1:-}" = run ]; then
    child "$ROOT/vmm/setup/inputs.sh" lab
    child "$ROOT/vmm/setup/loads.sh" >"$LOGS/loads.path"
    words=(--initrd "$(cat "$LOGS/loads.path")" --out "$OUT")
    # Fetches Debian's programs for the experiments that need them, which are among all.
    case " ${*:2} " in
    *' compile'* | *' script '* | '  ' | ' --'*)
        child "$ROOT/vmm/setup/programs.sh" >"$LOGS/programs.path"
        words+=(--programs "$(cat "$LOGS/programs.path")")
        ;;
    esac
    # The series patch by patch, as far as its kernels are built.
    case " ${*:2} " in
    *' series '*)
        child "$ROOT/kernel-patches/tree.sh" >"$LOGS/tree.path"
        child "$ROOT/vmm/setup/campaign.sh" series base..series --tree "$(cat "$LOGS/tree.path")" --list >"$LOGS/series.list"
        words+=(--series "$LOGS/series.list")
        ;;
    esac
fi
child "$ROOT/vmm/setup/python.sh" >"$LOGS/python.path"
PYTHONPATH=$ROOT/tests/plugin exec "$(cat "$LOGS/python.path")" -m folioscope.lab "$@" ${words[@]+"${words[@]}"}
