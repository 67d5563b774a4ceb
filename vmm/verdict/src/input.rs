// SPDX-License-Identifier: GPL-2.0-only
//! The judge's input about one process.

use linux::expectation::Expectation;
use linux::order::OrderRecords;
use linux::process::Process;
use linux::release::Release;
use linux::structures::{NotKnown, Structures};
use linux::vma::Vma;
use stage1::Regime;

/// One process at one instant. All of it must have been taken while the process stood still.
#[derive(Clone, Copy, Debug)]
pub struct ProcessInput<'a> {
    /// The process.
    pub process: &'a Process,
    /// The lower half, with TTBR0_EL1 of this process. Where CPUs differ in TCR_EL1.HA or HD, `ha`
    /// and `hd` must be set if they are on *any* CPU that may run the process.
    pub regime: &'a Regime,
    /// Its VMAs by address; with VmFlags (smaps) more can be judged than without.
    pub vmas: &'a [Vma],
    /// The kernel's order records, where the kernel has them.
    pub orders: Option<&'a OrderRecords>,
    /// Facts known of the step before.
    pub expectations: &'a [Expectation],
    /// The kernel. Without it, or before 6.11, only the architecture's rules are applied:
    /// software bits lay elsewhere.
    pub release: Option<Release>,
    /// True if the kernel folds at all (`CONFIG_ARM64_CONTPTE`); `None` if that is not known.
    pub contpte: Option<bool>,
    /// The kernel's own structures, or the reason that nothing is known of them.
    pub structures: Result<Structures<'a>, &'a NotKnown>,
}

impl ProcessInput<'_> {
    /// Checks that Linux's rules apply; the error is the reason that they do not.
    pub(crate) fn linux_rules(&self) -> Result<(), String> {
        match self.release {
            Some(release) if release.has_this_layout() => Ok(()),
            other => Err(not_linux(other)),
        }
    }
}

/// Returns the reason that Linux's own rules were not applied.
pub(crate) fn not_linux(release: Option<Release>) -> String {
    match release {
        Some(release) => format!(
            "Linux's own rules were not applied: kernel {release} lays its software bits out differently from 6.11 and later"
        ),
        None => "Linux's own rules were not applied: the kernel's release is not known".into(),
    }
}
