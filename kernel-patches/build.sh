#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds one arm64 kernel of the rig (Image, vmlinux, config) into a content-addressed cache and prints its directory.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	cat <<'USAGE'
usage: build.sh --granule 4k|16k|64k [--base NAME | --source DIR | --with DIR] [--debug] [--net] [--config FILE]
                [--out DIR | --key]
       build.sh --granule 4k|16k|64k --incremental DIR --commit ID [--config FILE] [--out DIR | --key]
       build.sh --check-source DIR

Builds the pinned kernel with the patches of series, or with --source a kernel
tree of yours as it stands (out of tree, nothing is patched or written there).
With --base the patches of NAME/series go on top of the source that
FOLIOSCOPE_KERNEL_TARBALL names: 7.x is there beside the pinned 6.12.
With --with the patches of DIR/series go on top of the pinned kernel's.
With --debug the kernel checks itself too: config/debug.config.
With --net it has TCP and counts trace events by their fields: config/net.config.
With --config the options of FILE, a fragment of a .config, are set too.
With --incremental the git tree DIR/src is checked out at commit ID and built in
DIR/obj, where only what changed is compiled again. The kernel has a file
warnings too: all that the compiler warns of, whatever was compiled this time.
The last line on stdout is the directory that holds Image, vmlinux, config and
release. With --out they are copied to DIR too, and DIR is printed.
With --key nothing is built: the only line is that directory, there or not.
With --check-source it only says whether DIR can be built from.

  FOLIOSCOPE_CACHE           where kernels are kept (default ~/.cache/folioscope)
  FOLIOSCOPE_LOG_DIR         where kernel-<granule>.log goes (default: in the cache)
  FOLIOSCOPE_KERNEL_TARBALL  the pinned source (default: linux-source-6.12's tarball)
  CROSS_COMPILE              compiler prefix (default aarch64-linux-gnu-)

Exit status: 0 built or cached, 1 the build failed, 2 it could not be tried.
USAGE
}

# Bump when the same input would give another output.
readonly script_version=1
# Objects of a build of which no count is recorded.
readonly default_objects=1400
# Space that a build takes: so many times its packed source (Debian's, of 145 MiB, takes 3.7 GiB), or that of a tree.
readonly unpacked_times=28
readonly tree_need_mib=4096

granule='' base='' debug='' net='' config='' only_key='' check='' source_dir='' with='' out_dir='' incremental='' commit=''
work='' scratch='' mark='' job='' watcher='' log=''
started=$SECONDS

# say TEXT: one line of progress, which the next one overwrites on a terminal.
say() {
	if [ -t 2 ]; then
		printf '\r\033[K%s' "kernel ${granule:-?}: $1" >&2
	else
		printf '%s\n' "kernel ${granule:-?}: $1" >&2
	fi
}

# note TEXT: a line that stays.
note() {
	[ -t 2 ] && printf '\r\033[K' >&2
	printf '%s\n' "kernel ${granule:-?}: $1" >&2
}

# die STATUS TEXT
die() {
	note "$2"
	exit "$1"
}

elapsed() {
	local s=$((SECONDS - started))
	printf '%02d:%02d' $((s / 60)) $((s % 60))
}

# shellcheck disable=SC2317 # called by the traps
cleanup() {
	local status=$?
	# Once only: a second signal would end us before our children.
	trap - EXIT
	trap '' INT TERM HUP
	local group
	for group in $watcher $job; do
		# The whole group: make alone would leave its compilers behind.
		kill -- "-$group" 2>/dev/null || true
		wait "$group" 2>/dev/null || true
	done
	# make takes away what it has begun.
	[ -z "$mark" ] || rm -f "$mark"
	if [ -n "$scratch" ]; then
		rm -rf "$scratch"
	fi
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

while [ $# -gt 0 ]; do
	case $1 in
	--granule | --base | --source | --with | --config | --out | --incremental | --commit)
		[ $# -ge 2 ] || die 2 "$1 wants a value (--help shows how)"
		case $1 in
		--base) base=$2 ;;
		--granule) granule=$2 ;;
		--source) source_dir=$2 ;;
		--with) with=$2 ;;
		--config) config=$2 ;;
		--out) out_dir=$2 ;;
		--incremental) incremental=$2 ;;
		--commit) commit=$2 ;;
		esac
		shift 2
		;;
	--debug)
		debug=yes
		shift
		;;
	--net)
		net=yes
		shift
		;;
	--key)
		only_key=yes
		shift
		;;
	--check-source)
		[ $# -ge 2 ] || die 2 "$1 wants a value (--help shows how)"
		check=$2
		shift 2
		;;
	-h | --help)
		usage
		exit 0
		;;
	*) die 2 "unknown argument '$1' (--help shows how)" ;;
	esac
done
# check_source: refuses a $source_dir that cannot be built out of place.
check_source() {
	if [ ! -f "$source_dir/Makefile" ] || [ ! -d "$source_dir/arch/arm64" ]; then
		die 2 "--source $source_dir is no Linux tree: it lacks Makefile or arch/arm64"
	fi
	source_dir=$(cd "$source_dir" && pwd)
	if [ -e "$source_dir/.config" ] || [ -d "$source_dir/include/config" ] ||
		[ -d "$source_dir/arch/arm64/include/generated" ]; then
		die 2 "$source_dir was built in place, and such a tree cannot be built out of place: run 'make mrproper' there (keep its .config elsewhere) or pass a clean checkout"
	fi
}

if [ -n "$check" ]; then
	source_dir=$check
	check_source
	exit 0
fi
case $granule in
4k | 16k | 64k) ;;
*) die 2 "--granule must be 4k, 16k or 64k, not '$granule'" ;;
esac

# --- what is needed ----------------------------------------------------------

cross=${CROSS_COMPILE-aarch64-linux-gnu-}
if [ -z "${CROSS_COMPILE+set}" ] && [ "$(uname -m)" = aarch64 ] && ! command -v "${cross}gcc" >/dev/null; then
	cross=''
fi

missing=()
# want TOOL PACKAGE
want() {
	command -v "$1" >/dev/null || missing+=("$1 (Debian package $2)")
}
want "${cross}gcc" gcc-aarch64-linux-gnu
want "${cross}ld" binutils-aarch64-linux-gnu
want gcc gcc
want make make
want flex flex
want bison bison
want bc bc
want perl perl
want pahole dwarves
want patch patch
want xz xz-utils
want flock util-linux
if [ ${#missing[@]} -gt 0 ]; then
	printf -v list '%s, ' "${missing[@]}"
	die 2 "cannot build without ${list%, }"
fi

# The headers are asked for only before a real build: it takes a moment.
want_headers() {
	printf '#include <libelf.h>\n#include <zlib.h>\n' | gcc -E - >/dev/null 2>&1 ||
		die 2 "cannot build without the headers of libelf and zlib (Debian packages libelf-dev and zlib1g-dev)"
}

if [ -n "$incremental" ]; then
	[ -z "$source_dir$base$with$debug$net" ] || die 2 "--incremental builds a commit as it is: leave --source, --base, --with, --debug and --net out"
	[[ $commit =~ ^[0-9a-f]{40,}$ ]] || die 2 "--incremental wants --commit with a whole commit ID, not '$commit'"
	[ -d "$incremental/src/.git" ] || die 2 "--incremental $incremental has no git tree src"
	incremental=$(cd "$incremental" && pwd -P)
	source_dir=$incremental/src
elif [ -n "$source_dir" ]; then
	[ -z "$base" ] || die 2 "--source $source_dir is built as it stands: --base $base is for patches"
	check_source
else
	if [ -n "$base" ]; then
		use_base "$base" || die 2 "there are no patches for base '$base': expected a directory of that name with a file series in $here"
		[ -n "$tarball" ] || die 2 "--base $base wants its source: set FOLIOSCOPE_KERNEL_TARBALL to a tarball of it"
	fi
	[ -r "$tarball" ] ||
		die 2 "the source $tarball is missing: install Debian's linux-source-6.12, or set FOLIOSCOPE_KERNEL_TARBALL, or pass --source DIR"
fi

mkdir -p "$cache/kernels" "$cache/locks" "$cache/logs" 2>/dev/null ||
	die 2 "the cache $cache cannot be written: set FOLIOSCOPE_CACHE to a directory that can"
cache=$(cd "$cache" && pwd)

# --- the key -----------------------------------------------------------------

# A tree's hash: git's word for it where git knows the tree, else every file.
tree_hash() {
	local top
	export GIT_OPTIONAL_LOCKS=0
	if command -v git >/dev/null && top=$(git -C "$source_dir" rev-parse --show-toplevel 2>/dev/null) &&
		[ "$top" -ef "$source_dir" ] && git -C "$source_dir" rev-parse --verify -q HEAD >/dev/null 2>&1; then
		(
			cd "$source_dir"
			git rev-parse HEAD
			git diff --no-ext-diff --binary HEAD
			git ls-files -z --others --exclude-standard | sort -z | xargs -0 -r sha256sum
		) | hash_of
	else
		(
			cd "$source_dir"
			find . -path ./.git -prune -o -type l -printf '%p %l\n' -o -type f -printf '%p %m\n' | LC_ALL=C sort
			find . -path ./.git -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
		) | hash_of
	fi
}

patches=()
if [ -z "$source_dir" ]; then
	mapfile -t patches < <(series)
	if [ -n "$with" ]; then
		[ -r "$with/series" ] || die 2 "--with $with has no file series, which names its patches"
		with=$(cd "$with" && pwd)
		mapfile -t -O ${#patches[@]} patches < <(names_in "$with" | sed "s|^|$with/|")
	fi
	for p in ${patches[@]+"${patches[@]}"}; do
		[ -r "$(patch_file "$p")" ] || die 2 "series names $p, which is not there"
	done
elif [ -n "$with" ]; then
	die 2 "--source $source_dir is built as it stands: --with is for the pinned kernel"
fi

fragments=("$here/config/base.config" "$here/config/$granule.config")
[ -z "$debug" ] || fragments+=("$here/config/debug.config")
[ -z "$net" ] || fragments+=("$here/config/net.config")
if [ -n "$config" ]; then
	[ -r "$config" ] || die 2 "expected a fragment of a .config at $config (--config) and found no file that can be read"
	fragments+=("$config")
fi
newer=()
[ -z "$source_dir$base" ] || newer=("$here/config/newer.config")

source_hash() {
	if [ -n "$commit" ]; then
		# As of a clean tree at this commit.
		hash_of <<<"$commit"
	elif [ -n "$source_dir" ]; then tree_hash; else tarball_hash; fi
}

[ -n "$source_dir" ] && [ -z "$commit" ] && say "reading $source_dir"
source_id=$(source_hash)
key=$(
	{
		printf '%s\n' "$script_version" "$granule" "$source_id" "$cross"
		# A distribution's point update of a release makes no other kernel; Debian's cross compiler lags behind in these.
		"${cross}gcc" --version | head -1 | sed 's/+deb[0-9]*u[0-9]*)/)/'
		"${cross}ld" --version | head -1
		pahole --version
		cat "${fragments[@]}" ${newer[@]+"${newer[@]}"}
		for p in ${patches[@]+"${patches[@]}"}; do cat "$(patch_file "$p")"; done
	} | hash_of
)
key=${key:0:20}
dest=$cache/kernels/$granule-$key
if [ -n "$only_key" ]; then
	[ -t 2 ] && printf '\r\033[K' >&2
	printf '%s\n' "$dest"
	exit 0
fi

# deliver: copy where asked, and print the directory.
deliver() {
	local shown=$dest
	if [ -n "$out_dir" ]; then
		if ! mkdir -p "$out_dir" || ! cp -f "$dest"/* "$out_dir"/; then
			die 2 "could not copy the kernel to $out_dir"
		fi
		shown=$(cd "$out_dir" && pwd)
	fi
	[ -t 2 ] && printf '\r\033[K' >&2
	printf '%s\n' "$shown"
	exit 0
}

[ -f "$dest/Image" ] && deliver

# --- one builder per key -----------------------------------------------------

exec 9>"$cache/locks/$granule-$key"
if ! flock -n 9; then
	note "another build of the same kernel is running, waiting for it"
	flock 9
fi
[ -f "$dest/Image" ] && deliver
# Holding the lock, whatever lies here for this key was left by a killed build.
rm -rf "$cache/kernels/.$granule-$key".*

want_headers
need_mib=$tree_need_mib
[ -n "$source_dir" ] || need_mib=$((unpacked_times * $(stat -L -c %s "$tarball") / 1048576))
free_mib=$(df -Pm "$cache" | awk 'NR == 2 {print $4}')
[ "$free_mib" -ge "$need_mib" ] ||
	die 2 "a build takes $need_mib MiB for a while and $cache has $free_mib MiB free: make room or set FOLIOSCOPE_CACHE"

if [ -n "${FOLIOSCOPE_LOG_DIR:-}" ]; then
	log=$FOLIOSCOPE_LOG_DIR/kernel-$granule.log
else
	log=$cache/logs/kernel-$granule-$key.log
fi
if ! mkdir -p "$(dirname "$log")" || ! : >"$log"; then
	die 2 "the log $log cannot be written"
fi

scratch=$(mktemp -d "$cache/kernels/.$granule-$key.XXXXXX")
# As compilers see it, where kernels/ is a link to somewhere else: ccache would know none of its objects again.
scratch=$(cd "$scratch" && pwd -P)
work=${incremental:-$scratch}
out=$scratch/out
mkdir "$out"
estimate=$cache/objects-$granule

# fail TEXT: the build broke; say where, and tell a full disk from a broken source.
fail() {
	if grep -qs 'No space left on device' "$log"; then
		die 2 "the disk ran full ($cache): make room or set FOLIOSCOPE_CACHE (log: $log)"
	fi
	[ -t 2 ] && printf '\r\033[K' >&2
	grep -E -m 12 '(error:|fatal error|undefined reference|\*\*\* |^Error|FAILED)' "$log" >&2 || tail -5 "$log" >&2
	die 1 "$1 (log: $log)"
}

# --- the source --------------------------------------------------------------

if [ -n "$incremental" ]; then
	tree=$source_dir
	exec 8>"$work/lock"
	flock 8
	# A build that was killed may have left half an object.
	[ ! -e "$work/building" ] || rm -rf "$work/obj" "$work/warnings" "$tree/.git/index.lock"
	mark=$work/building
	: >"$mark"
	git -C "$tree" checkout --quiet --force --detach "$commit" 2>>"$log" || fail "could not check out $commit"
	if [ ! -f "$tree/Makefile" ] || [ ! -d "$tree/arch/arm64" ]; then
		fail "$commit is no Linux tree: it lacks Makefile or arch/arm64"
	fi
elif [ -n "$source_dir" ]; then
	tree=$source_dir
else
	say "unpacking $(basename "$tarball")"
	mkdir "$work/src"
	tree=$work/src
	tar -C "$tree" --strip-components=1 -xf "$tarball" 2>>"$log" || fail "could not unpack $tarball"
	release=$(make -s -C "$tree" kernelversion 2>>"$log") || fail "the unpacked source has no version"
	[ "$release" = "$(tried)" ] || note "the patches were tried on $(tried), and this is $release"
	for p in ${patches[@]+"${patches[@]}"}; do
		printf 'applying %s\n' "$p" >>"$log"
		if ! apply_patch "$p" "$tree" >>"$log" 2>&1; then
			[ -t 2 ] && printf '\r\033[K' >&2
			rejects "$tree" >&2
			fail "$p does not apply to $release, see the rejected hunks above"
		fi
	done
fi

mkdir -p "$work/obj"
# Nothing of this machine or this minute in the result: the same key, the same
# bytes, with ccache (which makes paths relative) and without.
stamp=$(date -u -r "$tree/Makefile" '+%Y-%m-%d %H:%M:%S UTC')
prefix="-ffile-prefix-map=$tree/= -ffile-prefix-map=../src/= -fdebug-prefix-map=$work/obj=linux"
cc=${cross}gcc
if command -v ccache >/dev/null; then
	cc="ccache $cc"
	# Without CCACHE_DEPEND each miss is preprocessed twice, a fifth of a cold build.
	export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
fi
make_args=(-C "$tree" "O=$work/obj" ARCH=arm64 "CROSS_COMPILE=$cross" "CC=$cc" "HOSTCC=gcc"
	"KCFLAGS=$prefix" "KAFLAGS=$prefix" "KBUILD_BUILD_TIMESTAMP=$stamp"
	KBUILD_BUILD_USER=folioscope KBUILD_BUILD_HOST=folioscope KBUILD_BUILD_VERSION=1
	LOCALVERSION=)
# The environment must not change what is built.
unset KCONFIG_CONFIG KCONFIG_ALLCONFIG KBUILD_OUTPUT MAKEFLAGS MFLAGS MAKELEVEL LLVM W V C

# --- the configuration -------------------------------------------------------

say configuring
cat "${fragments[@]}" >"$scratch/fragments"
if [ -n "$config" ]; then
	# What --config sets takes the place of what the rig does.
	awk -F'[ =]' '{ name = /^# CONFIG_/ ? $2 : $1 } !/CONFIG_/ { next } { line[name] = $0 }
		END { for (name in line) print line[name] }' "$scratch/fragments" | sort >"$scratch/fragments.own"
	mv "$scratch/fragments.own" "$scratch/fragments"
fi
cat "$scratch/fragments" ${newer[@]+"${newer[@]}"} >"$scratch/wanted"
KCONFIG_ALLCONFIG=$scratch/wanted make "${make_args[@]}" allnoconfig >>"$log" 2>&1 || fail "could not configure"

# unset_options FILE: which of the options that FILE wants the configuration lacks.
unset_options() {
	grep -E '^CONFIG_[A-Z0-9_]*=[^n]' "$1" | grep -vxFf "$work/obj/.config" || true
}
lacking=$(unset_options "$scratch/fragments")
if [ -n "$lacking" ]; then
	printf 'not set:\n%s\n' "$lacking" >>"$log"
	names=$(tr '\n' ' ' <<<"$lacking" | sed 's/CONFIG_//g; s/=y / /g; s/ $//')
	[ -n "$source_dir$base" ] || fail "the pinned source should take these options and does not: $names"
	# A tree of the user's may be older or newer. Without these the rig has no guest.
	vital="ARM64_${granule^^}_PAGES BINFMT_ELF BLK_DEV_INITRD RD_GZIP VIRTIO_CONSOLE PROC_FS TRANSPARENT_HUGEPAGE"
	for v in $vital; do
		! grep -qx "CONFIG_$v=y" <<<"$lacking" || fail "this tree cannot have CONFIG_$v, and the rig needs it"
	done
	note "this tree lacks options of the rig, carrying on without: $names"
fi

# --- the build ---------------------------------------------------------------

expected=$default_objects
[ -s "$estimate" ] && read -r expected <"$estimate"
count() {
	grep -cE '^  (CC|AS|HOSTCC|AR) ' "$log" || true
}
# shown PID: says how far its build is, until it ends or we do.
shown() {
	local next=$SECONDS done_now
	while kill -0 "$1" 2>/dev/null && kill -0 $$ 2>/dev/null; do
		if [ "$SECONDS" -ge "$next" ]; then
			[ -t 2 ] || next=$((SECONDS + 30))
			done_now=$(count)
			if grep -qE '^  (LD|BTF) .*vmlinux' <(tail -20 "$log"); then
				say "linking, $(elapsed) elapsed"
			else
				[ "$done_now" -le "$expected" ] || expected=$done_now
				say "compiling $done_now of about $expected objects, $(elapsed) elapsed"
			fi
		fi
		sleep 1
	done
}
# Each in a group of its own: a child of a script would ignore Ctrl-C. What is shown is another process's: bash drops a
# Ctrl-C that comes while it waits for a short program, but not in `wait`.
# make, which ends its compilers, gets a signal if this script is killed by SIGKILL.
with_us=()
! setpriv --pdeathsig TERM true 2>/dev/null || with_us=(setpriv --pdeathsig TERM)
set -m
"${with_us[@]}" make "${make_args[@]}" -j"$(nproc)" Image >>"$log" 2>&1 </dev/null 8>&- 9>&- &
job=$!
shown "$job" </dev/null 8>&- 9>&- &
watcher=$!
set +m
status=0
wait "$job" || status=$?
job=''
kill -- "-$watcher" 2>/dev/null || true
wait "$watcher" || true
watcher=''
[ "$status" -eq 0 ] || fail "the build failed"

for f in arch/arm64/boot/Image vmlinux .config include/config/kernel.release; do
	[ -s "$work/obj/$f" ] || fail "the build left no $f"
done
# What is not of a commit alone is left where it is.
take='mv'
[ -z "$incremental" ] || take='cp'
if ! {
	mv "$work/obj/arch/arm64/boot/Image" "$work/obj/vmlinux" "$out/" &&
		"$take" "$work/obj/.config" "$out/config" &&
		"$take" "$work/obj/include/config/kernel.release" "$out/release"
} 2>>"$log"; then
	fail "could not keep the result"
fi
if [ -n "$incremental" ]; then
	# Warnings of files that were not compiled again are as they were; without lines, which patches move.
	touch "$work/warnings"
	awk -v tree="$tree/" '
		FILENAME == ARGV[2] { file = $0; sub(/: warning: .*/, "", file); if (!(file in compiled)) print; next }
		$1 == "CC" && NF == 2 { compiled[substr($2, 1, length($2) - 1) "c"] = 1 }
		/^[^ ]+\.[chS]:[0-9]+(:[0-9]+)?: warning: / {
			sub(/:[0-9]+(:[0-9]+)?: warning: /, ": warning: ")
			if (index($0, tree) == 1) $0 = substr($0, length(tree) + 1)
			sub(/^\.\.\/src\//, "")
			print
		}' "$log" "$work/warnings" | sort -u >"$out/warnings"
	cp "$out/warnings" "$work/warnings"
fi
if [ -n "$source_dir" ] && [ "$(source_hash)" != "$source_id" ]; then
	die 1 "$source_dir changed while it was being built: run it again"
fi
chmod -R a-w,a+rX "$out"
chmod u+w "$out"
if [ -z "$incremental" ]; then count >"$estimate.$$" && mv "$estimate.$$" "$estimate"; fi
mv -T "$out" "$dest" || fail "could not keep the result"
note "built $(cat "$dest/release") in $(elapsed)"
deliver
