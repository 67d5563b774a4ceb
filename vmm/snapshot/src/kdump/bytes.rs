// SPDX-License-Identifier: GPL-2.0-only
//! The bytes of a dump, as it is or flattened.
//!
//! A flattened file is a header of 4 KiB and records. A record has the offset of its bytes, their number (both
//! big-endian), and the bytes. makedumpfile and QEMU write this format where the output is a pipe. A later record may
//! replace a part of an earlier one.

use std::collections::BTreeMap;

use crate::saved::Saved;
use crate::CoreError;

/// First bytes of a flattened file.
pub(super) const FLATTENED: &[u8] = b"makedumpfile\0";
/// `MAX_SIZE_MDF_HEADER`: where its records begin.
const RECORDS: usize = 4096;

/// A dump's bytes, by their place in it.
#[derive(Debug)]
pub(super) struct Bytes {
    file: Saved,
    /// Records of a flattened file: offset of the bytes, their number, and their place in the file; none overlap.
    records: Option<BTreeMap<u64, (u64, u64)>>,
}

impl Bytes {
    /// # Errors
    /// If a flattened file ends early, or its records make no sense.
    pub(super) fn new(file: &Saved) -> Result<Self, CoreError> {
        let mut bytes = Self {
            file: file.clone(),
            records: None,
        };
        if bytes.file.starts_with(FLATTENED) {
            bytes.records = Some(records(file)?);
        }
        Ok(bytes)
    }

    /// Returns the length of the file: no part of a dump is longer.
    pub(super) fn most(&self) -> u64 {
        self.file.len() as u64
    }

    /// Fills `to` from byte `offset` on; `None` where a byte of it is not there.
    pub(super) fn read(&self, mut offset: u64, mut to: &mut [u8]) -> Option<()> {
        let Some(records) = &self.records else {
            let start = usize::try_from(offset).ok()?;
            to.copy_from_slice(self.file.get(start..start.checked_add(to.len())?)?);
            return Some(());
        };
        while !to.is_empty() {
            let (start, (bytes, at)) = records.range(..=offset).next_back()?;
            let skipped = offset - start;
            let count = bytes.checked_sub(skipped).filter(|count| *count > 0)?;
            let count = count.min(to.len() as u64) as usize;
            let (now, rest) = std::mem::take(&mut to).split_at_mut(count);
            let from = (at + skipped) as usize;
            now.copy_from_slice(&self.file[from..from + count]);
            (offset, to) = (offset.checked_add(count as u64)?, rest);
        }
        Some(())
    }

    /// Returns `N` bytes from `offset` on.
    pub(super) fn array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut array = [0; N];
        self.read(offset, &mut array).map(|()| array)
    }

    /// Returns the bytes from `offset` on.
    pub(super) fn part(&self, offset: u64, bytes: u64) -> Option<Vec<u8>> {
        if bytes > self.most() {
            return None;
        }
        let mut part = vec![0; usize::try_from(bytes).ok()?];
        self.read(offset, &mut part).map(|()| part)
    }
}

fn records(file: &[u8]) -> Result<BTreeMap<u64, (u64, u64)>, CoreError> {
    let number = |at: usize| {
        let bytes = file.get(at..at.checked_add(8)?)?;
        Some(i64::from_be_bytes(bytes.try_into().ok()?))
    };
    let mut records = BTreeMap::new();
    let mut at = RECORDS;
    loop {
        let cut = || {
            damaged(format!(
                "its flattened records end at {at:#x}, in the middle"
            ))
        };
        let (offset, bytes) = number(at)
            .zip(number(at.saturating_add(8)))
            .ok_or_else(cut)?;
        if (offset, bytes) == (-1, -1) {
            return Ok(records);
        }
        let place = u64::try_from(offset).ok().zip(u64::try_from(bytes).ok());
        let place = place.filter(|(offset, bytes)| offset.checked_add(*bytes).is_some());
        let (offset, bytes) = place.ok_or_else(|| {
            damaged(format!(
                "its flattened record at {at:#x} is for {bytes} bytes at {offset}"
            ))
        })?;
        let start = at + 16;
        let end = usize::try_from(bytes)
            .ok()
            .and_then(|it| start.checked_add(it));
        at = end.filter(|end| *end <= file.len()).ok_or_else(cut)?;
        put(&mut records, offset, bytes, start as u64);
    }
}

/// Adds a record in place of those that it overlaps.
fn put(records: &mut BTreeMap<u64, (u64, u64)>, offset: u64, bytes: u64, at: u64) {
    if bytes == 0 {
        return;
    }
    let end = offset + bytes;
    while let Some((&start, &(length, from))) = records.range(..end).next_back() {
        if start + length <= offset {
            break;
        }
        records.remove(&start);
        if start + length > end {
            records.insert(end, (start + length - end, from + (end - start)));
        }
        if start < offset {
            records.insert(start, (offset - start, from));
            break;
        }
    }
    records.insert(offset, (bytes, at));
}

/// Returns an error for contents that make no sense.
pub(super) fn damaged(problem: String) -> CoreError {
    CoreError::Dump { problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_record_replaces_parts_of_earlier_ones() {
        let mut records = BTreeMap::new();
        put(&mut records, 0, 10, 100);
        put(&mut records, 20, 10, 200);
        put(&mut records, 5, 20, 300);
        let all: Vec<_> = records.clone().into_iter().collect();
        assert_eq!(all, [(0, (5, 100)), (5, (20, 300)), (25, (5, 205))]);
        put(&mut records, 7, 1, 400);
        put(&mut records, 0, 0, 500);
        let all: Vec<_> = records.into_iter().collect();
        let within = [(5, (2, 300)), (7, (1, 400)), (8, (17, 303))];
        assert_eq!(all[1..4], within);
    }
}
