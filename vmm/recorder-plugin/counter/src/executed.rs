// SPDX-License-Identifier: GPL-2.0-only
//! The blocks of kernel code that the guest has executed: QEMU translates a block when it first comes to it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The blocks so far, and where they are written.
static BLOCKS: Mutex<Option<Blocks>> = Mutex::new(None);

/// Blocks of code, by first address and number of instructions.
#[derive(Debug)]
struct Blocks {
    seen: HashSet<(u64, usize)>,
    file: File,
}

/// Has blocks written to a file, each in a line when it is first translated: its address and its instructions.
///
/// # Errors
///
/// If the file cannot be written.
pub fn begin(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    let seen = HashSet::new();
    *BLOCKS.lock().unwrap_or_else(PoisonError::into_inner) = Some(Blocks { seen, file });
    Ok(())
}

/// Notes a block of the kernel. A file that cannot be written to ends it: what is missing must not look as never executed.
pub fn block(address: u64, instructions: usize) {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Blocks { seen, file }) = blocks.as_mut() else {
        return;
    };
    if seen.insert((address, instructions)) {
        if let Err(error) = writeln!(file, "{address:#x} {instructions}") {
            eprintln!("folioscope counter: cannot write the blocks that were executed: {error}");
            std::process::exit(1);
        }
    }
}
