#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Unpacks Debian's Slurm and munge, with what this machine lacks for them, into the cache, and prints the directory.
# Nothing is installed: the packages would start their services. A test lays usr/ over /usr in a mount namespace.
# Usage: slurm.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

PACKAGES=(slurmctld slurmd slurm-client munge)

for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || die "$tool is missing, and ${PACKAGES[*]} are Debian packages"
done
state=$(mktemp -d "$CACHE/slurm-packages.XXXXXX")
TEMPORARY+=("$state")
mkdir -p "$state/archives/partial"
apt() {
    apt-get -q -y --no-install-recommends -o Debug::NoLocking=1 -o APT::Sandbox::User= -o Dir::Cache="$state" \
        -o Dir::Cache::archives="$state/archives" "$@" install "${PACKAGES[@]}"
}
apt -s >"$state/plan" || die "apt cannot install ${PACKAGES[*]}; run 'apt-get update' as root"
unpack() {
    local package
    apt --download-only || return 1
    mkdir "$1/usr" "$1/usr/sbin"
    for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$1" || return 1; done
    # What its maintainers' scripts link.
    for package in slurmctld slurmd slurmstepd; do
        [ -e "$1/usr/sbin/$package" ] || [ ! -e "$1/usr/sbin/$package-wlm" ] || ln -s "$package-wlm" "$1/usr/sbin/$package"
    done
}
make_slurm() { step slurm "Debian's Slurm, unpacked" unpack "$1"; }
built slurm "$(sed -n 's/^Inst //p' "$state/plan" | sort | sha256sum | cut -c1-20)-$(uname -m)" make_slurm
echo "$built"
