#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Fetches Debian's newest kernel source of a series, and prints the tarball's path. Nothing is installed.
# Usage: source.sh SERIES   (7 for the newest 7.x)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

series=$1
. "$(dirname "$0")/debian.sh"

# By the package that depends on the newest: `pkgnames` does not list packages of no architecture.
newest() {
    apt-cache "${options[@]}" show linux-source |
        sed -n "s/^Depends: \(linux-source-${series//./\\.}\.[0-9.]*\)\b.*/\1/p" | sort -V | tail -n 1 || true
}
find_package newest "linux-source-$series.*"
locate all
[ -e "$directory/complete" ] || step "source-$series" "Debian's $package" fetch all "$package.tar" "$package.tar.xz" >&2
echo "$directory/$package.tar.xz"
