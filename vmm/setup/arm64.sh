#!/usr/bin/env bash
# cargo for arm64 on any host: what it runs itself (cargo test, cargo run) runs in a carrier, where the host is another one.
# Usage: arm64.sh test -p stage1      (anything that cargo takes; CARRIER_OPTIONS=--nvhe and the like go to the carrier)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

[ "$(uname -m)" = aarch64 ] || "$ROOT/vmm/setup/build.sh" --carrier
arm64_cargo "$@"
