// SPDX-License-Identifier: GPL-2.0-only
//! VMCOREINFO: what a kernel writes of itself for readers of its dumps (kernel/vmcore_info.c), one `NAME=VALUE` per line.

use stage1::PhysMemory;

use crate::kernel::View;
use crate::{Kernel, StructureError};

/// `VMCOREINFO_BYTES` is the kernel's page size, and that at most 64 KiB.
const LONGEST: u64 = 64 << 10;

/// The text, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmCoreInfo {
    /// As the kernel wrote it: its note in a core of the kernel's is named `VMCOREINFO`.
    pub text: String,
}

impl VmCoreInfo {
    /// Reads it where `vmcoreinfo_data` and `vmcoreinfo_size` say; both are set once, while the kernel boots.
    ///
    /// # Errors
    /// Where this kernel has none (`CONFIG_VMCORE_INFO`, `CONFIG_CRASH_CORE` before 6.9), or has not written it yet, or
    /// it cannot be read.
    pub fn read<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<VmCoreInfo, StructureError> {
        let what = "VMCOREINFO";
        let word = |name| {
            let va = kernel.variable(name)?;
            let bytes = view.bytes(what, va, 8)?;
            Ok(bytes
                .iter()
                .rev()
                .fold(0, |all, &byte| all << 8 | u64::from(byte)))
        };
        let (va, size) = (word("vmcoreinfo_data")?, word("vmcoreinfo_size")?);
        let no = |why: String| StructureError::Inconsistent { what, va, why };
        if va == 0 || size == 0 {
            return Err(no("the kernel has not written it yet".into()));
        }
        if size > LONGEST {
            return Err(no(format!("its size is {size} bytes, more than {LONGEST}")));
        }
        let text = String::from_utf8(view.bytes(what, va, size)?);
        let text = text.map_err(|error| no(format!("it is no text: {error}")))?;
        let info = VmCoreInfo { text };
        if info.value("OSRELEASE").is_none() {
            return Err(no("it does not say OSRELEASE".into()));
        }
        Ok(info)
    }

    /// The text of a note, or of a page of memory, which ends at a NUL.
    ///
    /// `None` where it does not say what each kernel's says: `OSRELEASE`, `PAGESIZE`.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<VmCoreInfo> {
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        let text = std::str::from_utf8(&bytes[..end]).ok()?.to_owned();
        let info = VmCoreInfo { text };
        let says = |name| info.value(name).is_some_and(|value| !value.is_empty());
        (says("OSRELEASE") && says("PAGESIZE")).then_some(info)
    }

    /// Returns the value of `NAME=`: `OSRELEASE`, `PAGESIZE`, `CRASHTIME`, ...
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut lines = self.text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }

    /// `NUMBER(name)`: the kernel writes some in decimal, signed, and some in hexadecimal, which wrap from u64.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        let text = self.value(&format!("NUMBER({name})"))?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|it| it as i64),
            None => text.parse().ok(),
        }
    }

    /// `SYMBOL(name)`: the address where it runs.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.value(&format!("SYMBOL({name})"))?, 16).ok()
    }

    /// `OFFSET(name)`, such as `OFFSET(page.flags)`: bytes from the start of the structure.
    #[must_use]
    pub fn offset(&self, name: &str) -> Option<u64> {
        self.value(&format!("OFFSET({name})"))?.parse().ok()
    }

    /// `SIZE(name)`: bytes of a structure.
    #[must_use]
    pub fn size(&self, name: &str) -> Option<u64> {
        self.value(&format!("SIZE({name})"))?.parse().ok()
    }

    /// `KERNELOFFSET`: how far KASLR has moved the kernel's image from where it was linked, in bytes.
    #[must_use]
    pub fn kernel_offset(&self) -> Option<u64> {
        u64::from_str_radix(self.value("KERNELOFFSET")?, 16).ok()
    }
}

/// Where the array of pages is (`vmemmap`, arch/arm64/include/asm/pgtable.h): `VMEMMAP_START` less the pages below the
/// first one of the linear map. Gives the address of page frame 0's `struct page`, and the array's bounds.
pub(crate) fn vmemmap<M: PhysMemory + ?Sized>(
    kernel: &Kernel,
    view: View<'_, M>,
    size: u64,
) -> Result<(u64, u64, u64), StructureError> {
    let info = VmCoreInfo::read(kernel, view)?;
    let number = |name: &str| {
        let found = info.number(name);
        found.ok_or_else(|| StructureError::Missing(format!("NUMBER({name}) in its VMCOREINFO")))
    };
    let start = number("VMEMMAP_START")? as u64;
    let end = number("VMEMMAP_END")? as u64;
    // Signed: a kernel for 52 bits on a CPU with 48 has it below 0.
    let first = number("PHYS_OFFSET")? / view.upper.granule.bytes() as i64;
    let vmemmap = start.wrapping_sub((first as u64).wrapping_mul(size));
    if start >= end || size < 32 {
        return Err(StructureError::Inconsistent {
            what: "VMCOREINFO",
            va: start,
            why: format!("its array of pages ends at 0x{end:x}, and a page has {size} bytes"),
        });
    }
    Ok((vmemmap, start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines in each of the kernel's ways: vmcoreinfo_append_str() of kernel/ and arch/arm64/kernel/vmcore_info.c.
    fn info() -> VmCoreInfo {
        VmCoreInfo {
            text: "OSRELEASE=6.12.1\nPAGESIZE=4096\nSYMBOL(swapper_pg_dir)=ffff800081a3f000\nSIZE(page)=64\n\
                   OFFSET(page.flags)=0\nOFFSET(page.lru)=8\nNUMBER(PG_lru)=5\nNUMBER(PAGE_BUDDY_MAPCOUNT_VALUE)=-129\n\
                   NUMBER(VMEMMAP_START)=0xfffffdffc0000000\nNUMBER(PHYS_OFFSET)=0x40000000\nNUMBER(kimage_voffset)=0xffff800040000000\n\
                   KERNELOFFSET=1a00000\nNUMBER(broken)=12x\nSYMBOL(cut)="
                .into(),
        }
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_signed() {
        let info = info();
        assert_eq!(info.number("PG_lru"), Some(5));
        assert_eq!(info.number("PAGE_BUDDY_MAPCOUNT_VALUE"), Some(-129));
        assert_eq!(info.number("PHYS_OFFSET"), Some(0x4000_0000));
        let vmemmap = info.number("VMEMMAP_START");
        assert_eq!(vmemmap, Some(0xffff_fdff_c000_0000_u64 as i64));
        assert_eq!(info.number("broken"), None);
        assert_eq!(info.number("PG_"), None);
    }

    #[test]
    fn symbols_offsets_and_sizes_are_found_by_their_whole_names() {
        let info = info();
        assert_eq!(info.symbol("swapper_pg_dir"), Some(0xffff_8000_81a3_f000));
        assert_eq!(info.symbol("swapper"), None);
        assert_eq!(info.symbol("cut"), None);
        assert_eq!(
            (info.offset("page.lru"), info.size("page")),
            (Some(8), Some(64))
        );
        assert_eq!((info.offset("page"), info.size("page.lru")), (None, None));
        assert_eq!(info.kernel_offset(), Some(0x1a0_0000));
        assert_eq!(info.value("PAGESIZE"), Some("4096"));
        assert_eq!(info.value("PAGE"), None);
    }
}
