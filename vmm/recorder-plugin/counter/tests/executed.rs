// SPDX-License-Identifier: GPL-2.0-only
//! Blocks of kernel code are written as they are first translated.

use std::path::Path;

#[path = "../src/executed.rs"]
mod executed;

use executed::{begin, block};

const KERNEL: u64 = 0xffff_8000_8000_0000;

#[test]
fn each_block_is_written_once() {
    let path = std::env::temp_dir().join(format!("executed-{}", std::process::id()));
    block(KERNEL, 3);
    begin(&path).unwrap();
    for (address, instructions) in [(KERNEL, 3), (KERNEL, 3), (KERNEL, 4)] {
        block(address, instructions);
    }
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text, "0xffff800080000000 3\n0xffff800080000000 4\n");
    assert!(begin(Path::new("/nowhere/file")).is_err());
}
