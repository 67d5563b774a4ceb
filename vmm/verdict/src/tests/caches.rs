// SPDX-License-Identifier: GPL-2.0-only
//! L18 on made-up page caches.

use crate::testing::id;
use linux::cache::{Cache, Shmem, Tree};
use linux::counted::{Known, NotRead};

use super::guest::Guest;
use crate::testing::folios::{errors, good};
use crate::{judge_caches, ProcessVerdict};

fn cache(tree: Known<Tree>) -> Cache {
    Cache {
        whose: "process 7 (reader) maps at VA 0x0000000000001000".into(),
        mapping: 0xffff_0000_1234_0000,
        at: 0,
        tree,
    }
}

fn tree(counted: u64, found: u64) -> Tree {
    Tree {
        counted,
        found,
        values: 3,
        ..Tree::default()
    }
}

fn judged(caches: Vec<Cache>, collapses: Option<&str>) -> ProcessVerdict {
    let mut verdicts = [good(Guest::new()).judge()];
    judge_caches(&Ok(caches), collapses, &mut verdicts);
    let [verdict] = verdicts;
    verdict
}

fn not_read(later: bool) -> Cache {
    let why = "its lock was held".into();
    cache(Err(NotRead {
        why,
        later,
        not_built: false,
    }))
}

#[test]
fn l18_folios_and_their_count() {
    let good = || cache(Ok(tree(300, 300)));
    assert_eq!(errors(&judged(vec![good(), good()], None)), []);
    for (counted, found) in [(300, 299), (299, 300), (0, 1), (u64::MAX, 300)] {
        let verdict = judged(vec![good(), cache(Ok(tree(counted, found)))], None);
        assert_eq!(errors(&verdict), [id("L18")], "{counted} {found}");
        let said = &verdict.findings[0].message;
        let part = format!("process 7 (reader) maps at VA 0x0000000000001000 (struct address_space 0xffff000012340000): it counts {counted} pages (nrpages), and {found} hang");
        assert!(said.contains(&part), "{said}");
        assert_eq!(verdict.findings[0].process, None);
    }
    // A folio that is wrong is told of, and the sum is not.
    let wrong = Tree {
        wrong: vec!["number 0x2 leads to nowhere".into(), "and another".into()],
        more: 5,
        ..tree(300, 298)
    };
    let verdict = judged(vec![cache(Ok(wrong))], Some("somebody collapses"));
    assert_eq!(errors(&verdict), [id("L18")]);
    let said = &verdict.findings[0].message;
    assert!(
        said.ends_with("number 0x2 leads to nowhere; 6 more folios are not as they must be"),
        "{said}"
    );
}

#[test]
fn l18_what_shmem_counts() {
    let good = Shmem {
        alloced: 310,
        swapped: 10,
        in_swap: 10,
        busy: false,
        at: [0; 2],
    };
    let file = |shmem| {
        cache(Ok(Tree {
            shmem: Some(shmem),
            ..tree(300, 300)
        }))
    };
    // More than both: pages of a hole that reclaim has dropped are not taken off yet.
    for alloced in [310, 500] {
        let right = Shmem { alloced, ..good };
        assert_eq!(errors(&judged(vec![file(right)], None)), [], "{alloced}");
    }
    let each = [
        (
            Shmem {
                swapped: 11,
                ..good
            },
            "counts 11 pages in swap",
        ),
        (Shmem { swapped: 9, ..good }, "counts 9 pages in swap"),
        (Shmem { in_swap: 9, ..good }, "has swap entries for 9"),
        (
            Shmem {
                alloced: 309,
                ..good
            },
            "counts 309 pages in all",
        ),
    ];
    for (wrong, part) in each {
        let verdict = judged(vec![file(wrong)], None);
        assert_eq!(errors(&verdict), [id("L18")], "{part}");
        assert!(verdict.findings[0].message.contains(part));
        // A task may be between the two, which is said.
        let busy = Shmem {
            busy: true,
            ..wrong
        };
        let verdict = judged(vec![file(busy)], None);
        assert_eq!(errors(&verdict), [], "{part}");
        let said = verdict
            .not_judged
            .iter()
            .any(|it| it.reason.contains("L18"));
        assert!(said, "{part}");
    }
}

#[test]
fn l18_what_is_not_known() {
    // Pages that are counted before they are there; never fewer.
    let why = Some("process 30 (khugepaged) makes a file's pages into one");
    let verdict = judged(vec![cache(Ok(tree(812, 300)))], why);
    assert_eq!(errors(&verdict), []);
    assert!(verdict.not_judged[0]
        .reason
        .starts_with("L18 was not judged for 1 files"));
    let verdict = judged(vec![cache(Ok(tree(299, 300)))], why);
    assert_eq!(
        (errors(&verdict), verdict.not_judged.len()),
        (vec![id("L18")], 0)
    );
    // Just being changed, and never known.
    let verdict = judged(vec![not_read(false), not_read(true)], None);
    assert_eq!(errors(&verdict), []);
    assert!(verdict.not_judged[0]
        .reason
        .contains("for 2 files: its lock was held"));
    let verdict = judged(vec![not_read(false)], None);
    assert!(verdict.not_judged.is_empty());
    assert!(verdict
        .notes
        .iter()
        .any(|note| note.starts_with("L18 was not judged for 1")));
    // A page that another rule has told of.
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().kept.push(pfn..pfn + 1);
    let mut verdicts = [guest.judge()];
    let all = Ok(vec![cache(Ok(tree(1, 2)))]);
    judge_caches(&all, None, &mut verdicts);
    assert_eq!(errors(&verdicts[0]), [id("L9")]);
    let said = "L18 was not judged: L9 has told of pages that are not what they should be";
    assert!(verdicts[0].notes.iter().any(|note| note == said));
}
