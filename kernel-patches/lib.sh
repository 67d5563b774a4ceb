# shellcheck shell=bash
# What build.sh and check.sh share: where things are, what is in the series, and how a patch is applied.

export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOLIOSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/folioscope}
tarball=${FOLIOSCOPE_KERNEL_TARBALL:-/usr/src/linux-source-6.12.tar.xz}

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
	names_in "$here"
}

# patch_file NAME: where a patch is: here, unless it is a path.
patch_file() {
	case $1 in
	/*) printf '%s\n' "$1" ;;
	*) printf '%s\n' "$here/$1" ;;
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
