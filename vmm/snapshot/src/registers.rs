// SPDX-License-Identifier: GPL-2.0-only
//! The system registers of a snapshot as a table: one row for each, with its architectural name.
//!
//! A core file, a gdb stub and KVM each have their own names of registers. All of them use this table, so a register is
//! added once.

use stage1::SystemRegisters;

/// One row: a register's name in the Arm ARM and its place in [`SystemRegisters`].
#[derive(Clone, Copy, Debug)]
pub struct SystemRegister {
    /// The name in the Arm ARM, such as `TTBR0_EL1`.
    pub name: &'static str,
    /// True if no walk is possible without it. The others may be absent on a CPU or in a machine.
    pub required: bool,
    /// Returns the value, if there is one.
    pub get: fn(&SystemRegisters) -> Option<u64>,
    /// Sets the value.
    pub set: fn(&mut SystemRegisters, u64),
}

macro_rules! required {
    ($name:literal, $field:ident) => {
        SystemRegister {
            name: $name,
            required: true,
            get: |registers| Some(registers.$field),
            set: |registers, value| registers.$field = value,
        }
    };
}

macro_rules! optional {
    ($name:literal, $field:ident $([$index:literal])?) => {
        SystemRegister {
            name: $name,
            required: false,
            get: |registers| registers.$field $([$index])?,
            set: |registers, value| registers.$field $([$index])? = Some(value),
        }
    };
}

/// Every register of [`SystemRegisters`].
pub const SYSTEM_REGISTERS: [SystemRegister; 19] = [
    required!("TTBR0_EL1", ttbr0_el1),
    required!("TTBR1_EL1", ttbr1_el1),
    required!("TCR_EL1", tcr_el1),
    optional!("TCR2_EL1", tcr2_el1),
    optional!("PIR_EL1", pir_el1),
    optional!("PIRE0_EL1", pire0_el1),
    optional!("POR_EL1", por_el1),
    optional!("POR_EL0", por_el0),
    required!("MAIR_EL1", mair_el1),
    required!("SCTLR_EL1", sctlr_el1),
    required!("CONTEXTIDR_EL1", contextidr_el1),
    optional!("ID_AA64MMFR0_EL1", id_aa64mmfr[0]),
    optional!("ID_AA64MMFR1_EL1", id_aa64mmfr[1]),
    optional!("ID_AA64MMFR2_EL1", id_aa64mmfr[2]),
    optional!("ID_AA64MMFR3_EL1", id_aa64mmfr[3]),
    optional!("VBAR_EL1", vbar_el1),
    optional!("HCR_EL2", hcr_el2),
    optional!("ESR_EL1", esr_el1),
    optional!("FAR_EL1", far_el1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_sets_what_it_gets_and_nothing_else() {
        for (i, row) in SYSTEM_REGISTERS.iter().enumerate() {
            let mut registers = SystemRegisters::default();
            (row.set)(&mut registers, 7);
            for (j, other) in SYSTEM_REGISTERS.iter().enumerate() {
                let expected = if i == j {
                    Some(7)
                } else if other.required {
                    Some(0)
                } else {
                    None
                };
                assert_eq!(
                    (other.get)(&registers),
                    expected,
                    "{} after {}",
                    other.name,
                    row.name
                );
            }
        }
    }
}
