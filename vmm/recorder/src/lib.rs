//! Judges *sequences*: what CPUs do to live page tables between one store and the next.
//!
//! A snapshot shows states; break-before-make is about the way from one to another. Events go in (stores to table pages,
//! TLB maintenance, barriers, writes of translation registers), findings come out. Nothing here knows a machine: events
//! come from a plugin, a trace file or a test alike.
//!
//! The order of things is [`Event`] -> [`Tracker`] (which pages are tables, which CPU could cache what) -> [`Judge`]
//! (rules S1 to S7) -> [`Finding`]. [`Recorder`] is what runs beside a machine: it writes a trace that holds all
//! that the judge needs, and no more.
//!
//! A verdict is never a guess: what lost track is counted in [`NotJudged`] and says nothing.

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
