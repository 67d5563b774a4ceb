// SPDX-License-Identifier: GPL-2.0-only
//! L17 on made-up tables: what the kernel says inside, written by hand, against them.

use crate::testing::id;
use linux::counted::Size;
use linux::folio::Kind;
use linux::getters::{category, kpf, pagemap, Getters, Packed, SizeCounted};
use linux::release::Release;

use super::folios::files::of_a_file;
use super::guest::*;
use crate::testing::folios::good;
use crate::{judge, judge_getters, ProcessVerdict, RuleId, Severity};

const THERE: u64 = pagemap::PRESENT | pagemap::EXCLUSIVE;
const MAPPED: u64 = kpf::MMAP | kpf::ANON;

/// Returns a kernel's values for the process of [`good`].
fn right(guest: &Guest) -> Getters {
    let (page, members) = (guest.page, guest.members);
    let (frame, end) = (PA / page, VA + 4 * guest.block);
    let large = MAPPED | kpf::THP;
    let run = |at: u64, pages, flags| [VA + at * page, pages, THERE | (frame + at), flags, 1];
    let kilobytes = guest.block / 512;
    Getters {
        pages: Packed(vec![
            run(0, 1, large | kpf::COMPOUND_HEAD),
            run(1, members - 1, large | kpf::COMPOUND_TAIL),
            run(members, members, MAPPED),
        ]),
        scan: Some(Packed(vec![[VA, VA + 2 * guest.block, category::PRESENT]])),
        smaps: format!(
            "{VA:x}-{end:x} rw-p 00000000 00:00 0 \nRss: {kilobytes} kB\nAnonymous: {kilobytes} kB\n\
             Private_Dirty: {kilobytes} kB\nVmFlags: rd wr mr mw me ac \n"
        ),
        sizes: vec![SizeCounted { order: 4, anonymous: 1, partial: 0 }],
        ..Getters::default()
    }
}

const SIZES: [Size; 1] = [Size {
    order: 4,
    anonymous: 1,
    partial: 0,
    at: [0, 8],
}];

fn judged(guest: &Guest, getters: &Getters) -> ProcessVerdict {
    guest.judged(|memory, input| {
        let mut verdict = judge(memory, input);
        judge_getters(memory, input, (getters, Some(&SIZES)), &mut verdict);
        verdict
    })
}

/// Its errors: where, and what is said.
fn errors(guest: &Guest, getters: &Getters) -> Vec<(RuleId, u64, String)> {
    let found = judged(guest, getters).findings.into_iter();
    let errors = found.filter(|finding| finding.severity == Severity::Error);
    errors.map(|it| (it.rule, it.va.0, it.message)).collect()
}

#[track_caller]
fn told(guest: &Guest, getters: &Getters, va: u64, says: &str) {
    let found = errors(guest, getters);
    let [(rule, at, message)] = &found[..] else {
        panic!("{says}: {found:#?}");
    };
    assert_eq!((*rule, *at), (id("L17"), va), "{message}");
    assert!(message.contains(says), "{message}");
}

#[test]
fn l17_each_getter() {
    for guest in Guest::all().into_iter().map(good) {
        let getters = right(&guest);
        assert_eq!(errors(&guest, &getters), []);
        let single = VA + guest.block;
        let entry = |change: u64| {
            let mut getters = getters.clone();
            getters.pages.0[2][2] ^= change;
            getters
        };
        // The first page of each run is told of alone, where the others are right.
        let one = |mut getters: Getters, of: usize, word: u64| {
            let [address, pages, entry, flags, count] = getters.pages.0[2];
            let mut first = [address, 1, entry, flags, count];
            let rest = [address + guest.page, pages - 1, entry + 1, flags, count];
            first[of] ^= word;
            getters.pages.0.splice(2.., [first, rest]);
            getters
        };
        for (of, word, says) in [
            (2, 1 << 40, "pagemap says"),
            (2, pagemap::EXCLUSIVE, "(not EXCLUSIVE)"),
            (2, pagemap::FILE, "(FILE)"),
            (2, pagemap::UFFD_WP, "(UFFD_WP)"),
            (2, pagemap::PRESENT | pagemap::SWAP, "(not PRESENT, SWAP)"),
            (3, kpf::ANON, "kpageflags says 0x800 (not ANON)"),
            (3, kpf::THP | kpf::COMPOUND_TAIL, "(COMPOUND_TAIL, THP)"),
            (3, kpf::NOPAGE, "(NOPAGE)"),
            (4, 3, "kpagecount says 2, and it is 1"),
        ] {
            told(&guest, &one(getters.clone(), of, word), single, says);
        }
        // A whole run is a finding for each entry, of which not more are listed.
        assert_eq!(
            errors(&guest, &entry(pagemap::FILE)).len() as u64,
            guest.members.min(100)
        );
        let mut scanned = getters.clone();
        scanned.scan.as_mut().unwrap().0.splice(
            ..,
            [
                [VA, VA + guest.page, category::PRESENT | category::HUGE],
                [VA + guest.page, VA + 2 * guest.block, category::PRESENT],
            ],
        );
        told(&guest, &scanned, VA, "PAGEMAP_SCAN says 0x48 (HUGE)");
        // A kernel that does not have it.
        scanned.scan = None;
        assert_eq!(errors(&guest, &scanned), []);
    }
}

#[test]
fn l17_what_only_one_side_has() {
    let guest = good(Guest::new());
    let getters = right(&guest);
    let mut fewer = getters.clone();
    fewer.pages.0[0][2] = 0;
    fewer.pages.0.remove(0);
    told(
        &guest,
        &fewer,
        VA,
        "pagemap says 0x0 (not PRESENT, not EXCLUSIVE",
    );
    let behind = VA + 3 * guest.block;
    let mut more = getters.clone();
    more.pages.0.push([behind, 1, THERE | 5, 0, 0]);
    told(&guest, &more, behind, "and there is no entry");
    // A marker of an area, and no page.
    more.pages.0[3][2] = pagemap::UFFD_WP;
    assert_eq!(errors(&guest, &more), []);
    let mut scanned = getters.clone();
    scanned.scan.as_mut().unwrap().0[0][1] += 2 * guest.page;
    told(
        &guest,
        &scanned,
        0,
        "PAGEMAP_SCAN finds 34 pages, and 2 of them have no entry",
    );
    // What was too much was not read, and is said to be so.
    let mut cut = getters;
    cut.cut = Some(VA + guest.block);
    cut.pages.0.truncate(2);
    cut.scan.as_mut().unwrap().0[0][1] = VA + guest.block;
    assert_eq!(errors(&guest, &cut), []);
    let notes = judged(&guest, &cut).notes;
    assert!(
        notes
            .iter()
            .any(|note| note.contains("(L17) was read only up to")),
        "{notes:?}"
    );
}

#[test]
fn l17_totals_and_sizes() {
    let guest = good(Guest::new());
    let getters = right(&guest);
    let smaps = |from: &str, to: &str| Getters {
        smaps: getters.smaps.replace(from, to),
        ..getters.clone()
    };
    told(
        &guest,
        &smaps("Rss: 128", "Rss: 124"),
        VA,
        "Rss are 124 KiB, and 128 KiB are so",
    );
    told(
        &guest,
        &smaps("Private_Dirty", "Shared_Dirty"),
        VA,
        "Shared_Clean and Shared_Dirty are 128 KiB",
    );
    told(
        &guest,
        &smaps("Private_Dirty", "Swap"),
        VA,
        "Swap are 128 KiB, and 0 KiB are so",
    );
    assert_eq!(errors(&guest, &smaps("40000000-", "40001000-")), []);
    for (size, says) in [
        (
            SizeCounted {
                order: 4,
                anonymous: 2,
                partial: 0,
            },
            "nr_anon of order 4 is 2",
        ),
        (
            SizeCounted {
                order: 4,
                anonymous: 1,
                partial: 1,
            },
            "nr_anon_partially_mapped of order 4 is 1",
        ),
    ] {
        let getters = Getters {
            sizes: vec![size],
            ..getters.clone()
        };
        told(&guest, &getters, 0, says);
    }
}

#[test]
fn l17_what_is_left_alone() {
    let (mut guest, wrong) = (
        good(Guest::new()),
        |getters: &Getters, of: usize, word: u64| {
            let mut getters = getters.clone();
            getters.pages.0[0][of] ^= word;
            getters
        },
    );
    let getters = right(&guest);
    let frame = PA / guest.page;
    // The process that reads maps it as well.
    let mut read = wrong(&getters, 4, 3);
    read.pages.0[0][2] ^= pagemap::EXCLUSIVE;
    assert_eq!(errors(&guest, &read).len(), 1);
    read.reader = Packed(vec![[frame]]);
    assert_eq!(errors(&guest, &read), []);
    // The number of mappings of a page of a large folio is not known.
    let mut uncounted = good(Guest::new());
    uncounted
        .kernel
        .as_mut()
        .unwrap()
        .change(frame, |page| page.mapcount = None);
    read.reader = Packed(Vec::new());
    assert_eq!(errors(&uncounted, &read), []);
    // From 6.15 on too each page counts, where it is known to.
    for release in ["6.18.15", "7.3.4"] {
        guest.release = Release::parse(release);
        uncounted.release = Release::parse(release);
        told(&guest, &read, VA, "kpagecount says 2, and it is 1");
        told(&guest, &read, VA, "(not EXCLUSIVE)");
        assert_eq!(errors(&uncounted, &read), []);
    }
    guest.release = Release::parse("6.12.117");
    // 6.12 has KSM for every anonymous page, and for no other.
    let ksm = wrong(&getters, 3, kpf::KSM);
    assert_eq!(errors(&guest, &ksm), []);
    guest.release = Release::parse("7.2.12");
    told(&guest, &ksm, VA, "(KSM)");
    guest.release = Release::parse("6.12.117");
    let merged = |page: &mut linux::folio::Page| (page.kind, page.exclusive) = (Kind::Ksm, false);
    let kernel = guest.kernel.as_mut().unwrap();
    kernel.change(frame + 16, merged);
    guest.change(16, |word| word & !WRITE | RDONLY);
    let found = errors(&guest, &getters);
    assert!(
        found.iter().any(|(.., said)| said.contains("(not KSM)")),
        "{found:?}"
    );
    // Another rule tells of the place: A4.
    let mut guest = good(Guest::new());
    guest.change(3, |word| word & !CONT);
    let found = errors(&guest, &wrong(&getters, 4, 3));
    assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [id("A4")]);
    // A page on its way, and a VMA of which nothing is known.
    let mut guest = good(Guest::new());
    guest.change(16, |_| 25 << 6 | 0x1234 << 12);
    assert_eq!(errors(&guest, &getters), []);
    let mut guest = good(Guest::new());
    guest.vmas[0].flags = None;
    assert_eq!(errors(&guest, &Getters::default()), []);
}

#[test]
fn l17_whether_a_file_s_page_was_used() {
    let used = kpf::REFERENCED | kpf::LRU | kpf::ACTIVE;
    let dirty = 1 << 4;
    let flagged = |guest: &mut Guest| {
        let pfn = PA / guest.page + guest.members;
        let kernel = guest.kernel.as_mut().unwrap();
        kernel.copies = used | dirty;
        kernel.change(pfn, |page| page.folio_flags = used | dirty);
    };
    let mut guest = good(Guest::new());
    let single = VA + guest.block;
    flagged(&mut guest);
    let all = "not REFERENCED, not DIRTY, not LRU, not ACTIVE";
    told(&guest, &right(&guest), single, all);
    // A process that ended has marked what it used of a file meanwhile; no process has written it.
    let mut guest = of_a_file(Guest::new(), true);
    let mut getters = right(&guest);
    for run in &mut getters.pages.0 {
        run[2] |= pagemap::FILE;
        run[3] &= !kpf::ANON;
    }
    getters.scan.as_mut().unwrap().0[0][2] |= category::FILE;
    getters.smaps = getters
        .smaps
        .replace("rw-p", "rw-s")
        .replace("Anonymous:", "Other:");
    getters.sizes.clear();
    assert_eq!(errors(&guest, &getters), []);
    flagged(&mut guest);
    told(&guest, &getters, single, "(not DIRTY)");
}

#[test]
fn l17_exclusive_pages_of_a_block() {
    // A block of 2 MiB, of whose pages the kernel may count none by itself.
    let mut guest = good(Guest::new());
    let (first, pages) = (PA / guest.page + 512, 512);
    let va = VA.next_multiple_of(2 << 20) + (2 << 20);
    let smaps = format!(
        "{va:x}-{:x} rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac \n",
        va + (2 << 20)
    );
    let mut guest = {
        guest.tables = Guest::new().tables;
        guest.smaps(&smaps)
    };
    guest
        .tables
        .map(va, first * guest.page, 2, written(), false);
    let kernel = guest.kernel.as_mut().unwrap();
    kernel.folio(first, 9, va / guest.page);
    for pfn in first..first + pages {
        kernel.change(pfn, |page| {
            (page.mapcount, page.entire, page.large) = (None, 1, Some(512));
        });
    }
    let flags = MAPPED | kpf::THP;
    let getters = |count| Getters {
        pages: Packed(vec![
            [va, 1, THERE | first, flags | kpf::COMPOUND_HEAD, 1],
            [
                va + guest.page,
                pages - 1,
                THERE | (first + 1),
                flags | kpf::COMPOUND_TAIL,
                count,
            ],
        ]),
        ..Getters::default()
    };
    let told_of = |getters: &Getters| {
        let found = errors(&guest, getters).into_iter();
        let of_rule = found.filter(|(rule, ..)| *rule == id("L17"));
        of_rule.map(|(_, va, said)| (va, said)).collect::<Vec<_>>()
    };
    assert_eq!(told_of(&getters(1)), []);
    let found = told_of(&getters(2));
    assert!(
        matches!(&found[..], [(at, said)] if *at == va + guest.page && said.contains("(EXCLUSIVE), and kpagecount 2")),
        "{found:#?}"
    );
}

#[test]
fn l17_a_block_above_pages_of_the_same_table() {
    let mut guest = good(Guest::new());
    let (first, pages) = (PA / guest.page + 512, 512);
    let va = VA.next_multiple_of(2 << 20) + (2 << 20);
    let area = |start: u64, end: u64| {
        format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac \n")
    };
    let smaps = area(VA, VA + 4 * guest.block) + &area(va, va + (2 << 20));
    guest = guest.smaps(&smaps);
    guest
        .tables
        .map(va, first * guest.page, 2, written(), false);
    let kernel = guest.kernel.as_mut().unwrap();
    kernel.folio(first, 9, va / guest.page);
    for pfn in first..first + pages {
        kernel.change(pfn, |page| {
            (page.mapcount, page.entire, page.large) = (None, 1, Some(512));
        });
    }
    let mut getters = right(&guest);
    let flags = MAPPED | kpf::THP;
    let run = |at: u64, pages, kind| {
        let entry = THERE | (first + at);
        [va + at * guest.page, pages, entry, flags | kind, 1]
    };
    let block = [
        run(0, 1, kpf::COMPOUND_HEAD),
        run(1, pages - 1, kpf::COMPOUND_TAIL),
    ];
    getters.pages.0.extend(block);
    (getters.scan, getters.smaps) = (None, String::new());
    let of_rule = |getters: &Getters| {
        let mut found = errors(&guest, getters);
        found.retain(|(rule, ..)| *rule == id("L17"));
        found
    };
    assert_eq!(of_rule(&getters), []);
    // Pages below it are compared with their own entries.
    getters.pages.0[2][2] ^= pagemap::FILE;
    let found = of_rule(&getters);
    let below = |(_, at, said): &(RuleId, u64, String)| *at < va && said.contains("(FILE)");
    assert!(!found.is_empty() && found.iter().all(below), "{found:#?}");
}
