#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs the tests that take too long for `make test`: the campaign of tests/long.toml, then pytest's tests.
# Both go on where they stopped. With arguments, which go to pytest, its tests alone run.
# Usage: test_long.sh [--afresh] [PYTEST...]
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

afresh=()
if [ "${1:-}" = --afresh ]; then
    afresh=(--afresh)
    shift
fi
campaign=0 tests=0
if [ $# -eq 0 ]; then
    child vmm/setup/campaign.sh matrix tests/long.toml --store "$CACHE/campaigns" --out "$OUT/long" \
        ${afresh[@]+--again} || campaign=$?
    ((campaign == 0)) || say "the campaign ended with status $campaign: see $OUT/long/index.html; going on with pytest"
fi
child vmm/setup/pytest.sh -m 'long and not cell' --resume ${afresh[@]+"${afresh[@]}"} "$@" || tests=$?
((tests == 0)) || say "pytest ended with status $tests"
exit $((tests ? tests : campaign))
