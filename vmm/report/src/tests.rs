// SPDX-License-Identifier: GPL-2.0-only
//! Maps, rows and reports of made-up processes.

mod growth;
mod noise;
mod reports;
mod writers;
