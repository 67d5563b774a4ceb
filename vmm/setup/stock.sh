#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Fetches a stock Debian kernel for arm64, unpacks it in the cache and prints its path. Nothing is installed.
# Usage: stock.sh [4k|16k|rt] [SERIES [MODULE|modules]]   (SERIES: 6.12, 6.18, 7.2, or 7 for the newest 7.x)
# rt: PREEMPT_RT, of 4K pages.
# With MODULE, such as brd: that module of the kernel instead, for modules that have a package of their own (7.x).
# With `modules`: the directory of some of its modules, unpacked: those of lib/, crypto/ and fs/nls/.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

granule=${1:-4k}
series=${2:-6.12}
module=${3:-}
case $granule in
4k) flavours=(cloud-arm64 arm64) ;;
16k) flavours=(arm64-16k) ;;
rt) flavours=(rt-arm64) ;;
*) die "expected 4k, 16k or rt and found $granule: Debian has no other arm64 kernels" ;;
esac
# Modules are packed.
[ -z "$module" ] || command -v xz >/dev/null || die 'xz is missing; as root: apt-get install xz-utils'
. "$(dirname "$0")/debian.sh"

# newest: prints the newest kernel package of the first flavour that exists.
newest() {
    local flavour package=''
    for flavour in "${flavours[@]}"; do
        package=$(apt-cache "${options[@]}" pkgnames "linux-image-$series." |
            grep -E -- "^linux-image-${series//./\\.}\\.[0-9][^-]*(-[0-9]+)?-$flavour\$" | sort -V | tail -n 1) || true
        [ -z "$package" ] || break
    done
    echo "$package"
}
find_package newest "linux-image-$series.*-${flavours[0]}"
# From 7.0 on the image is in a package of its own.
binary=linux-binary-${package#linux-image-}
if apt-cache "${options[@]}" pkgnames "$binary" | grep -Fx -- "$binary" >/dev/null; then package=$binary; fi

if [ -n "$module" ] && [ "$module" != modules ]; then
    [ "$package" = "$binary" ] || die "expected a kernel whose modules have a package of their own and found $package"
    package=linux-modules-${binary#linux-binary-}
    locate arm64
    directory+=-$module
    [ -e "$directory/complete" ] || step "stock-$granule-$module" "$module of Debian's ${binary#linux-binary-}" fetch arm64 "$module.ko" "$module.ko.xz" >&2
    [ -e "$directory/$module.ko" ] || xz --decompress --keep "$directory/$module.ko.xz"
    echo "$directory/$module.ko"
    exit
fi
locate arm64
[ -e "$directory/complete" ] || step "stock-$granule" "Debian's ${package#linux-binary-}" fetch arm64 vmlinuz vmlinuz >&2
if [ "$module" != modules ]; then
    echo "$directory/vmlinuz"
    exit
fi

# modules: into $directory/modules, in a form that the kernel can load whether or not it can unpack them itself.
modules() {
    local work status
    work=$(mktemp -d "$CACHE/stock/fetch.XXXXXX")
    (cd "$work" && apt-get "${options[@]}" download "$package:arm64") &&
        echo "$hash  $(echo "$work"/*.deb)" | sha256sum --check --quiet &&
        dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards '*/kernel/lib/*' '*/kernel/crypto/*' '*/kernel/fs/nls/*' &&
        mkdir "$work/modules" && find "$work" -path '*/kernel/*' -name '*.ko*' -exec mv -t "$work/modules" {} + &&
        find "$work/modules" -name '*.xz' -exec xz -d {} + && mv "$work/modules" "$directory/modules"
    status=$?
    rm -rf "$work"
    return $status
}
[ -d "$directory/modules" ] || step "stock-modules-$granule" "modules of Debian's ${package#linux-binary-}" modules >&2
echo "$directory/modules"
