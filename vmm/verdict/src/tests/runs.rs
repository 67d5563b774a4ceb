// SPDX-License-Identifier: GPL-2.0-only
//! Runs of alike entries are judged at once; what is said has to be what is said of them one by one, to the last count.

use crate::testing::id;
use std::collections::BTreeSet;

use linux::folio::{Kind, Numbering, Page, Split, Type};
use linux::vma::parse_smaps;
use stage1::testing::TableBuilder;
use stage1::{Half, Regime};

use super::guest::*;
use crate::testing::folios::{good, ANON_VMA};
use crate::testing::random::Random;
use crate::{judge_counts, Everyone, ProcessVerdict, RuleId, Severity};

/// Judges in both ways and holds all that is said to be equal; gives what was said.
fn both(guest: &mut Guest, what: &str) -> ProcessVerdict {
    let (quick, plain) = (guest.judge(), guest.judge_plainly());
    assert_eq!(quick, plain, "{what}");
    let mut counted = Vec::new();
    for one_by_one in [false, true] {
        guest.kernel().one_by_one = one_by_one;
        counted.push([None, Some("one was not read")].map(|why| guest.counted(why)));
    }
    guest.kernel().one_by_one = false;
    assert_eq!(counted[0], counted[1], "{what}, counted");
    let [[counted, _], _] = <[_; 2]>::try_from(counted).unwrap();
    counted
}

fn errors(verdict: &ProcessVerdict) -> BTreeSet<RuleId> {
    let findings = verdict.findings.iter();
    let errors = findings.filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| finding.rule).collect()
}

type Change = fn(&mut Page);

/// Faults of one page, and the rule that names each wherever it is; `None` if it depends on the page.
const PAGES: [(Change, Option<&str>); 21] = [
    (|page| page.kind_of_page = Some(Type::Buddy), Some("L9")),
    (|page| page.kind_of_page = Some(Type::Table), Some("L9")),
    (|page| page.kind_of_page = Some(Type::Other(9)), Some("L9")),
    (|page| page.refcount = 0, Some("L9")),
    (|page| page.refcount = i64::from(i32::MIN), Some("L9")),
    (|page| page.refcount += 1, None),
    (|page| page.index += 1, Some("L7")),
    (
        |page| page.index = page.index.wrapping_sub(page.pfn),
        Some("L7"),
    ),
    (|page| page.kind = Kind::File, Some("L7")),
    (|page| page.kind = Kind::Ksm, Some("L8")),
    (|page| page.kind = Kind::Unowned, None),
    (|page| page.exclusive = false, Some("L8")),
    (|page| page.swapbacked = false, None),
    (|page| page.hugetlb = true, Some("L10")),
    (|page| page.mapcount = Some(2), Some("L9")),
    (|page| page.mapcount = Some(0), Some("L9")),
    (|page| page.mapcount = None, None),
    (|page| page.large = Some(77), None),
    (|page| page.order += 1, None),
    (|page| page.head -= 1, None),
    (
        |page| {
            page.split = Some(Split {
                partially_mapped: true,
                queued: false,
            });
        },
        Some("L13"),
    ),
];

/// The places of two blocks of so many members that are borders, and some within.
fn places(members: u64) -> Vec<u64> {
    let of_block = [0, 1, 2, members / 2, members - 2, members - 1];
    of_block
        .into_iter()
        .chain(of_block.map(|at| members + at))
        .collect()
}

#[test]
fn a_page_that_is_wrong_anywhere_in_a_run() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let (first, members) = (guest.first(), guest.members);
        assert_eq!(errors(&both(&mut guest, "nothing")), [].into());
        assert!(guest.kernel().runs.get() > members, "no runs were judged");
        // The same of all of them: each is named, or counted, and not the first alone.
        let pages = guest.kernel().pages.clone();
        for (number, (change, _)) in PAGES.iter().enumerate() {
            for pfn in pages.keys() {
                guest.kernel().change(*pfn, change);
            }
            both(&mut guest, &format!("change {number} of all"));
            guest.kernel().pages = pages.clone();
        }
        for at in places(members) {
            let pfn = first + at;
            let page = guest.kernel().pages[&pfn];
            for (number, (change, rule)) in PAGES.iter().enumerate() {
                let what = format!("change {number} of page {at}");
                guest.kernel().change(pfn, change);
                let said = errors(&both(&mut guest, &what));
                assert!(
                    rule.is_none_or(|rule| said.contains(&id(rule))),
                    "{what}: {said:?}"
                );
                guest.kernel().pages.insert(pfn, page);
            }
            let what = format!("page {at}");
            guest.kernel().kept = vec![1..2, pfn..pfn + 1, pfn + 1..pfn + 2, pfn + 99..pfn + 101];
            assert_eq!(errors(&both(&mut guest, &what)), [id("L9")].into());
            guest.kernel().kept.clear();
            guest.kernel().wild.insert(pfn, "it is made up".into());
            assert_eq!(errors(&both(&mut guest, &what)), [id("L2")].into());
            guest.kernel().wild.clear();
            guest.kernel().pages.remove(&pfn);
            assert!(!both(&mut guest, &what).not_judged.is_empty());
            guest.kernel().pages.insert(pfn, page);
        }
    }
}

#[test]
fn a_page_of_a_run_that_another_process_maps_uncounted() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        for at in places(guest.members) {
            let (layout, offset) = (*guest.tables.layout(), at * guest.page);
            let mut other = TableBuilder::at(layout, 0x9000_0000);
            other.map_page(VA + offset, PA + offset, read_only(), false);
            let mut memory = guest.tables.memory().clone();
            memory.merge(other.memory().clone());
            let tables = [&guest.tables, &other].map(|tables| {
                let regime = Regime::new(&tables.registers(), Half::Lower);
                regime.unwrap().root.0
            });
            let regimes = [guest.regime()];
            let mut judged = |one_by_one| {
                let mut verdicts = [guest.judge()];
                guest.kernel().one_by_one = one_by_one;
                let (tables, incomplete) = (&tables, None);
                let everyone = Everyone {
                    tables,
                    incomplete,
                    busy: None,
                    unmapped: Ok(&[]),
                };
                let kernel = guest.kernel();
                judge_counts(&memory, &regimes, everyone, kernel, &mut verdicts);
                verdicts
            };
            let (quick, plain) = (judged(false), judged(true));
            guest.kernel().one_by_one = false;
            assert_eq!(quick, plain, "page {at}");
            let mut places = quick[0]
                .findings
                .iter()
                .map(|finding| (finding.rule, finding.va.0));
            assert!(
                places.any(|place| place == (id("L9"), VA + offset)),
                "page {at}"
            );
        }
    }
}

#[test]
fn a_word_that_is_wrong_anywhere_in_a_run() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        let mut said = BTreeSet::new();
        for at in places(guest.members) {
            let before = guest.tables.clone();
            for bit in 0..64 {
                guest.change(at, |word| word ^ 1 << bit);
                said.extend(errors(&both(
                    &mut guest,
                    &format!("bit {bit} of entry {at}"),
                )));
                guest.tables = before.clone();
            }
            for word in [
                0,
                2 << 6 | 0x1234 << 12,
                25 << 6 | 0x1234 << 12,
                31 << 6,
                prot_none(PA),
            ] {
                guest.change(at, |_| word);
                said.extend(errors(&both(
                    &mut guest,
                    &format!("{word:#x} for entry {at}"),
                )));
                guest.tables = before.clone();
            }
        }
        let rules = [id("L1"), id("L3"), id("L6"), id("L7"), id("L8"), id("L9")];
        assert!(rules.iter().all(|rule| said.contains(rule)), "{said:?}");
    }
}

const SMAPS: [(&str, &str); 6] = [
    ("rw-p 00000000 00:00 0 ", "rd wr mr mw me ac"),
    ("r--p 00000000 00:00 0 ", "rd mr mw me ac"),
    ("rw-s 00003000 08:01 99 /file", "rd wr sh mr mw me ms"),
    ("r--p 00003000 08:01 99 /file", "rd mr mw me"),
    ("rw-p 00000000 00:00 0 ", "rd wr mr mw me pf"),
    ("rw-p 00000000 00:00 0 ", "rd wr mr mw me ht"),
];

/// VMAs that begin and end anywhere, and pages of folios of all sizes in them, most of them as they should be.
fn scene(random: &mut Random, guest: &mut Guest) {
    let (page, members) = (guest.page, guest.members);
    let mut below = |end: u64| random.any() % end;
    let mut kernel = crate::testing::folios::Kernel::default();
    let (mut smaps, mut at, mut pfn) = (String::new(), 0, PA / page);
    while at < 6 * members {
        let (start, end) = (
            at + below(3) * below(members),
            at + members / 2 + below(3 * members),
        );
        let (start, end) = (start.min(end - 1), end);
        let kind = if below(3) == 0 { below(6) as usize } else { 0 };
        let ((head, flags), number) = (SMAPS[kind], below(1 << 20));
        let (from, to) = (VA + start * page, VA + end * page);
        smaps += &format!("{from:x}-{to:x} {head}\nVmFlags: {flags} \n");
        let (file, anonymous) = (number, number + below(2));
        kernel.numbering.push(Numbering {
            start: from,
            end: to,
            file,
            anonymous,
            of: None,
            order_state: None,
            found_by: Some(Ok(vec![ANON_VMA])),
        });
        at = start;
        while at < end {
            let order = if below(2) == 0 {
                0
            } else {
                below(members.ilog2() as u64 + 2) as u8
            };
            // Consecutive as pages of an empty machine are, else with a gap.
            pfn = (pfn + if below(4) == 0 { below(9) } else { 0 }).next_multiple_of(1 << order);
            kernel.folio(pfn, order, anonymous + at - start);
            if kind == 2 || kind == 3 {
                for pfn in pfn..pfn + (1 << order) {
                    kernel.change(pfn, |page| {
                        (page.kind, page.index, page.exclusive) =
                            (Kind::File, file + at - start, false);
                        page.swapbacked = false;
                    });
                }
            }
            let attributes = if kind % 2 == 0 {
                written()
            } else {
                read_only()
            };
            let fold = order as u32 >= members.ilog2() && at % members == 0 && at + members <= end;
            for _ in 0..1u64 << order {
                if at < end {
                    let (va, pa) = (VA + at * page, pfn * page);
                    match fold && at % members == 0 && at + members <= end {
                        true => guest.tables.map_group(va, pa, 3, attributes),
                        false if fold && at / members * members + members <= end => {}
                        false => guest.tables.map_page(va, pa, attributes, false),
                    }
                }
                (at, pfn) = (at + 1, pfn + 1);
            }
        }
        at = end.max(at) + below(2) * below(members);
    }
    guest.vmas = parse_smaps(&smaps).unwrap();
    guest.kernel = Some(kernel);
}

#[test]
fn any_table_and_any_folios() {
    let mut random = Random(0x0a11_0f17_0a11_1ce5);
    let (mut runs, mut said) = (0, BTreeSet::new());
    for round in 0..40 {
        for mut guest in Guest::all() {
            scene(&mut random, &mut guest);
            for fault in 0..4 {
                let what = format!("round {round}, fault {fault}, {:?}", guest.tables.layout());
                said.extend(errors(&both(&mut guest, &what)));
                let (at, page) = (random.any() % (6 * guest.members), guest.page);
                let pfn = {
                    let pages = &guest.kernel().pages;
                    *pages
                        .keys()
                        .nth(random.any() as usize % pages.len())
                        .unwrap()
                };
                match random.any() % 4 {
                    2 => drop(guest.kernel().wild.insert(pfn, "it is made up".into())),
                    0 => guest.tables.poke(VA + at * page, 3, random.word()),
                    1 => guest
                        .tables
                        .change(VA + at * page, 3, |word| word ^ 1 << (random.any() % 64)),
                    _ => {
                        let change = PAGES[random.any() as usize % PAGES.len()].0;
                        guest.kernel().change(pfn, change);
                    }
                }
            }
            runs += guest.kernel().runs.get();
        }
    }
    // What was compared was worth it.
    assert!(runs > 100_000, "{runs}");
    let rules = [id("L2"), id("L7"), id("L8"), id("L9")];
    assert!(rules.iter().all(|rule| said.contains(rule)), "{said:?}");
}
