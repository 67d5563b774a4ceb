#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Looks at this host, says what make TARGET needs that it lacks, and installs that. Every check comes before the first
# change. SETUP=check only looks, SETUP=no never installs.
# Usage: packages.sh [run|cross|boot|build|bench|rootfs|test|lint|lab|dist|series|docs]. If none is missing, nothing is
#        done. The target is run by default.
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
target=${1:-run}
# Targets that need the same have one goal.
case $target in
cross | boot | build | bench | rootfs) goal=run ;;
*) goal=$target ;;
esac
# for_goal GOAL...: whether the goal is one of these.
for_goal() { case " $* " in *" $goal "*) ;; *) return 1 ;; esac }
# lacks COMMAND...: whether it fails, as every command does on the host of a list.
lacks() { [ -n "$list" ] || ! "$@"; }

codename=$(os_release VERSION_CODENAME)
only_look || true
if [ -z "$list" ]; then
    check_room "$goal"
    if ! installs_here; then
        other_host "$goal" "$target"
        exit 0
    fi
fi

wanted=(ca-certificates python3)
for_goal docs || wanted+=(make gcc libc6-dev)
# The kernel: only if it is built here and not given as an image; a carrier has a pinned one of its own.
carrier=''
if for_goal test dist || [ "${MACHINE:-}" = kvm-in-tcg ]; then carrier=yes; fi
if for_goal lint; then
    # checkpatch is of the pinned source.
    wanted+=(linux-source-6.12 xz-utils perl)
elif for_goal docs || [ "$target" = rootfs ]; then
    :
elif [ -n "$carrier" ] || [ ! -f "${KERNEL:-}" ]; then
    wanted+=(flex bison bc libssl-dev libelf-dev cpio kmod xz-utils dwarves patch perl)
    [ "$machine" = aarch64 ] || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    if [ -n "$carrier" ] || [ ! -d "${KERNEL:-}" ]; then wanted+=(linux-source-6.12); fi
fi
if ! for_goal lint docs; then
    [ "$machine" = aarch64 ] || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    wanted+=(cpio)
fi

# Our own monitor runs the guest if it can; the tests use both.
needs_qemu=yes
if [ -n "$list" ] || for_goal lint dist docs; then needs_qemu=; fi
if for_goal run && [ "$machine" = aarch64 ] && [ -w /dev/kvm ] && [[ ${MACHINE:-auto} != *tcg ]]; then needs_qemu=; fi
backports=()
if [ -n "$needs_qemu" ] && ! qemu_is_new_enough; then
    if [ "$codename" = bookworm ]; then
        backports=(qemu-system-arm)
    else
        wanted+=(qemu-system-arm)
    fi
fi

# Rust: the machine's own is used; else Debian's newest, the `-web` set. Debian's own rustc stays while it is new enough,
# and its library and tools are those of that name.
rust=$MINIMUM_RUST web='' outdated=()
case $codename in bookworm | trixie) web=-web ;; esac
! needs_plugin "$target" || rust=$PLUGIN_RUST
if for_goal docs; then
    :
elif lacks host_rust_ok "$rust"; then
    [ -n "$list" ] || rust_is_apts || die "make $target needs Rust 1.$rust or later and this machine's is $(rust_found); $(rust_remedy)"
    # The library is that of one compiler.
    outdated=("cargo$web" "rustc$web" "libstd-rust$web-dev:arm64")
else
    ! packaged_rust_ok || web=''
    if ! guest_rust_ok; then
        ! package_is_installed rustup ||
            die "make $target needs Rust's library for arm64 and this machine's Rust is rustup's; add it: rustup target add $GUEST_TARGET"
        wanted+=("rustc$web" "libstd-rust$web-dev:arm64")
    fi
fi
if ! for_goal run; then
    # Tests, lint, the site, a wheel and the laboratory's statistics are Python's.
    for_goal docs || wanted+=(git)
    if lacks venv_is_there; then wanted+=(python3-venv); fi
fi
if for_goal test lint; then
    wanted+=(shellcheck)
    has_fmt() { cargo fmt --version >/dev/null 2>&1; }
    has_clippy() { cargo clippy --version >/dev/null 2>&1 && guest_clippy_ok; }
    # Those of a compiler that goes, go with it.
    if [ ${#outdated[@]} -gt 0 ] || ! has_fmt; then wanted+=("rustfmt$web"); fi
    if [ ${#outdated[@]} -gt 0 ] || ! has_clippy; then wanted+=("rust$web-clippy"); fi
fi
if for_goal test; then
    wanted+=(gdb-multiarch binutils)
    # Tests open the report in a browser; under emulation, as in a rehearsal, that would take too long. Hosts of a network
    # are namespaces, for tests that a rehearsal leaves out too.
    [ -n "$list" ] || wanted+=(chromium chromium-driver iproute2)
fi
if [ -n "$list" ]; then
    printf '%s\n' "${wanted[@]}" ${outdated[@]+"${outdated[@]}"} | sort -u
    exit 0
fi

missing=(${outdated[@]+"${outdated[@]}"})
for package in "${wanted[@]}"; do
    case " ${missing[*]-} " in *" $package "*) continue ;; esac
    package_is_installed "$package" || missing+=("$package")
done
# Each program of the -web set excludes Debian's own.
removed=()
for package in ${missing[@]+"${missing[@]}"}; do
    case $package in
    cargo-web | rustc-web | rustfmt-web | rust-web-clippy) ! package_is_installed "${package/-web/}" || removed+=("${package/-web/}") ;;
    esac
done

all=(${missing[@]+"${missing[@]}"} ${backports[@]+"${backports[@]}"})
if [ ${#all[@]} -eq 0 ]; then
    ! only_look || say "$(os_release PRETTY_NAME) has all that make $target needs"
    exit 0
fi

# All that is going to happen, once.
say "make $target needs more on this machine ($(os_release PRETTY_NAME), $machine); SETUP=check only looks, SETUP=no never installs"
say "to install: ${all[*]}"
[ ${#removed[@]} -eq 0 ] || say "to remove: ${removed[*]}, whose place Debian's newer Rust takes"
foreign=''
if ! for_goal docs && ! knows_arm64; then foreign=arm64; fi
[ -z "$foreign" ] ||
    say "to add to dpkg: the architecture arm64, as the guest's programs come from Debian's arm64 packages"
[ ${#backports[@]} -eq 0 ] || grep -rqs bookworm-backports /etc/apt/sources.list /etc/apt/sources.list.d ||
    say 'to add to apt: the suite bookworm-backports, as Debian 12 itself has QEMU 7.2 and the rig needs 10.0'
case $goal in
run) fetched='crates of Rust by cargo, and busybox for arm64 by apt' ;;
docs) fetched='Python packages by pip' ;;
lint) fetched='crates of Rust by cargo, and Python packages by pip' ;;
*) fetched='crates of Rust by cargo, Python packages by pip, and busybox for arm64 by apt' ;;
esac
say "to download: these packages and the lists by apt; later $fetched"
if only_look; then
    say 'SETUP=check: nothing was changed'
    exit 0
fi
[ "${SETUP:-}" != no ] || die "packages are missing and SETUP=no installs none; as root: $(install_command "${all[@]}")"
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
install=("$ROOT/vmm/setup/install.sh" "${foreign:-none}" "${missing[@]}" ${backports[@]+--backports "${backports[@]}"})
if [ "$(id -u)" -ne 0 ]; then
    say 'sudo may ask for your password now'
    sudo env "FOLIOSCOPE_CACHE=$CACHE" "FOLIOSCOPE_OUT=$OUT" "${install[@]}"
else
    child "${install[@]}"
fi
for_goal docs || host_rust_ok "$rust" ||
    die "Rust 1.$rust or later is needed and apt brought $(rust_found); add Debian's $codename-security to apt's sources, or install a newer one (rustup: https://rustup.rs)"
[ -z "$needs_qemu" ] || qemu_is_new_enough || die "QEMU 10.0 or later is needed and $(qemu-system-aarch64 --version 2>/dev/null | head -n 1) was found; install a newer qemu-system-arm"
