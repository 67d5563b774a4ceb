//! Pages by their page frame numbers: what the kernel keeps of them, and which entry of which process maps them.

use std::collections::BTreeMap;
use std::ops::Range;

use snapshot::Cpu;
use stage1::{Descriptor, Half, Kind, PhysMemory, Regime, Table, Visitor};
use structures::pages::Pages;
use structures::tasks;
use verdict::frames::{Frame, Frames, Mapped};
use verdict::listing::LISTING_VERSION;
use verdict::Hex;

use crate::inside::{Inside, Unseen};

/// The pages with these page frame numbers.
///
/// # Errors
/// Where the kernel's list of tasks or its array of pages is not to be had.
pub fn frames<M: PhysMemory + ?Sized>(
    inside: &Inside,
    memory: &M,
    cpus: &[Cpu],
    pfns: &[u64],
) -> Result<Frames, Unseen> {
    let view = inside.view(memory);
    let (layout, _) = inside.layouts.as_ref().map_err(Clone::clone)?;
    let pages = Pages::new(layout, view);
    let names = |flags| layout.names_of(flags).into_iter().map(str::to_owned);
    let mut found: BTreeMap<u64, Frame> = BTreeMap::new();
    for &pfn in pfns {
        let page = pages.page(pfn);
        found.entry(pfn).or_insert_with(|| Frame {
            pfn,
            problem: page.as_ref().err().map(|why| why.why().to_owned()),
            flags: page
                .as_ref()
                .map_or(vec![], |page| names(page.flags).collect()),
            folio_flags: page
                .as_ref()
                .map_or(vec![], |page| names(page.folio_flags).collect()),
            page: page.ok(),
            mapped: Vec::new(),
        });
    }
    let mut notes = Vec::new();
    let regimes = cpus.iter();
    let mut regimes = regimes.filter_map(|cpu| Regime::new(&cpu.system, Half::Lower).ok());
    let lower = regimes.find(|regime| !regime.epd);
    let mut tables = Vec::new();
    for task in tasks::processes(&inside.kernel, view)? {
        let (Some(lower), Some(table)) = (lower, task.table) else {
            continue;
        };
        // Processes that share an address space share its tables.
        if tables.contains(&table) {
            continue;
        }
        tables.push(table);
        let mut regime = lower;
        regime.root = table;
        let mut owners = Owners {
            regime: &regime,
            task: &task,
            found: &mut found,
            problems: 0,
        };
        stage1::walk(memory, &regime, regime.first, regime.last, &mut owners);
        if owners.problems > 0 {
            notes.push(format!(
                "{} tables of process {} ({}) could not be walked: what they map is not known",
                owners.problems, task.tgid, task.name
            ));
        }
    }
    if lower.is_none() {
        notes.push(
            "no CPU shows how the lower half is translated, so who maps them is not known".into(),
        );
    }
    let info = inside.vmcoreinfo(memory).ok();
    Ok(Frames {
        schema_version: LISTING_VERSION,
        kernel: info.and_then(|info| info.value("OSRELEASE").map(str::to_owned)),
        page_size: inside.upper.granule.bytes(),
        pages: found.into_values().collect(),
        notes,
    })
}

/// Looks for the pages in the tables of one process.
struct Owners<'o> {
    regime: &'o Regime,
    task: &'o tasks::Process,
    found: &'o mut BTreeMap<u64, Frame>,
    problems: u64,
}

impl<'m> Visitor<'m> for Owners<'_> {
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        let page = self.regime.granule.bytes();
        let pages = (1 << self.regime.level(table.level).shift) / page;
        for index in range {
            let word = table.words[index];
            let descriptor = Descriptor::new(word, table.level, self.regime);
            if word == 0 || !matches!(descriptor.kind(), Kind::Page | Kind::Block) {
                continue;
            }
            let first = descriptor.output_address().0 / page;
            let va = table.va_of(index, self.regime).0;
            for (pfn, frame) in self.found.range_mut(first..first.saturating_add(pages)) {
                frame.mapped.push(Mapped {
                    pid: self.task.tgid,
                    name: self.task.name.clone(),
                    va: Hex(va + (pfn - first) * page),
                    level: table.level.number(),
                    word: Hex(word),
                });
            }
        }
    }

    fn problem(&mut self, _: &stage1::WalkProblem) {
        self.problems += 1;
    }
}
