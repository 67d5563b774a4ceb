#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Packs what is built for hosts without a compiler: the source, the plugin's wheel, the command, kernels and initramfs, and
# their checksums. Nothing is built but the wheel: build.sh --carrier 4k 16k 64k has to come before.
# Usage: dist.sh [DIRECTORY]   (out/dist; it is replaced)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

dist=$(realpath -m "${1:-$OUT/dist}")
[ ! -e "$dist" ] || [ -e "$dist/$MARK" ] || die "$dist is in the way of what is packed; move it elsewhere"
git rev-parse --verify --quiet HEAD >/dev/null || die 'make dist packs the sources of a commit, and this is no git checkout'
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
name=folioscope-$version
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
new=$(mktemp -d "$OUT/.dist.XXXXXX")
TEMPORARY+=("$new")
echo 'folioscope dist' >"$new/$MARK"

# The same contents give the same bytes, for any user and at any time.
packed() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode='u=rwX,go=rX' "$@" | gzip -n; }

# What is not committed is packed too, as it is built in; files that git ignores are not.
source_tree() {
    local index tree
    index=$(mktemp -u "$new/.index.XXXXXX")
    GIT_INDEX_FILE=$index git read-tree HEAD
    GIT_INDEX_FILE=$index git add --all
    tree=$(GIT_INDEX_FILE=$index git write-tree)
    rm -f "$index"
    git archive --prefix="$name/" "$tree"
}
if [ -z "$(git status --porcelain)" ]; then
    git archive --prefix="$name/" HEAD | gzip -n >"$new/$name.tar.gz"
else
    say "there are changes since the last commit; they are packed too"
    source_tree | gzip -n >"$new/$name.tar.gz"
fi

# The command: the same program on any distribution. One for x86-64 is built on x86-64 alone.
commands=(arm64)
[ "$(uname -m)" = aarch64 ] || commands+=(x86_64)
for machine in "${commands[@]}"; do
    built=$OUT/folioscope
    [ "$machine,$(uname -m)" != arm64,x86_64 ] || built=$OUT/folioscope-arm64
    [ -x "$built" ] || die "$built is missing; make dist builds it"
    ! readelf --program-headers "$built" | grep -q INTERP ||
        die "$built is linked dynamically, so it runs on this release alone; install a static C library (Fedora: glibc-static) and build again"
    install -m 755 "$built" "$new/$name-$machine"
done

# In the places where the command looks for it, beside itself.
guest=$new/guest/out
mkdir -p "$guest"
for file in kernel-{4k,16k,64k}/{Image,config,release} carrier-kernel/Image initramfs.cpio carrier.cpio; do
    [ -e "$OUT/$file" ] || die "$OUT/$file is missing; make dist builds it"
    # The carrier's kernel is the guest's.
    if [ "$file" != carrier-kernel/Image ] || ! cmp -s "$OUT/$file" "$OUT/kernel-4k/Image"; then
        install -D -m 644 "$OUT/$file" "$guest/$file"
    else
        ln -s kernel-4k "$guest/carrier-kernel"
    fi
done
packed -C "$new/guest" -c out >"$new/$name-guest.tar.gz"
rm -rf "$new/guest"

child vmm/setup/python.sh >"$LOGS/python.path"
# In a copy, as a build leaves files in its tree.
cp -r tests/plugin "$new/plugin"
step wheel "the plugin's wheel" "$(<"$LOGS/python.path")" -m pip wheel --disable-pip-version-check --no-deps --wheel-dir "$new" "$new/plugin"
rm -rf "$new/plugin"

(cd "$new" && sha256sum -- *) >"$new/.sums"
mv "$new/.sums" "$new/SHA256SUMS"
rm -rf "$dist"
mkdir -p "$(dirname "$dist")"
mv -T "$new" "$dist"
chmod a+rx "$dist"
say "$dist: $(cd "$dist" && du -sm . | cut -f1) MiB; install by docs/how-to/install.md"
