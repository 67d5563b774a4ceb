// SPDX-License-Identifier: GPL-2.0-only
//! Explains an address of the kernel half: its part and area, its entry, the page behind it, and the rules' findings.

use analysis::KernelPlace;
use report::frames::Frames;
use report::kernel_map::{Area, KernelMap, Part};
use stage1::{Lookup, Permissions, VirtualAddress};

use super::{each, print_entry, Explain};
use crate::commands::output::{self, say};
use crate::commands::Outcome;
use crate::inside::{InsideOptions, ListingFormat};
use crate::source::{Source, Wanted};
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

impl Explain {
    /// Returns the addresses of the kernel's half, of a core or of a guest at this instant.
    pub(super) fn kernel(&self, all: &[u64]) -> Outcome {
        if self.since.is_some() {
            return Err(Error::Input(
                "expected an address of a process with --since and found one of the kernel, of which no changes are kept; leave --since out".into(),
            ));
        }
        let Source { mut snapshot, .. } = self.source.open(Wanted::Kernel)?;
        evidence::complete(&mut snapshot);
        let inside = InsideOptions {
            core: self.source.core.clone(),
            guest: self.source.guest.clone(),
            format: ListingFormat::Text,
            out: self.source.out.clone(),
        };
        let map = inside.kernel_map();
        // Judged and searched once, however many addresses there are.
        let anywhere = KernelPlace::anywhere(&snapshot)?;
        // With TBI1 the top byte is a tag.
        let untagged = |va| anywhere.regime.canonical(VirtualAddress(va)).0;
        let page_size = anywhere.regime.granule.bytes();
        let mut pfns: Vec<u64> = all
            .iter()
            .filter_map(|va| match anywhere.lookup(&snapshot, untagged(*va)) {
                Lookup::Mapped { pa, .. } => Some(pa.0 / page_size),
                _ => None,
            })
            .collect();
        pfns.sort_unstable();
        pfns.dedup();
        let frames = (!pfns.is_empty()).then(|| inside.frames(&pfns));
        each(all, |given| {
            let va = untagged(given);
            let place = anywhere.at(va);
            say!("{given:#x} in the kernel's half");
            match &map {
                Ok(_) if !place.regime.contains(VirtualAddress(va)) => {
                    say!("  part     none: no address of the kernel");
                }
                Ok(map) => print_part(map, va)?,
                Err(why) => say!("  part     not known: {why}"),
            }
            let found = place.lookup(&snapshot, va);
            let invalid = match &found {
                Lookup::NotMapped { entry } if entry.descriptor.word != 0 => Some("not valid"),
                _ => None,
            };
            print_entry(&found, invalid, &place.regime)?;
            if let Some((name, start, bytes)) = place.size(&found) {
                say!("  size     {name}, {} KiB at {start:#x}", bytes / 1024);
            }
            if let Lookup::Mapped {
                pa, permissions, ..
            } = &found
            {
                say!("  access   {}", access(permissions));
                if let Some(frames) = &frames {
                    print_page(frames, pa.0 / page_size, *pa)?;
                }
            }
            for finding in &place.findings {
                say!("  wrong    {}: {}", finding.rule, finding.message);
            }
            if place.findings.is_empty() {
                say!("  rules    none is broken here");
            }
            for why in &place.left_out {
                say!("  rules    {why}");
            }
            Ok(match found {
                Lookup::Problem(_) => EXIT_NOT_JUDGED,
                _ => EXIT_OK,
            })
        })
    }
}

/// Returns what may be done at an address, by exception level.
fn access(may: &Permissions) -> String {
    let words = |read, write, execute| {
        let all = [(read, "read"), (write, "write"), (execute, "execute")];
        let all: Vec<&str> = all
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, word)| *word)
            .collect();
        match all.is_empty() {
            true => "none".to_owned(),
            false => all.join(", "),
        }
    };
    format!(
        "EL1: {}; EL0: {}",
        words(may.el1_read, may.el1_write, may.el1_exec),
        words(may.el0_read, may.el0_write, may.el0_exec)
    )
}

/// Returns the part of the half that has an address, and the area of vmalloc's.
fn print_part(map: &KernelMap, va: u64) -> Result<(), Error> {
    let mut parts: Vec<(&Part, u64, u64)> = Vec::new();
    for part in &map.parts {
        if let Some((start, end)) = part
            .range
            .filter(|(start, end)| (start.0..end.0).contains(&va))
        {
            parts.push((part, start.0, end.0));
        }
    }
    // The image lies within the range of modules and vmalloc.
    match parts.iter().min_by_key(|(_, start, end)| end - start) {
        Some((part, start, end)) => say!("  part     {} {start:#x}-{end:#x}", part.name),
        None => say!("  part     others: fixmap, PCI I/O, or what no part is known for"),
    }
    let Some(areas) = &map.areas else {
        say!("  area     not known: {}", map.notes.join("; "));
        return Ok(());
    };
    let has = |area: &&Area| (area.start.0..area.end.0).contains(&va);
    if let Some(area) = areas.iter().find(has) {
        let by = area.caller.as_ref();
        let by = by.map_or(String::new(), |caller| format!(", asked for by {caller}"));
        say!(
            "  area     {:#x}-{:#x} of vmalloc, {}, {} pages{by}",
            area.start.0,
            area.end.0,
            area.kinds.join(" "),
            area.pages
        );
    }
    Ok(())
}

/// Returns the page behind an address, where it is one of RAM.
fn print_page(
    frames: &Result<Frames, Error>,
    pfn: u64,
    pa: stage1::PhysicalAddress,
) -> Result<(), Error> {
    let frames = match frames {
        Ok(frames) => frames,
        Err(why) => {
            say!("  page     not known: {why}");
            return Ok(());
        }
    };
    let Some(frame) = frames.pages.iter().find(|frame| frame.pfn == pfn) else {
        return Ok(());
    };
    match (&frame.page, &frame.problem) {
        (Some(page), _) => frames
            .describe(&mut output::stdout(), frame, page)
            .map_err(Error::io(output::STDOUT))?,
        (None, Some(why)) => say!("  page     {pa} has none: {why}"),
        (None, None) => {}
    }
    Ok(())
}
