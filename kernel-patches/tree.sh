#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes, or finds, a git tree of the pinned source with the series as commits, for folioscope series and bisect, and prints its
# directory. The tag base is the source, series all patches, alone/TOPIC those of a topic that stands alone. The same patches have
# the same commit IDs each time, so what was built and judged of them is found again.
# Usage: tree.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

die() {
	printf 'tree: %s\n' "$2" >&2
	exit "$1"
}
say() { printf 'tree: %s\n' "$1" >&2; }

[ $# -eq 0 ] || die 2 "expected no argument and found '$1'"
for tool in git tar xz flock; do
	command -v "$tool" >/dev/null || die 2 "cannot make a tree without $tool"
done
[ -r "$tarball" ] || die 2 "the pinned source $tarball is missing: install Debian's linux-source-6.12 or set FOLIOSCOPE_KERNEL_TARBALL"
mkdir -p "$cache/trees" 2>/dev/null || die 2 "the cache $cache cannot be written: set FOLIOSCOPE_CACHE to a directory that can"
exec 9>"$cache/trees/lock"
flock 9
source_id=$(tarball_hash)
place=$cache/trees/series-${source_id:0:20}
tree=$place/tree

# Neither the user's name nor the time is in a commit's ID.
export GIT_AUTHOR_NAME=folioscope GIT_AUTHOR_EMAIL=folioscope@localhost GIT_AUTHOR_DATE='2024-11-17T00:00:00Z'
export GIT_COMMITTER_NAME=folioscope GIT_COMMITTER_EMAIL=folioscope@localhost
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
quietly() {
	git -C "$tree" -c core.hooksPath=/dev/null -c commit.gpgSign=false -c gc.auto=0 -c am.threeWay=false "$@" >"$place/log" 2>&1 9>&- ||
		die 1 "git $1 failed in $tree: $({ grep -m 3 -E '^(error|fatal|Patch failed)' "$place/log" || tail -3 "$place/log"; } | paste -sd ';')"
}

if [ ! -e "$place/complete" ]; then
	say "making a git tree of $(basename "$tarball"), which takes some minutes"
	rm -rf "$place"
	mkdir -p "$tree"
	tar -C "$tree" --strip-components=1 -xf "$tarball" 9>&- || die 1 "could not unpack $tarball"
	quietly init --template=
	# What the source ignores is a part of the tarball too.
	quietly add -A -f
	GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE quietly commit -m base
	quietly tag base
	: >"$place/complete"
fi
touch "$place/complete"

mapfile -t patches < <(series)
wanted=$({
	cat "$here/series"
	for each in "${patches[@]}"; do cat "$(patch_file "$each")"; done
} | hash_of)
if [ "$(cat "$place/series" 2>/dev/null)" != "$wanted" ]; then
	rm -f "$place/series" "$tree/.git/index.lock"
	git -C "$tree" am --quit >/dev/null 2>&1 || true
	# applied TAG PATCH...: the patches on top of the source.
	applied() {
		local tag=$1 each
		shift
		quietly checkout --force --detach base
		for each in "$@"; do
			quietly am --committer-date-is-author-date "$(patch_file "$each")"
		done
		quietly tag --force "$tag"
	}
	for topic in $(alone); do
		mapfile -t those < <(in_topic "$topic")
		applied "alone/$topic" "${those[@]}"
	done
	applied series "${patches[@]}"
	printf '%s\n' "$wanted" >"$place/series"
fi
printf '%s\n' "$tree"
