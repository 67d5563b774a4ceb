// SPDX-License-Identifier: GPL-2.0-only
//! Pages by their page frame numbers: what the kernel keeps of them, and which entry of which process maps them.

use std::collections::BTreeMap;
use std::ops::Range;

use linux::folio::{Kind as Memory, MayMap, Page, Type};
use linux::pte::Pte;
use linux::release::Release;
use report::frames::{what, Belongs, Frame, Frames, FreeBlock, Mapped};
use report::listing::LISTING_VERSION;
use snapshot::{Cpu, Snapshot};
use stage1::{Descriptor, Kind, PhysMemory, PhysicalAddress, Regime, Table, Visitor};
use structures::pages::{Layout, Pages};
use structures::{memcg, tasks, View};
use untrusted::Text;
use verdict::Hex;

use evidence::{cgroups, inside::Inside, kernel_half, lower_half, Gathered, NO_LOWER_HALF};

use crate::tasks::Unseen;

/// The pages with these page frame numbers.
///
/// # Errors
/// If the kernel's list of tasks or its array of pages cannot be read.
pub fn frames<M: PhysMemory + ?Sized>(
    inside: &Inside,
    memory: &M,
    cpus: &[Cpu],
    pfns: &[u64],
) -> Result<Frames, Unseen> {
    let view = inside.view(memory);
    let (layout, _) = inside.layouts.as_ref().map_err(Clone::clone)?;
    let (mut owners, mut mms) = (Vec::<Owner>::new(), Vec::new());
    for task in tasks::processes(&inside.kernel, view)? {
        let Some(table) = task.table else { continue };
        // Processes that share an address space share its tables.
        if owners.iter().all(|owner| owner.table != table.0) {
            owners.push(Owner {
                pid: task.tgid,
                name: task.name,
                table: table.0,
            });
            mms.extend(task.mm);
        }
    }
    let memcg = inside.memcg.as_ref().ok();
    let pages = Pages::new(layout, view);
    let mut left = MOST_OF_ALL;
    let release = inside.release(memory, cpus).ok();
    let mut found = found(
        (layout, memcg),
        (view, &pages),
        &Zeros::find(inside, view),
        lower_half(cpus),
        release.as_ref().and_then(|it| Release::parse(&it.release)),
        &owners,
        pfns,
    );
    for frame in &mut found.pages {
        let places = frame
            .page
            .and_then(|page| belongs(inside, view, page, &mut left));
        let belongs = |place: MayMap| {
            let of = mms.iter().position(|mm| *mm == place.mm);
            let owner = of.map(|at| &owners[at]);
            Belongs {
                pid: owner.map(|owner| owner.pid),
                name: owner.map_or(NO_TASK.into(), |owner| owner.name.clone()),
                va: Hex(place.va),
            }
        };
        frame.belongs = places.map(|places| places.into_iter().map(belongs).collect());
    }
    if left == 0 {
        found.notes.push(format!(
            "the kernel's reverse mapping of these pages has more than {MOST_OF_ALL} places: where the last of them belong is not known; ask for fewer pages"
        ));
    }
    found.kernel = release.map(|found| found.release);
    Ok(found)
}

/// VMAs in which a page belongs are followed no further.
const MOST: usize = 1 << 15;
/// The same of all pages that are asked for at once: where memory holds anything, each may lead to as many.
const MOST_OF_ALL: usize = 1 << 20;
/// Places at which the pages that are asked for at once are mapped, and which are listed.
const MOST_MAPPED: usize = 1 << 20;
/// Descriptors that are read of all processes: tables of half a gigabyte. A table that stands in many places counts each time.
const MOST_DESCRIPTORS: u64 = 1 << 26;
const NO_TASK: &str = "an address space that no task has";

/// Where VMAs are in which this very page belongs.
fn belongs<M: PhysMemory + ?Sized>(
    inside: &Inside,
    view: View<'_, M>,
    page: Page,
    left: &mut usize,
) -> Option<Vec<MayMap>> {
    let alone = Page {
        index: page.index_of_page(),
        order: 0,
        ..page
    };
    let reverse = inside.reverse.as_ref().ok()?;
    let most = MOST.min(*left);
    let mut rest = most;
    let places = reverse.places(view, &alone, &mut rest).ok();
    *left -= most - rest;
    places
}

/// The same of a snapshot of a process at its checkpoint, which has the pages that the process maps; `lower` is its half.
///
/// # Errors
/// Where it does not hold the kernel's structures.
pub fn frames_kept(snapshot: &Snapshot, lower: &Regime, pfns: &[u64]) -> Result<Frames, String> {
    let gathered = Gathered::of(snapshot).map_err(|not_known| not_known.why.to_string())?;
    let upper = kernel_half(&snapshot.cpus);
    let upper = upper.ok_or("no CPU showed the kernel's tables")?;
    let spaces = gathered.spaces.iter().map(|space| Owner {
        pid: space.pid,
        name: space.name.clone(),
        table: space.table,
    });
    let owners: Vec<Owner> = spaces.collect();
    let view = View {
        memory: &snapshot.memory,
        upper: &upper,
    };
    let layouts = (&gathered.layout, gathered.memcg.as_ref());
    let pages = Pages::new(&gathered.layout, view).counting(gathered.counts_pages());
    let zeros = Zeros::default();
    let mut found = found(
        layouts,
        (view, &pages),
        &zeros,
        Some(*lower),
        Release::parse(&snapshot.notes.kernel_release),
        &owners,
        pfns,
    );
    found.kernel = Some(snapshot.notes.kernel_release.clone());
    Ok(found)
}

/// A process, and its first table.
struct Owner {
    pid: u32,
    name: Text,
    table: u64,
}

/// Returns what the kernel keeps of a page, in its own names.
fn frame<M: PhysMemory + ?Sized>(
    (layout, memcg): (&Layout, Option<&memcg::Layout>),
    (view, pages): (View<'_, M>, &Pages<'_, M>),
    zeros: &Zeros,
    page: Page,
) -> Frame {
    let folio_flags = layout.flags_of_folio(&page);
    let free = free(pages, &page);
    let reserved = folio_flags.iter().any(|flag| flag == "reserved");
    let of_type = page.kind_of_page.and_then(|kind| layout.name_of_type(kind));
    Frame {
        pfn: page.pfn,
        problem: None,
        is: match zeros.name(&page) {
            Some(zero) => zero.to_owned(),
            None => what(&page, free, of_type, reserved),
        },
        free,
        flags: layout.own_flags(&page),
        folio_flags,
        memcg: cgroups::of(memcg, view, pages, &page),
        // The kernel counts no mappings of a free page, also of one that has no type of its own.
        page: Some(Page {
            mapcount: page.mapcount.filter(|_| free.is_none()),
            ..page
        }),
        mapped: Vec::new(),
        present: Vec::new(),
        belongs: None,
    }
}

/// The free block that a page lies in. What has an owner is in none, whatever the array has before it.
fn free<M: PhysMemory + ?Sized>(pages: &Pages<'_, M>, page: &Page) -> Option<FreeBlock> {
    let may_be = match page.kind_of_page {
        None => page.refcount == 0 && page.kind == Memory::Unowned && page.order == 0,
        Some(kind) => kind == Type::Buddy,
    };
    let found = may_be.then(|| pages.free_block(page.pfn)).flatten();
    found.map(|(first, order)| FreeBlock { first, order })
}

/// The page frames of the zero page and of the huge zero folio, where they are known.
#[derive(Clone, Copy, Debug, Default)]
struct Zeros {
    page: Option<u64>,
    folio: Option<u64>,
}

impl Zeros {
    /// By the kernel's variables: `empty_zero_page` is the page itself, `huge_zero_pfn` a number.
    fn find<M: PhysMemory + ?Sized>(inside: &Inside, view: View<'_, M>) -> Zeros {
        let (kernel, size) = (&inside.kernel, view.upper.granule.bytes());
        let page = kernel.variable("empty_zero_page").ok();
        let page = page.and_then(|va| view.physical("the zero page", va).ok());
        let folio = kernel.variable("huge_zero_pfn").ok();
        let folio = folio.and_then(|va| view.bytes("huge_zero_pfn", va, 8).ok());
        let folio = folio.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        Zeros {
            page: page.map(|at| at.0 / size),
            folio: folio.filter(|pfn| *pfn != u64::MAX),
        }
    }

    fn name(&self, page: &Page) -> Option<&'static str> {
        if self.page == Some(page.pfn) {
            return Some("the zero page");
        }
        let is_of_folio = page.order > 0 && self.folio == Some(page.head);
        is_of_folio.then_some("the huge zero folio")
    }
}

fn found<M: PhysMemory + ?Sized>(
    (layout, memcg): (&Layout, Option<&memcg::Layout>),
    (view, pages): (View<'_, M>, &Pages<'_, M>),
    zeros: &Zeros,
    lower: Option<Regime>,
    release: Option<Release>,
    tasks: &[Owner],
    pfns: &[u64],
) -> Frames {
    let mut found: BTreeMap<u64, Frame> = BTreeMap::new();
    for &pfn in pfns {
        let page = pages.page(pfn);
        found.entry(pfn).or_insert_with(|| match page {
            Ok(page) => frame((layout, memcg), (view, pages), zeros, page),
            Err(why) => Frame {
                pfn,
                page: None,
                problem: Some(why.why().to_owned()),
                is: String::new(),
                free: None,
                flags: Vec::new(),
                folio_flags: Vec::new(),
                memcg: None,
                mapped: Vec::new(),
                present: Vec::new(),
                belongs: None,
            },
        });
    }
    let (mut notes, mut walked) = (Vec::new(), lower.is_some());
    let is_linux = release.is_some_and(Release::has_this_layout);
    let (mut left, mut budget) = (MOST_MAPPED, MOST_DESCRIPTORS);
    for task in tasks {
        let Some(lower) = lower else { break };
        let mut regime = lower;
        regime.root = PhysicalAddress(task.table);
        let mut owners = Owners {
            regime: &regime,
            task,
            is_linux,
            found: &mut found,
            left: &mut left,
            problems: 0,
        };
        let (first, last) = (regime.first, regime.last);
        let summary = stage1::walk_within(view.memory, &regime, first, last, budget, &mut owners);
        budget = budget.saturating_sub(summary.descriptors);
        if owners.problems > 0 {
            walked = false;
            notes.push(format!(
                "{} tables of process {} ({}) could not be walked: what they map is not known",
                owners.problems, task.pid, task.name
            ));
        }
        if budget == 0 {
            walked = false;
            notes.push(format!(
                "the tables of all processes have more than {MOST_DESCRIPTORS} entries: what process {} ({}) and those behind it map is not known",
                task.pid, task.name
            ));
            break;
        }
    }
    if left == 0 {
        walked = false;
        notes.push(format!(
            "these pages are mapped at {MOST_MAPPED} places or more, of which no more are listed; ask for fewer pages"
        ));
    }
    if lower.is_none() {
        notes.push(format!("{NO_LOWER_HALF}, so who maps them is not known"));
    }
    Frames {
        schema_version: LISTING_VERSION,
        kernel: None,
        page_size: view.upper.granule.bytes(),
        pages: found.into_values().collect(),
        walked,
        notes,
    }
}

/// Looks for the pages in the tables of one process.
struct Owners<'o> {
    regime: &'o Regime,
    /// The bits of entries that are not valid are those of a Linux that is known.
    is_linux: bool,
    task: &'o Owner,
    found: &'o mut BTreeMap<u64, Frame>,
    /// How many places more are listed.
    left: &'o mut usize,
    problems: u64,
}

impl<'m> Visitor<'m> for Owners<'_> {
    fn entries(&mut self, table: &Table<'m>, range: Range<usize>) {
        let page = self.regime.granule.bytes();
        let pages = (1 << self.regime.level(table.level).shift) / page;
        for index in range {
            let word = table.words[index];
            let descriptor = Descriptor::new(word, table.level, self.regime);
            let is_valid = match descriptor.kind() {
                _ if word == 0 => continue,
                Kind::Page | Kind::Block => true,
                Kind::Invalid if self.is_linux && Pte(word).present_invalid() => false,
                _ => continue,
            };
            let address = match is_valid {
                true => descriptor.output_address(),
                false => self.regime.output_address(table.level, word),
            };
            let first = address.0 / page;
            let va = table.va_of(index, self.regime).0;
            let frames = self.found.range_mut(first..first.saturating_add(pages));
            for (pfn, frame) in frames.take(*self.left) {
                *self.left -= 1;
                let places = match is_valid {
                    true => &mut frame.mapped,
                    false => &mut frame.present,
                };
                places.push(Mapped {
                    pid: self.task.pid,
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
