// SPDX-License-Identifier: GPL-2.0-only
//! Judges the kernel half.

use linux::release::Release;
use snapshot::Snapshot;
use verdict::{judge_kernel, KernelLayout, KernelVerdict};

use evidence::{elsewhere::no_linux, kernel_half, Facts};

use crate::Error;

/// Judges the kernel half of a snapshot.
///
/// # Errors
/// Where no CPU shows it.
pub fn judge_kernel_half(snapshot: &Snapshot) -> Result<KernelVerdict, Error> {
    let upper = kernel_half(&snapshot.cpus).ok_or_else(|| {
        let why = no_linux(&snapshot.cpus);
        let why = why.unwrap_or_else(|| "every CPU was at EL0 or on its way there, with what may be KPTI's trampoline in TTBR1_EL1".into());
        Error::Input(format!("the kernel half was not judged: {why}"))
    })?;
    let facts = Facts::of(snapshot);
    let release = Release::parse(&snapshot.notes.kernel_release);
    let image = facts.image.map(|(start, end)| start..end);
    let in_pages = facts.stays_in_pages(&snapshot.memory, &upper);
    let splits = facts.splits_on_demand(&snapshot.memory, &upper);
    let layout = KernelLayout::new(&upper, release, image, in_pages).map(|layout| {
        let layout = layout.with_shadow(&upper, facts.kasan_scale);
        match splits {
            Some(false) => layout.without_splits(in_pages),
            Some(true) | None => layout,
        }
    });
    Ok(judge_kernel(&snapshot.memory, &upper, layout.as_ref()))
}
