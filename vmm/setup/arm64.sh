#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs cargo for arm64 on any host. Programs that cargo runs itself (cargo test, cargo run) run in a carrier unless the
# host is arm64.
# Usage: arm64.sh test -p stage1 (any arguments of cargo; CARRIER_OPTIONS=--nvhe and the like go to the carrier)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

[ "$(uname -m)" = aarch64 ] || "$ROOT/vmm/setup/build.sh" --carrier
arm64_cargo "$@"
