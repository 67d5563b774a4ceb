#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Looks at this host, says what make GOAL needs that it lacks, and installs that. Every check comes before the first
# change. SETUP=check only looks, SETUP=no never installs.
# Usage: packages.sh [run|test|lint|lab|dist|series]. If none is missing, nothing is done. The goal is run by default.
#        packages.sh --list run|test: those of an arm64 host of this release that has none yet and needs no QEMU.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"
. "$(dirname "$0")/host.sh"

machine=$(uname -m)
list=''
if [ "${1:-}" = --list ]; then
    list=yes machine=aarch64
    shift
fi
goal=${1:-run}
# for_goal GOAL...: whether the goal is one of these.
for_goal() { case " $* " in *" $goal "*) ;; *) return 1 ;; esac }
# lacks COMMAND...: whether it fails, as every command does on the host of a list.
lacks() { [ -n "$list" ] || ! "$@"; }

codename=$(os_release VERSION_CODENAME)
case ${SETUP:-} in
'' | check | no) ;;
*) die "expected SETUP to be check (only look), no (never install) or nothing, and found '$SETUP'" ;;
esac
if [ -z "$list" ]; then
    check_room "$goal"
    if ! installs_here; then
        other_host "$goal"
        exit 0
    fi
fi

wanted=(make gcc libc6-dev ca-certificates)
# The kernel: only if it is built here and not given as an image; a carrier has a pinned one of its own.
carrier=''
if for_goal test dist || [ "${MACHINE:-}" = kvm-in-tcg ]; then carrier=yes; fi
if for_goal lint; then
    # checkpatch is of the pinned source.
    wanted+=(linux-source-6.12 xz-utils perl python3)
elif [ -n "$carrier" ] || [ ! -f "${KERNEL:-}" ]; then
    wanted+=(flex bison bc libssl-dev libelf-dev cpio kmod xz-utils dwarves patch perl python3)
    [ "$machine" = aarch64 ] || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    if [ -n "$carrier" ] || [ ! -d "${KERNEL:-}" ]; then wanted+=(linux-source-6.12); fi
fi
if ! for_goal lint; then
    [ "$machine" = aarch64 ] || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    wanted+=(cpio)
fi

# Our own monitor runs the guest if it can; the tests use both.
needs_qemu=yes
if [ -n "$list" ] || for_goal lint dist; then needs_qemu=; fi
if for_goal run && [ "$machine" = aarch64 ] && [ -w /dev/kvm ] && [[ ${MACHINE:-auto} != *tcg ]]; then needs_qemu=; fi
backports=()
if [ -n "$needs_qemu" ] && ! qemu_is_new_enough; then
    if [ "$codename" = bookworm ]; then
        backports=(qemu-system-arm)
    else
        wanted+=(qemu-system-arm)
    fi
fi

# Rust: the machine's own is used; else Debian's, which is the `-web` set on Debian 12.
web=''
[ "$codename" = bookworm ] && web=-web
if lacks host_rust_ok; then wanted+=("cargo$web" "rustc$web"); fi
if lacks guest_rust_ok; then wanted+=("rustc$web" "libstd-rust$web-dev:arm64"); fi
if ! for_goal run; then
    # Tests, lint, a wheel and the laboratory's statistics are Python's.
    wanted+=(python3 git)
    if lacks venv_is_there; then wanted+=(python3-venv); fi
fi
if for_goal test lint; then
    wanted+=(shellcheck)
    has_fmt() { cargo fmt --version >/dev/null 2>&1; }
    has_clippy() { cargo clippy --version >/dev/null 2>&1 && guest_clippy_ok; }
    if lacks has_fmt; then wanted+=("rustfmt$web"); fi
    if lacks has_clippy; then wanted+=("rust$web-clippy"); fi
fi
if for_goal test; then
    wanted+=(gdb-multiarch binutils)
    # Tests open the report in a browser; under emulation, as in a rehearsal, that would take too long. Hosts of a network
    # are namespaces, for tests that a rehearsal leaves out too.
    [ -n "$list" ] || wanted+=(chromium chromium-driver iproute2)
fi
if [ -n "$list" ]; then
    printf '%s\n' "${wanted[@]}" | sort -u
    exit 0
fi

missing=()
for package in "${wanted[@]}"; do
    case " ${missing[*]-} " in *" $package "*) continue ;; esac
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = 'install ok installed' ] || missing+=("$package")
done

all=(${missing[@]+"${missing[@]}"} ${backports[@]+"${backports[@]}"})
if [ ${#all[@]} -eq 0 ]; then
    [ "${SETUP:-}" != check ] || say "$(os_release PRETTY_NAME) has all that make $goal needs"
    exit 0
fi

# All that is going to happen, once.
say "make $goal needs more on this machine ($(os_release PRETTY_NAME), $machine); SETUP=check only looks, SETUP=no never installs"
say "to install: ${all[*]}"
[ "$machine" != x86_64 ] || dpkg --print-foreign-architectures | grep -qx arm64 ||
    say "to add to dpkg: the architecture arm64, as the guest's programs come from Debian's arm64 packages"
[ ${#backports[@]} -eq 0 ] || grep -rqs bookworm-backports /etc/apt/sources.list /etc/apt/sources.list.d ||
    say 'to add to apt: the suite bookworm-backports, as Debian 12 itself has QEMU 7.2 and the rig needs 10.0'
fetched='crates of Rust by cargo'
for_goal run || fetched+=', Python packages by pip'
say "to download: these packages and the lists by apt; later $fetched, and busybox for arm64 by apt"
case ${SETUP:-} in
check)
    say 'SETUP=check: nothing was changed'
    exit 0
    ;;
no) die "packages are missing and SETUP=no installs none; as root: apt-get install ${all[*]}" ;;
esac
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    why='' from=''
    [ -z "$needs_qemu" ] || [ "$goal$machine" != runaarch64 ] || why=' (without a /dev/kvm that this user may open the guest needs QEMU)'
    [ ${#backports[@]} -eq 0 ] || from=", ${backports[*]} from bookworm-backports,"
    die "packages are missing: ${all[*]}$why; there is no sudo, so install them$from as root and try again"
fi
check_root
# One command for all that needs root, so that sudo asks once, before other output covers its question. The logs are
# made here, or they would be root's.
for log in apt-update apt-update-backports apt-install apt-backports; do : >"$LOGS/$log.log"; done
install=("$ROOT/vmm/setup/install.sh" "$machine" "${missing[@]}" ${backports[@]+--backports "${backports[@]}"})
if [ "$(id -u)" -ne 0 ]; then
    say 'sudo may ask for your password now'
    sudo env "FOLIOSCOPE_CACHE=$CACHE" "FOLIOSCOPE_OUT=$OUT" "${install[@]}"
else
    child "${install[@]}"
fi
[ -z "$needs_qemu" ] || qemu_is_new_enough || die "QEMU 10.0 or later is needed and $(qemu-system-aarch64 --version 2>/dev/null | head -n 1) was found; install a newer qemu-system-arm"
