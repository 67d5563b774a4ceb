// SPDX-License-Identifier: GPL-2.0-only
//! Decodes the patched kernel's counts of contiguous blocks of user memory.

use schemars::JsonSchema;
use serde::Serialize;

/// "cp_count" as bytes, the first word.
const MAGIC: u64 = 0x746e_756f_635f_7063;
/// Bytes of `struct contpte_counts` before the counts: the magic and two numbers of elements.
pub const HEADER: u64 = 16;
/// More callers than this are a misread header.
const MOST_CALLERS: usize = 1 << 16;

/// An event of a block, by its number in `enum contpte_event` (arch/arm64/include/asm/contpte_events.h of the patches).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// `set_ptes()` filled it and made it contiguous.
    Set,
    /// The block became contiguous when its last entry was set.
    Fold,
    /// The block was contiguous, and is not any more.
    Unfold,
    /// `set_ptes()` filled a part of it.
    RefusedPart,
    /// `set_ptes()` filled it, and its page frames are not aligned as it is.
    RefusedPhys,
    /// Its last entry was set, and its folio is not all of it.
    RefusedFolio,
    /// Its last entry was set, and an entry is not valid.
    RefusedHole,
    /// Its last entry was set, and its page frames are not in a row.
    RefusedFrames,
    /// Its last entry was set, and attributes differ.
    RefusedAttrs,
}

const EVENTS: [Event; 9] = [
    Event::Set,
    Event::Fold,
    Event::Unfold,
    Event::RefusedPart,
    Event::RefusedPhys,
    Event::RefusedFolio,
    Event::RefusedHole,
    Event::RefusedFrames,
    Event::RefusedAttrs,
];

/// Numbers of elements in one CPU's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    events: usize,
    callers: usize,
}

/// Counts of some CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Counts by event, for the events that the kernel knows.
    pub events: Vec<(Event, u64)>,
    /// Unfolds by the return address in the caller.
    pub unfolds: std::collections::BTreeMap<u64, u64>,
    /// Unfolds by callers for which the table had no room.
    pub others: u64,
}

impl Dimensions {
    /// Decodes the table's first [`HEADER`] bytes.
    ///
    /// # Errors
    /// If it is no such table, or has an event that this program does not know.
    pub fn decode(header: [u8; HEADER as usize]) -> Result<Self, String> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        if word(0) != MAGIC {
            let magic = word(0);
            return Err(format!("its magic is {magic:#x}, {MAGIC:#x} expected"));
        }
        let (events, callers) = (word(8) as u32 as usize, (word(8) >> 32) as usize);
        if !(1..=EVENTS.len()).contains(&events) || callers > MOST_CALLERS {
            let known = EVENTS.len();
            return Err(format!(
                "it counts {events} events and {callers} callers, and this program knows {known} events"
            ));
        }
        Ok(Self { events, callers })
    }

    /// Returns how many words follow the header.
    #[must_use]
    pub fn words(self) -> usize {
        self.events + 2 * self.callers + 1
    }

    /// Adds the counts of one CPU: the words that follow its header.
    pub fn add(self, words: &[u64], all: &mut Counts) {
        let (events, rest) = words.split_at(self.events);
        all.events.extend(
            EVENTS[all.events.len()..self.events]
                .iter()
                .map(|&it| (it, 0)),
        );
        for ((_, sum), count) in all.events.iter_mut().zip(events) {
            *sum += count;
        }
        let (callers, others) = rest.split_at(2 * self.callers);
        for caller in callers.chunks_exact(2).filter(|caller| caller[0] != 0) {
            *all.unfolds.entry(caller[0]).or_default() += caller[1];
        }
        all.others += others.iter().sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(events: u32, callers: u32) -> [u8; 16] {
        let mut bytes = *b"cp_count\0\0\0\0\0\0\0\0";
        bytes[8..12].copy_from_slice(&events.to_le_bytes());
        bytes[12..].copy_from_slice(&callers.to_le_bytes());
        bytes
    }

    #[test]
    fn cpus_are_added_up() {
        let table = Dimensions::decode(header(3, 2)).unwrap();
        assert_eq!(table.words(), 8);
        let mut all = Counts::default();
        table.add(&[1, 2, 3, 0xa0, 2, 0xb0, 1, 0], &mut all);
        table.add(&[10, 0, 5, 0xb0, 4, 0, 0, 1], &mut all);
        let events = [(Event::Set, 11), (Event::Fold, 2), (Event::Unfold, 8)];
        assert_eq!(all.events, events);
        assert_eq!(all.unfolds, [(0xa0, 2), (0xb0, 5)].into());
        assert_eq!(all.others, 1);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let said = Dimensions::decode(header(10, 64)).unwrap_err();
        assert!(said.contains("this program knows 9 events"), "{said}");
        assert!(Dimensions::decode(header(9, 1 << 20)).is_err());
        assert!(Dimensions::decode([0; 16])
            .unwrap_err()
            .contains("its magic is 0x0"));
    }
}
