// SPDX-License-Identifier: GPL-2.0-only
//! A trace as text, in the form of casemate (github.com/rems-project/casemate, doc/asciidoc/sections/trace-format.adoc): a record
//! for each line, an s-expression with `id` and `tid` first and `src` last.
//!
//! casemate itself judges EL2 and stage 2. Linux's actions at EL1 are written with the same words, but with EL1's names
//! of registers and operations, which its checker does not accept. A table that was read is a `mem-init` and its words
//! that are not 0.

use std::fmt::Write as _;

use crate::{Barrier, Domain, Event, Register, Types, What};

/// Writes events as text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text {
    id: u64,
}

impl Text {
    /// Returns the lines of an event; none where the form has no word for it. `source` names its place in the code.
    pub fn lines(&mut self, event: &Event, source: &str) -> String {
        let mut text = String::new();
        let mut line = |head: &str, rest: &str| {
            let (id, tid) = (self.id, event.cpu);
            self.id += 1;
            let _ = writeln!(
                text,
                "({head} (id {id}) (tid {tid}) {rest} (src \"{source}\"))"
            );
        };
        let write = |address: u64, word: u64| {
            format!("(mem-order plain) (address {address:#x}) (value {word:#x})")
        };
        match &event.what {
            What::Store { address, word } => line("mem-write", &write(*address, *word)),
            What::Table { address, words } => {
                let size = words.len() * 8;
                line(
                    "mem-init",
                    &format!("(address {address:#x}) (size {size:#x})"),
                );
                for (at, word) in (*address..).step_by(8).zip(words) {
                    if *word != 0 {
                        line("mem-write", &write(at, *word));
                    }
                }
            }
            What::Tlbi { opcode, operand } => {
                let name = tlbi(*opcode);
                if name.starts_with("vmalle1") {
                    line("tlbi", &name);
                } else {
                    line("tlbi", &format!("{name} (value {operand:#x})"));
                }
            }
            What::Barrier(Barrier::Isb) => line("barrier", "isb"),
            What::Barrier(Barrier::Dsb { domain, types }) => {
                line(
                    "barrier",
                    &format!("dsb (kind {})", option(*domain, *types)),
                );
            }
            What::Register { register, value } => {
                let name = register_name(*register);
                line(
                    "sysreg-write",
                    &format!("(sysreg {name}) (value {value:#x})"),
                );
            }
            What::Unknown { .. }
            | What::Late { .. }
            | What::NoTable { .. }
            | What::Chain { .. }
            | What::Folio(_)
            | What::Mark { .. } => (),
        }
        text
    }
}

/// Returns a DSB's option, as the assembler has it.
#[must_use]
pub fn option(domain: Domain, types: Types) -> &'static str {
    match (domain, types) {
        (Domain::NonShareable, Types::Loads) => "nshld",
        (Domain::NonShareable, Types::Stores) => "nshst",
        (Domain::NonShareable, Types::All) => "nsh",
        (Domain::InnerShareable, Types::Loads) => "ishld",
        (Domain::InnerShareable, Types::Stores) => "ishst",
        (Domain::InnerShareable, Types::All) => "ish",
        (Domain::OuterShareable, Types::Loads) => "oshld",
        (Domain::OuterShareable, Types::Stores) => "oshst",
        (Domain::OuterShareable, Types::All) => "osh",
        (Domain::System, Types::Loads) => "ld",
        (Domain::System, Types::Stores) => "st",
        (Domain::System, Types::All) => "sy",
    }
}

/// Returns the name of a TLBI's operation (Arm ARM C5.5), as the assembler has it: of others than EL1's, by their
/// numbers.
#[must_use]
pub fn tlbi(opcode: u32) -> String {
    let (op1, crn, crm, op2) = (
        opcode >> 16 & 7,
        opcode >> 12 & 0xf,
        opcode >> 8 & 0xf,
        opcode >> 5 & 7,
    );
    let (range, scope) = match crm {
        1 => ("", "os"),
        2 => ("r", "is"),
        3 => ("", "is"),
        5 => ("r", "os"),
        6 => ("r", ""),
        _ => ("", ""),
    };
    let stem = match (op1, op2) {
        (0, 0) => "vmalle1",
        (0, 1) => "vae1",
        (0, 2) => "aside1",
        (0, 3) => "vaae1",
        (0, 5) => "vale1",
        (0, 7) => "vaale1",
        _ => return format!("s1_{op1}_c{crn}_c{crm}_{op2}"),
    };
    let nxs = if crn == 9 { "nxs" } else { "" };
    format!("{range}{stem}{scope}{nxs}")
}

const fn register_name(register: Register) -> &'static str {
    match register {
        Register::Sctlr => "sctlr_el1",
        Register::Ttbr0 => "ttbr0_el1",
        Register::Ttbr1 => "ttbr1_el1",
        Register::Tcr => "tcr_el1",
        Register::Tcr2 => "tcr2_el1",
        Register::Mair => "mair_el1",
        Register::Mmfr0 => "id_aa64mmfr0_el1",
        Register::Mmfr1 => "id_aa64mmfr1_el1",
        Register::Mmfr2 => "id_aa64mmfr2_el1",
        Register::Mmfr3 => "id_aa64mmfr3_el1",
        Register::Contextidr => "contextidr_el1",
        Register::Spsr => "spsr_el1",
    }
}
