#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Wraps rustc for our own crates. cargo puts the name of the wrapper, which no other checkout has, into the keys of its
# artefacts. Otherwise cargo takes the crates of two checkouts with one target directory for the same, and by the times
# of its files an older checkout would get the newer one's programs.
# By bash: other shells drop variables that they could not name, such as CARGO_BIN_EXE_folioscope-agent.
exec "$@"
