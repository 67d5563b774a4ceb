//! The kernel's own structures at one instant: what a copy has to hold of them, and what a snapshot keeps to read them by.

use linux::folio::{NoPage, Page};
use linux::pte::Pte;
use linux::release::Release;
use serde::{Deserialize, Serialize};
use snapshot::{Cpu, Memory, Notes, Snapshot};
use stage1::{Descend, Level, PhysMemory, PhysicalAddress, Regime, Table, Visitor};
use structures::pages::{self, Pages};
use structures::spaces::Space;
use structures::View;
use verdict::{judge_counts, Everyone, Folios, ProcessVerdict, Structures};

use crate::inside::Inside;
use crate::kernel_half;

/// Why nothing of the kernel can be read at some instants.
const NO_KERNEL: &str =
    "no CPU showed the kernel's tables when the guest was stopped (with KPTI a CPU in user mode does not)";

/// What was read at one instant, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    layout: pages::Layout,
    /// All address spaces.
    pub spaces: Vec<Space>,
}

/// The notes' key.
const GATHERED: &str = "kernel_structures";

impl Gathered {
    /// Reads, through `memory`, what will be asked of the copy: all address spaces and their tables, and the pages that
    /// those with these first `tables` map. `lower` is any process's half.
    ///
    /// # Errors
    /// Why not.
    pub fn gather<M: PhysMemory + ?Sized>(
        inside: &Inside,
        memory: &M,
        cpus: &[Cpu],
        (lower, tables): (&Regime, &[u64]),
    ) -> Result<Gathered, String> {
        let (layout, spaces) = inside.layouts.as_ref().map_err(ToString::to_string)?;
        let upper = kernel_half(cpus).ok_or(NO_KERNEL)?;
        let upper = &upper;
        let view = View { memory, upper };
        let spaces = spaces
            .spaces(view, tables)
            .map_err(|error| error.to_string())?;
        let mut mapped = Mapped {
            regime: *lower,
            runs: Vec::new(),
        };
        for space in &spaces {
            mapped.regime.root = PhysicalAddress(space.table);
            let (regime, keep) = (mapped.regime, mapped.runs.len());
            stage1::walk(memory, &regime, regime.first, regime.last, &mut mapped);
            if !tables.contains(&space.table) {
                mapped.runs.truncate(keep);
            }
        }
        mapped.runs.sort_unstable();
        let pages = Pages::new(layout, view);
        let mut next = 0;
        for (first, count) in mapped.runs {
            let end = first + count;
            next = next.max(pages.touch(first.max(next).min(end), end));
        }
        Ok(Gathered {
            layout: layout.clone(),
            spaces,
        })
    }

    /// As a snapshot keeps it.
    ///
    /// # Errors
    /// Why it was not read.
    pub fn of(snapshot: &Snapshot) -> Result<Gathered, String> {
        let kept = snapshot.notes.extra.get(GATHERED);
        let kept = kept.ok_or("the snapshot does not hold the kernel's structures")?;
        let kept: Result<Gathered, String> =
            serde_json::from_value(kept.clone()).map_err(|error| error.to_string())?;
        kept
    }

    /// Keeps it, or why there is nothing.
    pub fn keep(gathered: &Result<Gathered, String>, notes: &mut Notes) {
        let value = serde_json::to_value(gathered).unwrap_or_default();
        notes.extra.insert(GATHERED.into(), value);
    }

    /// The first tables of all address spaces.
    #[must_use]
    pub fn tables(&self) -> Vec<u64> {
        self.spaces.iter().map(|space| space.table).collect()
    }

    /// What is known of the process with this first table.
    fn structures<'g>(&'g self, folios: &'g dyn Folios, table: u64) -> Structures<'g> {
        let space = self.spaces.iter().find(|space| space.table == table);
        Structures {
            folios,
            numbering: space.and_then(|space| space.numbering.as_deref()),
            rss: space.and_then(|space| space.rss),
        }
    }
}

/// The pages of a snapshot, or why they are not known.
pub(crate) fn folios<'g>(
    memory: &'g Memory,
    upper: Option<&'g Regime>,
    gathered: &'g Result<Gathered, String>,
) -> Result<Read<'g, Memory>, String> {
    let gathered = gathered.as_ref().map_err(Clone::clone)?;
    let upper = upper.ok_or(NO_KERNEL)?;
    Ok(Read(Pages::new(&gathered.layout, View { memory, upper })))
}

/// Asks something of the pages of a snapshot, where they are known.
pub fn with_folios<T>(snapshot: &Snapshot, ask: impl FnOnce(Option<&dyn Folios>) -> T) -> T {
    let gathered = Gathered::of(snapshot);
    let upper = kernel_half(&snapshot.cpus);
    let read = folios(&snapshot.memory, upper.as_ref(), &gathered).ok();
    ask(read.as_ref().map(|read| read as &dyn Folios))
}

/// What is known of the process whose half this is, or why nothing is.
pub(crate) fn structures<'g>(
    gathered: &'g Result<Gathered, String>,
    folios: &'g Result<Read<'g, Memory>, String>,
    regime: &Regime,
) -> Result<Structures<'g>, &'g str> {
    let folios = folios.as_ref().map_err(String::as_str)?;
    let gathered = gathered.as_ref().map_err(String::as_str)?;
    Ok(gathered.structures(folios, regime.root.0))
}

/// Counts the entries of all address spaces, where those are known.
pub(crate) fn count(
    snapshot: &Snapshot,
    regimes: &[Regime],
    gathered: &Result<Gathered, String>,
    folios: &Result<Read<'_, Memory>, String>,
    verdicts: &mut [ProcessVerdict],
) {
    let release = Release::parse(&snapshot.notes.kernel_release);
    let (Ok(gathered), Ok(folios)) = (gathered, folios) else {
        return;
    };
    if !release.is_some_and(Release::has_this_layout) {
        return;
    }
    let tables = gathered.tables();
    let locked = gathered.spaces.iter().find(|space| space.is_locked);
    let incomplete = locked.map(|space| {
        format!(
            "somebody held the mmap_lock of process {} ({}), as a fork does, whose entries are counted before the child is in any list",
            space.pid, space.name
        )
    });
    let everyone = Everyone {
        tables: &tables,
        incomplete: incomplete.as_deref(),
    };
    judge_counts(&snapshot.memory, regimes, everyone, folios, verdicts);
}

/// The pages of a snapshot.
#[derive(Debug)]
pub(crate) struct Read<'g, M: ?Sized>(Pages<'g, M>);

impl<M: PhysMemory + ?Sized + std::fmt::Debug> Folios for Read<'_, M> {
    fn page(&self, pfn: u64) -> Result<Page, NoPage> {
        self.0.page(pfn)
    }
}

/// What a table maps: first page frame number, and how many follow.
struct Mapped {
    regime: Regime,
    runs: Vec<(u64, u64)>,
}

impl<'m> Visitor<'m> for Mapped {
    fn table(&mut self, table: &Table<'m>) -> Descend {
        let regime = &self.regime;
        let size = regime.granule.bytes();
        let pages = regime.entry_size(table.level) / size;
        for &word in table.words {
            let pte = Pte(word);
            let leaf = match table.level {
                Level::L3 => word & 3 == 3,
                level => word & 3 == 1 && regime.level(level).leaf_allowed,
            };
            if !(leaf || pte.present_invalid()) || pte.special() || pte.devmap() {
                continue;
            }
            let pfn = regime.output_address(table.level, word).0 / size;
            match self
                .runs
                .last_mut()
                .filter(|(first, count)| first + count == pfn)
            {
                Some((_, count)) => *count += pages,
                None => self.runs.push((pfn, pages)),
            }
        }
        Descend::Into
    }
}
