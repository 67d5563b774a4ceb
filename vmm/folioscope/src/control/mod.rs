//! The session protocol: JSON lines, on standard input and output (`folioscope session`) or on a Unix socket
//! (`folioscope boot`).
//!
//! ```text
//! < {"ready": {"version": 1, "hello": {...}, "seconds": 0.8}}
//! > {"id": 1, "method": "look", "deadline_ms": 20000, "params": {"process": 1}}
//! < {"id": 1, "ok": {...}}
//! < {"id": 2, "error": {"kind": "errno", "message": "...", "guest": {"errno": {...}}, "lost": false}}
//! ```
//!
//! The first line says which version of this protocol is spoken ([`VERSION`]). Every request ([`Request`]) has one answer
//! ([`Answer`]), in the order in which they were asked. `folioscope schema session` prints the schema of all of them.
//!
//! A socket has room for several clients at once: each waits for its own answers alone, and one that does not read them
//! holds up nobody else. A client that comes when all places are taken is told so in the first line (`{"error": ...}`). What
//! a client has asked to be held is let go on when it goes away.
//!
//! No client can end the guest: what makes no sense is answered with `bad_request`, and all that a client can make grow has
//! a limit, which the answer names: a request's line, an answer, the words, addresses and pages of one request.

mod answer;
mod clients;
mod failure;
mod keep;
mod kernel_answers;
mod limits;
mod line;
mod listen;
mod looks;
mod obey;
mod request;
mod structures;
mod translate;
mod word;

pub use answer::{Answer, Full, Greeting, Ready};
pub use clients::{json, serve, Server};
pub use failure::{Failure, Kind};
pub use keep::{bundle, keep};
pub use limits::{LONGEST_ANSWER, VERSION};
pub use listen::listen;
pub use request::{Call, Request};
pub use word::Word;

/// What goes over a session, for its schema.
#[derive(schemars::JsonSchema)]
#[schemars(title = "Session")]
#[allow(dead_code)] // never made: its parts are
struct Session {
    /// The first line.
    greeting: Greeting,
    /// A line from whoever drives.
    request: Request,
    /// The line that answers it.
    answer: Answer,
}

/// The JSON schema of a session: `greeting`, `request` and `answer` are its lines.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Session).to_value()
}
