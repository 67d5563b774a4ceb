// SPDX-License-Identifier: GPL-2.0-only
//! A core that another program wrote (QEMU's dump-guest-memory, kdump) as a snapshot.
//!
//! Such a core has general registers alone. How its CPUs translate is worked out from what the kernel wrote of itself
//! (VMCOREINFO) and holds in its memory, and a guess is never taken: the regime has to map the kernel's text and its own
//! first table to where the kernel says that they are. What is left open is open in the direction that makes no finding:
//!
//! | register | by |
//! |---|---|
//! | TTBR1_EL1 | `SYMBOL(swapper_pg_dir)` less `NUMBER(kimage_voffset)` |
//! | TCR_EL1.TG0, TG1 | `PAGESIZE` |
//! | TCR_EL1.T1SZ | `NUMBER(TCR_EL1_T1SZ)`, else `NUMBER(VA_BITS)`; T0SZ is the same (`vabits_actual`) |
//! | TCR_EL1.DS | the granule and T1SZ: Linux has 52 bits of 4K and 16K pages with LPA2 alone |
//! | TCR_EL1.IPS | ID_AA64MMFR0_EL1.PARange and `NUMBER(MAX_PHYSMEM_BITS)`, as `tcr_compute_pa_size` does |
//! | TCR_EL1.HA, HD | may be on, wherever ID_AA64MMFR1_EL1.HAFDBS has them or is not known |
//! | TCR_EL1.TBI0, TBI1 | on: a tag in an address is ignored |
//! | MAIR_EL1 | `MAIR_EL1_SET` (arch/arm64/mm/proc.S), since 5.12; MT_NORMAL_TAGGED is tagged with MTE |
//! | SCTLR_EL1 | M is 1, WXN and EE are 0: `INIT_SCTLR_EL1_MMU_ON` |
//! | VBAR_EL1 | `vectors` among the kernel's symbols, which have to agree with `SYMBOL(_stext)` |
//! | ID registers | `cpu_data`, where all CPUs agree; TCR2_EL1 stays unknown, and is needed with S1PIE alone |
//! | TTBR0_EL1 | unknown: each process by its task's first table |
//! | SP_EL0 in the kernel | `__entry_task`, where as many CPUs came up as the core has |

use linux::kallsyms;
use snapshot::{Cpu, Memory, Notes, OtherCore, Snapshot, PAGE};
use stage1::{
    lookup, Granule, Half, Lookup, PhysMemory, PhysicalAddress, Regime, SystemRegisters,
    VirtualAddress,
};
use structures::cpu_data::{id_registers, IdRegisters};
use structures::vmcoreinfo::VmCoreInfo;
use structures::{Kernel, View};

use crate::Error;

/// The notes' key of how the registers came about.
const HOW: &str = "registers_worked_out";

/// `vmcoreinfo_data` is a page that begins with this line.
const BEGINS: u64 = u64::from_le_bytes(*b"OSRELEAS");

/// Pages that begin so: more are not looked at.
const MOST_PAGES: usize = 64;

/// PSTATE.M of EL1h, and its exception level.
const EL1H: u64 = 0b0101;
const LEVEL: u64 = 0b1100;

/// Works out how the CPUs translate.
///
/// # Errors
/// Where the core does not say enough.
pub fn work_out(core: OtherCore) -> Result<Snapshot, Error> {
    let memory = core.memory;
    let found = match &core.vmcoreinfo {
        Some(text) => by_note(&memory, text),
        None => in_memory(&memory),
    };
    let (info, mut system, by) = found.map_err(|why| {
        Error::Input(format!(
            "the core was not written by `folioscope save`, and how its CPUs translate cannot be worked out: {why}"
        ))
    })?;
    let inside = refine(&memory, &info, &mut system);
    let mut cpus = core.cpus;
    let has_none = cpus.is_empty();
    if has_none {
        cpus.push(Cpu::default());
        cpus[0].general.pstate = EL1H;
    }
    let at_el2 = cpus.iter().any(|cpu| cpu.el() == 2);
    for cpu in &mut cpus {
        cpu.system = system;
        if cpu.el() == 2 {
            cpu.general.pstate ^= LEVEL;
        }
    }
    if let Some(tasks) = &inside.tasks {
        if tasks.len() == cpus.len() {
            for (cpu, task) in cpus.iter_mut().zip(tasks) {
                cpu.general.sp_el0 = Some(*task);
            }
        }
    }
    let mut how = vec![format!(
        "the core has no system registers; they were worked out from the kernel's VMCOREINFO ({by}) and its memory"
    )];
    how.push("whether CPUs set AF and the dirty state (TCR_EL1.HA, HD) is taken to be possible where ID_AA64MMFR1_EL1.HAFDBS allows it".into());
    how.extend(inside.why_not.map(|why| format!("the CPUs' ID registers are not known ({why}), so nothing is held against what they may allow")));
    if at_el2 {
        how.push(
            "the kernel ran at EL2 (VHE), whose EL2&0 regime has the descriptors of EL1&0".into(),
        );
    }
    if has_none {
        how.push("the core has no registers of CPUs at all".into());
    }
    let mut notes = Notes {
        machine: "a core of another program".into(),
        kernel_release: info.value("OSRELEASE").unwrap_or_default().to_owned(),
        page_size: info
            .value("PAGESIZE")
            .and_then(|size| size.parse().ok())
            .unwrap_or(0),
        ..Notes::default()
    };
    notes.extra.insert(HOW.into(), how.join("; ").into());
    Ok(Snapshot {
        cpus,
        memory,
        notes,
    })
}

/// How the registers of a snapshot were worked out, where they were: then no CPU's TTBR0_EL1 is known.
#[must_use]
pub fn how(notes: &Notes) -> Option<&str> {
    notes.extra.get(HOW)?.as_str()
}

type Found = (VmCoreInfo, SystemRegisters, &'static str);

fn by_note(memory: &Memory, text: &str) -> Result<Found, String> {
    let info = VmCoreInfo::parse(text.as_bytes());
    let info = info.ok_or("its VMCOREINFO note does not say OSRELEASE and PAGESIZE")?;
    let system = registers(memory, &info)?;
    Ok((info, system, "its note"))
}

/// The kernel's own page of it. Of copies, and of what a kernel that ran before has left, none proves itself right.
fn in_memory(memory: &Memory) -> Result<Found, String> {
    let mut why = "it has no VMCOREINFO note, and no page of its memory holds one (QEMU adds the note with -device vmcoreinfo; a kernel has it with CONFIG_VMCORE_INFO)".to_owned();
    let mut found: Option<Found> = None;
    for page in memory.pages_that_begin_with(BEGINS, MOST_PAGES) {
        let Some(info) = VmCoreInfo::parse(&text(memory, page)) else {
            continue;
        };
        match (registers(memory, &info), &found) {
            (Ok(system), None) => found = Some((info, system, "found in memory")),
            (Ok(system), Some((_, other, _))) if system != *other => {
                return Err("two kernels in its memory have a VMCOREINFO that fits (did another one run before?)".into());
            }
            (Ok(_), Some(_)) => (),
            (Err(no), _) => why = no,
        }
    }
    found.ok_or(why)
}

/// Returns the contents of a page, and of those behind it up to 64 KiB, which is the largest page of a kernel.
fn text(memory: &Memory, page: PhysicalAddress) -> Vec<u8> {
    let pages = (0..16).map(|nth| PhysicalAddress(page.0 + nth * PAGE));
    let words = pages.map_while(|page| memory.words(page, PAGE as usize / 8));
    words
        .flatten()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

/// The registers by which the kernel's text and first table are where VMCOREINFO says.
fn registers(memory: &Memory, info: &VmCoreInfo) -> Result<SystemRegisters, String> {
    let missing = |name: &str| format!("VMCOREINFO does not say {name}");
    let symbol = |name: &str| {
        info.symbol(name)
            .ok_or_else(|| missing(&format!("SYMBOL({name})")))
    };
    let number = |name: &str| {
        info.number(name)
            .ok_or_else(|| missing(&format!("NUMBER({name})")))
    };
    let (table, text) = (symbol("swapper_pg_dir")?, symbol("_stext")?);
    let offset = number("kimage_voffset")? as u64;
    let size = info.value("PAGESIZE").unwrap_or_default();
    let granule = match size {
        "4096" => Granule::K4,
        "16384" => Granule::K16,
        "65536" => Granule::K64,
        _ => {
            return Err(format!(
                "its PAGESIZE is {size}, expected 4096, 16384 or 65536"
            ))
        }
    };
    let sizes = match (info.number("TCR_EL1_T1SZ"), number("VA_BITS")?) {
        (Some(size), _) => vec![size],
        // Linux has fewer bits than it was built for where the CPUs lack them.
        (None, 52) => vec![12, 16, 17],
        (None, bits) => vec![64 - bits],
    };
    let wide = info.number("MAX_PHYSMEM_BITS").is_none_or(|bits| bits > 48);
    let place = |va: u64| PhysicalAddress(va.wrapping_sub(offset));
    for size in sizes.into_iter().filter(|size| (12..=48).contains(size)) {
        // With 64K pages and 48 of 52 bits TTBR1_EL1 points into the table: TTBR1_BADDR_4852_OFFSET.
        let within = match granule {
            Granule::K64 => vec![0, ((1 << 10) - (1 << 6)) * 8],
            Granule::K4 | Granule::K16 => vec![0],
        };
        for within in within {
            let root = place(table).0.wrapping_add(within);
            let system = SystemRegisters {
                ttbr1_el1: root & 0x0000_ffff_ffff_ffff | root >> 46 & 0x3c,
                tcr_el1: tcr(granule, size as u64, wide),
                mair_el1: MAIR,
                sctlr_el1: 1,
                ..SystemRegisters::default()
            };
            let Ok(regime) = Regime::new(&system, Half::Upper) else {
                continue;
            };
            let is_there = |va: u64| {
                let found = lookup(memory, &regime, VirtualAddress(va));
                matches!(found, Lookup::Mapped { pa, .. } if pa == place(va))
            };
            if is_there(text) && is_there(table) {
                return Ok(system);
            }
        }
    }
    Err(format!(
        "by VMCOREINFO the kernel's first table is at {}, and it does not map the kernel's text at 0x{text:016x} to {}",
        place(table),
        place(text)
    ))
}

/// TCR_EL1 as `__cpu_setup` makes it (arch/arm64/mm/proc.S), with all on that a CPU may do by itself.
fn tcr(granule: Granule, size: u64, wide: bool) -> u64 {
    let (tg0, tg1) = match granule {
        Granule::K4 => (0b00, 0b10),
        Granule::K16 => (0b10, 0b01),
        Granule::K64 => (0b01, 0b11),
    };
    let ips = if wide { 6 } else { 5 };
    let ds = u64::from(granule != Granule::K64 && size < 16);
    let on = |bits: &[u32]| bits.iter().fold(0, |all, bit| all | 1 << bit);
    // A1, AS, TBI0, TBI1, HA, HD.
    size | size << 16 | tg0 << 14 | tg1 << 30 | ips << 32 | ds << 59 | on(&[22, 36, 37, 38, 39, 40])
}

/// `MAIR_EL1_SET` since 5.12: MT_NORMAL, MT_NORMAL_TAGGED, MT_NORMAL_NC, MT_DEVICE_nGnRnE, MT_DEVICE_nGnRE. Kernels before 6.5
/// have no symbols that are read here.
const MAIR: u64 = 0x0000_0004_0044_ffff;

/// MAIR_EL1's byte for MT_NORMAL_TAGGED with MTE.
const TAGGED: u64 = 0xf0;

/// Facts that the kernel's symbols and types give.
#[derive(Debug, Default)]
struct Inner {
    /// The task of each CPU that came up.
    tasks: Option<Vec<u64>>,
    /// The reason if the ID registers are not known.
    why_not: Option<String>,
}

/// Adds what the kernel's memory tells of its CPUs.
fn refine(memory: &Memory, info: &VmCoreInfo, system: &mut SystemRegisters) -> Inner {
    let mut refined = || {
        let upper = Regime::new(system, Half::Upper).map_err(|error| error.to_string())?;
        let text = info.symbol("_stext").unwrap_or(0);
        let vectors = kallsyms::vectors(memory, &upper, text).map_err(|error| error.to_string())?;
        system.vbar_el1 = Some(vectors);
        let kernel = Kernel::find(memory, &upper, vectors).map_err(|error| error.to_string())?;
        let view = View {
            memory,
            upper: &upper,
        };
        let ids = id_registers(&kernel, view).map_err(|error| error.to_string())?;
        let tasks = structures::cpu_data::current_tasks(&kernel, view, &ids).ok();
        let with_mte = kernel.symbols.address("mte_thread_init_user").is_some();
        agree(
            system,
            &ids.into_iter().flatten().collect::<Vec<_>>(),
            with_mte,
        );
        Ok(tasks)
    };
    match refined() {
        Ok(tasks) => Inner {
            tasks,
            why_not: None,
        },
        Err(why) => Inner {
            tasks: None,
            why_not: Some(why),
        },
    }
}

/// The ID registers in which all CPUs agree.
fn agree(system: &mut SystemRegisters, ids: &[IdRegisters], with_mte: bool) {
    let Some(first) = ids.first() else { return };
    for number in 0..4 {
        let same = ids.iter().all(|ids| ids.mmfr[number] == first.mmfr[number]);
        system.id_aa64mmfr[number] = first.mmfr[number].filter(|_| same);
    }
    // ID_AA64PFR1_EL1.MTE, bits [11:8]: 2 is memory tagging.
    let has_mte = |ids: &IdRegisters| ids.pfr1.is_some_and(|pfr1| pfr1 >> 8 & 0xf >= 2);
    if with_mte && ids.iter().all(has_mte) {
        system.mair_el1 = system.mair_el1 & !0xff00 | TAGGED << 8;
    }
}
