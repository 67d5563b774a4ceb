#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Writes the series as sets that can be sent, one for each file of topics/, which is its cover letter. Each applies to the source,
# or on top of the set before it.
# Usage: topics.sh DIRECTORY   (which is made; it has a directory for each set afterwards)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

die() {
	printf 'topics: %s\n' "$2" >&2
	exit "$1"
}

[ $# -eq 1 ] || die 2 'expected one argument, the directory to write to'
[ ! -e "$1" ] || die 2 "$1 is there already: name a directory that is not"
for tool in git tar xz; do
	command -v "$tool" >/dev/null || die 2 "cannot write patches without $tool"
done
[ -r "$tarball" ] || die 2 "the pinned source $tarball is missing: install Debian's linux-source-6.12 or set FOLIOSCOPE_KERNEL_TARBALL"
mkdir -p "$cache/check" "$1"
out=$(cd "$1" && pwd)

mapfile -t patches < <(series)
work=$(mktemp -d "$cache/check/.XXXXXX")
trap 'rm -rf "$work"' EXIT
touched_source "$work" "${patches[@]}" || die 1 "the source lacks files that the series touches: $(cat "$work/log")"

# A repository of the touched files alone: git knows best how a set looks.
author=$(sed -n 's/^From: \(.* <.*>\)$/\1/p' "$here/${patches[0]}")
email=${author##*<}
email=${email%>}
quietly() {
	git -C "$work/tree" -c core.hooksPath=/dev/null -c user.name="${author% <*}" -c user.email="$email" \
		-c commit.gpgSign=false -c am.threeWay=false "$@" >>"$work/log" 2>&1 || die 1 "git $1 failed: $(tail -3 "$work/log")"
}
cp -r "$touched" "$work/tree"
quietly init
quietly add -A -f
quietly commit -m base
release=$(tried)

for cover in "$here"/topics/*; do
	topic=$(basename "$cover")
	mapfile -t set < <(in_topic "$topic")
	[ ${#set[@]} -gt 0 ] || die 1 "series has no patch below a line '# Topic $topic', and there is a cover letter for it"
	before=$(git -C "$work/tree" rev-parse HEAD)
	quietly am "${set[@]/#/$here/}"
	quietly format-patch --cover-letter -n --no-signature --zero-commit -o "$out/$topic" "$before"
	if alone | grep -qx "$topic"; then on='by itself'; else on="on top of the set \"${previous:?}\""; fi
	SUBJECT=$(head -1 "$cover") BODY=$(tail -n +3 "$cover") BASE="Applies to v$release $on." \
		perl -pi -e 's/\*\*\* SUBJECT HERE \*\*\*/$ENV{SUBJECT}/; s/\*\*\* BLURB HERE \*\*\*/$ENV{BODY}\n\n$ENV{BASE}/' \
		"$out/$topic/0000-cover-letter.patch"
	previous=$(head -1 "$cover")
	printf '%s: %d patches\n' "$out/$topic" "${#set[@]}"
done
written=$(find "$out" -name '*.patch' ! -name '0000-*' | wc -l)
[ "$written" -eq ${#patches[@]} ] || die 1 "series has ${#patches[@]} patches and $written of them are in a topic: each belongs below a line '# Topic ...'"
