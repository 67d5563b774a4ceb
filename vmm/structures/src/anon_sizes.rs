// SPDX-License-Identifier: GPL-2.0-only
//! The sizes of anonymous folios that a kernel's switches allow: /sys/kernel/mm/transparent_hugepage, mm/huge_memory.c.

use serde::{Deserialize, Serialize};
use stage1::PhysMemory;

use crate::types::Types;
use crate::{Kernel, Structure, StructureError, View};

/// The enumeration of the bits of `transparent_hugepage_flags` (include/linux/huge_mm.h).
const FLAGS: &str = "transparent_hugepage_flag";

/// Orders of anonymous folios, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnonSizes {
    /// Those that any memory may get: `always`, or `inherit` of it.
    pub always: u64,
    /// Those that memory with MADV_HUGEPAGE alone may get: `madvise`, or `inherit` of it.
    pub madvise: u64,
}

impl Structure for AnonSizes {
    const NAME: &'static str = "anon_sizes";

    /// Reads `huge_anon_orders_always`, `_madvise` and `_inherit`, and the switch that the last inherits from.
    ///
    /// # Errors
    /// Where the kernel has none of them (before 6.8, or without `CONFIG_TRANSPARENT_HUGEPAGE`), does not show them, or
    /// has order policies, which decide instead.
    fn read<M: PhysMemory + ?Sized>(
        kernel: &Kernel,
        view: View<'_, M>,
    ) -> Result<AnonSizes, StructureError> {
        if !kernel.types.enumerators("anon_order_policy").is_empty() {
            let what = "the switches of sizes alone, as order policies decide instead of them";
            return Err(StructureError::Missing(what.into()));
        }
        let word = |name: &'static str| {
            let bytes = view.bytes(name, kernel.variable(name)?, 8)?;
            let word = bytes.try_into().map(u64::from_le_bytes);
            Ok(word.unwrap_or_default())
        };
        let flags = word("transparent_hugepage_flags")?;
        let [any, hinted] = [
            "TRANSPARENT_HUGEPAGE_FLAG",
            "TRANSPARENT_HUGEPAGE_REQ_MADV_FLAG",
        ]
        .map(|name| is_set(&kernel.types, flags, name));
        Ok(AnonSizes::of(
            word("huge_anon_orders_always")?,
            word("huge_anon_orders_madvise")?,
            word("huge_anon_orders_inherit")?,
            (any?, hinted?),
        ))
    }
}

impl AnonSizes {
    /// As `thp_vma_allowable_orders()` has it.
    fn of(always: u64, madvise: u64, inherit: u64, (any, hinted): (bool, bool)) -> AnonSizes {
        let of = |on: bool| if on { inherit } else { 0 };
        AnonSizes {
            always: always | of(any),
            madvise: madvise | of(hinted),
        }
    }
}

fn is_set(types: &Types, flags: u64, name: &str) -> Result<bool, StructureError> {
    let bit = types.enumerator(FLAGS, name)?;
    Ok(flags.checked_shr(bit as u32).unwrap_or(0) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_sizes_follow_the_switch_of_all() {
        let (block, pmd) = (1 << 4, 1 << 9);
        let of = |always, madvise| {
            let sizes = AnonSizes::of(0, block, pmd, (always, madvise));
            (sizes.always, sizes.madvise)
        };
        assert_eq!(of(true, false), (pmd, block));
        assert_eq!(of(false, true), (0, pmd | block));
        assert_eq!(of(false, false), (0, block));
    }
}
