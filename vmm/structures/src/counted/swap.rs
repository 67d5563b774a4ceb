// SPDX-License-Identifier: GPL-2.0-only
//! Slots of swap areas, and how often each is counted: by `swap_map`, a byte for each, or since 7.1 by the tables of
//! clusters.

mod area;
mod files;
mod tables;

use linux::counted::{Slots, Swap, SwapArea};
use stage1::PhysMemory;

use self::area::{add, Area, MOST_SLOTS, WHAT};
use self::files::Files;
use self::tables::Tables;
use crate::kernel::View;
use crate::lock::{self, SpinLock};
use crate::pages::Pages;
use crate::per_cpu::word;
use crate::types::Member;
use crate::{Kernel, StructureError};

/// Where they are.
#[derive(Debug)]
pub(super) struct Layout {
    lock: SpinLock,
    /// `swap_lock` and `mmlist_lock`.
    locks: [u64; 2],
    areas: u64,
    count: u64,
    counts: Counts,
    /// Shmem's, which only its trees lead to; none where a kernel without shmem has a map.
    files: Option<Files>,
    slots: Member,
    init_mm: u64,
    list: Member,
    next: Member,
    /// Word that is not 0 during hibernation, which takes slots that no entry leads to.
    hibernates: Vec<(u64, Member)>,
}

/// Where slots are counted.
#[derive(Debug)]
enum Counts {
    /// In `swap_map`.
    Map(Member),
    /// In the tables of clusters.
    Tables(Box<Tables>),
}

/// `MAX_SWAPFILES` is no more, whatever is configured.
const MOST_AREAS: u64 = 32;
/// Runs of slots that are counted alike.
const MOST_RUNS: usize = 1 << 18;
/// More address spaces than anybody has.
const MOST_SPACES: usize = 1 << 22;
/// `SWAP_HAS_CACHE` (include/linux/swap.h): in the swap cache, or about to be given back. It counts nothing.
const CACHED: u8 = 0x40;
/// `SWAP_MAP_SHMEM`: one entry of a file in memory.
const SHMEM: u8 = 0xbf;
/// `COUNT_CONTINUED`: the count goes on elsewhere.
const CONTINUED: u8 = 0x80;
/// `SWAP_MAP_BAD`: no slot.
const BAD: u8 = 0x3f;
impl Layout {
    pub(super) fn new(kernel: &Kernel) -> Result<Layout, StructureError> {
        let area = |name| kernel.types.member("swap_info_struct", name);
        let counts = match Tables::new(kernel)? {
            Some(tables) => Counts::Tables(Box::new(tables)),
            None => {
                // What the bytes of a map mean no type tells. It is the above where slots of shmem, and of the swap cache, are
                // marked by these functions; both went with 7.0.
                for marks in ["swap_shmem_alloc", "swapcache_prepare"] {
                    kernel.variable(marks)?;
                }
                Counts::Map(area("swap_map")?)
            }
        };
        let files = match &counts {
            Counts::Map(_) => Files::new(kernel).ok(),
            Counts::Tables(_) => Some(Files::new(kernel)?),
        };
        let hibernates = [
            ("swsusp_extents", kernel.types.member("rb_root", "rb_node")),
            ("system_transition_mutex", lock::mutex(&kernel.types)),
        ];
        let hibernates = hibernates
            .into_iter()
            .filter_map(|(variable, member)| Some((kernel.variable(variable).ok()?, member.ok()?)));
        Ok(Layout {
            lock: SpinLock::new(&kernel.types)?,
            locks: [
                kernel.variable("swap_lock")?,
                kernel.variable("mmlist_lock")?,
            ],
            areas: kernel.variable("swap_info")?,
            count: kernel.variable("nr_swapfiles")?,
            counts,
            files,
            slots: area("max")?,
            init_mm: kernel.variable("init_mm")?,
            list: kernel.types.member("mm_struct", "mmlist")?,
            next: kernel.types.member("list_head", "next")?,
            hibernates: hibernates.collect(),
        })
    }

    pub(super) fn read<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
        pages: &Pages<'_, M>,
    ) -> Result<Swap, StructureError> {
        let busy = |va, why: &str| StructureError::Inconsistent {
            what: WHAT,
            va,
            why: why.into(),
        };
        for lock in self.locks {
            if self.lock.is_held(view, lock)? {
                return Err(busy(lock, "swap_lock or mmlist_lock was held"));
            }
        }
        for (variable, member) in &self.hibernates {
            if view.number(WHAT, *variable, *member)? != 0 {
                return Err(busy(
                    *variable,
                    "somebody hibernated, who takes slots himself",
                ));
            }
        }
        let mut areas = Vec::new();
        for number in 0..view.number(WHAT, self.count, word(4))?.min(MOST_AREAS) {
            let at = view.number(WHAT, self.areas.wrapping_add(8 * number), word(8))?;
            let slots = view.number(WHAT, at, self.slots)?;
            if slots > MOST_SLOTS {
                let why = format!(
                    "swap area {number} has {slots} slots; no more than {MOST_SLOTS} are read"
                );
                return Err(StructureError::Missing(why));
            }
            let found = match &self.counts {
                Counts::Map(map) => by_map(view, (at, *map), slots, self.files.is_some())?,
                Counts::Tables(tables) => tables.area(view, pages, at, slots)?,
            };
            // One that is used no more has nothing.
            let Some((counted, at)) = found else { continue };
            if counted.len() > MOST_RUNS {
                return Err(StructureError::Missing(format!(
                    "swap area {number} with its slots in no more than {MOST_RUNS} runs that are counted alike"
                )));
            }
            areas.push(SwapArea {
                number: number as u8,
                slots,
                at,
                counted,
            });
        }
        let shmem = match &self.files {
            Some(files) if !areas.is_empty() => files.slots(view, pages)?,
            _ => Vec::new(),
        };
        Ok(Swap {
            areas,
            spaces: self.spaces(view)?,
            shmem,
        })
    }

    /// The address spaces that swapoff() looks through: all that may have swap entries.
    fn spaces<M: PhysMemory + ?Sized>(
        &self,
        view: View<'_, M>,
    ) -> Result<Vec<u64>, StructureError> {
        let what = "the list of address spaces with swap entries";
        let head = self.init_mm.wrapping_add(self.list.offset);
        let spaces = view.list(what, (head, self.next), MOST_SPACES)?.into_iter();
        Ok(spaces
            .map(|node| node.wrapping_sub(self.list.offset))
            .collect())
    }
}

/// Those of the area at `at` by its `map`; `None` where it has none. `files` says whether what leads to shmem's is known.
fn by_map<M: PhysMemory + ?Sized>(
    view: View<'_, M>,
    (at, map): (u64, Member),
    slots: u64,
    files: bool,
) -> Result<Option<Area>, StructureError> {
    let map = view.number(WHAT, at, map)?;
    if map == 0 || slots == 0 {
        return Ok(None);
    }
    let counted = runs(&view.bytes(WHAT, map, slots)?, files);
    let first = counted.first().map_or(0, |run| run.first);
    Ok(Some((counted, map.wrapping_add(first))))
}

/// Slots that are counted at all, in runs.
fn runs(counts: &[u8], files: bool) -> Vec<Slots> {
    let mut runs: Vec<Slots> = Vec::new();
    for (slot, byte) in counts.iter().enumerate() {
        let count = match byte & !CACHED {
            0 => continue,
            // Of one in the swap cache a task may have the folio to itself, and change tree and count in turn.
            SHMEM => Some(1).filter(|_| files && byte & CACHED == 0),
            byte if byte & CONTINUED != 0 || byte == BAD => None,
            byte => Some(byte),
        };
        add(&mut runs, slot as u64, count);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_slots() {
        let run = |first, slots, count| Slots {
            first,
            slots,
            count,
        };
        // The header, three in use of which one is cached, one cached alone, one twice, shmem's, one that goes on.
        let counts = [
            BAD,
            1,
            1 | CACHED,
            1,
            CACHED,
            0,
            2,
            0xbf,
            0xbf | CACHED,
            0x80 | 3,
            0x3e,
        ];
        let expected = [
            run(0, 1, None),
            run(1, 3, Some(1)),
            run(6, 1, Some(2)),
            run(7, 1, Some(1)),
            run(8, 2, None),
            run(10, 1, Some(0x3e)),
        ];
        assert_eq!(runs(&counts, true), expected);
        assert_eq!(runs(&counts, false)[3], run(7, 3, None));
    }
}
