// SPDX-License-Identifier: GPL-2.0-only
//! Words and addresses in requests.

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A 64-bit word or address as a client writes it: `"0x1f"`, because numbers of JSON lose bits above 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let word = crate::options::parse_address(&text);
        word.map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Word {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^(0x)?[0-9a-fA-F_]{1,20}$",
            "description": "A 64-bit word or address, in hexadecimal.",
        })
    }
}
