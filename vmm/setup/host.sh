# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What this host is and lacks, before anything is changed. Sourced after lib.sh, and after toolchain.sh where Rust matters.

# GiB that are free where builds are kept, and of memory, without which a first build does not end well.
# Reckoned from du of each part, for one checkout: of a run 0.6 stay (kernel, command, what cargo keeps of it); of the tests
# 8 (cargo 5.3, stock kernels and programs 0.8, Python 0.7, kernels 0.4, command and agent 0.5); of lint 2.9; of the series
# 10 (its git tree 2.2, the source that is built and its objects 3.5, 36 kernels 4). A kernel's build asks for 4 by itself.
declare -A SPACE=([run]=5 [test]=12 [lint]=4 [lab]=6 [dist]=6 [series]=14 [docs]=1)
BUILT_ALREADY=1
# A guest has 1, the command's build takes 0.8, and a kernel is built beside it. Rounded, as a machine of 4 shows less.
MEMORY=4

os_release() {
    # shellcheck source=/dev/null
    (. "${FOLIOSCOPE_OS_RELEASE:-/etc/os-release}" 2>/dev/null && eval "echo \"\${$1:-}\"")
}

# installs_here: whether packages are installed on this host: Debian 12 and 13, whose names we have tried.
installs_here() {
    case $(os_release ID)-$(os_release VERSION_ID) in
    debian-12 | debian-13) command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ;;
    *) return 1 ;;
    esac
}

# check_room GOAL: whether a build has the space and the memory that it takes.
check_room() {
    local needed=${SPACE[$1]} free memory
    # To a cache that has kernels little is added, but by a series.
    [ "$1" = series ] || ! compgen -G "$CACHE/kernels/*/Image" >/dev/null || needed=$BUILT_ALREADY
    free=$(df -Pk "$CACHE" | awk 'NR == 2 {print int($4 / 1048576)}')
    [ "${free:-0}" -ge "$needed" ] ||
        die "a build needs $needed GiB in $CACHE and $free GiB are free there; make room, or set FOLIOSCOPE_CACHE to another directory"
    [ "$1" != docs ] || return 0
    memory=$(awk '/^MemTotal:/ {print int($2 / 1048576 + 0.5)}' "${FOLIOSCOPE_MEMINFO:-/proc/meminfo}")
    [ "${memory:-0}" -ge $MEMORY ] ||
        die "a guest and a build need $MEMORY GiB of memory and this machine has $memory GiB"
}

# Debian's newest Rust: the set that it builds browsers by, beside a `rustc` that is 1.63 in Debian 12 and 1.85 in 13.
WEB_RUST=(cargo-web rustc-web libstd-rust-web-dev:arm64)

knows_arm64() { [ "$(uname -m)" = aarch64 ] || dpkg --print-foreign-architectures | grep -qx arm64; }

# install_command PACKAGE...: prints what root gives to a shell for these packages.
install_command() {
    case " $* " in *:arm64\ *) knows_arm64 || printf 'dpkg --add-architecture arm64 && apt-get update && ' ;; esac
    echo "apt-get install $*"
}

package_is_installed() { [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = 'install ok installed' ]; }

# packaged_rust_ok: whether Debian's own rustc is installed and new enough.
packaged_rust_ok() {
    local version
    package_is_installed rustc || return 1
    version=$(dpkg-query -W -f='${Version}' rustc)
    version=${version#1.}
    [ "${version%%.*}" -ge "$MINIMUM_RUST" ]
}

# rust_is_apts: whether this host's Rust is that of Debian's packages, or there is none: then apt brings a newer one.
rust_is_apts() {
    installs_here || return 1
    command -v rustc >/dev/null || return 0
    # Debian packages rustup too, whose compilers are no packages.
    case $(dpkg-query -S "$(realpath "$(command -v rustc)")" 2>/dev/null) in
    rustc:* | rustc-web:*) ;;
    *) return 1 ;;
    esac
}

# rust_remedy: prints how a newer Rust comes to this host.
rust_remedy() {
    if rust_is_apts; then
        echo "as root: $(install_command "${WEB_RUST[@]}")"
    elif command -v rustup >/dev/null; then
        echo 'update it with: rustup update stable'
    else
        echo 'install a newer one (rustup: https://rustup.rs) and try again'
    fi
}

# check_root: whether root can be had for an installation, by a sudo that may ask.
check_root() {
    [ "$(id -u)" -ne 0 ] || return 0
    { true </dev/tty; } 2>/dev/null || sudo -n true 2>/dev/null ||
        die 'packages are missing, sudo would ask for a password, and there is no terminal to answer on; run this from one, or as root'
}

# What is needed: how it is found, what it is for people, and its packages on Ubuntu, Fedora and Arch.
needs() {
    [ "$1" = docs ] || cat <<'NEEDS'
command make|make|make|make|make
command gcc|a C compiler|gcc libc6-dev|gcc glibc-devel|gcc
command cpio|cpio|cpio|cpio|cpio
host_rust_ok|Rust 1.85 or later|rustup|rustup|rustup
guest_rust_ok|Rust's library for arm64: rustup target add aarch64-unknown-linux-gnu|||
command aarch64-linux-gnu-gcc|a C compiler for arm64|gcc-aarch64-linux-gnu libc6-dev-arm64-cross|gcc-aarch64-linux-gnu|aarch64-linux-gnu-gcc aarch64-linux-gnu-glibc
busybox_is_there|a static busybox for arm64 as CACHE/busybox-static-arm64/busybox (Debian: busybox-static:arm64)|||
NEEDS
    cat <<'NEEDS'
command python3|Python 3.11|python3|python3|python
NEEDS
    [[ $1 = lint || $1 = docs ]] || [ -f "${KERNEL:-}" ] || cat <<'NEEDS'
command flex|flex|flex|flex|flex
command bison|bison|bison|bison|bison
command bc|bc|bc|bc|bc
header openssl/opensslv.h|OpenSSL's headers|libssl-dev|openssl-devel|openssl
header libelf.h|libelf's headers|libelf-dev|elfutils-libelf-devel|libelf
command depmod|kmod|kmod|kmod|kmod
command xz|xz|xz-utils|xz|xz
command pahole|pahole|dwarves|dwarves|pahole
command patch|patch|patch|patch|patch
command perl|Perl|perl|perl|perl
NEEDS
    [[ $1 = lint || $1 = docs ]] || [ -e "${KERNEL:-}" ] || cat <<'NEEDS'
source_is_there|the pinned source, Debian's linux-source-6.12.tar.xz, by FOLIOSCOPE_KERNEL_TARBALL= (or a kernel of yours by KERNEL=)|||
NEEDS
    [[ $1 = lint || $1 = dist || $1 = docs ]] || cat <<'NEEDS'
qemu_is_new_enough|QEMU 10.0 or later for arm64|qemu-system-arm|qemu-system-aarch64|qemu-system-aarch64
NEEDS
    [[ $1 = run || $1 = docs ]] || cat <<'NEEDS'
command git|git|git|git|git
NEEDS
    [ "$1" = run ] || cat <<'NEEDS'
venv_is_there|Python's venv|python3-venv|python3|python
NEEDS
    [[ $1 != test && $1 != lint ]] || cat <<'NEEDS'
command shellcheck|shellcheck|shellcheck|ShellCheck|shellcheck
NEEDS
    [ "$1" != dist ] || cat <<'NEEDS'
libc_is_static|a static C library|libc6-dev|glibc-static|glibc
NEEDS
    [ "$1" != test ] || cat <<'NEEDS'
debugger_is_there|a gdb for arm64|gdb-multiarch|gdb|gdb
command chromedriver|Chromium and its driver|chromium-browser chromium-chromedriver|chromium chromedriver|chromium
command ip|iproute2|iproute2|iproute|iproute2
NEEDS
}
header() { [ -e "/usr/include/$1" ] || compgen -G "/usr/include/*/$1" >/dev/null; }
busybox_is_there() { [ -x "$CACHE/busybox-static-arm64/busybox" ]; }
source_is_there() { [ -r "${FOLIOSCOPE_KERNEL_TARBALL:-/usr/src/linux-source-6.12.tar.xz}" ]; }
venv_is_there() { python3 -c 'import ensurepip, venv' 2>/dev/null; }
debugger_is_there() { command -v gdb-multiarch >/dev/null || command -v gdb >/dev/null; }
qemu_is_new_enough() {
    local version
    version=$(qemu-system-aarch64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
    [ "${version:-0}" -ge 10 ]
}

# other_host GOAL TARGET: goes on where all is there that GOAL needs, and ends with the list of what is not.
other_host() {
    local check what ubuntu fedora arch name packages install family lacking=() names=()
    name=$(os_release PRETTY_NAME)
    family=" $(os_release ID) $(os_release ID_LIKE) "
    case $family in
    *' fedora '* | *' rhel '*) family=fedora install='dnf install' ;;
    *' arch '*) family=arch install='pacman -S' ;;
    *' debian '* | *' ubuntu '*) family=ubuntu install='apt-get install' ;;
    # Of a system that we do not know neither the names nor the command.
    *) family=ubuntu install='' ;;
    esac
    while IFS='|' read -r check what ubuntu fedora arch; do
        # A carrier's own host has its compiler under another name.
        [ "$check,$(uname -m)" != 'command aarch64-linux-gnu-gcc,aarch64' ] || continue
        case $check in
        command\ *) ! command -v "${check#* }" >/dev/null || continue ;;
        *) ! $check || continue ;;
        esac
        packages=$ubuntu
        [ $family != fedora ] || packages=$fedora
        [ $family != arch ] || packages=$arch
        lacking+=("${what//CACHE/$CACHE}")
        [ -z "$packages" ] || names+=("$packages")
    done < <(needs "$1")
    if [ ${#lacking[@]} -eq 0 ]; then
        ! only_look || say "${name:-this machine} has all that make $2 needs"
        return 0
    fi
    say "packages are installed on Debian 12 and 13 alone, and this is ${name:-another system}; make $2 needs what it lacks:"
    printf 'folioscope:   %s\n' "${lacking[@]}" >&2
    if [ ${#names[@]} -gt 0 ] && [ -n "$install" ]; then
        say "as root: $install ${names[*]}"
    elif [ ${#names[@]} -gt 0 ]; then
        say "their packages on Ubuntu, which may have other names here: ${names[*]}"
    fi
    die 'install these and try again'
}
