#!/usr/bin/env bash
# Fetches a stock Debian kernel for arm64, unpacks it in the cache and prints its path. Nothing is installed.
# Usage: stock.sh [4k|16k] [SERIES]   (SERIES: 6.12, 6.18, 7.2, or 7 for the newest 7.x)
# What the machine's own apt lacks comes from trixie-backports, by lists that are kept in the cache.
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

mkdir -p "$CACHE/stock"
exec 9>"$CACHE/stock/lock"
flock 9

SUITE=trixie-backports
lists=$CACHE/stock/$SUITE
# As a user who is not root apt reads the machine's lists and writes into the working directory alone.
options=(-q -o APT::Sandbox::User=)
own=(-o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
    -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists" -o Acquire::Languages=none)

# Lists of one suite for one architecture: from the mirror that the machine has Debian itself from.
refresh() {
    local mirror codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016 # apt's own variables
    mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' | awk -v name="$codename" '$1 == name {print $2; exit}')
    [ -n "$mirror" ] || die "apt knows no source of Debian's $codename itself to take $SUITE from"
    mkdir -p "$lists/lists/partial" "$lists/archives/partial"
    echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $SUITE main" >"$lists/sources.list"
    apt-get "${options[@]}" "${own[@]}" update && touch "$lists/complete"
}

# newest: the newest kernel package of the first flavour that there is.
newest() {
    local flavour package=''
    for flavour in "${flavours[@]}"; do
        package=$(apt-cache "${options[@]}" pkgnames "linux-image-$series." |
            grep -E -- "^linux-image-${series//./\\.}\\.[0-9][^-]*(-[0-9]+)?-$flavour\$" | sort -V | tail -n 1) || true
        [ -z "$package" ] || break
    done
    echo "$package"
}

package=$(newest)
if [ -z "$package" ]; then
    # A week old will do: which kernel of a series is judged matters little.
    if [ -z "$(find "$lists/complete" -mtime -7 2>/dev/null)" ]; then
        (step "apt-$SUITE" "package lists of $SUITE" refresh >&2) || [ -e "$lists/complete" ] ||
            die "the lists of $SUITE cannot be had, and apt itself has no linux-image-$series.*-${flavours[0]}"
    fi
    options+=("${own[@]}")
    package=$(newest)
fi
[ -n "$package" ] || die "no linux-image-$series.*-${flavours[0]} in apt nor in $SUITE; run 'apt-get update' as root, or add Debian's sources"
# From 7.0 on the image is in a package of its own.
binary=linux-binary-${package#linux-image-}
if apt-cache "${options[@]}" pkgnames "$binary" | grep -Fx -- "$binary" >/dev/null; then package=$binary; fi

hash=$(apt-cache "${options[@]}" show --no-all-versions "$package:arm64" | sed -n 's/^SHA256: //p' | head -n 1)
[ -n "$hash" ] || die "apt knows no checksum of $package:arm64; run 'apt-get update' as root"
directory=$CACHE/stock/$package-${hash:0:20}

fetch() {
    local work
    work=$(mktemp -d "$CACHE/stock/fetch.XXXXXX")
    (cd "$work" && apt-get "${options[@]}" download "$package:arm64") &&
        echo "$hash  $(echo "$work"/*.deb)" | sha256sum --check --quiet &&
        dpkg-deb --fsys-tarfile "$work"/*.deb |
        tar -x -C "$work" --wildcards --transform 's,.*/vmlinuz.*,vmlinuz,' '*/vmlinuz*' &&
        rm -rf "$directory" && mkdir -p "$directory" && mv "$work/vmlinuz" "$directory/vmlinuz" &&
        touch "$directory/complete"
    local status=$?
    rm -rf "$work"
    return $status
}

[ -e "$directory/complete" ] || step "stock-$granule" "Debian's ${package#linux-binary-}" fetch >&2
echo "$directory/vmlinuz"
