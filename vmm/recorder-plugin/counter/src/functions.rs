// SPDX-License-Identifier: GPL-2.0-only
//! The functions of the kernel to count, by their addresses: a list with a name and an address in each line.

use std::collections::HashMap;
use std::fmt;

/// A list of functions that cannot be counted by.
#[derive(Debug, PartialEq, Eq)]
pub struct BadList(String);

impl fmt::Display for BadList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Functions by the address of their first instruction, in the order of the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Functions {
    names: Vec<String>,
    by_address: HashMap<u64, usize>,
}

impl Functions {
    /// Most functions of a list.
    pub const MOST: usize = 64;

    /// Reads a list.
    ///
    /// # Errors
    ///
    /// If a line is no name and address (hexadecimal, of the kernel half), or there are more lines than [`Self::MOST`].
    pub fn parse(text: &str) -> Result<Self, BadList> {
        let mut found = Self::default();
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            let parsed = match (words.next(), words.next(), words.next()) {
                (Some(name), Some(address), None) => {
                    u64::from_str_radix(address.strip_prefix("0x").unwrap_or(address), 16)
                        .ok()
                        .filter(|address| {
                            let plain = name
                                .bytes()
                                .all(|it| it.is_ascii_alphanumeric() || b"_.".contains(&it));
                            plain && address >> 55 & 1 != 0
                        })
                        .map(|address| (name, address))
                }
                _ => None,
            };
            let Some((name, address)) = parsed else {
                return Err(BadList(format!(
                    "expected a function's name and its address in line {} and found {line:?}",
                    at + 1
                )));
            };
            if found.names.len() == Self::MOST {
                return Err(BadList(format!(
                    "expected {} functions or fewer and found more",
                    Self::MOST
                )));
            }
            found.by_address.insert(address, found.names.len());
            found.names.push(name.to_owned());
        }
        Ok(found)
    }

    /// Returns the place in the list of the function that begins at an address.
    pub fn at(&self, address: u64) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// Returns all names, in the order of the list.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}
