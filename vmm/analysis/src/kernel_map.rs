// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's half, part by part and area by area: by what sizes it is mapped.

use std::ops::Range;

use linux::release::Release;
use report::kernel_map::{parts, sizes, Area, KernelMap, Sizes};
use report::listing::LISTING_VERSION;
use snapshot::Cpu;
use stage1::PhysMemory;
use structures::vmap::{Layout, VmArea};
use structures::vmcoreinfo::VmCoreInfo;
use verdict::{Hex, KernelLayout};

use evidence::{inside::Inside, Facts};

/// Names of vmalloc's flags in `/proc/vmallocinfo` (include/linux/vmalloc.h; mm/vmalloc.c, vmalloc_info_show()).
const KINDS: [(u64, &str); 5] = [
    (0x1, "ioremap"),
    (0x2, "vmalloc"),
    (0x4, "vmap"),
    (0x8, "user"),
    (0x10, "dma-coherent"),
];

/// The kernel's half of a guest at one instant; and, where vmalloc's lists were just being changed, that another instant
/// may show the areas too.
pub fn kernel_map<M: PhysMemory + ?Sized>(
    inside: &Inside,
    memory: &M,
    cpus: &[Cpu],
) -> (KernelMap, Option<&'static str>) {
    let (view, mut notes) = (inside.view(memory), Vec::new());
    let info = inside.vmcoreinfo(memory);
    let release = inside.release(memory, cpus).ok();
    let release = release.as_ref().map(|found| found.release.as_str());
    let facts = Facts::new(Some(&inside.kernel.symbols), cpus);
    let image = facts.image;
    let image = image.map(|(start, end)| start..end);
    let known = known(inside, facts, info.as_ref().ok(), release);
    if let Err(why) = &info {
        notes.push(format!(
            "modules, vmalloc and vmemmap are among the others: {why}"
        ));
    }
    let areas = Layout::new(&inside.kernel).and_then(|layout| layout.areas(view));
    let later = areas.as_ref().err().filter(|error| error.may_pass());
    let later = later.map(|_| "vmalloc's lists were being changed");
    if let Err(why) = &areas {
        notes.push(format!("the areas of vmalloc are not known: {why}"));
    }
    let (parts, walked) = parts(memory, &inside.upper, known);
    if !walked.complete {
        notes.push(format!(
            "not all tables could be read, and what the others map is missing here: descriptors that lead to no memory or back to a table above: {}",
            walked.problems
        ));
    }
    let described = |areas: Vec<VmArea>| {
        let ranges: Vec<Range<u64>> = areas.iter().map(|area| area.start..area.end).collect();
        let mapped = sizes(memory, &inside.upper, &ranges);
        let areas = areas.iter().zip(mapped);
        areas
            .map(|(area, mapped)| describe(inside, image.as_ref(), area, mapped))
            .collect()
    };
    let map = KernelMap {
        schema_version: LISTING_VERSION,
        kernel: release.map(str::to_owned),
        page_size: inside.upper.granule.bytes(),
        parts,
        areas: areas.ok().map(described),
        notes,
    };
    (map, later)
}

/// Where the parts are. The image lies within the range of vmalloc, so it comes first.
fn known<'n>(
    inside: &Inside,
    facts: Facts,
    info: Option<&VmCoreInfo>,
    release: Option<&str>,
) -> Vec<(&'n str, Range<u64>)> {
    let mut known = Vec::new();
    known.extend(facts.image.map(|(start, end)| ("kernel image", start..end)));
    let release = release.and_then(Release::parse);
    if let Some(layout) = KernelLayout::new(&inside.upper, release, None, None) {
        let layout = layout.with_shadow(&inside.upper, facts.kasan_scale);
        known.push(("linear map", layout.linear));
        known.extend(layout.shadow.map(|shadow| ("KASAN's shadow", shadow)));
    }
    // arch_crash_save_vmcoreinfo(), arch/arm64/kernel/vmcore_info.c.
    let ranges = [
        ("modules", "MODULES_VADDR", "MODULES_END"),
        ("vmalloc", "VMALLOC_START", "VMALLOC_END"),
        ("vmemmap", "VMEMMAP_START", "VMEMMAP_END"),
    ];
    for (name, start, end) in ranges {
        let number = |name| Some(info?.number(name)? as u64);
        if let Some((start, end)) = number(start).zip(number(end)).filter(|(a, b)| a < b) {
            known.push((name, start..end));
        }
    }
    known
}

fn describe(inside: &Inside, image: Option<&Range<u64>>, area: &VmArea, mapped: Sizes) -> Area {
    let of = area.of.as_ref();
    // The symbols are the image's: a module's function has none here.
    let caller = of.map(|of| of.caller);
    let caller = caller.filter(|caller| image.is_some_and(|image| image.contains(caller)));
    let named = caller.and_then(|caller| inside.kernel.symbols.name(caller));
    let flags = of.map_or(0, |of| of.flags);
    let kinds = KINDS.iter().filter(|(flag, _)| flags & flag != 0);
    Area {
        start: Hex(area.start),
        end: Hex(area.end),
        caller: named.map(|(name, distance)| format!("{name}+{distance:#x}")),
        kinds: match of {
            // As /proc/vmallocinfo has it.
            None => vec!["vm_map_ram".to_owned()],
            Some(_) => kinds.map(|(_, name)| (*name).to_owned()).collect(),
        },
        pages: of.map_or(0, |of| of.pages),
        order: of.and_then(|of| of.order),
        mapped,
    }
}
