# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Fetches Debian packages that are unpacked and never installed: by the machine's own apt, or from trixie and its backports
# by lists in the cache. Scripts that fetch stock kernels and sources source it after lib.sh. It holds a lock until the
# script ends.

for tool in apt-get apt-cache dpkg dpkg-deb; do
    command -v "$tool" >/dev/null || die "$tool is missing, and what is wanted is a Debian package; give a kernel of your own by KERNEL="
done

mkdir -p "$CACHE/stock"
exec 9>"$CACHE/stock/lock"
flock 9

# Suites of Debian itself, for what the machine's own apt lacks: the first that has a package.
SUITES=(trixie-backports trixie)
# The architecture is named, as dpkg of a machine that is not set up knows its own alone. For a user who is not root apt
# reads the machine's lists and writes into the working directory alone. Its caches are kept, even if its own settings (a
# container's) or permissions prevent that.
options=(-q -o APT::Architectures::=arm64 -o APT::Sandbox::User= -o "Dir::Cache::pkgcache=$CACHE/stock/packages.bin")

# use_suite SUITE: lets apt read the lists of this suite alone, in $lists.
use_suite() {
    suite=$1
    lists=$CACHE/stock/$suite
    options+=(-o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
        -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists" -o "Dir::Cache::pkgcache=$lists/packages.bin" -o Acquire::Languages=none)
}

# Fetches the lists of $suite for arm64: from the mirror that the machine has Debian itself from.
refresh() {
    local mirror codename
    # shellcheck source=/dev/null
    codename=$(. "${FOLIOSCOPE_OS_RELEASE:-/etc/os-release}" && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016 # apt's own variables
    mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' | awk -v name="$codename" '$1 == name {print $2; exit}')
    [ -n "$mirror" ] || die "apt knows no source of Debian's $codename itself to take $suite from; run 'apt-get update' as root"
    mkdir -p "$lists/lists/partial" "$lists/archives/partial"
    echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$lists/sources.list"
    apt-get "${options[@]}" update && touch "$lists/complete"
}

# find_package COMMAND WHAT: sets $package to the output of COMMAND, by the machine's apt and then by each suite.
find_package() {
    local tried
    package=$("$1")
    for tried in "${SUITES[@]}"; do
        [ -z "$package" ] || break
        use_suite "$tried"
        # A list may be a week old: it matters little which kernel of a series is judged.
        if [ -z "$(find "$lists/complete" -mtime -7 2>/dev/null)" ]; then
            (step "apt-$suite" "package lists of $suite" refresh >&2) || [ -e "$lists/complete" ] ||
                die "the lists of $suite cannot be had, and apt itself has no $2"
        fi
        package=$("$1")
    done
    [ -n "$package" ] || die "expected $2 in apt's lists or in ${SUITES[*]} and found none; run 'apt-get update' as root, or add Debian's sources"
}

# locate ARCHITECTURE: sets $hash to the checksum of $package, and $directory to the place of its contents.
locate() {
    hash=$(apt-cache "${options[@]}" show --no-all-versions "$package:$1" | sed -n 's/^SHA256: //p' | head -n 1)
    [ -n "$hash" ] || die "apt knows no checksum of $package:$1; run 'apt-get update' as root"
    directory=$CACHE/stock/$package-${hash:0:20}
}

# fetch ARCHITECTURE PATTERN NAME: puts the one file of $package that matches, as NAME into $directory, which then has a
# file "complete".
fetch() {
    local work status
    work=$(mktemp -d "$CACHE/stock/fetch.XXXXXX")
    (cd "$work" && apt-get "${options[@]}" download "$package:$1") &&
        echo "$hash  $(echo "$work"/*.deb)" | sha256sum --check --quiet &&
        dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards --transform "s,.*/$2.*,$3," "*/$2*" &&
        rm -rf "$directory" && mkdir -p "$directory" && mv "$work/$3" "$directory/$3" && touch "$directory/complete"
    status=$?
    rm -rf "$work"
    return $status
}
