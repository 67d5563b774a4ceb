#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs the Debian packages that `make run` (default) or `make test` needs, and lists them first.
# Usage: packages.sh [run|test]. If none is missing, nothing is done.
#        packages.sh --list run|test: those of an arm64 host of this release that has none yet and needs no QEMU.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

machine=$(uname -m)
list=''
if [ "${1:-}" = --list ]; then
    list=yes machine=aarch64
    shift
fi
goal=${1:-run}
# lacks COMMAND...: whether it fails, as every command does on the host of a list.
lacks() { [ -n "$list" ] || ! "$@"; }

codename=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-unknown}")
have_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

wanted=(make gcc libc6-dev ca-certificates)
# The kernel: only if it is built here and not given as an image; a carrier has a pinned one of its own.
carrier=''
if [ "$goal" = test ] || [ "${MACHINE:-}" = kvm-in-tcg ]; then carrier=yes; fi
if [ -n "$carrier" ] || [ ! -f "${KERNEL:-}" ]; then
    wanted+=(flex bison bc libssl-dev libelf-dev cpio kmod xz-utils dwarves patch perl python3)
    [ "$machine" = aarch64 ] || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    if [ -n "$carrier" ] || [ ! -d "${KERNEL:-}" ]; then wanted+=(linux-source-6.12); fi
fi
[ "$machine" = aarch64 ] || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
wanted+=(cpio)

qemu_is_new_enough() {
    local version
    version=$(qemu-system-aarch64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
    [ "${version:-0}" -ge 10 ]
}
# Our own monitor runs the guest if it can; the tests use both.
needs_qemu=yes
if [ -n "$list" ]; then needs_qemu=; fi
if [ "$goal" = run ] && [ "$machine" = aarch64 ] && [ -w /dev/kvm ] && [[ ${MACHINE:-auto} != *tcg ]]; then needs_qemu=; fi
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
if [ "$goal" = test ]; then
    wanted+=(shellcheck python3 gdb-multiarch binutils git)
    has_fmt() { cargo fmt --version >/dev/null 2>&1; }
    has_clippy() { cargo clippy --version >/dev/null 2>&1 && guest_clippy_ok; }
    has_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }
    if lacks has_fmt; then wanted+=("rustfmt$web"); fi
    if lacks has_clippy; then wanted+=("rust$web-clippy"); fi
    if lacks has_venv; then wanted+=(python3-venv); fi
    # Tests open the report in a browser; under emulation, as in a rehearsal, that would take too long.
    [ -n "$list" ] || wanted+=(chromium chromium-driver)
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

if [ ${#missing[@]} -eq 0 ] && [ ${#backports[@]} -eq 0 ]; then exit 0; fi
have_apt || die "this machine has no apt-get; install what these Debian packages hold and try again: ${missing[*]-} ${backports[*]-}"

all=(${missing[@]+"${missing[@]}"} ${backports[@]+"${backports[@]}"})
if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    why='' from=''
    [ -z "$needs_qemu" ] || [ "$goal$machine" != runaarch64 ] || why=' (without a /dev/kvm that this user may open the guest needs QEMU)'
    [ ${#backports[@]} -eq 0 ] || from=", ${backports[*]} from bookworm-backports,"
    die "packages are missing: ${all[*]}$why; there is no sudo, so install them$from as root and try again"
fi
say "installing Debian packages: ${all[*]}"
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
