// SPDX-License-Identifier: GPL-2.0-only
//! Requests of a client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use super::methods::{Call, METHODS};

/// Default deadline of a request.
const DEADLINE_MS: u64 = 20_000;

/// Maximum deadline of a request, in milliseconds: a day. Nothing else is served meanwhile.
const MOST_DEADLINE_MS: u64 = 24 * 60 * 60 * 1000;

/// Bytes of a request's own text that its refusal shows.
const SHOWN: usize = 400;

/// A line from a client.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Request {
    /// Comes back in the answer; the client's to choose.
    pub id: u64,
    /// After how many milliseconds the guest gives up; 20000 when left out, a day at most.
    #[schemars(default = "deadline_ms")]
    pub deadline_ms: u64,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
}

fn deadline_ms() -> u64 {
    DEADLINE_MS
}

/// A line that is no request.
#[derive(Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its id, where one could be read.
    pub id: Option<u64>,
    /// The error in it.
    pub why: String,
}

impl Request {
    /// Parses a line.
    ///
    /// # Errors
    /// If it is no request; the error has its id if that could be read.
    pub fn read(line: &str) -> Result<Self, Unread> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Line {
            id: u64,
            method: String,
            #[serde(default = "deadline_ms")]
            deadline_ms: u64,
            #[serde(default)]
            params: Option<Value>,
        }
        let Line {
            id,
            method,
            deadline_ms,
            params,
        } = serde_json::from_str(line).map_err(|error| Unread {
            id: None,
            why: shown(format!(
                "expected a request as one JSON object and found {error}"
            )),
        })?;
        if deadline_ms > MOST_DEADLINE_MS {
            return Err(Unread {
                id: Some(id),
                why: format!(
                    "expected a deadline_ms of at most {MOST_DEADLINE_MS} (a day) and found {deadline_ms}"
                ),
            });
        }
        let params = params.unwrap_or_else(|| json!({}));
        let call = Call::deserialize(json!({"method": method, "params": params}));
        let call = call.map_err(|error| Unread {
            id: Some(id),
            why: shown(match METHODS.contains(&method.as_str()) {
                true => format!("the parameters of {method} make no sense: {error}"),
                false => format!("there is no method {method:?} in this session"),
            }),
        })?;
        Ok(Self {
            id,
            deadline_ms,
            call,
        })
    }
}

/// Returns a sentence with text of the client's in it, no longer than is good to read.
fn shown(mut text: String) -> String {
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests;
