// SPDX-License-Identifier: GPL-2.0-only
//! Builds the states of a batch in one process, and holds them to what a look finds.

use protocol::{Advice, Backing, MapFlag, Operation, Placement, Protection};

use super::admit::Here;
use super::ledger::CGROUP;
use super::maps::{Map, PMDS};
use super::model::{mergeable, Below, Memory};
use super::mounts;
use super::play::{Batch, Cell, SALTS};
use super::shown::{Abilities, Shown};
use super::states::State;
use super::steps::Step;
use crate::ops::advise;
use crate::stage::{Merged, Stage};
use crate::Error;

/// The largest range of a PMD that is crossed, in bytes: at 64K it is 512 MiB, more than a guest has for each state.
const MOST_PMD: u64 = 32 << 20;

/// The same of files, which are there beside what processes have copied of them, and where there are many: at 16K it is
/// 32 MiB each.
const MOST_MANY: u64 = 2 << 20;

const NO_SWAP_DISK: &str =
    "the kernel has no disk of memory to swap to (CONFIG_BLK_DEV_NULL_BLK, CONFIG_CONFIGFS_FS)";

/// The largest range of a PMD with which areas of this kind are crossed, in bytes.
fn most(map: Map) -> u64 {
    match map {
        Map::TmpfsPmd
        | Map::TmpfsPmdPrivate
        | Map::TmpfsSpan
        | Map::PmdToo
        | Map::PmdAndBlocks
        | Map::Far
        | Map::HugetlbBlockFar => MOST_MANY,
        Map::Pmd
        | Map::TmpfsHuge
        | Map::TmpfsHugeAcross
        | Map::TmpfsHugeShort
        | Map::TmpfsHugePrivate => MOST_PMD,
        _ => u64::MAX,
    }
}

/// Number of the steps of a state until it is swapped out.
fn until_swapped(state: &State) -> usize {
    let swaps = |step: &Step| matches!(step, Step::Advise(_, Advice::Pageout));
    state.build.iter().position(swaps).map_or(0, |at| at + 1)
}

impl<'s, 'g> Batch<'s, 'g> {
    /// Builds each state in a process of its own areas, and looks at it. `label` names the look.
    ///
    /// # Errors
    /// Where the guest is lost, or cannot map an area.
    pub fn build(
        stage: &'s mut Stage<'g>,
        states: &[&'static State],
        mut here: Here,
        label: &str,
    ) -> Result<Self, Error> {
        let process = stage.spawn_as("cross")?;
        stage.join(process, CGROUP)?;
        (here.view, here.other) = (0, false);
        let mut batch = Self {
            stage,
            processes: [Some(process), None],
            actor: 0,
            here,
            salt: 1,
            queue: Vec::new(),
            step: None,
            came: 0,
            busy: false,
            mirrors: None,
            cells: Vec::new(),
        };
        for state in states {
            let cell = match batch.unmappable(state.map) {
                Some(why) => Cell {
                    left_out: Some(why),
                    ..Cell::new(
                        state,
                        Memory::new(Below::Nothing, 0, 0, 0, batch.stage.page()),
                    )
                },
                None if state.on_disk && batch.here.swap_disk.is_none() => Cell {
                    left_out: Some(NO_SWAP_DISK),
                    ..Cell::new(
                        state,
                        Memory::new(Below::Nothing, 0, 0, 0, batch.stage.page()),
                    )
                },
                None => batch.map(state)?,
            };
            batch.cells.push(cell);
        }
        batch.reach()?;
        if states.iter().any(|state| state.is_merged()) && batch.here.ksm {
            let merged = batch.stage.merge_all()?;
            batch.hold_to_merged(merged);
        }
        batch.stage.check(process, label)?;
        batch.hold_to_seen();
        batch.salt += SALTS;
        Ok(batch)
    }

    /// Brings the areas into their states. Those whose process forks come first: nothing else is there then. Those that are
    /// swapped to a disk come next: they fill it while it is the only one, and what is swapped out from then on goes to
    /// zram.
    fn reach(&mut self) -> Result<(), Error> {
        let is_forked = |at: &usize| self.cells[*at].state.is_forked();
        let (forked, others): (Vec<_>, Vec<_>) = (0..self.cells.len()).partition(is_forked);
        for at in forked {
            self.steps_of(at, ..)?;
        }
        self.map_beside();
        let of_disk = |at: &usize| self.cells[*at].state.on_disk;
        let (on_disk, others): (Vec<_>, Vec<_>) = others.into_iter().partition(of_disk);
        let first: Vec<usize> = on_disk
            .iter()
            .map(|at| until_swapped(self.cells[*at].state))
            .collect();
        let (mut pages, disk) = (0, self.here.swap_disk);
        for at in on_disk
            .iter()
            .filter(|at| self.cells[**at].left_out.is_none())
        {
            pages += self.cells[*at].memory.views[0].pages.len() as u64;
        }
        if let Some(disk) = disk.filter(|_| pages > 0) {
            self.stage.swap_on_disk(disk)?;
        }
        for (at, first) in on_disk.iter().zip(&first) {
            self.steps_of(*at, ..*first)?;
        }
        self.flush()?;
        self.stage.swap_on_zram()?;
        for (at, first) in on_disk.iter().zip(&first) {
            self.steps_of(*at, *first..)?;
        }
        self.flush()?;
        if pages > 0 {
            self.hold_to_swap_cache(pages)?;
        }
        for at in others {
            self.steps_of(at, ..)?;
        }
        self.flush()
    }

    fn steps_of(
        &mut self,
        at: usize,
        steps: impl std::slice::SliceIndex<[Step], Output = [Step]>,
    ) -> Result<(), Error> {
        self.cells[at].state.build[steps]
            .iter()
            .try_for_each(|step| self.step_of(at, *step))
    }

    /// Refuses the states that are swapped to a disk, unless there are so many pages in the swap cache.
    fn hold_to_swap_cache(&mut self, pages: u64) -> Result<(), Error> {
        let found = self.stage.swap_cached()? / self.stage.page();
        if found < pages {
            let why = format!(
                "the state has not come about: expected {pages} pages in the swap cache and found {found}"
            );
            for cell in self.cells.iter_mut().filter(|cell| cell.state.on_disk) {
                cell.refused.get_or_insert(why.clone());
            }
        }
        Ok(())
    }

    /// Returns the reason why the guest has no areas of this kind, if it has none.
    fn unmappable(&self, map: Map) -> Option<&'static str> {
        match map {
            map if self.stage.pmd() > most(map) => {
                Some("a PMD's range is too large for this guest")
            }
            Map::Hugetlb | Map::HugetlbShared if !self.here.hugetlb => {
                Some("the guest has no hugetlb pages of a PMD's size for it")
            }
            Map::HugetlbSpan if !self.here.hugetlb_spans => {
                Some("the guest has no hugetlb pages of a group of PMDs for it")
            }
            Map::HugetlbBlock | Map::HugetlbBlockShared | Map::HugetlbBlockFar
                if !self.here.hugetlb_blocks =>
            {
                Some("the guest has no hugetlb pages of a block's size for it")
            }
            Map::Disk | Map::DiskPrivate if !self.here.disk => {
                Some("the kernel has no zonefs or no disk of zones for it (CONFIG_ZONEFS_FS, CONFIG_BLK_DEV_NULL_BLK)")
            }
            Map::ReadAhead if !self.here.read_ahead => {
                Some("the kernel has no EROFS or no RAM disk for it (CONFIG_EROFS_FS, CONFIG_BLK_DEV_RAM)")
            }
            _ => None,
        }
    }

    /// Refuses what KSM was to merge, unless it has merged as many pages as the model has equal ones.
    fn hold_to_merged(&mut self, merged: Merged) {
        let of_ksm = |cell: &Cell| cell.state.is_merged() && cell.left_out.is_none();
        let cells = self.cells.iter().filter(|cell| of_ksm(cell));
        let (shared, empty) = mergeable(cells.flat_map(|cell| cell.memory.all_words(0)));
        if merged.shared >= shared && merged.empty.is_none_or(|found| found >= empty) {
            return;
        }
        let found = merged.empty.unwrap_or(0);
        let why = format!(
            "expected KSM to have merged {shared} pages, and {empty} with the zero page, and found {} and {found}",
            merged.shared
        );
        for cell in self.cells.iter_mut().filter(|cell| of_ksm(cell)) {
            cell.refused.get_or_insert(why.clone());
        }
    }

    /// Notes each state that the last look did not find as it is to be.
    fn hold_to_seen(&mut self) {
        let order = (self.stage.pmd() / self.stage.page()).trailing_zeros() as u8;
        let able = Abilities {
            blocks: self.stage.fills_blocks(),
            folds: self.stage.folds(),
            pmd: self.stage.pmd_pages().then_some(order),
            file_pmd: self.stage.has_huge_pages(),
        };
        let look = self.stage.last_look();
        let verdict = look.and_then(|look| look.judged.processes.first());
        for cell in &mut self.cells {
            if cell.left_out.is_some() || cell.refused.is_some() {
                continue;
            }
            let Some(verdict) = verdict else {
                cell.unseen = Some("no look at the state was judged".into());
                continue;
            };
            let view = &cell.memory.views[0];
            let shown = Shown::of(verdict, view.start, view.pages.len());
            let mut sights = cell.state.sights.iter();
            cell.unseen = sights.find_map(|sight| shown.lacks(*sight, self.here.block, able));
        }
    }

    fn map(&mut self, state: &'static State) -> Result<Cell, Error> {
        let (page, block) = (self.stage.page(), self.here.block as u64);
        let pages = match state.map {
            Map::Pmd | Map::PmdToo | Map::TmpfsPmd | Map::TmpfsPmdPrivate | Map::TmpfsSpan => {
                self.stage.pmd() / page
            }
            Map::PmdAndBlocks => self.stage.pmd() / page + 2 * block,
            Map::Far | Map::HugetlbBlockFar => 2 * self.stage.pmd() / page + 2 * block,
            Map::Hugetlb | Map::HugetlbShared => 2 * self.stage.pmd() / page,
            Map::HugetlbSpan => PMDS * self.stage.pmd() / page,
            _ => 2 * block,
        };
        let hugetlb = state.map.is_hugetlb();
        let unit = match state.map {
            Map::HugetlbSpan => pages,
            Map::HugetlbBlockFar => block,
            _ if hugetlb => pages / 2,
            _ => 1,
        };
        let offset = match state.map {
            Map::HintedHalfIn => block / 2 * page,
            Map::TmpfsHugeAcross => self.stage.pmd() - block / 2 * page,
            _ => 0,
        };
        let (below, file) = match state.map {
            Map::Hinted
            | Map::HintedHalfIn
            | Map::Small
            | Map::Far
            | Map::Pmd
            | Map::PmdToo
            | Map::PmdAndBlocks
            | Map::Hugetlb
            | Map::HugetlbBlock
            | Map::HugetlbBlockFar
            | Map::HugetlbSpan => (Below::Nothing, 0),
            Map::Shared
            | Map::Tmpfs
            | Map::TmpfsHuge
            | Map::TmpfsHugeAcross
            | Map::TmpfsPmd
            | Map::TmpfsSpan
            | Map::Ramfs
            | Map::Disk
            | Map::HugetlbShared
            | Map::HugetlbBlockShared => (Below::Shared, pages),
            Map::TmpfsShort | Map::TmpfsHugeShort => (Below::Shared, block + 1),
            Map::TmpfsPrivate
            | Map::TmpfsHugePrivate
            | Map::TmpfsPmdPrivate
            | Map::RamfsPrivate
            | Map::DiskPrivate
            | Map::ReadAhead => (Below::Private, pages),
        };
        let directory = mounts::directory(state.map);
        let stored = state.map.is_stored();
        let path = directory.map(|directory| match stored {
            true => mounts::stored(self.cells.len()),
            false => format!("{directory}/cross-{}", state.name),
        });
        let process = self.actor();
        if let Some(path) = path.clone() {
            let length = file * page;
            let after = match stored {
                // It stays, and what the next row has of it comes from the disk.
                true => Operation::FileSync { path, evict: true },
                false => {
                    let create = Operation::FileCreate {
                        path: path.clone(),
                        length,
                    };
                    self.now(process, create)?;
                    Operation::FileUnlink { path }
                }
            };
            self.stage.after(after)?;
        }
        let backing = match state.map {
            Map::ReadAhead => Some(mounts::read_ahead()),
            _ => path.clone(),
        };
        let flags = match below {
            Below::Shared => vec![MapFlag::Shared],
            _ => vec![],
        };
        let map = Operation::Mmap {
            length: pages * page,
            backing: match &backing {
                Some(path) => Backing::File {
                    path: path.clone(),
                    offset: 0,
                },
                None if hugetlb => Backing::Hugetlb {
                    size_kib: unit * page / 1024,
                },
                None => Backing::Anonymous,
            },
            prot: vec![Protection::Read, Protection::Write],
            flags,
            place: Placement::Isolated {
                align: None,
                offset,
                gap: None,
            },
        };
        self.flush()?;
        let start = self.stage.map(process, map)?;
        let hint = match state.map {
            Map::Hinted | Map::HintedHalfIn | Map::Pmd | Map::PmdToo | Map::PmdAndBlocks => {
                Some(Advice::Hugepage)
            }
            Map::Small | Map::Far => Some(Advice::Nohugepage),
            _ => None,
        };
        if let Some(hint) = hint {
            self.now(process, advise(start, pages * page, hint))?;
        }
        let mut memory = Memory::new(below, start, pages as usize, file as usize, page);
        if state.map == Map::ReadAhead {
            memory.write_file(0..pages as usize, 0);
        }
        Ok(Cell {
            path,
            unit: unit as usize,
            ..Cell::new(state, memory)
        })
    }
}
