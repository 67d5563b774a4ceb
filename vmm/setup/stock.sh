#!/usr/bin/env bash
# Fetches a stock Debian kernel for arm64, unpacks it in the cache and prints its path. Nothing is installed.
# Usage: stock.sh [4k|16k] [SERIES]   (SERIES: 6.12)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

granule=${1:-4k}
series=${2:-6.12}
case $granule in
4k) flavours=(cloud-arm64 arm64) ;;
16k) flavours=(arm64-16k) ;;
*) die "expected 4k or 16k and found $granule: Debian has no other arm64 kernels" ;;
esac

for tool in apt-get apt-cache dpkg dpkg-deb; do
    command -v "$tool" >/dev/null || die "$tool is missing: stock kernels are Debian packages; give a kernel of your own by KERNEL="
done
{ dpkg --print-architecture && dpkg --print-foreign-architectures; } | grep -qx arm64 ||
    die "apt does not know arm64 packages; run 'dpkg --add-architecture arm64 && apt-get update' as root (make run does)"

# The newest of the first flavour that there is.
package=''
for flavour in "${flavours[@]}"; do
    package=$(apt-cache pkgnames "linux-image-$series." | grep -E -- "^linux-image-${series//./\\.}\\.[0-9][^-]*(-[0-9]+)?-$flavour\$" |
        sort -V | tail -n 1) || true
    [ -z "$package" ] || break
done
[ -n "$package" ] || die "apt has no linux-image-$series.*-${flavours[0]}; run 'apt-get update' as root, or add Debian's sources"

hash=$(apt-cache show --no-all-versions "$package:arm64" | sed -n 's/^SHA256: //p' | head -n 1)
[ -n "$hash" ] || die "apt knows no checksum of $package:arm64; run 'apt-get update' as root"
directory=$CACHE/stock/$package-${hash:0:20}

fetch() {
    local work
    work=$(mktemp -d "$CACHE/stock/fetch.XXXXXX")
    # As a user who is not root apt reads the machine's lists and writes into the working directory alone.
    (cd "$work" && apt-get -q -o APT::Sandbox::User= download "$package:arm64") &&
        echo "$hash  $(echo "$work"/*.deb)" | sha256sum --check --quiet &&
        dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards './boot/vmlinuz-*' &&
        rm -rf "$directory" && mkdir -p "$directory" && mv "$work"/boot/vmlinuz-* "$directory/vmlinuz" &&
        touch "$directory/complete"
    local status=$?
    rm -rf "$work"
    return $status
}

if [ ! -e "$directory/complete" ]; then
    mkdir -p "$CACHE/stock"
    exec 9>"$CACHE/stock/lock"
    flock 9
    [ -e "$directory/complete" ] || step "stock-$granule" "Debian's $package" fetch >&2
fi
echo "$directory/vmlinuz"
