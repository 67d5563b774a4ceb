// SPDX-License-Identifier: GPL-2.0-only
//! CPU features that the kernel uses: `arm64_features` and `system_cpucaps`, arch/arm64/kernel/cpufeature.c.

use serde::{Deserialize, Serialize};
use stage1::PhysMemory;

use crate::{Kernel, Object, StructureError, View};

/// A bit of the kernel's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bit {
    /// The byte's address (VA).
    pub address: u64,
    /// The bit in it.
    pub mask: u8,
}

/// More capabilities than any kernel has (7.3: 120).
const MOST: u64 = 1024;

/// The bit of `system_cpucaps` for the capability that the first of these functions that is there looks for: the
/// numbers of capabilities are macros, which no kernel's types have, but each is an entry of `arm64_features`.
///
/// The bit is set where every CPU has the capability and the kernel uses it, and does not change once it runs.
///
/// # Errors
/// Where the kernel has no such function, or no capability that it looks for.
pub fn bit<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
    matches: &[&str],
) -> Result<Bit, StructureError> {
    const ENTRY: &str = "arm64_cpu_capabilities";
    let found = matches.iter().find_map(|name| kernel.symbols.address(name));
    let names = || StructureError::Missing(format!("function {}", matches.join(" or ")));
    let wanted = found.ok_or_else(names)?;
    let entries = Object::variable(kernel, view, ENTRY, "arm64_features")?;
    let bits = kernel.variable("system_cpucaps")?;
    for nth in 0..MOST {
        let entry = entries.nth(nth)?;
        match entry.number("matches")? {
            0 => break,
            address if address == wanted => {
                let number = entry.number("capability")?;
                return Ok(Bit {
                    address: bits + number / 8,
                    mask: 1 << (number % 8),
                });
            }
            _ => (),
        }
    }
    let what = format!("entry of arm64_features for {}", matches.join(" or "));
    Err(StructureError::Missing(what))
}
