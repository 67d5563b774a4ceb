#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Makes a container image of what `make dist` packs, by buildah and without root: localhost/folioscope:VERSION. Its base is
# Debian 13 as its packages make it (mmdebstrap), so no registry of images is needed. The first run downloads Debian.
# Usage: container.sh [--tools]   (BASE_IMAGE= names another base; --tools: only looks whether they are there)
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

SUITE=trixie
lacks=()
for tool in buildah mmdebstrap; do
    command -v "$tool" >/dev/null || [ "$tool,${BASE_IMAGE:+given}" = mmdebstrap,given ] || lacks+=("$tool")
done
[ ${#lacks[@]} -eq 0 ] || lacks[-1]+=' (on Debian, as root: apt-get install --no-install-recommends buildah mmdebstrap uidmap)'
report_lacks container ${lacks[@]+"${lacks[@]}"}
[ "${1:-}" != --tools ] || exit 0
dist=$OUT/dist
[ -r "$dist/SHA256SUMS" ] || die "expected packed files in $dist and found no SHA256SUMS there; make dist makes them"
wheel=$(basename "$dist"/folioscope-*.whl)
version=${wheel#folioscope-} version=${version%%-*}

base=${BASE_IMAGE:-localhost/folioscope-base:$SUITE}
if [ -z "${BASE_IMAGE:-}" ] && ! buildah inspect --type image "$base" >/dev/null 2>&1; then
    place=$(mktemp -d "$OUT/.container.XXXXXX")
    TEMPORARY+=("$place")
    step container-base "Debian's $SUITE by mmdebstrap" mmdebstrap --variant=minbase --include=ca-certificates "$SUITE" "$place/root.tar"
    from=$(buildah from scratch)
    step container-import 'the base as an image' buildah add "$from" "$place/root.tar" /
    buildah commit --quiet --rm "$from" "$base" >/dev/null
    rm -rf "$place"
fi
# Steps run in a plain chroot: no runtime for containers is needed, and Debian's buildah names none.
step container "the container's image" buildah build --isolation chroot --file "$ROOT/Containerfile" --build-arg "BASE=$base" \
    --tag "localhost/folioscope:$version" --tag localhost/folioscope:latest "$dist"
say "localhost/folioscope:$version; run it: podman run --rm -it localhost/folioscope"
