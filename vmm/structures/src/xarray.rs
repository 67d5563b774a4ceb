// SPDX-License-Identifier: GPL-2.0-only
//! A tree of entries by number (`struct xarray`, include/linux/xarray.h).

use stage1::PhysMemory;

use crate::kernel::View;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Layout of this kernel's xarrays.
#[derive(Debug)]
pub(crate) struct XArray {
    /// Name of its owner, in errors.
    what: &'static str,
    shift: Member,
    slots: Member,
}

/// Bits of an entry that say what it is: a value by bit 0, an internal entry by both together (`xa_is_internal()`).
pub(crate) const VALUE: u64 = 1;
pub(crate) const INTERNAL: u64 = 2;
pub(crate) const KIND: u64 = 3;
/// Internal entries above are nodes (`xa_is_node()`); those below, but for siblings, stand for nothing.
const LAST_THAT_IS_NO_NODE: u64 = 4096;

impl XArray {
    /// As this kernel has it.
    ///
    /// # Errors
    /// What it does not have.
    pub(crate) fn new(kernel: &Kernel, what: &'static str) -> Result<XArray, StructureError> {
        let member = |path| kernel.types.member("xa_node", path);
        let (shift, slots) = (member("shift")?, member("slots")?);
        let whole = slots.size == 8 * slots.elements && slots.offset % 8 == 0;
        match whole && slots.elements.is_power_of_two() && slots.elements > 1 {
            true => Ok(XArray { what, shift, slots }),
            false => Err(StructureError::Missing(
                "xa_node with slots[] of pointers".into(),
            )),
        }
    }

    #[cfg(test)]
    pub(crate) fn of(what: &'static str, shift: Member, slots: Member) -> XArray {
        XArray { what, shift, slots }
    }

    /// Tells of all that hangs below the root (`xa_head`): what it is, its number, and how many numbers it stands for. No more
    /// than `left` entries are followed, from which those that were are taken off.
    ///
    /// # Errors
    /// Where it cannot be followed.
    pub(crate) fn each<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        root: u64,
        left: &mut u64,
        mut tell: impl FnMut(u64, u64, u64),
    ) -> Result<(), StructureError> {
        let Some(node) = node_of(root) else {
            tell(root, 0, 1);
            return Ok(());
        };
        let bits = self.bits();
        let mut open = vec![(node, 0u64, u64::BITS + bits)];
        while let Some((node, first, above)) = open.pop() {
            let wrong = |why: String| StructureError::Inconsistent {
                what: self.what,
                va: node,
                why,
            };
            let shift = view.number(self.what, node, self.shift)? as u32;
            if shift % bits != 0 || shift + bits > above || shift >= u64::BITS {
                return Err(wrong(format!(
                    "the entries of this node stand for 2 to the power of {shift} numbers, and those above it for 2 to the power of {above}"
                )));
            }
            let slots = self.slots_of(view, node)?;
            for (at, &slot) in slots.iter().enumerate() {
                if slot == 0 || is_sibling(slot, slots.len()) {
                    continue;
                }
                *left = left.checked_sub(1).ok_or_else(|| {
                    StructureError::Missing(format!("{} with fewer entries", self.what))
                })?;
                let number = first.wrapping_add((at as u64) << shift);
                if let Some(child) = node_of(slot) {
                    open.push((child, number, shift));
                    continue;
                }
                let its = slots[at + 1..].iter();
                let its = its.take_while(|it| **it == (at as u64) << 2 | INTERNAL);
                tell(slot, number, (1 + its.count() as u64) << shift);
            }
        }
        Ok(())
    }

    fn slots_of<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        node: u64,
    ) -> Result<Vec<u64>, StructureError> {
        let va = node.wrapping_add(self.slots.offset);
        let pa = view.physical(self.what, va)?;
        let words = view.memory.passing(pa, self.slots.elements as usize);
        let words = words.ok_or_else(|| StructureError::Inconsistent {
            what: self.what,
            va,
            why: "a node of it is not in memory".into(),
        })?;
        Ok(words.to_vec())
    }

    /// How many bits of a number one node takes.
    fn bits(&self) -> u32 {
        self.slots.elements.ilog2()
    }
}

/// The address of the node that an entry leads to (`xa_to_node()`).
fn node_of(entry: u64) -> Option<u64> {
    let is_node = entry & KIND == INTERNAL && entry > LAST_THAT_IS_NO_NODE;
    is_node.then(|| entry - INTERNAL)
}

/// Returns whether it stands for what an entry before it in the same node does.
fn is_sibling(entry: u64, slots: usize) -> bool {
    entry & KIND == INTERNAL && entry < (slots as u64) << 2
}
