#!/usr/bin/env bash
# Installs the Debian packages that `make run` (default) or `make test` needs, saying first which.
# Usage: packages.sh [run|test]. Nothing is touched where nothing is missing.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/toolchain.sh"

goal=${1:-run}
machine=$(uname -m)

codename=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-unknown}")
have_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

wanted=(make gcc libc6-dev ca-certificates)
# The kernel: only where it is built here and not given as an image; a carrier has a pinned one of its own.
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
# Our own monitor runs the guest where it can; the tests use both.
needs_qemu=yes
if [ "$goal" = run ] && [ "$machine" = aarch64 ] && [ -w /dev/kvm ] && [[ ${MACHINE:-auto} != *tcg ]]; then needs_qemu=; fi
backports=()
if [ -n "$needs_qemu" ] && ! qemu_is_new_enough; then
    if [ "$codename" = bookworm ]; then
        backports=(qemu-system-arm)
    else
        wanted+=(qemu-system-arm)
    fi
fi

# Rust: what the machine has already is used; else Debian's own, which is the `-web` set on Debian 12.
web=''
[ "$codename" = bookworm ] && web=-web
host_rust_ok || wanted+=("cargo$web" "rustc$web")
guest_rust_ok || wanted+=("rustc$web" "libstd-rust$web-dev:arm64")
if [ "$goal" = test ]; then
    wanted+=(shellcheck python3 gdb-multiarch binutils)
    cargo fmt --version >/dev/null 2>&1 || wanted+=("rustfmt$web")
    if ! cargo clippy --version >/dev/null 2>&1 || ! guest_clippy_ok; then
        wanted+=("rust$web-clippy")
    fi
    python3 -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-venv)
fi

missing=()
for package in "${wanted[@]}"; do
    case " ${missing[*]-} " in *" $package "*) continue ;; esac
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = 'install ok installed' ] || missing+=("$package")
done

if [ ${#missing[@]} -eq 0 ] && [ ${#backports[@]} -eq 0 ]; then exit 0; fi
have_apt || die "this machine has no apt-get; install what these Debian packages hold and try again: ${missing[*]-} ${backports[*]-}"

say "installing Debian packages: ${missing[*]-} ${backports[*]-}"
# All that needs root in one command, so that sudo asks once, before anything draws over its question. The logs are made
# here, or they would be root's.
for log in apt-update apt-update-backports apt-install apt-backports; do : >"$LOGS/$log.log"; done
install=("$ROOT/vmm/setup/install.sh" "$machine" "${missing[@]}" ${backports[@]+--backports "${backports[@]}"})
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "packages are missing (${missing[*]-} ${backports[*]-}) and there is no sudo; install them as root and try again"
    say 'sudo may ask for your password now'
    sudo env "FOLIOSCOPE_CACHE=$CACHE" "FOLIOSCOPE_OUT=$OUT" "${install[@]}"
else
    child "${install[@]}"
fi
[ -z "$needs_qemu" ] || qemu_is_new_enough || die "QEMU 10.0 or later is needed and $(qemu-system-aarch64 --version 2>/dev/null | head -n 1) was found; install a newer qemu-system-arm"
