//! Which kernel runs, as its own read-only memory says.

use linux::release::{in_banner, BANNER, LONGEST};
use linux::symbols::{BuildId, Symbols};
use snapshot::Cpu;
use stage1::{lookup, Lookup, PhysMemory, Regime, VirtualAddress};

use crate::kernel::in_trampoline;
use crate::{slide, Error};

/// How far from the vectors the image's read-only data may be.
const REACH: u64 = 64 << 20;
/// AP\[2\] and PXN: read-only data, not text, and not the log, which holds the words too.
const READ_ONLY: u64 = 1 << 7;
const NEVER_RUN: u64 = 1 << 53;

/// By the symbols of a vmlinux, which has to be the one that runs. `tables` is the kernel half as it was, `data` what
/// it leads to.
///
/// # Errors
/// Where it is another kernel's.
pub fn by_symbols<T: PhysMemory + ?Sized, D: PhysMemory + ?Sized>(
    symbols: &Symbols,
    cpus: &[Cpu],
    tables: &T,
    upper: &Regime,
    data: &D,
) -> Result<Option<String>, Error> {
    let Some(slide) = slide(symbols, cpus) else {
        // With KPTI a CPU in user mode has other vectors; one in the kernel has these.
        let in_kernel =
            |cpu: &Cpu| cpu.el() == 1 && cpu.system.vbar_el1.is_some() && !in_trampoline(cpu);
        return match cpus.iter().any(in_kernel) {
            true => Err(Error::Input("the vmlinux is not that of the kernel that runs: its vectors are not where VBAR_EL1 of any CPU is; give the vmlinux of that very build".into())),
            false => Ok(None),
        };
    };
    let read = |va: u64, bytes: usize| {
        let both = Both { tables, data };
        let mut buffer = vec![0; bytes];
        linux::kernel_memory::read(&both, upper, va, &mut buffer).ok()?;
        Some(buffer)
    };
    let runs = |name| Some(symbols.address(name)?.wrapping_add(slide));
    let notes = runs("__start_notes").zip(runs("__stop_notes"));
    let notes = notes.filter(|(start, end)| (1..1 << 16).contains(&end.wrapping_sub(*start)));
    let notes = notes.and_then(|(start, end)| read(start, (end - start) as usize));
    if let Some(running) = notes.and_then(|notes| BuildId::from_notes(&notes)) {
        symbols.matches(&running)?;
    }
    let banner = runs("linux_banner").and_then(|va| read(va, BANNER.len() + LONGEST));
    match banner.as_deref().map(in_banner) {
        Some(None) => Err(Error::Input("the vmlinux is not that of the kernel that runs: its banner is not there; give the vmlinux of that very build".into())),
        found => Ok(found.flatten().map(str::to_owned)),
    }
}

/// Without a vmlinux: by a search through the read-only data around the vectors.
pub fn by_search<T: PhysMemory + ?Sized, D: PhysMemory + ?Sized>(
    cpus: &[Cpu],
    tables: &T,
    upper: &Regime,
    data: &D,
) -> Option<String> {
    let in_kernel = cpus.iter().filter(|cpu| cpu.el() == 1);
    let vbar = in_kernel.filter_map(|cpu| cpu.system.vbar_el1).next()?;
    let page = upper.granule.bytes();
    let first = vbar.saturating_sub(REACH).max(upper.first.0) & !(page - 1);
    let last = vbar.saturating_add(REACH).min(upper.last.0);
    let mut found: Option<String> = None;
    // What is behind each other in virtual memory, with the end of what came before.
    let (mut text, mut va) = (Vec::new(), first);
    while va < last {
        let bytes = match lookup(tables, upper, VirtualAddress(va)) {
            Lookup::Mapped { entry, pa, .. }
                if entry.descriptor.word & READ_ONLY != 0
                    && entry.descriptor.word & NEVER_RUN != 0 =>
            {
                data.words(pa, (page / 8) as usize)
            }
            _ => None,
        };
        va += page;
        let Some(words) = bytes else {
            text.clear();
            continue;
        };
        text.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let mut places = text.windows(BANNER.len()).enumerate();
        let places = places.by_ref().filter(|(_, window)| *window == BANNER);
        for release in places.filter_map(|(at, _)| in_banner(&text[at..])) {
            // Two that do not agree are none that is known.
            if found.as_ref().is_some_and(|found| found != release) {
                return None;
            }
            found = Some(release.to_owned());
        }
        let kept = text.len().min(BANNER.len() + LONGEST);
        text.drain(..text.len() - kept);
    }
    found
}

/// Tables of one instant, and whatever else of another.
pub(super) struct Both<'a, T: ?Sized, D: ?Sized> {
    pub(super) tables: &'a T,
    pub(super) data: &'a D,
}

impl<T: PhysMemory + ?Sized, D: PhysMemory + ?Sized> PhysMemory for Both<'_, T, D> {
    fn words(&self, address: stage1::PhysicalAddress, count: usize) -> Option<&[u64]> {
        let words = self.tables.words(address, count);
        words.or_else(|| self.data.words(address, count))
    }

    fn is_ram(&self, address: stage1::PhysicalAddress) -> bool {
        self.tables.is_ram(address)
    }
}
