// SPDX-License-Identifier: GPL-2.0-only
//! Reads arbitrary bytes around a kernel's vectors: a symbol table is found in them or none, and each symbol has its
//! name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linux::kallsyms::{find, Stretch};
use linux::symbols::Symbols;

fuzz_target!(|input: &[u8]| {
    let (base, bytes) = (0xffff_8000_8000_0000, input.to_vec());
    if let Some(table) = find(&Stretch { base, bytes }) {
        assert!(table.symbols.is_sorted_by_key(|&(address, _)| address));
        assert!(table.symbols.iter().all(|&(_, name)| (name as usize) <= table.names.len()));
        let symbols = Symbols::of_running(table);
        let _ = (symbols.address("vectors"), symbols.slide(base), symbols.len());
    }
});
