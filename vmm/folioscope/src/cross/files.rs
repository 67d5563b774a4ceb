// SPDX-License-Identifier: GPL-2.0-only
//! Compares the files of areas with the model: as `pread()` has them, and as they are stored.

use protocol::{Operation, Verified};

use super::compare::{expect, ranges};
use super::model::Memory;
use super::play::Batch;
use super::queued::Expected;
use crate::Error;

impl Batch<'_, '_> {
    /// Compares every page of every file with the model, as `pread()` has them; of one that is written back, also what is
    /// stored after `fsync()`: a page that is not dirty any more though it was written is lost there.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn verify_files(&mut self) -> Result<(), Error> {
        for at in self.judged() {
            let Some(path) = self.cells[at].path.clone() else {
                continue;
            };
            self.verify_file(at, &path, false);
            if self.cells[at].state.map.is_stored() {
                let sync = Operation::FileSync {
                    path: path.clone(),
                    evict: false,
                };
                self.later(at, self.actor(), sync, Expected::Done);
                self.verify_file(at, &path, true);
            }
        }
        self.flush()
    }

    fn verify_file(&mut self, at: usize, path: &str, stored: bool) {
        let (process, page) = (self.actor(), self.stage.page());
        let memory = &self.cells[at].memory;
        let start = memory.views[self.actor].start;
        let runs = Memory::runs(0..memory.file.len(), |at| memory.file_likeness(at));
        for (pages, words) in runs {
            let offset = pages.start as u64 * page;
            for (range, place) in ranges(offset, pages.len(), page, &words) {
                let verify = Operation::FileVerify {
                    path: path.into(),
                    offset: range.start,
                    length: range.length(),
                    stride: Some(range.stride),
                    expect: expect(range, place),
                    direct: stored,
                };
                let range = start + offset..start + offset + pages.len() as u64 * page;
                self.later(at, process, verify, Expected::File { range, stored });
            }
        }
    }
}

/// Describes the difference of some words of a file from those that were expected, if there is one.
pub(super) fn file_mismatch(found: &Verified, stored: bool) -> Option<String> {
    let which = if stored {
        "as it is stored after fsync()"
    } else {
        "as read() has them"
    };
    found.first.first().map(|first| {
        format!(
            "{} of {} words of the file, {which}, differ from the model: expected {:#018x} at byte {:#x} and found {:#018x}",
            found.wrong, found.words, first.expected, first.address, first.found
        )
    })
}
