// SPDX-License-Identifier: GPL-2.0-only
//! One address of the kernel's half: its entry, and what the rules say there.

use snapshot::Snapshot;
use stage1::{lookup, Lookup, Regime, VirtualAddress};
use verdict::{size_name, Finding};

use crate::{judge_kernel_half, Error, Sight};
use evidence::kernel_half;

/// The facts about an address of the kernel's half.
#[derive(Clone, Debug)]
pub struct KernelPlace {
    /// The half.
    pub regime: Regime,
    /// Findings there.
    pub findings: Vec<Finding>,
    /// Reasons for what was not judged.
    pub left_out: Vec<String>,
}

impl KernelPlace {
    /// Judges the half; [`Self::at`] keeps what concerns an address.
    ///
    /// # Errors
    /// Where no CPU shows the half.
    pub fn anywhere(snapshot: &Snapshot) -> Result<Self, Error> {
        let mut verdict = judge_kernel_half(snapshot)?;
        let regime = kernel_half(&snapshot.cpus).ok_or_else(|| {
            Error::Input("no CPU of the snapshot shows the kernel's own half".into())
        })?;
        if let Some(sight) = Sight::of(&snapshot.notes) {
            sight.hold_kernel(&mut verdict, regime.root.0);
        }
        let not_judged = verdict.not_judged.into_iter().map(|it| it.reason);
        let left_out = not_judged.chain(verdict.notes).collect();
        Ok(Self {
            regime,
            findings: verdict.findings,
            left_out,
        })
    }

    /// Returns the findings at this address.
    #[must_use]
    pub fn at(&self, va: u64) -> Self {
        let here = |it: &&Finding| (it.va.0..=it.end.0.wrapping_sub(1)).contains(&va);
        Self {
            findings: self.findings.iter().filter(here).cloned().collect(),
            ..self.clone()
        }
    }

    /// The entry.
    #[must_use]
    pub fn lookup(&self, snapshot: &Snapshot, va: u64) -> Lookup<'_> {
        lookup(&snapshot.memory, &self.regime, VirtualAddress(va))
    }

    /// Linux's name of the size that maps it, and its first address and bytes: of the whole group where the entry has the
    /// Contiguous bit. None where nothing does.
    #[must_use]
    pub fn size(&self, found: &Lookup<'_>) -> Option<(&'static str, u64, u64)> {
        let Lookup::Mapped { entry, .. } = found else {
            return None;
        };
        let (descriptor, step) = (
            &entry.descriptor,
            self.regime.entry_size(entry.descriptor.level),
        );
        let members = match descriptor.contiguous() {
            true => self.regime.contiguous_entries(descriptor.level)? as u64,
            false => 1,
        };
        let bytes = step * members;
        let name = size_name(descriptor.level.number(), descriptor.contiguous());
        Some((name, entry.va.0 & !(bytes - 1), bytes))
    }
}
