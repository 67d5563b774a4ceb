// SPDX-License-Identifier: GPL-2.0-only
//! The parts of the `folioscope` command: it boots a guest, drives workloads in it, captures and judges.

pub mod boot;
pub mod commands;
pub mod confined;
pub mod console_reports;
pub mod control;
pub mod cross;
pub mod error;
pub mod guest;
pub mod hang;
pub mod holder;
pub mod inside;
pub mod kernel;
pub mod knob;
pub mod link;
pub mod look;
pub mod machines;
pub mod ops;
pub mod options;
mod paths;
pub mod patience;
pub mod picture;
pub mod program;
pub mod recorded;
pub mod replace;
pub mod report;
pub mod rows;
pub mod scratch;
pub mod signals;
pub mod source;
pub mod stage;
pub mod tour;
pub mod whole;

pub use error::{Error, EXIT_ERRORS, EXIT_NOT_JUDGED, EXIT_OK};
