// SPDX-License-Identifier: GPL-2.0-only
//! A page beside each area, under the same last-level table.
//!
//! An area that is alone there takes the table with it when it is moved or unmapped, and freeing the table invalidates all
//! that a TLB has of it: an invalidation that is missing for the entries themselves would not show. It is in a VMA of its own,
//! and whatever is done to the area, it stays as it was written.

use protocol::{Backing, MapFlag, Operation, Placement, ProcessId, Protection};

use super::compare::expect;
use super::maps::Map;
use super::model::{Content, Store, WORDS};
use super::play::Batch;
use super::queued::{Expected, Words};

/// Pages between an area and the page beside it, of which there are fewer at the end of a table.
const APART: u64 = 256;

/// The salt of its words.
const SALT: u64 = 0x6e65;

impl Batch<'_, '_> {
    /// Maps and writes a page beside each area that leaves room for one. Areas of single pages stay alone, so that tables go
    /// with some.
    pub(super) fn map_beside(&mut self) {
        let (process, page) = (self.actor(), self.stage.page());
        for at in 0..self.cells.len() {
            let cell = &self.cells[at];
            let single = matches!(cell.state.map, Map::Small | Map::Far);
            if cell.left_out.is_some() || single {
                continue;
            }
            let Some(area) = cell.ranges.last() else {
                continue;
            };
            let Some(address) = place(area.end, self.stage.pmd(), page) else {
                continue;
            };
            let cell = &mut self.cells[at];
            cell.beside = Some(address);
            cell.ranges.insert(0, address..address + page);
            let map = Operation::Mmap {
                length: page,
                backing: Backing::Anonymous,
                prot: vec![Protection::Read, Protection::Write],
                flags: vec![MapFlag::FixedNoreplace],
                place: Placement::At { address },
            };
            self.later(at, process, map, Expected::Done);
            let write = self.touch(address, page, Some((Store::All, SALT)));
            let expected = Expected::Access {
                range: address..address + page,
                completes: true,
            };
            self.later(at, process, write, expected);
        }
    }

    /// Compares the page beside an area with what was written to it.
    pub(super) fn verify_beside(&mut self, at: usize, process: ProcessId) {
        let Some(start) = self.cells[at].beside else {
            return;
        };
        let words = Words {
            start,
            count: WORDS as u64,
            stride: self.stage.page() / WORDS as u64,
        };
        let content = Content::Written {
            origin: 0,
            salt: SALT,
        };
        let verify = words.verify(expect(words, (content, 0)));
        self.later(at, process, verify, Expected::Words(words, content));
    }
}

/// A page under the table that has the last entries of an area, well behind these and not behind what an isolated area keeps
/// free; `None` if the area has the table's last entry. A table maps `span` bytes.
fn place(end: u64, span: u64, page: u64) -> Option<u64> {
    let last = (end - 1) / span * span + span - page;
    (last >= end).then(|| last.min(end + APART * page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_room_for_it_or_not() {
        let (span, page) = (0x20_0000, 0x1000);
        assert_eq!(place(0x42_0000, span, page), Some(0x52_0000));
        assert_eq!(place(0x50_0000, span, page), Some(0x5f_f000));
        assert_eq!(place(0x5f_f000, span, page), Some(0x5f_f000));
        for end in [0x60_0000, 0x5f_f001] {
            assert_eq!(place(end, span, page), None);
        }
    }
}
