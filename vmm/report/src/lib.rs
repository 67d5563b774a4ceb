// SPDX-License-Identifier: GPL-2.0-only
//! Writes verdicts and answers: findings as text, JUnit, KTAP and an HTML page, memory as a map, entries as rows, and the
//! answers of `ps`, `maps`, `page` and `kernel`.
//!
//! Nothing is judged here: what is written is [`verdict::Report`], [`verdict::ProcessVerdict`], or an answer whose type is in
//! the module that writes it.

pub mod crossing;
pub mod dump;
pub mod format;
pub mod formats;
pub mod frames;
pub mod html;
pub mod json;
pub mod junit;
pub mod kernel_map;
pub mod ktap;
pub mod listing;
pub mod map;
pub mod text;

#[cfg(test)]
mod tests;
