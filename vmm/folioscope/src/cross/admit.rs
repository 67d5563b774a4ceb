// SPDX-License-Identifier: GPL-2.0-only
//! Which steps make sense of a state. Pairs that do not are left out by these rules alone, each with its reason.

use protocol::Advice;

use super::model::{Below, Memory};
use super::states::Map;
use super::steps::{All, Move, Part, Step};

/// The guest's features, and the place of a step.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// Backing of the area.
    pub map: Map,
    /// The acting process's view.
    pub view: usize,
    /// Another process shares the memory.
    pub other: bool,
    /// Pages per block.
    pub block: usize,
    /// `MADV_GUARD_INSTALL` (6.13).
    pub guards: bool,
    /// More than one NUMA node.
    pub nodes: bool,
    /// userfaultfd's write protection.
    pub uffd: bool,
    /// A swap area.
    pub swap: bool,
}

/// Returns the reason to leave a step out, if there is one.
pub fn left_out(memory: &Memory, here: Here, step: Step) -> Option<&'static str> {
    let pages = &memory.views[here.view].pages;
    let all = pages.len();
    let mapped = |part: Part| part.pages(here.block, all).filter(|at| pages[*at].mapped);
    let locked = |part| mapped(part).any(|at| pages[at].locked);
    let unreadable = |part| mapped(part).any(|at| !memory.can_read(here.view, at));
    let unwritable = |part| mapped(part).any(|at| !memory.can_write(here.view, at));
    let hole = |part: Part| part.pages(here.block, all).any(|at| !pages[at].mapped);
    let registered = || pages.iter().any(|page| page.registered);
    let anonymous = memory.below == Below::Nothing;
    let file = !matches!(
        here.map,
        Map::Hinted | Map::HintedHalfIn | Map::Small | Map::Pmd | Map::Shared
    );
    let ramfs = matches!(here.map, Map::Ramfs | Map::RamfsPrivate);
    match step {
        Step::Advise(_, Advice::Pageout) | Step::All(All::SwapOff) if !here.swap => {
            Some("the guest has no swap (CONFIG_SWAP, CONFIG_ZRAM)")
        }
        Step::Advise(part, Advice::Dontneed | Advice::Cold | Advice::Pageout) if locked(part) => {
            Some("the pages are locked")
        }
        Step::Advise(_, Advice::Free) if !anonymous => {
            Some("MADV_FREE is for private anonymous memory")
        }
        Step::Advise(part, Advice::Free) if locked(part) => Some("the pages are locked"),
        Step::Advise(part, Advice::Remove) => match memory.below {
            _ if ramfs => Some("ramfs punches no holes"),
            Below::Nothing | Below::Private => Some("MADV_REMOVE is for shared mappings"),
            Below::Shared if locked(part) => Some("the pages are locked"),
            Below::Shared if mapped(part).any(|at| !pages[at].write) => {
                Some("MADV_REMOVE is for writable mappings")
            }
            Below::Shared => None,
        },
        Step::Advise(part, Advice::PopulateRead) if unreadable(part) => {
            Some("some pages cannot be read")
        }
        Step::Advise(part, Advice::PopulateWrite) if unwritable(part) => {
            Some("some pages cannot be written")
        }
        Step::Advise(_, Advice::GuardInstall | Advice::GuardRemove) if !here.guards => {
            Some("the kernel has no guard markers")
        }
        Step::Advise(_, Advice::GuardInstall | Advice::GuardRemove) if !anonymous => {
            Some("guard markers of files came later")
        }
        Step::Advise(part, Advice::GuardInstall | Advice::GuardRemove) if locked(part) => {
            Some("the pages are locked")
        }
        Step::Advise(_, Advice::Collapse) if here.map != Map::Pmd => {
            Some("the area is smaller than a PMD's range")
        }
        Step::Move(Move::KeepOld) if !anonymous => {
            Some("MREMAP_DONTUNMAP of a file leaves both mapped")
        }
        Step::Move(Move::KeepOld) if registered() => {
            Some("a userfaultfd would watch the old range")
        }
        Step::Lock(part) if unreadable(part) => Some("some pages cannot be read"),
        Step::Lock(part) if mapped(part).any(|at| pages[at].write_protected) => {
            Some("a userfaultfd would stop mlock()")
        }
        Step::Node(..) if !here.nodes => Some("the guest has one NUMA node"),
        Step::Register | Step::WriteProtect(..) | Step::Poison(..) if !here.uffd => {
            Some("the kernel has no userfaultfd with write protection")
        }
        Step::Register if !anonymous => Some("userfaultfd is crossed with anonymous memory alone"),
        Step::Register | Step::WriteProtect(..) if hole(Part::Whole) => {
            Some("the range has a hole")
        }
        Step::OtherWrites(_) | Step::All(All::OtherExits) if !here.other => {
            Some("there is no other process")
        }
        Step::WriteFile(_) | Step::Punch(_) | Step::TruncateAndExtend if !file => {
            Some("it is no file")
        }
        Step::Punch(_) if ramfs => Some("ramfs punches no holes"),
        _ => None,
    }
}
