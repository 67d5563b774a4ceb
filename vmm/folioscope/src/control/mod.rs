// SPDX-License-Identifier: GPL-2.0-only
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
//! The first line has the version of this protocol ([`VERSION`]). Every request ([`Request`]) has one answer
//! ([`Answer`]), in the order of the requests. `folioscope schema session` prints the schema of all of them.
//!
//! A socket has room for several clients at once. Each waits for its own answers alone, and one that does not read them
//! delays no other. A client beyond the limit gets an error in the first line (`{"error": ...}`). Processes that a
//! client holds run on when it closes.
//!
//! No client can end the guest. A request that makes no sense is answered with `bad_request`. All that a client can
//! make grow has a limit, which the answer names: a request's line, an answer, the words, addresses and pages of one
//! request.

mod answer;
mod clients;
mod execute;
mod failure;
mod keep;
mod kernel_answers;
mod limits;
mod line;
mod listen;
mod looks;
mod methods;
mod parameters;
mod request;
mod results;
mod structures;
mod translate;
mod word;

pub use answer::{Answer, Greeting, Ready};
pub use clients::{json, serve, Server};
pub use failure::{Failure, Kind};
pub use keep::{bundle, keep};
pub use limits::{LONGEST_ANSWER, VERSION};
pub use listen::listen;
pub use methods::Call;
pub use request::Request;
pub use results::Full;
pub use word::Word;

/// The lines of a session, for its schema.
#[derive(schemars::JsonSchema)]
#[schemars(title = "Session")]
#[allow(dead_code)] // never made: its parts are
struct Session {
    /// The first line.
    greeting: Greeting,
    /// A line from the client.
    request: Request,
    /// The line that answers it.
    answer: Answer,
}

/// Returns the JSON schema of a session: `greeting`, `request` and `answer` are its lines.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Session).to_value()
}
