#!/bin/sh
# Run by Buildroot with the target directory before the image is made: checks that the agent is the
# init, and makes the directories that it mounts on. The device nodes that rootfs/pack.sh adds are
# left to devtmpfs here; /dev/console is made by Buildroot itself.
set -eu

target=$1
if [ ! -x "$target/init" ]; then
	echo "post-build.sh: $target/init is missing: select BR2_PACKAGE_FOLIOSCOPE_AGENT" >&2
	exit 1
fi
for dir in dev proc sys run tmp mnt root; do
	# Buildroot's skeleton has links in some of these places, such as /var/run.
	[ -e "$target/$dir" ] || mkdir "$target/$dir"
done
