// SPDX-License-Identifier: GPL-2.0-only
//! Detects a process that faults for ever on one address (rule F1), by several stops of the guest.

/// Stops that have to show the process's CPU with the address of a fault.
const SHOWN: usize = 8;
/// Faults that have to be counted meanwhile.
const COUNTED: u64 = 100;

/// The faults of the CPU that runs one process, at several stops.
#[derive(Clone, Debug, Default)]
pub struct FaultStops {
    addresses: Vec<u64>,
    /// Stops at which the CPU's last exception was no fault on a user address: the process has got on.
    others: usize,
}

impl FaultStops {
    /// Takes the CPU's ESR_EL1 and FAR_EL1, `None` where the machine does not give them. Gives the address of the last
    /// fault, if its last exception was one.
    pub fn add(&mut self, esr_el1: Option<u64>, far_el1: Option<u64>) -> Option<u64> {
        let address = fault(esr_el1, far_el1);
        match address {
            Some(address) => self.addresses.push(address),
            None => self.others += 1,
        }
        address
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.addresses.len() + self.others
    }

    /// The one address that they are all about, where the kernel has counted so many faults of the process meanwhile
    /// that each of them is done and done again.
    pub fn without_end(&self, counted: u64) -> Option<u64> {
        let first = *self.addresses.first()?;
        let same = self.addresses.iter().all(|address| *address == first);
        let enough = self.addresses.len() >= SHOWN && counted >= COUNTED;
        (same && self.others == 0 && enough).then_some(first)
    }
}

/// The user address of the last exception, if it was an abort.
fn fault(esr_el1: Option<u64>, far_el1: Option<u64>) -> Option<u64> {
    /// ESR_EL1.EC: Instruction and Data Abort, from EL0 and from EL1 (Arm ARM D24.2.39).
    const ABORTS: [u64; 4] = [0x20, 0x21, 0x24, 0x25];
    let class = esr_el1? >> 26 & 0x3f;
    // Bit 55 chooses the half; a tag may be above it.
    let far = far_el1.filter(|far| far >> 55 & 1 == 0)?;
    ABORTS.contains(&class).then_some(far & !(0xff << 56))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(stops: &[(u64, u64)], counted: u64) -> Option<u64> {
        let mut seen = FaultStops::default();
        for (class, far) in stops {
            seen.add(Some(class << 26 | 0x47), Some(*far));
        }
        seen.without_end(counted)
    }

    #[test]
    fn f1_one_address_at_every_stop() {
        let same = [(0x24, 0x1000); SHOWN];
        assert_eq!(seen(&same, COUNTED), Some(0x1000));
        assert_eq!(seen(&same[1..], COUNTED), None, "too few stops");
        // One fault that takes long is none without end.
        assert_eq!(seen(&same, COUNTED - 1), None);
        let with = |other| seen(&[&same[..], &[other]].concat(), COUNTED);
        // The kernel's own access to it; and a tag.
        assert_eq!(with((0x25, 0x1000)), Some(0x1000));
        assert_eq!(with((0x24, 0x7700_0000_0000_1000)), Some(0x1000));
        // It goes forward; it makes system calls; the fault is on the kernel's own memory.
        assert_eq!(with((0x24, 0x2000)), None);
        assert_eq!(with((0x15, 0x1000)), None);
        assert_eq!(with((0x25, 0xffff_8000_0000_1000)), None);
        // The machine does not say.
        let mut seen = FaultStops::default();
        for _ in 0..SHOWN {
            seen.add(None, None);
        }
        assert_eq!((seen.without_end(COUNTED), seen.count()), (None, SHOWN));
    }
}
