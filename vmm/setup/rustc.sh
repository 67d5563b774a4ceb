#!/usr/bin/env bash
# What cargo runs for our own crates in place of rustc: the same. The name of it, which no other checkout has, is in the
# name of what cargo keeps. To cargo the crates of two checkouts that share a directory of builds are one, and by the
# times of its files an older checkout would get the newer one's programs.
# By bash: other shells drop variables that they could not name, as CARGO_BIN_EXE_folioscope-agent.
exec "$@"
