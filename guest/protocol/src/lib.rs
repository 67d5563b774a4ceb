//! The protocol between the host and the guest's agent.
//!
//! It is one JSON object per line, in both directions, over a byte channel: the virtio serial port [`PORT_NAME`] or, on
//! a kernel without virtio, the second UART. The host sends [`Request`]s. The guest sends [`Message`]s: one [`Hello`]
//! as soon as it is ready, one [`Reply`] per request (not always in the order of the requests), and unsolicited
//! [`Event`]s.
//!
//! An alternative is an object with one key, its name, also if it has no content: `{"ping":{}}`,
//! `{"touch":{"address":65536,"length":4096}}`. Plain names (a protection, a flag, an advice, the orders `forward` and
//! `backward`, a process's state) are strings. A field with its default value may be left out of a request; an unknown
//! field is an error. Addresses, lengths and nonces are whole JSON numbers of up to 64 bits: use a reader that does not
//! turn them into floating point. Names are stable within one [`PROTOCOL_VERSION`].
//!
//! A request that the guest cannot parse is answered with [`Failure::BadRequest`], with the request's id if that could
//! be read. It never ends the connection.
//!
//! There are two rules for a host. It begins a connection with an empty line, which is skipped, so that a partial line
//! of an earlier host does not spoil its first request. And it reads while it writes: QEMU stops the whole machine
//! while a UART's bytes are not taken, at some 300 bytes.

pub mod carrier;

mod build_id;
mod codec;
mod command;
mod content;
mod failure;
mod getters;
mod hello;
mod kinds;
mod message;
mod operation;
mod order;
mod outcome;
mod pattern;

pub use build_id::BuildId;
pub use codec::{encode, LineDecoder, LineError, TooLong, MAX_LINE};
pub use command::{Command, ProcessId, EROFS_FILE, MAX_PAGEMAP_PAGES, MAX_READ};
pub use content::{Content, ContentError};
pub use failure::{Ended, Failure};
pub use getters::{
    category, pagemap, Getters, Packed, PageRun, SizeCounted, ENOUGH_RUNS, MAX_GETTER_PAGES,
};
pub use hello::{Channel, Hello, HugetlbSize, MthpSize, VersionMismatch};
pub use kinds::{
    Access, Advice, Backing, Expect, LockFlag, MapFlag, MoveFlag, Placement, Protection, UffdMode,
};
pub use message::{
    read_message, read_request, Event, Message, Reply, Request, UnreadRequest, DEFAULT_DEADLINE_MS,
};
pub use operation::Operation;
pub use order::Order;
pub use outcome::{
    Answer, Checkpoint, FileRead, Mirrored, MirroredPage, Mismatch, Outcome, ProcessInfo,
    ProcessState, ProgramEnd, Spawned, StalePage, Touched, Verified,
};
pub use pattern::pattern;

/// The version of everything in this crate. Both sides must have the same: there is one host and one guest image per
/// build, so nothing is ever negotiated.
pub const PROTOCOL_VERSION: u32 = 1;

/// The name of the virtio serial port that the agent listens on.
pub const PORT_NAME: &str = "org.folioscope.agent.0";

/// The `compatible` of the doorbell's node in the device tree: a page of the machine's own, to which a waiting workload
/// stores its nonce.
pub const DOORBELL_COMPATIBLE: &str = "folioscope,doorbell";
