#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Removes the files of the set-up, the command and the tests from out/, by their marks, and lists the rest.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

# in_use DIRECTORY: whether a process holds the lock on its mark.
in_use() { ! flock --nonblock --exclusive "$1/$MARK" true; }

for link in "$OUT"/*; do
    # Links into the cache are ours.
    if [ -L "$link" ] && [[ $(readlink "$link") == "$CACHE"/* ]]; then rm -f "$link"; fi
done
rm -f "$OUT/bench.json"
for directory in "$OUT"/{guests,carriers,tests,bundles}/*/ "$OUT/logs/" "$OUT/site/" "$OUT/dist/"; do
    directory=${directory%/}
    if [ -L "$directory" ] || ! grep -qs '^folioscope ' "$directory/$MARK"; then continue; fi
    if in_use "$directory"; then
        say "$directory is in use and stays"
    else
        rm -rf "$directory"
    fi
done
rmdir --ignore-fail-on-non-empty "$OUT"/{guests,carriers,tests,bundles} 2>/dev/null || true
if [ -d "$OUT" ] && ! rmdir "$OUT" 2>/dev/null; then
    say "left in $OUT, as it was not made by make: $(cd "$OUT" && find . -mindepth 1 -maxdepth 2 -not -name . | sed 's|^\./||' | head -20 | tr '\n' ' ')"
fi
