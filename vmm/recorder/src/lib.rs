// SPDX-License-Identifier: GPL-2.0-only
//! Judges *sequences*: the actions of CPUs on live page tables between one store and the next.
//!
//! A snapshot shows states; break-before-make is about the transitions between them. The input is events (stores to
//! table pages, TLB maintenance, barriers, writes of translation registers), and the output is findings. The crate
//! knows no machine: events come from a plugin, a trace file or a test alike.
//!
//! The order is [`Event`] -> [`Tracker`] (which pages are tables, which CPU could cache their words) -> [`Judge`]
//! (rules S1 to S7) -> [`Finding`]. [`Recorder`] runs beside a machine: it writes a trace with exactly the events that
//! the judge needs.
//!
//! A verdict is never a guess. An event whose state was lost is counted in [`NotJudged`] and gives no finding.

pub mod casemate;
mod chains;
mod cover;
mod cut;
mod event;
mod finding;
mod folio;
mod follow;
mod given;
mod goes_on;
mod history;
mod instruction;
mod judge;
mod limbo;
mod limbo_table;
mod make;
mod moment;
mod record;
mod reuse;
mod shadow;
mod space;
mod spaces;
mod stale;
mod stored;
pub mod trace;
mod tracker;
mod unlinked;

pub use chains::Done;
pub use cover::{Cover, Scope};
pub use cut::{Concerns, Cut};
pub use event::{Barrier, Domain, Event, Register, Types, What};
pub use finding::{Block, Finding, Findings, NotJudged, Rule, Scene};
pub use folio::{Folio, FolioKind, PageLayout};
pub use follow::{Followed, Now, Sequence};
pub use instruction::Instruction;
pub use judge::{Judge, Summary};
pub use moment::{Did, Moment};
pub use record::{ReadTable, Recorder};
pub use stored::Stored;
pub use tracker::{Limits, Tracker};
