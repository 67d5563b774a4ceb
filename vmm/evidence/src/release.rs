// SPDX-License-Identifier: GPL-2.0-only
//! A kernel's release, and by what it is known: the only place that finds it in a guest's memory.
//!
//! Three variables of the kernel give it, each where its symbols are known: `linux_banner`, `init_uts_ns`, and the
//! OSRELEASE of its VMCOREINFO. Without symbols a banner is searched for around the kernel's vectors.

use std::fmt;

use linux::kallsyms;
use linux::kernel_memory::read;
use linux::release::{in_banner, Release, BANNER, LONGEST};
use linux::symbols::{BuildId, Symbols};
use memchr::memmem;
use snapshot::Cpu;
use stage1::{lookup, Lookup, PhysMemory, Regime, VirtualAddress};
use structures::vmcoreinfo::VmCoreInfo;
use structures::{Kernel, View};

use crate::cpus::{in_trampoline, slide, vectors};
use crate::Error;

/// The source of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The agent in the guest: `uname -r`.
    Agent,
    /// `linux_banner`, by the symbols of a vmlinux.
    Vmlinux,
    /// `linux_banner` (init/version.c), by the symbols in the kernel's memory.
    Banner,
    /// `init_uts_ns` (init/version.c), by symbols and types.
    Uts,
    /// OSRELEASE of VMCOREINFO (kernel/vmcore_info.c).
    VmCoreInfo,
    /// A banner in read-only data around the vectors.
    ReadOnlyData,
    /// A banner in other memory around the vectors.
    Memory,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            By::Agent => "the guest's agent",
            By::Vmlinux => "linux_banner, where the vmlinux has it",
            By::Banner => "linux_banner",
            By::Uts => "init_uts_ns",
            By::VmCoreInfo => "its VMCOREINFO",
            By::ReadOnlyData => "a banner in its read-only data",
            By::Memory => "a banner in its memory",
        })
    }
}

/// A release as `uname -r` prints it, and what says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// The release.
    pub release: String,
    /// Its source.
    pub by: By,
}

/// The reason that no release is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRecognised {
    /// Another instant may show it.
    #[error("no CPU was in the kernel when its release was looked for")]
    NotNow,
    /// Nothing in its memory says it.
    #[error("no Linux was found: there is neither its symbol table nor its banner within {} MiB of VBAR_EL1 0x{vbar:016x}", REACH >> 20)]
    Nowhere {
        /// VBAR_EL1 of the CPU around whose vectors it was looked for.
        vbar: u64,
    },
    /// Two of its variables, or of the banners in its memory, say different releases.
    #[error("the kernel's release is not known: {one} says {first}, and {other} says {second}")]
    Differs {
        /// The source of the one.
        one: By,
        /// That release.
        first: String,
        /// The source of the other.
        other: By,
        /// That release.
        second: String,
    },
}

/// Finds the release in the kernel's memory: by `kernel`'s symbols and types, where they are known, else by whatever is
/// there.
///
/// # Errors
/// Where it is not known, or two sources differ.
pub fn find<M: PhysMemory + ?Sized>(
    view: View<'_, M>,
    cpus: &[Cpu],
    kernel: Option<&Kernel>,
) -> Result<Recognised, NotRecognised> {
    let mut said = Vec::new();
    match kernel {
        Some(kernel) => {
            said.extend(in_variable(&kernel.symbols, view));
            said.extend(in_uts(kernel, view));
            said.extend(in_vmcoreinfo(kernel, view));
        }
        // A kernel without types may have symbols.
        None => {
            let symbols = vectors(cpus).next();
            let symbols =
                symbols.and_then(|vbar| kallsyms::read(view.memory, view.upper, vbar).ok());
            said.extend(symbols.and_then(|symbols| in_variable(&symbols, view)));
        }
    }
    if let Some(found) = agreed(said)? {
        return Ok(found);
    }
    let vbar = vectors(cpus).next().ok_or(NotRecognised::NotNow)?;
    for by in [By::ReadOnlyData, By::Memory] {
        if let Some(found) = agreed(search(view, vbar, by))? {
            return Ok(found);
        }
    }
    Err(NotRecognised::Nowhere { vbar })
}

/// The first, where all are of one series; `None` where there are none.
fn agreed(said: impl IntoIterator<Item = Recognised>) -> Result<Option<Recognised>, NotRecognised> {
    let mut said = said.into_iter();
    let Some(first) = said.next() else {
        return Ok(None);
    };
    let series = |it: &Recognised| Release::parse(&it.release).map(|it| (it.major, it.minor));
    match said.find(|other| series(other) != series(&first)) {
        None => Ok(Some(first)),
        Some(other) => Err(NotRecognised::Differs {
            one: first.by,
            first: first.release,
            other: other.by,
            second: other.release,
        }),
    }
}

/// `linux_banner`, by the symbols of the running kernel.
fn in_variable<M: PhysMemory + ?Sized>(symbols: &Symbols, view: View<'_, M>) -> Option<Recognised> {
    let va = symbols.address("linux_banner")?;
    let release = banner_at(view.memory, view.upper, va)?;
    Some(Recognised {
        release,
        by: By::Banner,
    })
}

/// The release in the banner at `va`.
fn banner_at<M: PhysMemory + ?Sized>(memory: &M, upper: &Regime, va: u64) -> Option<String> {
    let mut text = vec![0; BANNER.len() + LONGEST];
    read(memory, upper, va, &mut text).ok()?;
    in_banner(&text).map(str::to_owned)
}

/// `init_uts_ns.name.release`: no system call changes it.
fn in_uts<M: PhysMemory + ?Sized>(kernel: &Kernel, view: View<'_, M>) -> Option<Recognised> {
    let va = kernel.variable("init_uts_ns").ok()?;
    let member = kernel.types.member("uts_namespace", "name.release").ok()?;
    let limit = member.elements.min(LONGEST as u64 + 1);
    let release = view.text("init_uts_ns", va.wrapping_add(member.offset), limit);
    said_by(release.ok()?.raw().to_owned(), By::Uts)
}

fn in_vmcoreinfo<M: PhysMemory + ?Sized>(kernel: &Kernel, view: View<'_, M>) -> Option<Recognised> {
    let info = VmCoreInfo::read(kernel, view).ok()?;
    said_by(info.value("OSRELEASE")?.to_owned(), By::VmCoreInfo)
}

/// A release, if it is one.
fn said_by(release: String, by: By) -> Option<Recognised> {
    Release::parse(&release).map(|_| Recognised { release, by })
}

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
pub fn by_vmlinux<T: PhysMemory + ?Sized, D: PhysMemory + ?Sized>(
    symbols: &Symbols,
    cpus: &[Cpu],
    tables: &T,
    upper: &Regime,
    data: &D,
) -> Result<Option<Recognised>, Error> {
    let Some(slide) = slide(symbols, cpus) else {
        // With KPTI a CPU in user mode has other vectors; one in the kernel has these.
        let in_kernel =
            |cpu: &Cpu| cpu.el() == 1 && cpu.system.vbar_el1.is_some() && !in_trampoline(cpu);
        return match cpus.iter().any(in_kernel) {
            true => Err(Error::Input("the vmlinux is not that of the kernel that runs: its vectors are not where VBAR_EL1 of any CPU is; give the vmlinux of that very build".into())),
            false => Ok(None),
        };
    };
    let both = Both { tables, data };
    let runs = |name| Some(symbols.address(name)?.wrapping_add(slide));
    let notes = runs("__start_notes").zip(runs("__stop_notes"));
    let notes = notes.filter(|(start, end)| (1..1 << 16).contains(&end.wrapping_sub(*start)));
    let notes = notes.and_then(|(start, end)| {
        let mut notes = vec![0; (end - start) as usize];
        read(&both, upper, start, &mut notes).ok().map(|()| notes)
    });
    if let Some(running) = notes.and_then(|notes| BuildId::from_notes(&notes)) {
        symbols.matches(&running)?;
    }
    let Some(banner) = runs("linux_banner") else {
        return Ok(None);
    };
    match banner_at(&both, upper, banner) {
        None => Err(Error::Input("the vmlinux is not that of the kernel that runs: its banner is not there; give the vmlinux of that very build".into())),
        Some(release) => Ok(Some(Recognised {
            release,
            by: By::Vmlinux,
        })),
    }
}

/// The banners around the vectors at `vbar`: in read-only data, or wherever else ([`By::Memory`]). There a kernel has them
/// that protects nothing, as with `rodata=off`, or before it does.
fn search<M: PhysMemory + ?Sized>(view: View<'_, M>, vbar: u64, by: By) -> Vec<Recognised> {
    let View { memory, upper } = view;
    let page = upper.granule.bytes();
    let first = vbar.saturating_sub(REACH).max(upper.first.0) & !(page - 1);
    let last = vbar.saturating_add(REACH).min(upper.last.0);
    let read_only = READ_ONLY | NEVER_RUN;
    let mut found: Vec<Recognised> = Vec::new();
    // Bytes behind each other in virtual memory, with the end of those before them.
    let (mut text, mut va) = (Vec::new(), first);
    while va < last {
        let bytes = match lookup(memory, upper, VirtualAddress(va)) {
            Lookup::Mapped { entry, pa, .. }
                if by == By::Memory || entry.descriptor.word & read_only == read_only =>
            {
                memory.words(pa, (page / 8) as usize)
            }
            _ => None,
        };
        va += page;
        let Some(words) = bytes else {
            text.clear();
            continue;
        };
        text.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        for release in memmem::find_iter(&text, BANNER).filter_map(|at| in_banner(&text[at..])) {
            if found.iter().all(|it| it.release != release) {
                let release = release.to_owned();
                found.push(Recognised { release, by });
            }
        }
        let kept = text.len().min(BANNER.len() + LONGEST);
        text.drain(..text.len() - kept);
    }
    found
}

/// Tables of one instant, and all other data of another.
#[derive(Debug)]
pub struct Both<'a, T: ?Sized, D: ?Sized> {
    /// The tables.
    pub tables: &'a T,
    /// All other data.
    pub data: &'a D,
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

#[cfg(test)]
mod tests {
    use linux::symbols::SymbolTable;
    use stage1::testing::{Attributes, Layout, SparseMemory, TableBuilder};
    use stage1::{Granule, Half};

    use super::*;

    const TEXT: u64 = 0xffff_8000_8001_0000;
    const DATA: u64 = 0xffff_8000_8002_0000;
    /// AP\[2:1\] of data that EL1 alone may read, and of data that it may write.
    const READ: u8 = 0b10;
    const WRITE: u8 = 0b00;

    /// A kernel's text, and behind it a page of data with this AP and this text.
    fn kernel(ap: u8, text: &str) -> (SparseMemory, Regime, Vec<Cpu>) {
        let mut tables = TableBuilder::new(Layout::new(Granule::K4, Half::Upper, 48));
        let attributes = Attributes {
            ap,
            pxn: true,
            ..Attributes::default()
        };
        let code = Attributes {
            ap: READ,
            pxn: false,
            ..Attributes::default()
        };
        tables.map_page(TEXT, 0x8000_0000, code, false);
        tables.map_page(DATA, 0x8001_0000, attributes, false);
        let registers = tables.registers();
        let upper = Regime::new(&registers, Half::Upper).unwrap();
        let mut cpu = Cpu {
            system: registers,
            ..Cpu::default()
        };
        cpu.system.vbar_el1 = Some(TEXT);
        cpu.general.pstate = 0b0101;
        cpu.general.pc = TEXT;
        let mut memory = tables.into_memory();
        memory.add(0x8000_0000, vec![0; 512]);
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(4096, 0);
        let words = bytes.chunks_exact(8);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        memory.add(0x8001_0000, words.collect());
        (memory, upper, vec![cpu])
    }

    fn found(ap: u8, text: &str) -> Result<(String, By), NotRecognised> {
        let (memory, upper, cpus) = kernel(ap, text);
        let view = View {
            memory: &memory,
            upper: &upper,
        };
        find(view, &cpus, None).map(|found| (found.release, found.by))
    }

    const BANNERS: &str = "Linux version %s (%s) Linux version 7.3.4-arm64 (a@b) (gcc) #1 SMP";

    #[test]
    fn a_banner_is_found_whether_or_not_it_is_protected() {
        let release = "7.3.4-arm64".to_owned();
        assert_eq!(
            found(READ, BANNERS),
            Ok((release.clone(), By::ReadOnlyData))
        );
        // With rodata=off, and before a kernel protects its text.
        assert_eq!(found(WRITE, BANNERS), Ok((release, By::Memory)));
        let none = Err(NotRecognised::Nowhere { vbar: TEXT });
        assert_eq!(found(READ, "U-Boot 2023.01 (Jan 2023)"), none);
        let (memory, upper, mut cpus) = kernel(READ, BANNERS);
        cpus[0].system.vbar_el1 = None;
        let view = View {
            memory: &memory,
            upper: &upper,
        };
        assert_eq!(find(view, &cpus, None), Err(NotRecognised::NotNow));
    }

    #[test]
    fn banners_of_two_series_are_no_release() {
        let twice = |other: &str| found(WRITE, &format!("{BANNERS} Linux version {other} (a@b) "));
        assert!(matches!(
            twice("6.12.9"),
            Err(NotRecognised::Differs { .. })
        ));
        // A stable release of the same series decides nothing.
        assert_eq!(twice("7.3.5").unwrap().0, "7.3.4-arm64");
    }

    #[test]
    fn symbols_lead_to_the_banner() {
        let (memory, upper, _) = kernel(WRITE, &BANNERS["Linux version %s (%s) ".len()..]);
        let view = View {
            memory: &memory,
            upper: &upper,
        };
        let symbols = |va| {
            Symbols::of_running(SymbolTable {
                names: b"linux_banner\0".to_vec(),
                symbols: vec![(va, 0)],
            })
        };
        let at = |va| in_variable(&symbols(va), view).map(|found| (found.release, found.by));
        assert_eq!(at(DATA), Some(("7.3.4-arm64".into(), By::Banner)));
        assert_eq!([at(DATA + 8), at(DATA + 0x1_0000)], [None, None]);
    }

    #[test]
    fn sources_that_differ_are_both_named() {
        let said = |by, release: &str| said_by(release.into(), by).unwrap();
        let banner = said(By::Banner, "7.3.4");
        let same = [banner.clone(), said(By::Uts, "7.3.9-x")];
        assert_eq!(agreed(same).unwrap(), Some(banner.clone()));
        let error = agreed([banner, said(By::VmCoreInfo, "6.12.1")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kernel's release is not known: linux_banner says 7.3.4, and its VMCOREINFO says 6.12.1"
        );
        assert_eq!(agreed([]).unwrap(), None);
        assert_eq!(said_by("garbage".into(), By::Uts), None);
    }
}
