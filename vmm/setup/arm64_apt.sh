# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Downloads Debian packages for arm64 of this machine's release, by its lists, into a place of their own. Nothing is
# installed, and nothing of them runs here. For lib.sh's scripts.

# arm64_plan PACKAGE...: the packages that an empty machine would install for these. $state, which ends with us, has the
# list (plan); arm64_download fetches the packages into $state/archives.
arm64_plan() {
    local tool
    for tool in apt-get dpkg-deb; do
        command -v "$tool" >/dev/null || die "$tool is missing: $* for arm64 are Debian packages"
    done
    { dpkg --print-architecture && dpkg --print-foreign-architectures; } | grep -qx arm64 ||
        die "apt does not know arm64 packages; run 'dpkg --add-architecture arm64 && apt-get update' as root (make run does)"
    state=$(mktemp -d "$CACHE/arm64-packages.XXXXXX")
    TEMPORARY+=("$state")
    : >"$state/status"
    mkdir -p "$state/archives/partial"
    planned=("$@")
    arm64_apt -s install >"$state/plan" || die "apt cannot install these packages for arm64: $*; run 'apt-get update' as root"
}
arm64_apt() {
    apt-get -q -y --no-install-recommends -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Debug::NoLocking=1 \
        -o APT::Sandbox::User= -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" \
        "$@" "${planned[@]}"
}
arm64_download() { arm64_apt --download-only install; }

# arm64_versions: the planned packages and their versions.
arm64_versions() { sed -n 's/^Inst //p' "$state/plan" | sort; }

# arm64_unpack DIRECTORY: unpacks all that was downloaded.
arm64_unpack() {
    local package
    for package in "$state"/archives/*.deb; do
        echo "$package"
        dpkg-deb --fsys-tarfile "$package" | tar -x --no-same-owner --keep-directory-symlink -C "$1" || return 1
    done
}
