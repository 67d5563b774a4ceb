#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the documents as a site, in out/site, and checks all links. What it needs has a Python environment of its own.
# Usage: docs.sh
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

child vmm/setup/python.sh --docs >"$LOGS/docs.path"
python=$(<"$LOGS/docs.path")
tree=$(mktemp -d)
TEMPORARY+=("$tree")
# Documents, and each file that one of them links to, where they are in a checkout.
copy() { install -D -m 644 "$1" "$tree/$1"; }
mapfile -d '' -t documents < <(sources '*.md' 'docs/*.svg' 'docs/*.png')
for file in "${documents[@]}"; do [ ! -f "$file" ] || copy "$file"; done
copy LICENSE
while IFS=: read -r document link; do
    file=$(realpath -m --relative-to=. "$(dirname "$document")/$link")
    if [ -d "$file" ]; then die "$document links to the directory $file: a site has none; link to a file in it"; fi
    [ ! -f "$file" ] || copy "$file"
done < <(sources '*.md' | xargs -0 grep -HoP '\]\(\K(?![a-z]+:|#)[^()\s#]+' --)
# The reference of the plugin exists in the site alone: its text is the docstrings'.
cat >"$tree/docs/python.md" <<'MD'
# The pytest plugin's objects

How they are used: [tests of your own](testing.md).

::: folioscope
MD
FOLIOSCOPE_DOCS=$tree FOLIOSCOPE_SITE=$OUT/site.$$ FOLIOSCOPE_PLUGIN=$ROOT/tests/plugin \
    NO_MKDOCS_2_WARNING=1 step docs 'the documents, as a site' "$python" -m mkdocs build --strict -f docs/site/mkdocs.yml
[ ! -e "$OUT/site" ] || [ -e "$OUT/site/$MARK" ] || die "$OUT/site is in the way of the site; move it elsewhere"
rm -rf "$OUT/site"
mv -T "$OUT/site.$$" "$OUT/site"
echo 'folioscope site' >"$OUT/site/$MARK"
say "$OUT/site/index.html; search needs a server: python3 -m http.server -d ${OUT#"$PWD/"}/site"
