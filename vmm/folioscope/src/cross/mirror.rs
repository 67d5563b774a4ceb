// SPDX-License-Identifier: GPL-2.0-only
//! A secondary MMU for each process of a batch: it copies the page tables before the operation, and only MMU notifiers change it.

use protocol::{Mirrored, Operation, Outcome};
use verdict::crossing::Notified;
use verdict::not_invalidated;

use super::mirrored::{is_one_run, said, Mirrors};
use super::play::Batch;
use crate::guest::unexpected;
use crate::Error;

/// The kernel's secondary MMU for tests (mm/mmu_mirror_test.c of the series).
const FILE: &str = "/sys/kernel/debug/mmu_mirror";

impl Batch<'_, '_> {
    /// Copies the page tables of each process, if the kernel has a secondary MMU for tests.
    ///
    /// # Errors
    /// Where the guest is lost, or refuses.
    pub fn mirror(&mut self) -> Result<(), Error> {
        if !self.stage.exists(FILE)? {
            return Ok(());
        }
        for process in self.processes.into_iter().flatten() {
            self.now(process, Operation::Mirror {})?;
        }
        self.mirrors = Some(Mirrors::default());
        Ok(())
    }

    /// Compares the rest of the copies with the page tables.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub fn compare_mirrors(&mut self) -> Result<(), Error> {
        if self.mirrors.is_none() {
            return Ok(());
        }
        for process in self.processes.into_iter().flatten() {
            let found = match self.now(process, Operation::MirrorVerify {})? {
                Outcome::Mirrored(found) => found,
                other => return Err(unexpected("mirror_verify", &other)),
            };
            let mirrors = self.mirrors.get_or_insert_default();
            for page in &found.first {
                let first = mirrors.stale.entry((process, page.address));
                first.or_insert(*page);
            }
            mirrors.newest.insert(process, found);
        }
        Ok(())
    }

    /// Adds each page that was stale after any step to the last checkpoint of its process. Returns the counts of pages, if
    /// the kernel has a secondary MMU for tests. Asks nothing of the guest.
    ///
    /// # Errors
    /// Where no checkpoint can have the finding.
    pub fn add_stale(&mut self) -> Result<Option<Notified>, Error> {
        let Some(mirrors) = self.mirrors.take() else {
            return Ok(None);
        };
        let page = self.stage.page();
        let stale: Vec<_> = mirrors.stale.into_iter().collect();
        for run in stale.chunk_by(|one, next| is_one_run(one, next, page)) {
            let ((process, start), first) = run[0];
            let count = run.len() as u64;
            let now = first.now.map_or("can read none".to_owned(), |now| {
                format!("has {}", said(now))
            });
            let message = format!(
                "expected an MMU notifier to invalidate {count} pages from VA 0x{start:016x} on before they changed: a secondary MMU still \
                 has {} there, and the process {now}",
                said(first.copied)
            );
            let (process, range) = (self.with_checkpoint(process), start..start + count * page);
            self.stage.found(process, range, message, not_invalidated)?;
        }
        let sum = |count: fn(&Mirrored) -> u64| mirrors.newest.values().map(count).sum::<u64>();
        Ok(Some(Notified {
            copied: sum(|it| it.copied),
            invalidated: sum(|it| it.dropped),
            // An answer has the first pages alone.
            missed: sum(|it| it.stale).max(stale.len() as u64),
        }))
    }
}
