// SPDX-License-Identifier: GPL-2.0-only
//! L18: the page cache of a file holds the folios of that file, each at its place, and counts them.

use linux::cache::{Cache, Shmem, Tree};
use linux::counted::NotRead;

use super::rule::{Identity, Need, OnBreak, Releases, Rule, Tier};
use crate::check::{Check, Counts};

pub(super) static RULES: &[&Rule] = &[&RULE];

pub(crate) static RULE: Rule = Rule {
    name: "L18",
    title: "a file's page cache holds its folios and counts them",
    asserts: "Of each regular file that a judged process maps: whatever hangs in its tree (i_pages) and is no value is the first page of a \
              folio, neither free nor of the kernel's own, whose mapping is the file's, whose index is its number in the tree, which stands for as many \
              numbers as it has pages, and which has a reference unless it is locked. nrpages is the sum of their pages. Of shmem's, \
              swapped is the number of pages for which the tree has a swap entry, and alloced is no less than nrpages and swapped \
              together; not judged, where they are otherwise, while a task holds the inode's lock, or that of a folio in the tree. Not judged where \
              the tree's lock is held, of files whose tree has no folios (DAX), where L2, L7, L8, L9 or L10 has told of pages, and beyond 262,144 \
              folios at one instant; nor is nrpages above that sum while a task collapses a file's pages (collapse_file()), which counts them \
              before they are there.",
    tier: Tier::Linux,
    sources: &[
        "mm/filemap.c, __filemap_add_folio(), page_cache_delete(); mm/shmem.c, shmem_add_to_page_cache(), shmem_charge(), shmem_recalc_inode()",
        "mm/migrate.c, __folio_migrate_mapping(); mm/khugepaged.c, collapse_file(); lib/xarray.c, xas_store(), xas_split()",
    ],
    needs: &[Need::Vmas.less(), Need::Folios.all(), Need::PageCaches.all()],
    releases: Releases::WIDELY,
    known: &[],
    identity: Identity::Sentence,
    on_break: OnBreak::GoOn,
    checks: &[Check::Caches(check)],
    synthetic: &["l18_folios_and_their_count", "l18_what_is_not_known", "l18_what_shmem_counts"],
    live: &["test_l18_count_of_a_file", "test_l18_folios_of_a_file", "test_l18_what_shmem_counts"],
};

/// Reason why shmem's counts of a file may differ from its tree.
const BUSY: &str = "a task was changing a file of shmem";

/// Looks at the page caches of files that are mapped; `collapses` says who may have counted pages before they are
/// there.
fn check(caches: &[Cache], collapses: Option<&str>, counts: &mut Counts) {
    let mut unread: Vec<&NotRead> = Vec::new();
    let mut open = Vec::new();
    for cache in caches {
        let Cache { whose, mapping, .. } = cache;
        let tree = match &cache.tree {
            Ok(tree) => tree,
            Err(why) => {
                unread.push(why);
                continue;
            }
        };
        let Some(message) = wrong(tree).or_else(|| wrong_of_shmem(tree)) else {
            continue;
        };
        if tree.wrong.is_empty() && tree.counted == tree.found && tree.is_busy() {
            open.push(BUSY);
            continue;
        }
        // With a folio that is wrong nothing can be said of the sum. Who collapses counts for shmem too.
        let may_be = tree.wrong.is_empty() && tree.counted >= tree.found;
        if let Some(why) = collapses.filter(|_| may_be) {
            open.push(why);
            continue;
        }
        let message = format!(
            "the page cache of the file that {whose} (struct address_space 0x{mapping:x}): {message}"
        );
        counts.wrong.push(message);
    }
    let mut say = |count: usize, why: &str, later: bool| {
        let reason = format!("L18 was not judged for {count} files: {why}");
        match later {
            true => counts.not_judged.push(reason),
            false => counts.notes.push(reason),
        }
    };
    if let Some(why) = unread.iter().max_by_key(|why| why.later) {
        say(unread.len(), &why.why, why.later);
    }
    if let Some(why) = open.first() {
        say(open.len(), why, true);
    }
}

/// Returns the error in shmem's counts of a file whose tree is right, if there is one.
fn wrong_of_shmem(tree: &Tree) -> Option<String> {
    let Shmem {
        alloced,
        swapped,
        in_swap,
        ..
    } = tree.shmem?;
    if swapped != in_swap {
        return Some(format!(
            "it counts {swapped} pages in swap (shmem_inode_info.swapped), and its tree has swap entries for {in_swap}: they must be equal"
        ));
    }
    let least = tree.counted + swapped;
    (alloced < least).then(|| {
        format!(
            "it counts {alloced} pages in all (shmem_inode_info.alloced), {} in the page cache (nrpages) and {swapped} in swap (swapped): all must be no fewer than both",
            tree.counted
        )
    })
}

/// Returns the error in a tree, if there is one.
fn wrong(tree: &Tree) -> Option<String> {
    match tree.wrong.as_slice() {
        [] if tree.counted == tree.found => None,
        [] => Some(format!(
            "it counts {} pages (nrpages), and {} hang in its tree: they must be equal",
            tree.counted, tree.found
        )),
        [first, rest @ ..] => {
            let more = match rest.len() as u64 + tree.more {
                0 => String::new(),
                more => format!("; {more} more folios are not as they must be"),
            };
            Some(format!("{first}{more}"))
        }
    }
}
