#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes the tests' Python environment (pinned, by content, in the cache) and prints its interpreter.
# Usage: python.sh [--docs]   (--docs: that of the site's generator)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/host.sh"

version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
[[ $version = 3.* && ${version#3.} -ge 11 ]] || die "Python 3.11 or later is needed and ${version:-none} was found; install Debian's python3"
lists=(tests/requirements.txt)
own=tests/requirements-$(uname -m).txt
[ ! -e "$ROOT/$own" ] || lists+=("$own")
[ "${1:-}" != --docs ] || lists=(docs/site/requirements.txt)
venv=${CACHE:?}/venv/$(content "${lists[@]}")-$version
# Some packages are programs: a cache may serve hosts of both kinds.
[ "$(uname -m)" = x86_64 ] || venv+=-$(uname -m)
if [ ! -e "$venv/complete" ]; then
    venv_is_there || die "Python's venv is missing; install Debian's python3-venv"
    mkdir -p "$CACHE/venv"
    exec 9>"$CACHE/venv/lock"
    flock 9
    if [ ! -e "$venv/complete" ]; then
        rm -rf "$venv"
        step venv 'Python environment' python3 -m venv "$venv"
        step pip 'Python packages' "$venv/bin/pip" install --disable-pip-version-check "${lists[@]/#/-r$ROOT/}"
        touch "$venv/complete"
    fi
fi
echo "$venv/bin/python"
