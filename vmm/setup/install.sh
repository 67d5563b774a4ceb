#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# The part of packages.sh that needs root: adds apt's sources, and installs.
# Usage: install.sh arm64|none [PACKAGE...] [--backports PACKAGE...]   (the architecture to add to dpkg)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

foreign=$1
shift
packages=() backports=()
while [ $# -gt 0 ] && [ "$1" != --backports ]; do
    packages+=("$1")
    shift
done
[ $# -eq 0 ] || backports=("${@:2}")

apt() { env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"; }

if [ "$foreign" != none ]; then
    say "adding the architecture $foreign to dpkg: the guest's programs come from Debian's $foreign packages"
    dpkg --add-architecture "$foreign"
fi
# A foreign source that cannot be reached is ignored, as long as the packages are found.
refresh() { apt update || say 'apt-get update reported errors; going on with what it could read'; }
step apt-update 'package lists' refresh
if [ ${#backports[@]} -gt 0 ] && ! grep -rqs bookworm-backports /etc/apt/sources.list /etc/apt/sources.list.d; then
    # From the machine's own Debian mirror.
    # shellcheck disable=SC2016 # the format is apt's
    mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' | awk '$1 == "bookworm" {print $2; exit}')
    [ -n "$mirror" ] || die 'apt knows no source of Debian 12 itself to take bookworm-backports from; add that suite by hand and try again'
    say 'adding the suite bookworm-backports to apt: Debian 12 itself has QEMU 7.2, the rig needs 10.0'
    cat >/etc/apt/sources.list.d/folioscope-backports.sources <<SOURCES
Types: deb
URIs: $mirror
Suites: bookworm-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
    step apt-update-backports 'package lists of bookworm-backports' refresh
fi

if [ ${#packages[@]} -gt 0 ]; then
    step apt-install 'Debian packages' apt install -y --no-install-recommends "${packages[@]}"
fi
if [ ${#backports[@]} -gt 0 ]; then
    step apt-backports 'QEMU from bookworm-backports' apt install -y --no-install-recommends -t bookworm-backports "${backports[@]}"
fi
