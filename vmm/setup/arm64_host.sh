#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes the user land of a Debian arm64 host in the cache, for a rehearsal in a carrier, and prints its directory: this
# machine's release, with the packages that `make test` would install there, and Python packages for its interpreter.
# Usage: arm64_host.sh
# Nothing is installed on this machine, and nothing of the user land runs here, not even maintainer scripts. The files
# that we need of theirs (links, users) are made by hand.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/arm64_apt.sh"

mapfile -t packages < <("$ROOT/vmm/setup/packages.sh" --list test)
# Users of the rehearsal: the first is in group kvm.
USERS=(user:1000)

arm64_plan '?essential' "${packages[@]}"
key=$({ arm64_versions && cat "$0" "$ROOT/vmm/setup/arm64_apt.sh"; } | sha256sum | cut -c1-20)

unpack() {
    local root=$1 package name status=$1/var/lib/dpkg/status
    mkdir -p "$root"/usr/{bin,sbin,lib}
    for name in bin sbin lib; do ln -s "usr/$name" "$root/$name"; done
    arm64_unpack "$root" || return 1
    mkdir -p "$root"/var/lib/dpkg/{info,updates}
    for package in "$state"/archives/*.deb; do
        dpkg-deb -f "$package" | sed '1a Status: install ok installed'
        echo
    done >"$status"
    # The alternatives in use.
    ln -s mawk "$root/usr/bin/awk"
    ln -s gcc "$root/usr/bin/cc"
    # A user who is not root has to read all files, and mounts need a mount point.
    chmod -R u+w,a+rX "$root"
    mkdir -p "$root"/{dev,proc,sys,run,tmp,home}
    for name in passwd group; do cp "$root/usr/share/base-passwd/$name.master" "$root/etc/$name"; done
    for name in "${USERS[@]}"; do
        echo "${name%:*}:x:${name#*:}:${name#*:}::/home/${name%:*}:/bin/bash" >>"$root/etc/passwd"
        echo "${name%:*}:x:${name#*:}:" >>"$root/etc/group"
    done
    echo "kvm:x:104:${USERS[0]%:*}" >>"$root/etc/group"
}
# Downloads the wheels that pip would download there.
wheels() {
    local version
    version=$(basename "$(readlink "$1/usr/bin/python3")")
    "$(cat "$state/python")" -m pip download --disable-pip-version-check --dest "$1/usr/share/folioscope-wheels" \
        --only-binary=:all: --implementation cp --python-version "${version#python}" \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
        -r "$ROOT/tests/requirements.txt"
}
make_root() {
    step arm64-download "Debian's packages for arm64" arm64_download
    step arm64-unpack 'a user land for arm64' unpack "$1/root"
    child "$ROOT/vmm/setup/python.sh" >"$state/python"
    step arm64-wheels "Python's packages for arm64" wheels "$1/root"
}
built arm64-host "$key-$(content tests/requirements.txt)" make_root
echo "$built/root"
