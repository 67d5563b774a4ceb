// SPDX-License-Identifier: GPL-2.0-only
//! Where the entries of a group lie among a process's VMAs.

use linux::pte::{Kind, Pte, SwapKind};
use linux::vma::Vma;

use crate::mapped::of_frames;

/// Entries of one group that lie outside of VMAs, or may be written where that is not common: the first place, and how many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placement {
    /// Present, and in no VMA.
    pub outside: Option<(usize, usize)>,
    /// Swap entries, markers and others that are not present, in no VMA.
    pub left: Option<(usize, usize)>,
    /// Writable, in a VMA that is not.
    pub writable: Option<(usize, usize)>,
    /// The zero page, writable.
    pub zero: Option<(usize, usize)>,
    /// With userfaultfd's bit, in a VMA that none protects.
    pub bit: Option<(usize, usize)>,
}

impl Placement {
    /// Looks at entries from `at` on that are no table descriptors, and alike but for their addresses.
    pub fn see(&mut self, (at, count): (usize, usize), pte: Pte, leaf: bool, vma: Option<&Vma>) {
        let Some(vma) = vma else {
            let place = match (pte.present(), pte.none()) {
                (true, _) => &mut self.outside,
                (false, true) => return,
                (false, false) => &mut self.left,
            };
            place.get_or_insert((at, 0)).1 += count;
            return;
        };
        let by_kernel = pte.special() || pte.devmap();
        let may_write = pte.user() && (pte.write() || !pte.rdonly());
        if leaf && !vma.permissions.write && may_write && !by_kernel {
            self.writable.get_or_insert((at, 0)).1 += count;
        }
        // Where no page frames are mapped, what is special is the zero page. Of one that is contiguous L3 tells.
        let zero = pte.special() && vma.pfn_mapped() == Some(false) && !of_frames(vma);
        let zero = zero && !pte.valid_cont();
        if leaf && may_write && zero {
            self.zero.get_or_insert((at, 0)).1 += count;
        }
        let bit = match pte.kind() {
            Kind::Swap(entry) => entry.uffd_wp && entry.kind() == SwapKind::Swapped,
            _ => pte.present() && pte.uffd_wp(),
        };
        if bit && vma.protected() == Some(false) {
            self.bit.get_or_insert((at, 0)).1 += count;
        }
    }
}

/// The place of the VMA that `va` lies in.
pub(crate) fn vma_at(vmas: &[Vma], va: u64) -> Option<usize> {
    let next = vmas.partition_point(|vma| vma.end <= va);
    vmas.get(next).filter(|vma| vma.contains(va)).map(|_| next)
}
