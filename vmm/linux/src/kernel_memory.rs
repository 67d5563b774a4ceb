// SPDX-License-Identifier: GPL-2.0-only
//! Kernel memory by virtual address, through the kernel's own tables.

use stage1::{lookup, Lookup, PhysMemory, PhysicalAddress, Regime, VirtualAddress};

/// Reads `buffer.len()` bytes at virtual address `va` of the half that `regime` describes.
///
/// Reads page by page, since adjacent virtual memory (per-CPU areas, vmalloc) need not be adjacent in physical memory.
/// The error names the address that could not be read, and the reason.
pub fn read<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    va: u64,
    buffer: &mut [u8],
) -> Result<(), String> {
    let page = regime.granule.bytes();
    let mut done = 0;
    while done < buffer.len() {
        let at = va.wrapping_add(done as u64);
        let count = (page - at % page).min((buffer.len() - done) as u64) as usize;
        let pa = physical(memory, regime, at)?.0;
        copy(memory, pa, &mut buffer[done..done + count])
            .ok_or_else(|| format!("0x{at:016x} is at physical 0x{pa:x}, which cannot be read"))?;
        done += count;
    }
    Ok(())
}

/// Returns the physical address of a virtual one. The error has the reason why there is none.
pub fn physical<M: PhysMemory + ?Sized>(
    memory: &M,
    regime: &Regime,
    va: u64,
) -> Result<PhysicalAddress, String> {
    match lookup(memory, regime, VirtualAddress(va)) {
        Lookup::Mapped { pa, .. } => Ok(pa),
        Lookup::Problem(problem) => Err(problem.to_string()),
        Lookup::OutsideRegime => Err(format!("0x{va:016x} is not in this half")),
        Lookup::NotMapped { .. } | Lookup::BeyondOutputSize { .. } => {
            Err(format!("0x{va:016x} is not mapped"))
        }
    }
}

/// Copies bytes that lie in one page, at any alignment.
fn copy<M: PhysMemory + ?Sized>(memory: &M, pa: u64, buffer: &mut [u8]) -> Option<()> {
    let (start, end) = (pa & !7, (pa + buffer.len() as u64).next_multiple_of(8));
    let words = memory.words(PhysicalAddress(start), ((end - start) / 8) as usize)?;
    let skip = (pa - start) as usize;
    // Words are little-endian in the guest, and so are these bytes on any host.
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).skip(skip);
    buffer
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = from);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stage1::{Half, SystemRegisters};

    /// 2 MiB of RAM at 1 GiB.
    struct Ram(Vec<u64>);

    const BASE: u64 = 0x4000_0000;

    impl PhysMemory for Ram {
        fn words(&self, address: PhysicalAddress, count: usize) -> Option<&[u64]> {
            let at = address.0.checked_sub(BASE)? as usize / 8;
            self.0.get(at..at + count)
        }

        fn is_ram(&self, address: PhysicalAddress) -> bool {
            (BASE..BASE + (2 << 20)).contains(&address.0)
        }
    }

    #[test]
    fn bytes_are_read_across_pages_that_are_apart() {
        // 39-bit upper half, 4K: level 1 to 3, one table each; two pages, in reverse order.
        let mut ram = Ram(vec![0; (2 << 20) / 8]);
        let mut set = |pa: u64, index: u64, word: u64| {
            ram.0[((pa - BASE) / 8 + index) as usize] = word;
        };
        set(BASE, 0, (BASE + 0x1000) | 3);
        set(BASE + 0x1000, 0, (BASE + 0x2000) | 3);
        set(BASE + 0x2000, 0, (BASE + 0x9000) | 0x703);
        set(BASE + 0x2000, 1, (BASE + 0x8000) | 0x703);
        set(BASE + 0x9000, 511, 0x0807_0605_0403_0201);
        set(BASE + 0x8000, 0, 0x1817_1615_1413_1211);
        let registers = SystemRegisters {
            ttbr1_el1: BASE,
            tcr_el1: 25 | 25 << 16 | 2 << 30 | 5 << 32,
            sctlr_el1: 1,
            ..SystemRegisters::default()
        };
        let regime = Regime::new(&registers, Half::Upper).unwrap();
        let va = 0xffff_ff80_0000_0000;
        let mut bytes = [0; 8];
        read(&ram, &regime, va + 0xffb, &mut bytes).unwrap();
        assert_eq!(bytes, [4, 5, 6, 7, 8, 0x11, 0x12, 0x13]);
        let error = read(&ram, &regime, va + 0x1ffc, &mut bytes).unwrap_err();
        assert_eq!(error, "0xffffff8000002000 is not mapped");
        assert!(read(&ram, &regime, 0x1000, &mut bytes).is_err());
    }
}
