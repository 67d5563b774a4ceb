# SPDX-License-Identifier: GPL-2.0-only
"""The laboratory: experiments on how orders are chosen, measured from outside, each beside the figures that it repeats.

``python -m folioscope.lab`` runs them; :func:`folioscope.lab.bench.measure` is one experiment, for a program.
"""
