// SPDX-License-Identifier: GPL-2.0-only
//! Tests of the file that a page is of, and where that ends.

use crate::testing::id;
use linux::folio::{Kind, MappedFile};
use linux::vma::parse_smaps;

use crate::testing::folios::{errors, good};
use crate::tests::guest::*;

const MAPPING: u64 = 0xffff_0000_0002_0000;

/// The good guest with a file behind its entries, of two blocks: of shmem or of ramfs.
pub fn of_a_file(guest: Guest, shmem: bool) -> Guest {
    let mut guest = good(guest);
    let (start, end) = (guest.vmas[0].start, guest.vmas[0].end);
    let head = format!("{start:x}-{end:x} rw-s 00000000 00:01 42 /file");
    guest.vmas = parse_smaps(&format!("{head}\nVmFlags: rd wr sh mr mw me ms \n")).unwrap();
    let (first, pages, number) = (guest.first(), 2 * guest.members, VA / guest.page);
    let kernel = guest.kernel();
    for pfn in first..first + pages {
        kernel.change(pfn, |page| {
            page.kind = Kind::File;
            (page.mapping, page.swapbacked, page.exclusive) = (MAPPING, shmem, false);
            page.index -= number;
        });
    }
    kernel.numbering[0].file = 0;
    kernel.numbering[0].found_by = Some(Ok(vec![MAPPING]));
    let rss = kernel.rss.as_mut().unwrap();
    let count = std::mem::take(&mut rss.anonymous);
    *if shmem { &mut rss.shmem } else { &mut rss.file } = count;
    of_pages(&mut guest, Some(pages));
    guest.assert_legal();
    guest
}

fn of_pages(guest: &mut Guest, pages: Option<u64>) {
    guest.kernel().numbering[0].of = Some(MappedFile {
        mapping: MAPPING,
        pages,
    });
}

/// Where L7 is broken, and nothing else.
fn broken(guest: &Guest) -> Vec<u64> {
    let verdict = guest.judge();
    assert!(errors(&verdict).iter().all(|rule| *rule == id("L7")));
    let findings = verdict.findings.iter();
    findings.map(|finding| finding.va.0).collect()
}

#[test]
fn l7_a_page_of_another_file() {
    for guest in Guest::all() {
        let mut guest = of_a_file(guest, false);
        let at = guest.members + 1;
        let pfn = guest.first() + at;
        guest.kernel().change(pfn, |page| page.mapping += 8);
        assert_eq!(broken(&guest), [VA + at * guest.page]);
        // The pages that a driver's file maps are not known.
        guest.kernel().numbering[0].of = None;
        guest.assert_legal();
    }
}

#[test]
fn l7_a_page_behind_the_end() {
    for guest in Guest::all() {
        let mut guest = of_a_file(guest, false);
        let members = guest.members;
        // In a run of equal pages, at its start, and in a large folio: the first of each group that is behind it.
        for (pages, first) in [
            (2 * members - 1, vec![2 * members - 1]),
            (members + 2, vec![members + 2]),
            (members, vec![members]),
            (members - 1, vec![members - 1, members]),
            (0, vec![0, members]),
        ] {
            of_pages(&mut guest, Some(pages));
            let first: Vec<_> = first.iter().map(|at| VA + at * guest.page).collect();
            assert_eq!(broken(&guest), first, "{pages} pages");
        }
        // A task holds the file's lock.
        of_pages(&mut guest, None);
        guest.assert_legal();
    }
}

#[test]
fn l7_a_folio_of_shmem_across_the_end() {
    let mut guest = of_a_file(Guest::new(), true);
    let members = guest.members;
    // It is mapped as a whole; single pages behind the end are not.
    of_pages(&mut guest, Some(1));
    assert_eq!(broken(&guest), [VA + members * guest.page]);
    of_pages(&mut guest, Some(0));
    assert_eq!(broken(&guest), [VA, VA + members * guest.page]);
}
