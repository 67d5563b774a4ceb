#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Shows what the cache of builds holds, the oldest first, and prunes it. What this checkout's out/ leads to stays.
# Usage: cache.sh [--days N] [--gib N]
#   --days N  removes what was last used more than N days ago
#   --gib N   removes the oldest until the cache has at most N GiB
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

days='' gib=''
while [ $# -gt 0 ]; do
    case $1 in
    --days) days=${2:-} ;;
    --gib) gib=${2:-} ;;
    *) die "cache.sh takes --days N and --gib N, and found '$1'" ;;
    esac
    [[ ${2:-} =~ ^[0-9]+$ ]] || die "expected a whole number behind $1 and found '${2:-}'"
    shift 2
done

# Each entry is a directory with a file "complete", a kernel, or what a builder fills again by itself: cargo's, and the
# objects of kernels.
entries() {
    local place
    for place in "$CACHE"/*/*/complete "$CACHE"/kernels/*/Image; do
        [ ! -e "$place" ] || dirname "$place"
    done
    for place in "$CACHE"/cargo/*/ "$CACHE"/objects-*/ "$CACHE"/incremental/*/; do
        [ ! -d "$place" ] || echo "${place%/}"
    done
}

# in_use ENTRY: whether out/ of this checkout leads there.
in_use() {
    local link
    for link in "$OUT"/*; do
        [ ! -L "$link" ] || [[ $(realpath -m "$link") != "$1" && $(realpath -m "$link") != "$1"/* ]] || return 0
    done
    return 1
}

# The time of an entry is that of its last use: what is built again and again says so itself.
listed() {
    local entry newest
    while read -r entry; do
        newest=$({ stat -c %Y "$entry" "$entry/complete" 2>/dev/null || true; } | sort -n | tail -n 1)
        printf '%s\t%s\t%s\n' "$newest" "$(du -sk "$entry" | cut -f1)" "$entry"
    done < <(entries) | sort -n
}

mapfile -t lines < <(listed)
total=0
for line in ${lines[@]+"${lines[@]}"}; do
    IFS=$'\t' read -r _ size _ <<<"$line"
    total=$((total + size))
done
now=$(date +%s) removed=0
for line in ${lines[@]+"${lines[@]}"}; do
    IFS=$'\t' read -r newest size entry <<<"$line"
    age=$(((now - newest) / 86400)) note=''
    gone=''
    [ -z "$days" ] || ((age <= days)) || gone=yes
    [ -z "$gib" ] || ((total <= gib * 1048576)) || gone=yes
    if in_use "$(realpath "$entry")"; then
        [ -z "$gone" ] || note='in use by this checkout, stays'
        gone=''
    fi
    if [ -n "$gone" ]; then
        # Another checkout that builds it at this moment holds this lock.
        exec 9>"$(dirname "$entry")/lock"
        if flock -n 9; then
            rm -f "$entry/complete"
            rm -rf "$entry"
            total=$((total - size)) removed=$((removed + size)) note=removed
        else
            note='being built, stays'
        fi
        exec 9>&-
    fi
    printf '%6d days %8d MiB  %s%s\n' "$age" $((size / 1024)) "${entry#"$CACHE"/}" "${note:+  ($note)}"
done
echo "$CACHE: $((total / 1024)) MiB in builds$([ $removed -eq 0 ] || echo ", $((removed / 1024)) MiB removed")"
