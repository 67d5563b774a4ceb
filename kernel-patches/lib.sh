# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What build.sh and check.sh share: where things are, what is in the series, and how a patch is applied.

export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOLIOSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/folioscope}
tarball=${FOLIOSCOPE_KERNEL_TARBALL:-/usr/src/linux-source-6.12.tar.xz}
# The patches that go on top of it.
patches_of=$here

# use_base NAME: another base than the pinned one, whose patches are in a directory of that name. Its source is given.
use_base() {
	[ -r "$here/$1/series" ] || return 1
	patches_of=$here/$1
	tarball=${FOLIOSCOPE_KERNEL_TARBALL:-}
}

hash_of() {
	sha256sum | cut -d' ' -f1
}

# The tarball's hash, remembered by its path, size and time: to read 150 MB on
# every warm start would be most of its cost.
tarball_hash() {
	local stamp memo
	stamp=$(stat -Lc '%n %s %Y %i' "$tarball")
	memo=$cache/tarball-$(hash_of <<<"$stamp")
	if [ ! -s "$memo" ]; then
		hash_of <"$tarball" >"$memo.$$"
		mv "$memo.$$" "$memo"
	fi
	cat "$memo"
}

# names_in DIRECTORY: the names in its series, one a line.
names_in() {
	grep -vE '^[[:space:]]*(#|$)' "$1/series" || true
}
series() {
	names_in "$patches_of"
}
# in_topic NAME: its patches, those below the line that names it in series.
in_topic() {
	awk -v topic="# Topic $1" '/^# Topic / {mine = $0 == topic; next} mine && !/^#/ && NF' "$patches_of/series"
}
# alone: the topics whose patches apply to the source without those of the topics before.
alone() {
	sed -n 's/^# Alone: //p' "$patches_of/series" | tr ' ' '\n'
}
# tried: the release that the patches were made for.
tried() {
	sed -n 's/^# Tried on \([0-9.]*\)\..*/\1/p' "$patches_of/series"
}

# patch_file NAME: where a patch is: with the others of its base, unless it is a path.
patch_file() {
	case $1 in
	/*) printf '%s\n' "$1" ;;
	*) printf '%s\n' "$patches_of/$1" ;;
	esac
}

# apply_patch NAME TREE: strictly. Offsets are welcome, they are what a point
# release does; fuzz is not, it means that lines which the patch relies on have
# changed and somebody should look.
apply_patch() {
	patch -d "$2" -p1 --fuzz=0 --forward --batch --no-backup-if-mismatch <"$(patch_file "$1")"
}

# rejects TREE: the hunks that were refused.
rejects() {
	find "$1" -name '*.rej' -exec cat {} +
}

# touched_source SCRATCH PATCH...: sets $touched to a directory with what the patches touch and checkpatch needs of the source,
# kept by content: to take it out of the tarball means to unpack all of that.
touched_source() {
	local scratch=$1 wanted top
	shift
	wanted=$(cd "$patches_of" && awk '
		/^diff --git a\// { name = substr($3, 3); if (!(name in seen)) seen[name] = "old" }
		/^new file mode/  { seen[name] = "new" }
		END { for (n in seen) if (seen[n] == "old") print n }
	' "$@" | sort)
	wanted+=$'\nMakefile\nscripts/checkpatch.pl\nscripts/const_structs.checkpatch\nscripts/spelling.txt'
	touched=$cache/check/$({ tarball_hash; printf '%s\n' "$wanted"; } | hash_of | cut -c1-20)
	[ ! -d "$touched" ] || return 0
	mkdir "$scratch/base"
	top=$(basename "$tarball")
	top=${top%.tar.*}
	tar -C "$scratch/base" --strip-components=1 -xf "$tarball" \
		--files-from=<(printf '%s\n' "$wanted" | sed "s|^|$top/|") 2>"$scratch/log" || return 1
	mv -T "$scratch/base" "$touched" 2>/dev/null || [ -d "$touched" ]
}
