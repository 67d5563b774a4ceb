#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs a campaign (the cells of a matrix, the patches of a series, or a bisect) on this machine or by a Dask scheduler.
# What it boots has to be built.
# Usage: campaign.sh matrix FILE.toml [--store PLACE] [--engine local|dask=ADDRESS] [--jobs N] [--out DIR] [--dry-run]
#        campaign.sh series RANGE|MBOX|MAILDIR --tree DIR [--base REV] ...   (--help says more)
#        campaign.sh bisect GOOD BAD --tree DIR --when EXPR|FILE.py ...
#        campaign.sh reply STORE [--series KEY]
#        campaign.sh schema bisect|matrix|result|series|table
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

child "$ROOT/vmm/setup/python.sh" >"$LOGS/python.path"
PYTHONPATH=$ROOT/tests/plugin${PYTHONPATH:+:$PYTHONPATH} exec "$(cat "$LOGS/python.path")" -m folioscope.campaign "$@"
