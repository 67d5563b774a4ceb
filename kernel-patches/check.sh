#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks the patches without building: the series is complete, applies without fuzz, topics that stand alone do, and checkpatch has
# no error.
# Usage: check.sh [--base NAME]   (NAME: 7.x, with FOLIOSCOPE_KERNEL_TARBALL for its source)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ "${1-}" = --base ]; then
	use_base "${2-}" || {
		echo "kernel-patches: --base wants one of the directories here that have a series, and FOLIOSCOPE_KERNEL_TARBALL its source" >&2
		exit 2
	}
fi

die() {
	printf 'kernel-patches: %s\n' "$2" >&2
	exit "$1"
}

for tool in patch perl tar xz; do
	command -v "$tool" >/dev/null || die 2 "cannot check without $tool"
done
[ -r "$tarball" ] ||
	die 2 "the source '$tarball' is missing: install Debian's linux-source-6.12 or set FOLIOSCOPE_KERNEL_TARBALL"
mkdir -p "$cache/check" 2>/dev/null || die 2 "the cache $cache cannot be written: set FOLIOSCOPE_CACHE to a directory that can"

mapfile -t patches < <(series)
[ ${#patches[@]} -gt 0 ] || die 1 "series names no patch"
listed=$(printf '%s\n' "${patches[@]}" | sort)
present=$(cd "$patches_of" && printf '%s\n' 0*.patch | sort)
[ "$listed" = "$present" ] ||
	die 1 "series and directory differ: $(comm -3 <(printf '%s\n' "$listed") <(printf '%s\n' "$present") | tr -s '\t\n' ' ')"

work=$(mktemp -d "$cache/check/.XXXXXX")
trap 'rm -rf "$work"' EXIT
touched_source "$work" "${patches[@]}" || {
	cat "$work/log" >&2
	die 1 "the source lacks files that the series touches"
}

cp -r "$touched" "$work/tree"
version=$(awk -F' *= *' '/^(VERSION|PATCHLEVEL|SUBLEVEL) =/ {printf "%s%s", sep, $2; sep = "."}' "$touched/Makefile")
offsets=0
for p in "${patches[@]}"; do
	if ! apply_patch "$p" "$work/tree" >"$work/log" 2>&1; then
		cat "$work/log" >&2
		rejects "$work/tree" >&2
		die 1 "$p does not apply to $version without fuzz"
	fi
	offsets=$((offsets + $(grep -c 'offset' "$work/log" || true)))
done

mapfile -t sets < <(alone)
for topic in ${sets[@]+"${sets[@]}"}; do
	mapfile -t set < <(in_topic "$topic")
	[ ${#set[@]} -gt 0 ] || die 1 "series says that the topic $topic stands alone, and has no patch below a line '# Topic $topic'"
	rm -rf "$work/tree"
	cp -r "$touched" "$work/tree"
	for p in "${set[@]}"; do
		if ! apply_patch "$p" "$work/tree" >"$work/log" 2>&1; then
			rejects "$work/tree" >&2
			die 1 "$p does not apply to $version without the topics before $topic"
		fi
	done
done

status=0
warnings=0
for p in "${patches[@]}"; do
	# FILE_PATH_CHANGES asks for an entry in MAINTAINERS, which a series that
	# lives outside the kernel has no use for.
	if ! perl "$touched/scripts/checkpatch.pl" --no-tree --strict --no-summary --show-types --max-line-length=100 \
		--ignore FILE_PATH_CHANGES "$(patch_file "$p")" >"$work/log" 2>&1; then
		if grep -q '^ERROR' "$work/log"; then
			printf '%s:\n' "$p" >&2
			grep -A4 '^ERROR' "$work/log" >&2
			status=1
		fi
	fi
	warnings=$((warnings + $(grep -cE '^(WARNING|CHECK):' "$work/log" || true)))
done
[ "$status" -eq 0 ] || die 1 "checkpatch found errors"
printf 'kernel-patches: %d patches apply to %s (%d hunks at an offset), %d topics without the others, checkpatch: no errors, %d remarks\n' \
	"${#patches[@]}" "$version" "$offsets" "${#sets[@]}" "$warnings"
