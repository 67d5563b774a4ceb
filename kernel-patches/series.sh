#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the series patch by patch in one tree, and plays the tour on each kernel: every patch has to stand alone.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	cat <<'USAGE'
usage: series.sh [--granule 4k|16k|64k] [--from N] [--to N] [--topics] [--off] [--again] COMMAND
       series.sh [--granule 4k|16k|64k] [--from N] [--to N] [--topics] --list

Builds the pinned source with the first 0, 1, 2, ... patches of series, and
prints a line for each: what the tour found there, how much of what it mapped
was contiguous, and what a fault costs. COMMAND is folioscope. A kernel that was
built is kept by content, and so is its line where that has no error: what is
interrupted goes on where it stopped, and a changed patch costs the kernels from
there on. With --again every kernel is tried once more. With --topics only the
end of each topic is built. With --off the whole series is built once more
without each option that it adds. With --list nothing is built: a line for each
has how many patches, the last one's name, and its Image, or - where that is not
built.

Exit status: 0 every kernel builds and shows no error, 1 one does not, 2 it could not be tried.
USAGE
}

die() {
	printf 'series: %s\n' "$2" >&2
	exit "$1"
}
say() { printf 'series: %s\n' "$1" >&2; }

granule=4k from=0 to='' topics='' off='' again='' list='' command=''
while [ $# -gt 0 ]; do
	case $1 in
	--granule | --from | --to)
		[ $# -ge 2 ] || die 2 "$1 wants a value (--help shows how)"
		case $1 in
		--granule) granule=$2 ;;
		--from) from=$2 ;;
		--to) to=$2 ;;
		esac
		shift
		;;
	--topics) topics=yes ;;
	--off) off=yes ;;
	--again) again=yes ;;
	--list) list=yes ;;
	-h | --help)
		usage
		exit 0
		;;
	-*) die 2 "unknown argument '$1' (--help shows how)" ;;
	*) command=$1 ;;
	esac
	shift
done
case $granule in
4k | 16k | 64k) ;;
*) die 2 "--granule must be 4k, 16k or 64k, not '$granule'" ;;
esac
if [ -z "$list" ]; then
	[ -x "$command" ] || die 2 "expected the folioscope command and found '$command', which cannot be run (--help shows how)"
	command=$(realpath "$command")
fi
mapfile -t patches < <(series)
to=${to:-${#patches[@]}}
if ! [[ $from =~ ^[0-9]+$ && $to =~ ^[0-9]+$ ]] || ((from > to || to > ${#patches[@]})); then
	die 2 "expected --from and --to in 0..${#patches[@]}, in this order, and found $from and $to"
fi
[ -r "$tarball" ] || die 2 "the pinned source $tarball is missing: install Debian's linux-source-6.12"
cross=${CROSS_COMPILE-aarch64-linux-gnu-}
command -v "${cross}gcc" >/dev/null || die 2 "cannot build without ${cross}gcc"

# ends_topic N: whether the first N patches are whole topics.
ends_topic() {
	awk -v number="$1" '/^# Topic / {if (seen == number) found = 1; next} !/^#/ && NF {seen++}
		END {exit !(found || seen == number)}' "$here/series"
}

place=$cache/series/$granule
source_id=$(tarball_hash)
# key N [OPTION]: of all that the kernel with the first N is made of.
key() {
	{
		printf '%s\n' "$source_id" "$granule" "${2-}"
		"${cross}gcc" --version | head -1
		cat "$here/config/base.config" "$here/config/$granule.config"
		local number
		for ((number = 0; number < $1; number++)); do cat "$(patch_file "${patches[number]}")"; done
	} | hash_of | cut -c1-20
}
# name N: of the last of the first N patches.
name() {
	if (($1 == 0)); then echo base; else echo "${patches[$1 - 1]%.patch}"; fi
}
if [ -n "$list" ]; then
	for ((number = from; number <= to; number++)); do
		if [ -n "$topics" ] && ! ends_topic "$number"; then continue; fi
		image=$place/images/$(key "$number")
		[ -f "$image" ] || image=-
		printf '%d\t%s\t%s\n' "$number" "$(name "$number")" "$image"
	done
	exit 0
fi

# --- one tree, one user -------------------------------------------------------

mkdir -p "$place/images" "$place/rows" "$place/applied"
exec 9>"$place/lock"
flock -n 9 || die 2 "another series.sh works in $place: wait for it"
log=$place/log
: >"$log"
scratch=$(mktemp -d "$place/.XXXXXX")
job=''
# shellcheck disable=SC2317 # called by the traps
cleanup() {
	trap - EXIT INT TERM HUP
	# The whole group: make alone would leave its compilers behind.
	[ -z "$job" ] || kill -- "-$job" 2>/dev/null || true
	rm -rf "$scratch"
}
trap cleanup EXIT
trap 'cleanup; exit 130' INT
trap 'cleanup; exit 143' TERM HUP

# run COMMAND...: in a group of its own, so that it ends with us.
run() {
	local status=0
	set -m
	"$@" >>"$log" 2>&1 </dev/null 9>&- &
	job=$!
	set +m
	wait "$job" || status=$?
	job=''
	return "$status"
}

# The source as the tarball has it; marked last, so that half of it is never taken for the whole. A patch that was cut short
# has left a tree of which nothing is known.
if [ -e "$place/moving" ] || [ "$(cat "$place/source" 2>/dev/null)" != "$source_id" ]; then
	say "unpacking $(basename "$tarball")"
	rm -rf "$place/src" "$place/obj" "$place/applied" "$place/source" "$place/moving"
	mkdir -p "$place/src" "$place/obj" "$place/applied"
	run tar -C "$place/src" --strip-components=1 -xf "$tarball" || die 2 "could not unpack $tarball (log: $log)"
	printf '%s\n' "$source_id" >"$place/source"
fi

# move_to N: the tree has the first N patches: those of now. Only what differs is touched, which is all that is built again.
move_to() {
	local have=0 number
	: >"$place/moving"
	while [ -e "$place/applied/$((have + 1))" ]; do have=$((have + 1)); done
	for ((number = have; number > 0; number--)); do
		if ((number <= $1)) && same "$number"; then break; fi
		patch -d "$place/src" -p1 -R --batch --no-backup-if-mismatch <"$place/applied/$number" >>"$log"
		rm "$place/applied/$number"
	done
	while ((number < $1)); do
		number=$((number + 1))
		apply_patch "${patches[number - 1]}" "$place/src" >>"$log" 2>&1 ||
			{
				rejects "$place/src" >&2
				die 1 "${patches[number - 1]} does not apply, see the rejected hunks above"
			}
		cp "$(patch_file "${patches[number - 1]}")" "$place/applied/$number"
	done
	rm "$place/moving"
}
# same N: whether the first N of the tree are those of now.
same() {
	local number
	for ((number = 1; number <= $1; number++)); do
		cmp -s "$place/applied/$number" "$(patch_file "${patches[number - 1]}")" || return 1
	done
}

# image N [OPTION]: builds it, or finds it; without OPTION where one is given. Sets $image.
image() {
	image=$place/images/$(key "$@")
	[ ! -f "$image" ] || return 0
	move_to "$1"
	cat "$here/config/base.config" "$here/config/$granule.config" >"$scratch/fragments"
	[ -z "${2-}" ] || printf '# CONFIG_%s is not set\n' "$2" >>"$scratch/fragments"
	local cc=${cross}gcc
	if command -v ccache >/dev/null; then
		cc="ccache $cc"
		export CCACHE_BASEDIR=$place CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
	fi
	unset MAKEFLAGS MFLAGS MAKELEVEL KBUILD_OUTPUT
	local arguments=(-C "$place/src" "O=$place/obj" ARCH=arm64 "CROSS_COMPILE=$cross" "CC=$cc" KBUILD_BUILD_VERSION=1)
	# Options that a part of the series does not have yet are none of its faults.
	KCONFIG_ALLCONFIG=$scratch/fragments run make "${arguments[@]}" allnoconfig || return 1
	run make "${arguments[@]}" -j"$(nproc)" Image || return 1
	cp "$place/obj/arch/arm64/boot/Image" "$image.$$"
	mv "$image.$$" "$image"
}

# --- the table ----------------------------------------------------------------

failures=0
# What a row is made by, besides its kernel: the command, the guest that it boots, what costs are counted with, and QEMU.
maker=$({
	cat "$command" "$here"/tests/{costs.sh,guest.sh,init.c} "$here/series.sh"
	[ ! -f out/initramfs.cpio ] || cat out/initramfs.cpio
	qemu-system-aarch64 --version
} | hash_of | cut -c1-20)
# column POLICY: instructions per page and faults, of the second round: the first one sets up what later ones find.
column() {
	awk -v policy="$1," '$2 == policy && $4 == "0:" {cost = $5; faults = $9}
		END {if (cost) printf "%6d %6d", cost, faults; else printf "%6s %6s", "-", "-"}' "$scratch/costs"
}
# row NAME N [OPTION]
row() {
	local started=$SECONDS found='does not build' pages='-' status=0 kept
	kept=$place/rows/$(key "${@:2}")-$maker
	if [ -z "$again" ] && [ -s "$kept" ]; then
		say "$1: as it was found before (--again tries it once more)"
		cat "$kept"
		return
	fi
	: >"$scratch/costs"
	say "$1"
	if image "${@:2}"; then
		"$command" run --kernel "$image" --json "$scratch/report.json" --out "$scratch/guests" >"$scratch/said" 2>&1 </dev/null 9>&- || status=$?
		found=$(sed -n 's/^[0-9]* checkpoints, [0-9]* entries: //p' "$scratch/said")
		pages=$(grep -o '"contiguous_pages":[ ]*[0-9]*\|"pages":[ ]*[0-9]*' "$scratch/report.json" |
			awk -F: '/contiguous/ {some += $2; next} {all += $2} END {if (all) printf "%.1f %%", 100 * some / all}') || true
		"$here/tests/costs.sh" "$image" >"$scratch/costs" 2>>"$log" 9>&- || status=3
	else
		tail -5 "$log" >&2
		status=3
	fi
	if [ "$status" -ne 0 ]; then
		failures=$((failures + 1))
		found="${found:-no verdict} (status $status)"
		cat "$scratch/said" >>"$log" 2>/dev/null || true
	fi
	printf '%-56.56s %7s  %s  %s  %4ds  %s\n' "$1" "$pages" "$(column sysfs)" "$(column variable)" "$((SECONDS - started))" "$found" |
		tee "$scratch/row"
	[ "$status" -ne 0 ] || mv "$scratch/row" "$kept"
}
printf '%-56s %7s  %13s  %13s  %5s  %s\n' "first patches, $granule" contig. 'sysfs' 'variable' time tour
printf '%-56s %7s  %6s %6s  %6s %6s\n' '' pages instr. faults instr. faults
for ((number = from; number <= to; number++)); do
	if [ -n "$topics" ] && ! ends_topic "$number"; then continue; fi
	row "$(name "$number")" "$number"
done
if [ -n "$off" ]; then
	mapfile -t options < <(cd "$here" && sed -n 's/^+config \([A-Z0-9_]*\)$/\1/p' "${patches[@]}")
	[ ${#options[@]} -gt 0 ] || die 1 'the series adds no option'
	for option in "${options[@]}"; do row "all, without $option" "${#patches[@]}" "$option"; done
fi
printf 'instr.: of a page, writing 16 MiB page by page once; faults: for all of them (QEMU -icount shift=0)\n'
[ "$failures" -eq 0 ] || die 1 "$failures of these kernels did not build or showed an error (log: $log)"
