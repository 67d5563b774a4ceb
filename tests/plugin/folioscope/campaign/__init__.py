# SPDX-License-Identifier: GPL-2.0-only
"""Campaigns: many cells (a kernel, a machine, a test), each judged on its own, here or on many machines."""
