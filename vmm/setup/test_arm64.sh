#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Rehearses an arm64 host with KVM: Debian's user land for it in a carrier, where a user who is not root runs `make
# run`, and pytest on the machine `kvm`. The user has a checkout and a cache of their own; the cache has the files that
# were built here. Tests that have passed on this content are left out, as in `make test-long`. Arguments go to pytest.
# On an arm64 host with /dev/kvm no rehearsal is needed.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

if [ "$(uname -m)" = aarch64 ]; then
    say 'this is an arm64 host: make run and make test are here what make test-arm64 rehearses on others'
    exit 0
fi

child "$ROOT/vmm/setup/arm64_host.sh" >"$LOGS/arm64-host.path"
# As the carrier sees them: links of ours may lead into another of its file systems.
root=$(realpath "$(cat "$LOGS/arm64-host.path")")
results=$(realpath "$LOGS")/arm64-host
# The names of the tests that have passed there, by content: the user's own, kept here.
passed=$CACHE/arm64-passed.tar
rm -rf "$results"
mkdir -p "$results"

sockets=$(mktemp -d "${TMPDIR:-/tmp}/folioscope-XXXXXX")
TEMPORARY+=("$sockets")
export FOLIOSCOPE_CARRIER=$sockets/carrier
ready=$LOGS/arm64-carrier.ready
: >"$ready"
# It ends with its standard input, which is ours.
# shellcheck disable=SC2034 # held open
exec {hold}> >(exec "$OUT/folioscope" carrier serve --socket "$FOLIOSCOPE_CARRIER" --kernel "$OUT/carrier-kernel/Image" \
    --initrd "$OUT/carrier.cpio" --memory 6G --out "$LOGS" --writable "$results" >"$ready" 2>"$LOGS/arm64-carrier.log")
for ((tries = 0; tries < 600; tries++)); do
    [ ! -s "$ready" ] || break
    sleep 0.2
done
[ -s "$ready" ] || die "the carrier did not come up; its words are in $LOGS/arm64-carrier.log"

# carried WORDS [ARGUMENT...]: a shell of the carrier itself, as its root.
carried() { "$OUT/folioscope" carrier exec -- sh -euc "$1" sh "${@:2}"; }
# user GROUPS WORDS: a shell of the user in the checkout. GROUPS is an option of setpriv: --init-groups, or --clear-groups
# for one who has not joined kvm.
user() {
    "$OUT/folioscope" carrier exec -- chroot "$root" /usr/bin/setpriv --reuid user --regid user "$1" \
        /usr/bin/env -i HOME=/home/user FOLIOSCOPE_TEST_SLOWER=20 USER=user LANG=C.UTF-8 \
        PATH=/usr/local/bin:/usr/bin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/usr/share/folioscope-wheels \
        /bin/bash -c "cd ~/folioscope && $2" </dev/null
}

# The work of an init and udev; a home in memory; the files built here, read-only.
setup() {
    local kind kinds=()
    for kind in agent arm64-command initramfs kernels; do kinds+=("$kind=$(realpath "$CACHE/$kind")"); done
    # shellcheck disable=SC2016 # the carrier's shell
    carried '
        root=$1; shift
        date -s "@$1"; shift
        ln -s /proc/self/fd /dev/fd
        ln -s fd/0 /dev/stdin
        ln -s fd/1 /dev/stdout
        ln -s fd/2 /dev/stderr
        chown 0:104 /dev/kvm
        chmod 660 /dev/kvm
        for own in dev proc sys; do mount -o rbind /$own "$root/$own"; done
        # It is written as a stream: a build checks for room first.
        mount -t tmpfs -o mode=1777,size=8G tmpfs "$root/tmp"
        mount -t tmpfs -o mode=0755 tmpfs "$root/run"
        mount -t tmpfs -o mode=0755 tmpfs "$root/home"
        cache=$root/home/user/.cache/folioscope
        mkdir -p "$root/home/user/folioscope" "$cache"
        for kind; do
            mkdir "$cache/${kind%%=*}"
            mount -o bind "${kind#*=}" "$cache/${kind%%=*}"
        done
        chown 1000:1000 "$root/home/user" "$root/home/user/.cache" "$cache"' "$root" "$(date +%s)" "${kinds[@]}" </dev/null
    tar -C "$ROOT" -c --exclude=./out --exclude=./target --exclude=./.git --exclude=__pycache__ --exclude='.*_cache' . |
        in_home folioscope
    [ ! -e "$passed" ] || in_home .cache/folioscope/passed <"$passed"
}
# in_home DIRECTORY: unpacks standard input there, as the user's.
in_home() {
    # shellcheck disable=SC2016
    carried 'mkdir -p "$1"; tar -x -C "$1"; chown -R 1000:1000 "$1"' "$root/home/user/$1"
}
step arm64-setup 'the arm64 host' setup

told=()
# expect LOG STATUS TEXT COMMAND...: it has to end with that status and print that text.
expect() {
    local log=$LOGS/arm64-$1.log status=$2 text=$3 start=$SECONDS rc=0
    shift 3
    "$@" >"$log" 2>&1 || rc=$?
    if [ "$rc" != "$status" ] || ! grep -Fq -- "$text" "$log"; then
        tail -n 20 "$log" >&2
        die "arm64: expected status $status and the words '$text', and found status $rc; the whole output is in $log"
    fi
    # A build under emulation takes minutes, and was in the cache under another key.
    ! grep -Eq 'done in [1-9][0-9]+ s|compiling' "$log" || die "arm64: something was built that the cache should have had; see $log"
    told+=("$(basename "$log" .log): $((SECONDS - start)) s")
    say "${told[-1]}, as expected: $text"
}
expect run 0 'no error found' user --init-groups 'make run MACHINE=kvm GRANULE=4k'
expect outsider 2 'belongs to group kvm; join it (as root: usermod -aG kvm USER' user --clear-groups 'make run MACHINE=kvm'
expect outsider-auto 2 "belongs to group kvm; join it (as root: usermod -aG kvm USER, and log in again), or use MACHINE=tcg; going on with QEMU" \
    user --clear-groups 'make run'
carried 'mv /dev/kvm /dev/kvm.away' </dev/null
expect no-kvm 2 'there is no /dev/kvm: expected a kernel with CONFIG_KVM' user --init-groups 'make run MACHINE=kvm'
expect no-kvm-auto 2 'without a /dev/kvm that this user may open the guest needs QEMU' user --init-groups 'make run'
carried 'mv /dev/kvm.away /dev/kvm' </dev/null

# The tests' environment takes minutes there, and is kept.
make_venv() {
    step arm64-venv "the tests' Python environment, made there" user --init-groups vmm/setup/python.sh
    # shellcheck disable=SC2016
    carried 'tar -c -C "$1" .' "$root/home/user/.cache/folioscope/venv" </dev/null >"$1/venv.tar"
}
built arm64-venv "$(basename "$(dirname "$root")")" make_venv
in_home .cache/folioscope/venv <"$built/venv.tar"

# Its files identify the tests that have passed.
user --init-groups 'git init -q'
expect build 0 'kernels' user --init-groups 'vmm/setup/build.sh 4k 16k 64k && readlink out/kernel-*'
# The user's home ends with the carrier, which may end at any time.
keep_passed() {
    # shellcheck disable=SC2016
    carried 'cd "$1" 2>/dev/null || exit 1; tar -c .' "$root/home/user/.cache/folioscope/passed" </dev/null \
        >"$passed.$$" 2>>"$LOGS/arm64-passed.log" && mv "$passed.$$" "$passed"
}
keep_on() {
    while sleep 30; do keep_passed || true; done
}
begin keep_on
start=$SECONDS rc=0
# A clock that a test reads runs as fast there as here. One guest leaves half of two CPUs idle there, too; more than two
# were not tried, and have to share the carrier's memory with the user's home.
user --init-groups "vmm/setup/pytest.sh -n 2 --machine kvm --granule 4k -m 'not long and not qemu and not network and not browser' --guest-deadline 3000 --resume ${*@Q}" \
    2>&1 | tee "$LOGS/arm64-pytest.log" || rc=$?
keep_passed || say "what has passed could not be kept and is tried again: see $LOGS/arm64-passed.log"
# shellcheck disable=SC2016
carried 'cp -r "$1/bundles" "$1/logs" "$2/" 2>/dev/null || true' "$root/home/user/folioscope/out" "$results" </dev/null
say "arm64: $(printf '%s, ' "${told[@]}")pytest: $((SECONDS - start)) s"
say "arm64: $(tail -n 1 "$LOGS/arm64-pytest.log" | tr -d =)"
((rc == 0)) || die "arm64: pytest failed there, see above; bundles and logs are in $results"
