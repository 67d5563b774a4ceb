// SPDX-License-Identifier: GPL-2.0-only
//! A remark on the kernel's switches of folio sizes, where they are why no block of a process is contiguous.

use linux::vma::{Backing, Vma};
use structures::anon_sizes::AnonSizes;
use verdict::ProcessVerdict;

/// Where the switches are.
const SWITCHES: &str = "/sys/kernel/mm/transparent_hugepage";

/// Says which sizes are on, and how to set a block's, where the process has anonymous memory for a block and none of it is
/// contiguous because the switches allow no size from a block's up to a PMD's, or allow them only where memory asks for them.
pub(crate) fn remark(
    sizes: Option<AnonSizes>,
    contpte: Option<bool>,
    vmas: &[Vma],
    verdict: &ProcessVerdict,
) -> Option<String> {
    let (page, block) = (verdict.page_size, verdict.block_size);
    let entries = &verdict.entries;
    if contpte != Some(true)
        || entries.contiguous_pages > 0
        || entries.contiguous_blocks.values().any(|count| *count > 0)
        || !vmas.iter().any(|vma| has_room(vma, block))
    {
        return None;
    }
    let sizes = sizes?;
    // A PMD's size is mapped by one block, which is not contiguous.
    let (first, pmd) = ((block / page).trailing_zeros(), (page / 8).trailing_zeros());
    let of_blocks = (first..pmd).fold(0, |all, order| all | 1 << order);
    if sizes.always & of_blocks != 0 {
        return None;
    }
    let asks = |vma: &Vma| {
        vma.flags
            .as_ref()
            .is_some_and(|flags| flags.words().iter().any(|word| word == "hg"))
    };
    let why = match sizes.madvise & of_blocks {
        0 => "the kernel's switches are off for each size of whole blocks below a PMD's",
        _ if vmas.iter().any(|vma| has_room(vma, block) && asks(vma)) => return None,
        _ => "the kernel's switches give whole blocks to memory with MADV_HUGEPAGE alone, and it has none",
    };
    let on = [
        (sizes.always, ""),
        (sizes.madvise & !sizes.always, " with MADV_HUGEPAGE"),
    ];
    let on = on.into_iter().flat_map(|(orders, how)| {
        let orders = (0..u64::BITS).filter(move |order| orders & 1 << order != 0);
        orders.map(move |order| format!("{} KiB{how}", (page << order) >> 10))
    });
    let on: Vec<String> = on.collect();
    let on = match on.as_slice() {
        [] => "none is on".to_owned(),
        on => format!("on: {}", on.join(", ")),
    };
    let size = block >> 10;
    Some(format!(
        "no block of it is contiguous: {why} ({on}); for {size} KiB: echo always > {SWITCHES}/hugepages-{size}kB/enabled, in the guest"
    ))
}

/// Returns whether anonymous memory of a process has room for a block.
fn has_room(vma: &Vma, block: u64) -> bool {
    let first = vma.start.checked_next_multiple_of(block);
    let room = first.and_then(|first| first.checked_add(block));
    vma.backing() == Backing::Anonymous && room.is_some_and(|end| end <= vma.end)
}
