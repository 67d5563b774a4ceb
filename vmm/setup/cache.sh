#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Shows what the cache of builds holds, the oldest first, and prunes it: builds, what a killed one left, logs, locks, the
# store of campaigns, and the bundles of this checkout's out/. What this checkout's out/ leads to stays.
# Usage: cache.sh [--days N] [--gib N]
#   --days N  removes what was last used more than N days ago
#   --gib N   removes the oldest builds until the cache has at most N GiB
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

# Each build is a directory with a file "complete", a kernel, or what a builder fills again by itself: cargo's, mypy's,
# Buildroot's, the sources that the patches are checked on, and the objects of kernels.
builds() {
    local place
    for place in "$CACHE"/*/*/complete "$CACHE"/kernels/*/Image; do
        [ ! -e "$place" ] || dirname "$place"
    done
    for place in "$CACHE"/cargo/*/ "$CACHE"/objects-*/ "$CACHE"/incremental/*/ "$CACHE"/check/*/ "$CACHE"/mypy/*/ "$CACHE"/buildroot*/; do
        [ ! -d "$place" ] || echo "${place%/}"
    done
}
# What a build has left that was killed. One that runs has it too, so that it stays for a day.
unfinished() {
    local place
    for place in "$CACHE"/{,*/}.part.* "$CACHE"/kernels/.*.?????? "$CACHE"/check/.?????? "$CACHE"/stock/fetch.* "$CACHE"/*.??????; do
        [ ! -e "$place" ] || echo "$place"
    done
}
# Results that no build makes again: they go by --days alone.
results() {
    local place
    [ ! -d "$CACHE/campaigns" ] || echo "$CACHE/campaigns"
    for place in "$OUT"/bundles/*/; do
        ! grep -qs '^folioscope ' "$place$MARK" || echo "${place%/}"
    done
}
# Many small files are one line, and go one by one by --days.
SMALL=('logs/*' 'locks/*' 'passed/*' 'tarball-*')

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
    local kind entry newest
    for kind in builds unfinished results; do
        while read -r entry; do
            newest=$({ stat -c %Y "$entry" "$entry"/{complete,results,{,*/}{debug,release}} 2>/dev/null || true; } | sort -n | tail -n 1)
            printf '%s\t%s\t%s\t%s\n' "$newest" "$(du -sk "$entry" | cut -f1)" "$kind" "$entry"
        done < <("$kind")
    done | sort -n
}
# remove ENTRY: under a name that no build takes for whole.
remove() {
    local going
    going=$(dirname "$1")/.part.$$.$(basename "$1")
    mv -T "$1" "$going" && rm -rf "$going"
}

now=$(date +%s) removed=0 total=0
mapfile -t lines < <(listed)
for line in ${lines[@]+"${lines[@]}"}; do
    IFS=$'\t' read -r _ size kind _ <<<"$line"
    [ "$kind" = results ] || total=$((total + size))
done
for line in ${lines[@]+"${lines[@]}"}; do
    IFS=$'\t' read -r newest size kind entry <<<"$line"
    age=$(((now - newest) / 86400)) note='' gone=''
    [ "$kind" != unfinished ] || note=unfinished
    [ -z "$days" ] || ((age <= days)) || gone=yes
    [ -z "$gib" ] || [ "$kind" = results ] || ((total <= gib * 1048576)) || gone=yes
    if [ "$kind" = unfinished ] && ((age < 1)); then gone=''; fi
    if in_use "$(realpath "$entry")"; then
        [ -z "$gone" ] || note='in use by this checkout, stays'
        gone=''
    fi
    if [ -n "$gone" ] && [ "$kind" = results ]; then
        remove "$entry"
        removed=$((removed + size)) note=removed
    elif [ -n "$gone" ]; then
        # Another checkout that builds it at this moment holds this lock.
        exec 9>"$(dirname "$entry")/lock"
        if flock -n 9; then
            remove "$entry"
            total=$((total - size)) removed=$((removed + size)) note=removed
        else
            note='being built, stays'
        fi
        exec 9>&-
    fi
    name=${entry#"$CACHE"/}
    printf '%6d days %8d MiB  %s%s\n' "$age" $((size / 1024)) "${name/#"$OUT"/out}" "${note:+  ($note)}"
done
for pattern in "${SMALL[@]}"; do
    count=0 gone=0 oldest=$now size=0
    # shellcheck disable=SC2231 # a pattern
    for file in "$CACHE"/$pattern; do
        [ -f "$file" ] || continue
        read -r time blocks < <(stat -c '%Y %b' "$file")
        # A build that runs holds the lock of its kernel.
        if [ -n "$days" ] && (((now - time) / 86400 > days)) && flock -n "$file" rm -f "$file"; then
            gone=$((gone + 1))
            continue
        fi
        count=$((count + 1)) size=$((size + blocks / 2))
        ((time >= oldest)) || oldest=$time
    done
    ((count + gone == 0)) || printf '%6d days %8d MiB  %s, %d files%s\n' $(((now - oldest) / 86400)) $((size / 1024)) \
        "${pattern%?\*}" $count "$([ $gone -eq 0 ] || echo "  ($gone removed)")"
done
echo "$CACHE: $((total / 1024)) MiB in builds$([ $removed -eq 0 ] || echo ", $((removed / 1024)) MiB removed")"
