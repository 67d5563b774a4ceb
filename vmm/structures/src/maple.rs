// SPDX-License-Identifier: GPL-2.0-only
//! Maple trees (`lib/maple_tree.c`): ranges of numbers, each with a pointer.

use stage1::PhysMemory;

use crate::kernel::View;
use crate::types::{Member, Types};
use crate::StructureError;

/// The low bits of a pointer to a node say of which type it is (`MAPLE_NODE_MASK`: nodes are aligned to 256 bytes).
const NODE_MASK: u64 = 0xff;
/// Where in them (`MAPLE_NODE_TYPE_SHIFT`, `MAPLE_NODE_TYPE_MASK`).
const TYPE_SHIFT: u64 = 3;
const TYPE_MASK: u64 = 0xf;
/// An entry that is a node and not what the tree's owner put there (`xa_is_node()`, include/linux/xarray.h).
const INTERNAL_MASK: u64 = 3;
const INTERNAL: u64 = 2;
/// `MAPLE_HEIGHT_MAX`.
const HEIGHT: usize = 31;
/// More entries than any address space has VMAs (`sysctl_max_map_count` is 65,530, and may be raised).
const MOST: usize = 4 << 20;

/// Layout of a maple tree of this kernel.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    root: Member,
    leaf: Node,
    range: Node,
    arange: Node,
}

/// One type of node.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: u64,
    size: u64,
    pivots: Member,
    slots: Member,
}

/// The value stored for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first number of the range.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// The value: for an address space the address of a `struct vm_area_struct`.
    pub value: u64,
}

impl Layout {
    /// As this kernel's types have it.
    ///
    /// # Errors
    /// Where they have no maple tree (before 6.1).
    pub fn new(types: &Types) -> Result<Layout, StructureError> {
        let node = |kind, structure| {
            Ok(Node {
                kind: types.enumerator("maple_type", kind)?,
                size: types.size(structure)?,
                pivots: types.member(structure, "pivot")?,
                slots: types.member(structure, "slot")?,
            })
        };
        Ok(Layout {
            root: types.member("maple_tree", "ma_root")?,
            leaf: node("maple_leaf_64", "maple_range_64")?,
            range: node("maple_range_64", "maple_range_64")?,
            arange: node("maple_arange_64", "maple_arange_64")?,
        })
    }

    /// All that the tree at `va` holds, by its ranges.
    ///
    /// # Errors
    /// Where a node cannot be read, or the tree is no tree.
    pub fn entries<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        va: u64,
    ) -> Result<Vec<Entry>, StructureError> {
        let mut found = Vec::new();
        let root = view.number("a maple tree's root", va, self.root)?;
        if is_node(root) {
            self.node(view, root, (0, u64::MAX), HEIGHT, &mut found)?;
        } else if root != 0 {
            // One entry for the number 0 needs no node.
            let (first, last, value) = (0, 0, root);
            found.push(Entry { first, last, value });
        }
        Ok(found)
    }

    fn node<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pointer: u64,
        (first, last): (u64, u64),
        height: usize,
        found: &mut Vec<Entry>,
    ) -> Result<(), StructureError> {
        let what = "a maple tree's node";
        let va = pointer & !NODE_MASK;
        let no = |why: &str| StructureError::Inconsistent {
            what,
            va,
            why: why.to_owned(),
        };
        let height = height
            .checked_sub(1)
            .ok_or_else(|| no("it is deeper than any tree"))?;
        let kind = pointer >> TYPE_SHIFT & TYPE_MASK;
        let node = [self.leaf, self.range, self.arange]
            .into_iter()
            .find(|node| node.kind == kind)
            .ok_or_else(|| no("it is of no type that holds ranges"))?;
        let bytes = view.bytes(what, va, node.size)?;
        let word = |member: Member, index: u64| {
            let at = (member.offset + 8 * index) as usize;
            let word = bytes.get(at..at + 8)?;
            Some(u64::from_le_bytes(word.try_into().ok()?))
        };
        let mut from = first;
        for index in 0..node.slots.elements {
            // The last slot has no pivot, and 0 stands for the node's end (`ma_data_end()`).
            let pivot = (index < node.pivots.elements)
                .then(|| word(node.pivots, index))
                .flatten()
                .filter(|&pivot| pivot != 0 || index == 0);
            let to = pivot.unwrap_or(last).min(last);
            if to < from {
                return Err(no("its pivots do not rise"));
            }
            let value = word(node.slots, index).unwrap_or(0);
            if node.kind != self.leaf.kind {
                if value == 0 {
                    return Err(no("it leads to no node"));
                }
                self.node(view, value, (from, to), height, found)?;
            } else if value != 0 && value & INTERNAL_MASK != INTERNAL {
                let (first, last) = (from, to);
                found.push(Entry { first, last, value });
            }
            if found.len() > MOST {
                return Err(no("it has more entries than any tree"));
            }
            if to == last {
                return Ok(());
            }
            from = to + 1;
        }
        Ok(())
    }
}

/// `xa_is_node()`, of a tree's root: numbers below 4096 are reserved for other use. Within the tree bit 1 of a pointer to
/// a node is clear (`mte_mk_root()`, `mt_mk_node()`).
fn is_node(entry: u64) -> bool {
    entry & INTERNAL_MASK == INTERNAL && entry > 4096
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
