// SPDX-License-Identifier: GPL-2.0-only
//! The registers of all CPUs through the gdb stub, in one round trip per CPU.

use std::time::Duration;

use snapshot::{Cpu, SystemRegister, SYSTEM_REGISTERS};

use crate::error::{excerpt, GdbError};
use crate::rsp::Rsp;
use crate::target::{self, Register};

/// The first request. A stub that does not answer it has another client: QEMU's stub serves one at a time.
pub(crate) const FIRST: &str = "qSupported:multiprocess+;qXfer:features:read+";

/// Maximum time of all requests of a kind, as a multiple of the time of one.
const TOGETHER: u32 = 3;

/// The most that the description of a target may take, in bytes.
const MOST_DESCRIPTION: usize = 4 << 20;

/// QEMU's names of registers whose row it shares with AArch32 (its table in target/arm/helper.c defines both at once).
const QEMU_NAMES: [(&str, &str); 2] = [("SCTLR_EL1", "SCTLR"), ("VBAR_EL1", "VBAR")];

/// The requests for each CPU, computed once, at boot.
#[derive(Debug)]
pub(crate) struct RegisterReader {
    rsp: Rsp,
    timeout: Duration,
    /// For each CPU the requests that are sent together.
    requests: Vec<Vec<String>>,
    /// The system registers that answer them, behind the two of `FIXED`.
    rows: Vec<Row>,
}

/// Number of requests before those of the rows: the choice of the CPU, and `g`.
const FIXED: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Row {
    System(&'static SystemRegister),
    SpEl0,
}

impl Row {
    fn name(self) -> &'static str {
        match self {
            Row::System(register) => register.name,
            Row::SpEl0 => "SP_EL0",
        }
    }
}

impl RegisterReader {
    /// Attaches to the stub of a machine with `cpus` CPUs, which is stopped.
    ///
    /// All CPUs of QEMU's `virt` machine are of one model, so the first one's description serves
    /// for all.
    pub(crate) fn attach(rsp: Rsp, cpus: usize, timeout: Duration) -> Result<Self, GdbError> {
        let mut rsp = rsp;
        rsp.limit(TOGETHER * timeout);
        rsp.request(FIRST, timeout)?;
        let known =
            target::registers(|annex| rsp.transfer("features", annex, MOST_DESCRIPTION, timeout))?;
        check_layout(&known)?;
        let mut rows = Vec::new();
        let mut numbers = Vec::new();
        let system = SYSTEM_REGISTERS.iter().map(Row::System);
        for row in system.chain([Row::SpEl0]) {
            match find(&known, row.name()) {
                Some(register) => {
                    rows.push(row);
                    numbers.push(register.number);
                }
                None if matches!(row, Row::System(register) if register.required) => {
                    return Err(GdbError::NoRegister(row.name()));
                }
                None => (),
            }
        }
        let threads = threads(&mut rsp, timeout)?;
        if threads.len() != cpus {
            return Err(GdbError::Cpus {
                expected: cpus,
                found: threads.len(),
            });
        }
        let requests = threads
            .iter()
            .map(|thread| {
                let fixed = [format!("Hg{thread}"), "g".to_string()];
                let rows = numbers.iter().map(|number| format!("p{number:x}"));
                fixed.into_iter().chain(rows).collect()
            })
            .collect();
        Ok(Self {
            rsp,
            timeout,
            requests,
            rows,
        })
    }

    /// Reads all CPUs of the machine, which is stopped.
    pub(crate) fn read(&mut self) -> Result<Vec<Cpu>, GdbError> {
        let mut cpus = Vec::with_capacity(self.requests.len());
        self.rsp.limit(TOGETHER * self.timeout);
        for (index, requests) in self.requests.iter().enumerate() {
            let replies = self.rsp.batch(requests, self.timeout)?;
            cpus.push(cpu(index, &self.rows, &replies)?);
        }
        Ok(cpus)
    }
}

/// Returns the register under its architectural name, or under QEMU's.
fn find<'a>(known: &'a [Register], name: &str) -> Option<&'a Register> {
    let other = QEMU_NAMES
        .iter()
        .find(|(ours, _)| *ours == name)
        .map(|(_, theirs)| *theirs);
    [Some(name), other].into_iter().flatten().find_map(|name| {
        known
            .iter()
            .find(|register| register.name == name && register.bits == 64)
    })
}

/// Checks that `g` has X0 to X30, SP and PC as 64 bits and CPSR as 32, as the first registers.
fn check_layout(known: &[Register]) -> Result<(), GdbError> {
    let x = (0..31).map(|number| format!("x{number}"));
    let names = x.chain(["sp", "pc", "cpsr"].map(String::from));
    for (number, name) in names.enumerate() {
        let bits = if name == "cpsr" { 32 } else { 64 };
        let expected = Register {
            name,
            number: number as u32,
            bits,
        };
        if !known.contains(&expected) {
            return Err(GdbError::Protocol {
                expected: format!("{} as register {number} of {bits} bits", expected.name),
                found: "a target description without it".into(),
            });
        }
    }
    Ok(())
}

/// Returns the ids of all threads; QEMU has one per CPU, in the order of their index.
fn threads(rsp: &mut Rsp, timeout: Duration) -> Result<Vec<String>, GdbError> {
    const MOST: usize = 4096;
    let mut all = Vec::new();
    let mut request = "qfThreadInfo";
    loop {
        let reply = rsp.request(request, timeout)?;
        match reply.split_first() {
            Some((b'm', ids)) if all.len() < MOST => {
                let ids = String::from_utf8_lossy(ids).into_owned();
                all.extend(ids.split(',').map(String::from));
            }
            Some((b'l', [])) => return Ok(all),
            _ => {
                return Err(GdbError::Protocol {
                    expected: "a list of threads".into(),
                    found: excerpt(&reply),
                })
            }
        }
        request = "qsThreadInfo";
    }
}

fn cpu(index: usize, rows: &[Row], replies: &[Vec<u8>]) -> Result<Cpu, GdbError> {
    let unreadable = |name: &str, reply: &[u8]| GdbError::Unreadable {
        name: name.into(),
        cpu: index,
        answer: excerpt(reply),
    };
    if replies[0] != b"OK" {
        return Err(unreadable("all registers", &replies[0]));
    }
    let mut cpu = Cpu {
        index,
        ..Cpu::default()
    };
    let general = &replies[1];
    let at = |number: usize, bytes: usize| {
        general
            .get(number * 16..number * 16 + bytes * 2)
            .and_then(little_endian)
            .ok_or_else(|| unreadable("the general registers", general))
    };
    for (number, x) in cpu.general.x.iter_mut().enumerate() {
        *x = at(number, 8)?;
    }
    cpu.general.sp = at(31, 8)?;
    cpu.general.pc = at(32, 8)?;
    cpu.general.pstate = at(33, 4)?;
    for (row, reply) in rows.iter().zip(&replies[FIXED..]) {
        match (row, (reply.len() == 16).then(|| little_endian(reply))) {
            (Row::System(register), Some(Some(value))) => (register.set)(&mut cpu.system, value),
            (Row::SpEl0, Some(Some(value))) => cpu.general.sp_el0 = Some(value),
            (Row::System(register), _) if register.required => {
                return Err(unreadable(register.name, reply));
            }
            _ => (),
        }
    }
    // While SP_EL0 is the stack pointer in use, the banked copy that the stub has is the value of the last time it was
    // saved.
    if cpu.el() == 0 || cpu.general.pstate & 1 == 0 {
        cpu.general.sp_el0 = Some(cpu.general.sp);
    }
    Ok(cpu)
}

/// Returns the number that hex digits give, the least significant byte first.
fn little_endian(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let bytes = text.len() / 2;
    if !text.is_ascii() || text.len() % 2 != 0 || bytes == 0 || bytes > 8 {
        return None;
    }
    (0..bytes).rev().try_fold(0, |value, byte| {
        let byte = u8::from_str_radix(&text[byte * 2..byte * 2 + 2], 16).ok()?;
        Some(value << 8 | u64::from(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_little_endian() {
        assert_eq!(little_endian(b"81d0004800000000"), Some(0x4800_d081));
        assert_eq!(little_endian(b"c5034061"), Some(0x6140_03c5));
        for bad in [&b""[..], b"0", b"xx", b"000000000000000000", b"\xff\xff"] {
            assert_eq!(little_endian(bad), None);
        }
    }

    fn replies(pstate: &str) -> Vec<Vec<u8>> {
        let general = format!(
            "{}{}{pstate}",
            "0100000000000000".repeat(31),
            "02".repeat(16)
        );
        vec![
            b"OK".to_vec(),
            general.into_bytes(),
            b"81d0004800000000".to_vec(),
            b"c0942a54c2a8ffff".to_vec(),
        ]
    }

    #[test]
    fn replies_become_a_cpu() {
        let rows = [Row::System(&SYSTEM_REGISTERS[0]), Row::SpEl0];
        let kernel = cpu(3, &rows, &replies("c5034061")).unwrap();
        assert_eq!((kernel.index, kernel.el()), (3, 1));
        assert_eq!(kernel.general.x, [1; 31]);
        assert_eq!(kernel.general.pc, 0x0202_0202_0202_0202);
        assert_eq!(kernel.system.ttbr0_el1, 0x4800_d081);
        assert_eq!(kernel.general.sp_el0, Some(0xffff_a8c2_542a_94c0));
        let user = cpu(0, &rows, &replies("00100060")).unwrap();
        assert_eq!(user.el(), 0);
        assert_eq!(user.general.sp_el0, Some(user.general.sp));
    }

    #[test]
    fn a_register_that_cannot_be_read_is_named() {
        let rows = [Row::System(&SYSTEM_REGISTERS[0]), Row::SpEl0];
        let mut refused = replies("c5034061");
        refused[2] = b"E14".to_vec();
        let error = cpu(1, &rows, &refused).unwrap_err().to_string();
        assert!(
            error.contains("TTBR0_EL1 of CPU 1") && error.contains("E14"),
            "{error}"
        );
        let mut short = replies("c5034061");
        short[1].truncate(100);
        assert!(cpu(1, &rows, &short).is_err());
        let mut optional = replies("c5034061");
        optional[3] = Vec::new();
        assert_eq!(cpu(1, &rows, &optional).unwrap().general.sp_el0, None);
    }
}
