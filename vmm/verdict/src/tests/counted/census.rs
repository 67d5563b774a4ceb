// SPDX-License-Identifier: GPL-2.0-only
//! L12 and L15 where it is known what all pages of memory are.

use crate::testing::id;
use linux::counted::{Amount, Census, Committed, Large, Limited, Lists, Written};
use linux::release::Release;

use super::*;

fn amount(least: i64, most: i64) -> Amount {
    Amount { least, most }
}

/// Returns the memory that [`counted`] counts: an anonymous folio of order 4, and memory as in [`judged_as`].
fn whole() -> (Counted, Kernel) {
    let (mut counted, kernel) = queued();
    counted.memory.as_mut().unwrap().cache = Some((2000, 0));
    counted.census = Ok(Census {
        folios: BTreeMap::from([(4, amount(1, 1))]),
        unknown: 0,
        anonymous: 1000,
        blocks: 512,
        file: 400,
        shmem: amount(300, 300),
        cache: amount(2000, 2000),
        mlocked: 600,
        largest_mlocked: 64,
        large: Some(Large {
            shmem: amount(512, 1024),
            file: amount(0, 0),
            shmem_mapped: amount(512, 512),
            file_mapped: amount(0, 0),
        }),
        written: Some(Written {
            dirty: amount(96, 100),
            under_way: amount(16, 16),
            pending: amount(112, 116),
        }),
        largest_written: 16,
        lists: Some(Lists {
            anonymous: 700,
            file: 90,
            unevictable: 40,
        }),
        largest_listed: 32,
        pinned: Some(amount(32, 33)),
        poisoned: Some(amount(2, 2)),
        counts_pages: true,
        lost: None,
    });
    assert_eq!(errors(&judged(&counted, &kernel)), []);
    (counted, kernel)
}

fn census(counted: &mut Counted) -> &mut Census {
    counted.census.as_mut().unwrap()
}

#[test]
fn l12_as_many_as_there_are() {
    let (good, kernel) = whole();
    let wrong = |change: &dyn Fn(&mut Counted)| {
        let mut counted = good.clone();
        change(&mut counted);
        judged(&counted, &kernel)
    };
    for (order, anonymous) in [(4, 2), (4, 1000), (5, 1), (9, 3)] {
        let verdict = wrong(&|all| size(all, order).anonymous = anonymous);
        assert_eq!(errors(&verdict), [id("L12")], "{order} {anonymous}");
        let there = i32::from(order == 4);
        let part = format!("(nr_anon), and there are only {there} of that order in all memory");
        assert!(verdict.findings[0].message.contains(&part));
    }
    // One that another process has, or that is in the swap cache, and is not counted.
    let another = |all: &mut Counted| census(all).folios.insert(4, amount(2, 2)).map(drop);
    let another = wrong(&|all| another(all).unwrap());
    assert_eq!(errors(&another), [id("L12")]);
    // One that comes or goes may be counted or not, and so may one of an order that is gone.
    for (counted, errors_of) in [(1, 0), (2, 0), (3, 1)] {
        let coming = wrong(&|all| {
            census(all).folios.insert(4, amount(1, 2));
            size(all, 4).anonymous = counted;
        });
        assert_eq!(errors(&coming).len(), errors_of, "{counted}");
        let going = wrong(&|all| {
            census(all).unknown = 1;
            size(all, 4).anonymous = counted;
        });
        assert_eq!(errors(&going).len(), errors_of, "{counted}");
    }
}

/// Counts that a hugetlb page has left behind when it was migrated look like this; what is missing does not.
#[test]
fn l12_more_than_there_are_may_be_what_was_mended() {
    let (sound, kernel) = whole();
    for (release, anonymous, remarks) in [
        ("6.12.117", 2, 1),
        ("6.18.15", 2, 1),
        ("7.2.12", 2, 0),
        ("6.12.117", 0, 0),
    ] {
        let mut counted = sound.clone();
        census(&mut counted).folios.insert(5, amount(1, 1));
        size(&mut counted, 5).anonymous = anonymous;
        let mut verdicts = [good(Guest::new()).judge()];
        verdicts[0].release = Release::parse(release);
        judge_counted(&counted, (&mapped(None), None), &kernel, &mut verdicts);
        let [verdict] = verdicts;
        assert_eq!(errors(&verdict), [id("L12")], "{release} {anonymous}");
        let said = &verdict.findings[0].remarks;
        assert_eq!(said.len(), remarks, "{release} {anonymous}: {said:?}");
        assert!(said
            .iter()
            .all(|said| said.contains("exclude hugetlb folios")));
    }
}

#[test]
fn l15_as_much_as_there_is() {
    let (good, kernel) = whole();
    type Change = fn(&mut Memory, i64);
    let each: [(Change, &str); 5] = [
        (|memory, by| memory.anonymous += by, "NR_ANON_MAPPED"),
        (|memory, by| memory.blocks += by, "NR_ANON_THPS"),
        (|memory, by| memory.shmem += by, "NR_SHMEM"),
        (
            |memory, by| memory.file = Some((400 + by, 0)),
            "NR_FILE_MAPPED",
        ),
        (
            |memory, by| memory.cache = Some((2000 + by, 0)),
            "NR_FILE_PAGES",
        ),
    ];
    for (change, name) in each {
        for (by, is_wrong) in [
            (OPEN, false),
            (-OPEN, false),
            (OPEN + 1, true),
            (-OPEN - 1, true),
        ] {
            let mut counted = good.clone();
            change(counted.memory.as_mut().unwrap(), by);
            // Whatever other address spaces map is counted all the same.
            let (verdict, open) =
                judged_as(&counted, &kernel, (&[], None), Some("a lock was held"));
            let expected = if is_wrong { vec![id("L15")] } else { vec![] };
            assert_eq!((errors(&verdict), open), (expected, 0), "{name} {by}");
            assert!(verdict.findings.iter().all(|it| it.message.contains(name)));
        }
    }
    // What may be in a cache or not.
    let mut counted = good;
    census(&mut counted).shmem = amount(200, 1300);
    let mut shmem = |count| {
        counted.memory.as_mut().unwrap().shmem = count;
        errors(&judged(&counted, &kernel)).len()
    };
    assert_eq!([1300 + OPEN, 1301 + OPEN].map(&mut shmem), [0, 1]);
    // Less than the judged process maps is wrong, whatever may be elsewhere.
    assert_eq!([300 - OPEN, 299 - OPEN].map(&mut shmem), [0, 1]);
}

#[test]
fn what_all_pages_are_is_asked_where_pages_are_right() {
    let (mut counted, kernel) = whole();
    size(&mut counted, 4).anonymous = 7;
    counted.memory.as_mut().unwrap().anonymous = 1000 + OTHERS + OPEN;
    // L9 tells of a page, and so nothing can be held to pages.
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().kept.push(pfn..pfn + 1);
    let mut verdicts = [guest.judge()];
    assert_eq!(errors(&verdicts[0]), [id("L9")]);
    judge_counted(&counted, (&mapped(None), None), &kernel, &mut verdicts);
    assert_eq!(errors(&verdicts[0]), [id("L9")]);
    let note = "L9 has told of pages that are not what they should be";
    assert!(verdicts[0].notes.iter().any(|said| said.ends_with(note)));
    // The same without.
    assert_eq!(errors(&judged(&counted, &kernel)), [id("L12"), id("L15")]);
}

#[test]
fn l15_locked_pages() {
    let (good, kernel) = whole();
    let judged = |mlocked| {
        let mut counted = good.clone();
        counted.memory.as_mut().unwrap().mlocked = mlocked;
        errors(&judged(&counted, &kernel))
    };
    // As many as the largest folio has may be on their way, and what a CPU may be folding.
    for right in [600, 600 - 64 - OPEN, 600 + 64 + OPEN] {
        assert_eq!(judged(Some((right, 0))), [], "{right}");
    }
    for wrong in [599 - 64 - OPEN, 601 + 64 + OPEN] {
        assert_eq!(judged(Some((wrong, 0))), [id("L15")], "{wrong}");
    }
    assert_eq!(judged(None), []);
}

#[test]
fn l15_what_is_held() {
    let (good, kernel) = whole();
    let judged = |change: &dyn Fn(&mut Memory)| {
        let mut counted = good.clone();
        let memory = counted.memory.as_mut().unwrap();
        (memory.pinned, memory.poisoned) = (Some((32, 0)), Some((2, 0)));
        memory.isolated = Some((0, 0));
        // No CPU is in the kernel.
        memory.counting = Some(0);
        change(memory);
        errors(&judged(&counted, &kernel))
    };
    assert_eq!(judged(&|_| ()), []);
    // A folio of one page may have a pin, or many references.
    assert_eq!(judged(&|memory| memory.pinned = Some((33, 0))), []);
    let wrong: [&dyn Fn(&mut Memory); 6] = [
        &|memory| memory.pinned = Some((34, 0)),
        &|memory| memory.pinned = Some((31, 0)),
        &|memory| memory.poisoned = Some((1, 0)),
        &|memory| memory.poisoned = Some((3, 0)),
        &|memory| memory.isolated = Some((1, 0)),
        // All counters are exact then.
        &|memory| memory.anonymous += 1,
    ];
    for change in wrong {
        assert_eq!(judged(change), [id("L15")]);
        let counting = |memory: &mut Memory| {
            change(memory);
            memory.counting = Some(1);
        };
        assert_eq!(judged(&counting), []);
    }
}

#[test]
fn l15_what_is_held_may_be_on_its_way() {
    let (good, kernel) = whole();
    let judged = |change: &dyn Fn(&mut Memory), by: i64| {
        let mut counted = good.clone();
        let memory = counted.memory.as_mut().unwrap();
        (memory.pinned, memory.poisoned) = (Some((32, 0)), Some((2, 0)));
        (memory.isolated, memory.counting) = (Some((0, 0)), Some(0));
        for counter in [
            &mut memory.pinned,
            &mut memory.poisoned,
            &mut memory.isolated,
        ] {
            *counter = counter.map(|(count, at)| (count + by, at));
        }
        change(memory);
        let verdict = judged(&counted, &kernel);
        let said = verdict.not_judged.iter();
        let said = said.filter(|it| it.reason.starts_with("L15 was not judged for"));
        (errors(&verdict).len(), said.count())
    };
    let task = |memory: &mut Memory| memory.isolating = Some("it reclaims".into());
    let busy = |memory: &mut Memory| memory.counting = Some(1);
    let unknown = |memory: &mut Memory| memory.counting = None;
    // Of each that differs it is said, and none that does not is spoken of.
    for (change, wrong, said) in [
        (&(|_: &mut Memory| ()) as &dyn Fn(&mut Memory), 3, 0),
        (&task, 1, 2),
        (&busy, 2, 1),
        (&unknown, 0, 3),
    ] {
        assert_eq!(judged(change, 600), (wrong, said));
        assert_eq!(judged(change, 0), (0, 0));
    }
}

#[test]
fn l15_folios_of_a_pmd() {
    let (good, kernel) = whole();
    let judged = |large| {
        let mut counted = good.clone();
        counted.memory.as_mut().unwrap().large = large;
        errors(&judged(&counted, &kernel))
    };
    let right = Large {
        shmem: (512, 0),
        shmem_mapped: (512, 0),
        ..Large::default()
    };
    // The second folio of shmem may be on its way.
    for shmem in [512, 1024] {
        let shmem = (shmem, 0);
        assert_eq!(judged(Some(Large { shmem, ..right })), []);
    }
    type Change = fn(&mut Large<(i64, u64)>) -> &mut i64;
    let changes: [Change; 4] = [
        |it| &mut it.shmem.0,
        |it| &mut it.file.0,
        |it| &mut it.shmem_mapped.0,
        |it| &mut it.file_mapped.0,
    ];
    for change in changes {
        for by in [-1024, 1024] {
            let mut wrong = right;
            *change(&mut wrong) += by;
            assert_eq!(judged(Some(wrong)), [id("L15")], "{wrong:?}");
        }
    }
    assert_eq!(judged(None), []);
}

#[test]
fn l15_lists_of_the_lru() {
    let (good, kernel) = whole();
    let judged = |lists| {
        let mut counted = good.clone();
        counted.memory.as_mut().unwrap().lists = lists;
        judged(&counted, &kernel)
    };
    let right = Lists {
        anonymous: (700, 0),
        file: (90, 0),
        unevictable: (40, 0),
    };
    type Change = fn(&mut Lists<(i64, u64)>) -> &mut i64;
    let changes: [Change; 3] = [
        |it| &mut it.anonymous.0,
        |it| &mut it.file.0,
        |it| &mut it.unevictable.0,
    ];
    for change in changes {
        // As many as the largest folio has may be on their way, and what a CPU may be folding.
        for (by, expected) in [(32 + OPEN, vec![]), (33 + OPEN, vec![id("L15")])] {
            for by in [by, -by] {
                let mut lists = right;
                *change(&mut lists) += by;
                assert_eq!(errors(&judged(Some(Ok(lists)))), expected, "{lists:?}");
            }
        }
    }
    let busy = judged(Some(Err(NotRead {
        why: "their lock was held".into(),
        later: true,
        not_built: false,
    })));
    assert_eq!(errors(&busy), []);
    let said = "What L15 says of the LRU lists was not judged: their lock was held";
    assert!(busy.not_judged.iter().any(|it| it.reason == said));
}

#[test]
fn l15_memory_that_is_promised() {
    let (mut counted, kernel) = whole();
    let mut judged = |(by, tmpfs): (i64, i64), more: Option<&str>, busy: Option<&str>| {
        counted.committed = Some(Ok(Committed {
            counted: 5000 + by,
            at: 0,
            vmas: 4000,
            shmem: 1000,
            limited: vec![
                Limited {
                    device: 23,
                    used: 300 + tmpfs,
                    at: 0,
                    alloced: 300,
                },
                Limited::default(),
            ],
            busy: busy.map(str::to_owned),
        }));
        let (verdict, open) = judged_as(&counted, &kernel, (&[], None), more);
        (errors(&verdict), verdict.not_judged.len(), open)
    };
    let why = Some("a lock was held");
    for (more, busy) in [(None, None), (why, None), (None, why)] {
        assert_eq!(judged((0, 0), more, busy), (vec![], 0, 0));
        for (by, count) in [
            ((1, 0), 1),
            ((-1, 0), 1),
            ((0, 1), 1),
            ((0, -1), 1),
            ((9, 9), 2),
        ] {
            let expected = match (more, busy) {
                (None, None) => (vec![id("L15"); count], 0, 0),
                _ => (vec![], count, count as u64),
            };
            assert_eq!(judged(by, more, busy), expected, "{by:?}");
        }
    }
}

#[test]
fn l15_what_is_to_be_written() {
    let (good, kernel) = whole();
    let judged = |written| {
        let mut counted = good.clone();
        counted.memory.as_mut().unwrap().written = Some(written);
        errors(&judged(&counted, &kernel))
    };
    let right = Written {
        dirty: (98, 0),
        under_way: (16, 0),
        pending: (114, 0),
    };
    assert_eq!(judged(right), []);
    type Change = fn(&mut Written<(i64, u64)>) -> &mut i64;
    let changes: [(Change, i64, i64); 3] = [
        (|it| &mut it.dirty.0, 96, 100),
        (|it| &mut it.under_way.0, 16, 16),
        (|it| &mut it.pending.0, 112, 116),
    ];
    // Of a kernel whose page caches do not lead to their devices it is said.
    let mut unknown = good.clone();
    unknown.memory.as_mut().unwrap().written = Some(Written::default());
    census(&mut unknown).written = None;
    let verdict = super::judged(&unknown, &kernel);
    assert_eq!(errors(&verdict), []);
    let note = "What L15 says of writeback was not judged";
    assert!(verdict.notes.iter().any(|said| said.starts_with(note)));
    // As many as the largest folio has may be on their way, and what a CPU may be folding.
    let open = 16 + OPEN;
    for (change, least, most) in changes {
        for (count, expected) in [
            (least - open, vec![]),
            (most + open, vec![]),
            (least - open - 1, vec![id("L15")]),
            (most + open + 1, vec![id("L15")]),
        ] {
            let mut written = right;
            *change(&mut written) = count;
            assert_eq!(judged(written), expected, "{written:?}");
        }
    }
}
