// SPDX-License-Identifier: GPL-2.0-only
//! The registers of a CPU that is out of KVM_RUN, by KVM_GET_ONE_REG and KVM_SET_ONE_REG.

use kvm_ioctls::VcpuFd;
use snapshot::{Cpu, GeneralRegisters, SYSTEM_REGISTERS};

use crate::KvmError;

/// `KVM_REG_ARM64 | KVM_REG_SIZE_U64`.
const WORD: u64 = 0x6030_0000_0000_0000;
/// `KVM_REG_ARM_CORE`: behind it the place in `struct kvm_regs`, in units of 32 bits.
const CORE: u64 = WORD | 0x10 << 16;

const fn x(number: usize) -> u64 {
    CORE | (number as u64 * 2)
}

const SP_EL0: u64 = CORE | 0x3e;
const PC: u64 = CORE | 0x40;
const PSTATE: u64 = CORE | 0x42;
const SP_EL1: u64 = CORE | 0x44;

/// Returns `KVM_REG_ARM64_SYSREG` with the operands of MRS, as the kernel's `ARM64_SYS_REG` packs them.
const fn system(op0: u64, op1: u64, crn: u64, crm: u64, op2: u64) -> u64 {
    WORD | 0x13 << 16 | op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2
}

const MPIDR_EL1: u64 = system(3, 0, 0, 0, 5);
/// The affinity fields of MPIDR_EL1. Its other bits are no part of a CPU's address.
const MPIDR_AFFINITY: u64 = 0xff_00ff_ffff;

/// PSTATE of a CPU that enters a kernel: EL1 with SP_EL1, all interrupts masked.
const PSTATE_BOOT: u64 = 0x3c5;

/// KVM's ids of the registers that a snapshot has of EL1 and EL0, by their names in the Arm ARM.
const IDS: &[(&str, u64)] = &[
    ("TTBR0_EL1", system(3, 0, 2, 0, 0)),
    ("TTBR1_EL1", system(3, 0, 2, 0, 1)),
    ("TCR_EL1", system(3, 0, 2, 0, 2)),
    ("TCR2_EL1", system(3, 0, 2, 0, 3)),
    ("PIRE0_EL1", system(3, 0, 10, 2, 2)),
    ("PIR_EL1", system(3, 0, 10, 2, 3)),
    ("POR_EL1", system(3, 0, 10, 2, 4)),
    ("POR_EL0", system(3, 3, 10, 2, 4)),
    ("MAIR_EL1", system(3, 0, 10, 2, 0)),
    ("SCTLR_EL1", system(3, 0, 1, 0, 0)),
    ("CONTEXTIDR_EL1", system(3, 0, 13, 0, 1)),
    ("ID_AA64MMFR0_EL1", system(3, 0, 0, 7, 0)),
    ("ID_AA64MMFR1_EL1", system(3, 0, 0, 7, 1)),
    ("ID_AA64MMFR2_EL1", system(3, 0, 0, 7, 2)),
    ("ID_AA64MMFR3_EL1", system(3, 0, 0, 7, 3)),
    ("VBAR_EL1", system(3, 0, 12, 0, 0)),
    ("ESR_EL1", system(3, 0, 5, 2, 0)),
    ("FAR_EL1", system(3, 0, 6, 0, 0)),
];

/// One CPU and its number, for the errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers<'a> {
    pub(crate) fd: &'a VcpuFd,
    pub(crate) cpu: usize,
}

impl Registers<'_> {
    fn get(&self, register: &'static str, id: u64) -> Result<u64, KvmError> {
        let mut value = [0; 8];
        match self.fd.get_one_reg(id, &mut value) {
            Ok(_) => Ok(u64::from_le_bytes(value)),
            Err(error) => Err(KvmError::ReadRegister {
                register,
                cpu: self.cpu,
                source: error.into(),
            }),
        }
    }

    fn set(&self, register: &'static str, id: u64, value: u64) -> Result<(), KvmError> {
        let result = self.fd.set_one_reg(id, &value.to_le_bytes());
        result.map(drop).map_err(|error| KvmError::WriteRegister {
            register,
            cpu: self.cpu,
            value,
            source: error.into(),
        })
    }

    /// Returns the CPU's address among all others.
    pub(crate) fn mpidr(&self) -> Result<u64, KvmError> {
        Ok(self.get("MPIDR_EL1", MPIDR_EL1)? & MPIDR_AFFINITY)
    }

    /// Returns the program counter.
    pub(crate) fn pc(&self) -> Result<u64, KvmError> {
        self.get("PC", PC)
    }

    /// Sets the registers as the boot protocol requires on the first CPU.
    pub(crate) fn set_boot(&self, entry: u64, tree: u64) -> Result<(), KvmError> {
        self.set("PSTATE", PSTATE, PSTATE_BOOT)?;
        self.set("PC", PC, entry)?;
        self.set("X0", x(0), tree)?;
        [1, 2, 3]
            .into_iter()
            .try_for_each(|number| self.set("X1 to X3", x(number), 0))
    }

    /// Returns all that a snapshot has of a CPU.
    pub(crate) fn read(&self) -> Result<Cpu, KvmError> {
        let mut cpu = Cpu {
            index: self.cpu,
            ..Cpu::default()
        };
        let general: &mut GeneralRegisters = &mut cpu.general;
        for (number, value) in general.x.iter_mut().enumerate() {
            *value = self.get("X0 to X30", x(number))?;
        }
        general.pc = self.get("PC", PC)?;
        general.pstate = self.get("PSTATE", PSTATE)?;
        let sp_el0 = self.get("SP_EL0", SP_EL0)?;
        general.sp_el0 = Some(sp_el0);
        let sp_el1 = self.get("SP_EL1", SP_EL1)?;
        let at_el0_stack = cpu.el() == 0 || cpu.general.pstate & 1 == 0;
        cpu.general.sp = if at_el0_stack { sp_el0 } else { sp_el1 };
        for register in &SYSTEM_REGISTERS {
            let Some(id) = id(register.name) else {
                continue;
            };
            match self.get(register.name, id) {
                Ok(value) => (register.set)(&mut cpu.system, value),
                // An older KVM, or a CPU without it.
                Err(_) if !register.required => (),
                Err(error) => return Err(error),
            }
        }
        Ok(cpu)
    }
}

/// Returns KVM's id of a system register; a guest without EL2 has no registers of EL2.
fn id(name: &str) -> Option<u64> {
    Some(IDS.iter().find(|(known, _)| *known == name)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_of_el1_has_an_id() {
        for register in &SYSTEM_REGISTERS {
            let expected = !register.name.ends_with("_EL2");
            assert_eq!(id(register.name).is_some(), expected, "{}", register.name);
        }
        for (name, expected) in [
            ("TTBR0_EL1", 0xc100),
            ("TTBR1_EL1", 0xc101),
            ("TCR_EL1", 0xc102),
            ("MAIR_EL1", 0xc510),
            ("SCTLR_EL1", 0xc080),
            ("CONTEXTIDR_EL1", 0xc681),
        ] {
            assert_eq!(id(name), Some(0x6030_0000_0013_0000 | expected), "{name}");
        }
        assert_eq!((x(30), PC), (0x6030_0000_0010_003c, 0x6030_0000_0010_0040));
    }
}
