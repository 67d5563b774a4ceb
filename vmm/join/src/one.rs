// SPDX-License-Identifier: GPL-2.0-only
//! One process of an instant, with what is known of it: what the rules are asked.

use linux::order::OrderRecords;
use linux::release::Release;
use linux::vma::Vma;
use serde_json::Value;
use snapshot::Memory;
use stage1::Regime;
use verdict::rules::Need;
use verdict::{judge, Expectation, Lack, NotKnown, Process, ProcessInput, ProcessVerdict};

use crate::counting::structures;
use crate::pages::Read;
use crate::Gathered;

/// One process that is to be judged.
#[derive(Debug)]
pub(crate) struct One<'a> {
    pub process: Process,
    pub regime: Regime,
    /// Its VMAs; or why they are not known, and whether another instant may show them. Linux's rules on user memory begin
    /// with them.
    pub vmas: Result<Vec<Vma>, (String, bool)>,
    pub orders: Option<OrderRecords>,
    pub expectations: &'a [Expectation],
    pub release: Option<Release>,
    pub contpte: Option<bool>,
    /// What the kernel's own files say of it.
    pub getters: Option<&'a Value>,
    /// Whether it is at a checkpoint, so that its operations are known.
    pub held: bool,
    /// Whether a CPU in the kernel gives its root table, which may then be an empty one.
    pub may_be_empty: bool,
}

impl One<'_> {
    pub(crate) fn input<'i>(
        &'i self,
        gathered: &'i Result<Gathered, NotKnown>,
        folios: &'i Result<Read<'_, Memory>, NotKnown>,
    ) -> ProcessInput<'i> {
        let vmas = self.vmas.as_deref().unwrap_or_default();
        ProcessInput {
            process: &self.process,
            regime: &self.regime,
            vmas,
            orders: self.orders.as_ref(),
            expectations: self.expectations,
            release: self.release.filter(|_| self.vmas.is_ok()),
            contpte: self.contpte,
            structures: structures(gathered, folios, &self.regime),
        }
    }

    pub(crate) fn judge(
        &self,
        memory: &Memory,
        gathered: &Result<Gathered, NotKnown>,
        folios: &Result<Read<'_, Memory>, NotKnown>,
    ) -> ProcessVerdict {
        let mut verdict = judge(memory, &self.input(gathered, folios));
        // What is counted of all memory needs no VMAs.
        verdict.set_release(self.release);
        if let Err((why, _)) = &self.vmas {
            verdict.notes.clear();
            let of = "of processes whose VMAs are not known";
            verdict.lacks.push(Lack::without(&[Need::Vmas], of, why));
        }
        verdict
    }
}
