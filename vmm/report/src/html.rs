// SPDX-License-Identifier: GPL-2.0-only
//! A run as one self-contained HTML page: the verdict, and every address space to look into, checkpoint by checkpoint.
//!
//! The verdict says what was found; a picture needs every entry besides. [`Pages`] gathers the raw words of each
//! checkpoint while its copy of memory is there, packed and bounded; [`write()`] makes the page of them and of the report.
//! The page loads nothing: style, script and data are in it, and its own policy forbids it to load more.
//!
//! What is decoded is decoded here: the script only knows states by number, words by a base and a value. All text that
//! the guest had a hand in is escaped in the HTML ([`document`]) and in the data ([`data`]), and set as text by the script.

mod attributes;
mod data;
mod document;
mod folios;
mod format;
mod matrix;
mod pack;
mod timeline;
mod words;

#[cfg(test)]
mod tests;

pub use document::write;
pub use folios::{Folio, Folios};
pub use format::FORMAT;
pub use words::Pages;
