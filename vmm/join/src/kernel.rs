//! The kernel half: which CPU shows it, and what the rules say of it.

use linux::release::Release;
use snapshot::{Cpu, Snapshot};
use stage1::{Half, PhysMemory, Regime};
use verdict::{judge_kernel, KernelLayout, KernelVerdict};

use crate::{Error, Facts};

/// The upper half as the kernel itself sees it.
///
/// A CPU at EL0 may have KPTI's trampoline in TTBR1_EL1, so a CPU at EL1 is preferred; where all
/// are at EL0, one whose VBAR_EL1 leads to mapped memory outside the fixmap serves as well, since the
/// trampoline's vectors are at the top of the half (`TRAMP_VALIAS`, asm/fixmap.h) and the kernel's are not.
#[must_use]
pub fn kernel_half(cpus: &[Cpu]) -> Option<Regime> {
    /// The fixmap lies within the last GiB of the half.
    const FIXMAP: u64 = !0 << 30;
    let in_kernel = cpus.iter().filter(|cpu| cpu.el() == 1);
    let by_vectors = cpus
        .iter()
        .filter(|cpu| cpu.el() == 0 && cpu.system.vbar_el1.is_some_and(|vbar| vbar < FIXMAP));
    in_kernel
        .chain(by_vectors)
        .find_map(|cpu| Regime::new(&cpu.system, Half::Upper).ok())
}

/// Whether the linear map must stay changeable page by page (`can_set_direct_map()`); `None` where that
/// cannot be told.
pub(crate) fn rodata_full<M: PhysMemory + ?Sized>(
    memory: &M,
    upper: &Regime,
    facts: Facts,
) -> Option<bool> {
    let mut byte = [0];
    linux::kernel_memory::read(memory, upper, facts.rodata_full?, &mut byte).ok()?;
    (byte == [1] || facts.rodata_alone).then_some(byte == [1])
}

/// Judges the kernel half of a snapshot.
///
/// # Errors
/// Where no CPU shows it.
pub fn judge_kernel_half(snapshot: &Snapshot) -> Result<KernelVerdict, Error> {
    let upper = kernel_half(&snapshot.cpus).ok_or_else(|| Error::Input("the kernel half was not judged: every CPU was at EL0, with what may be KPTI's trampoline in TTBR1_EL1".into()))?;
    let facts = Facts::of(snapshot);
    let release = Release::parse(&snapshot.notes.kernel_release);
    let image = facts.image.map(|(start, end)| start..end);
    let layout = KernelLayout::new(
        &upper,
        release,
        image,
        rodata_full(&snapshot.memory, &upper, facts),
    );
    Ok(judge_kernel(&snapshot.memory, &upper, layout.as_ref()))
}
