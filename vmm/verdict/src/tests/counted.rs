// SPDX-License-Identifier: GPL-2.0-only
//! Rules on what the kernel counts of all memory, on made-up counters and lists.

use crate::testing::id;
use std::collections::BTreeMap;

use linux::counted::{
    Area, Available, Census, Counted, CpuOrder, CpuPages, Events, Known, Lost, Memory, NotRead,
    Queue, Queues, Size, Swap, Zone,
};
use linux::folio::{Kind, Split};

use super::guest::*;
use crate::testing::folios::{errors, good, Kernel};
use crate::{judge_counted, AllMapped, Lack, ProcessVerdict};

mod census;
mod swap;

/// Pages of an order that a CPU keeps, as counted.
fn cpu_order(order: u8, pages: i64) -> CpuOrder {
    CpuOrder {
        order,
        counted: pages,
        at: 0,
        listed: pages,
    }
}

/// Orders 1 to 9, a queue without folios, a zone with a block of order 3, a page and a block of 16 that a CPU keeps.
fn counted() -> Counted {
    let sizes = (1..10).map(|order| Size {
        order,
        anonymous: 0,
        partial: 0,
        at: [0; 2],
    });
    let areas = (0..11).map(|order| Area {
        order,
        counted: i64::from(order == 3),
        at: 0,
        listed: i64::from(order == 3),
        isolated: 0,
        problem: None,
    });
    Counted {
        sizes: Ok(sizes.collect()),
        queues: Ok(Queues {
            queues: vec![Queue {
                whose: "node 0".into(),
                length: 0,
                at: 0,
                folios: Vec::new(),
                problem: None,
            }],
            is_scanned: false,
        }),
        zones: Ok(vec![Zone {
            node: 0,
            name: "Normal".into(),
            areas: Ok(areas.collect()),
            free: Some(8),
            free_at: 0,
            cpus: vec![Ok(CpuPages {
                cpu: 0,
                counted: 17,
                at: 0,
                listed: 17,
                orders: vec![cpu_order(0, 1), cpu_order(4, 16)],
                blocks: vec![(0x1234, 0), (0x1240, 4)],
                problem: None,
            })],
        }]),
        memory: Ok(Memory {
            anonymous: 1000,
            blocks: 512,
            shmem: 300,
            at: [0; 3],
            file: Some((400, 0)),
            cache: None,
            mlocked: None,
            large: None,
            written: None,
            lists: None,
            isolated: None,
            isolating: None,
            pinned: None,
            poisoned: None,
            cpus: 1,
            counting: None,
        }),
        swap: Ok(Swap::default()),
        committed: None,
        available: Ok(Available::default()),
        events: Ok(Events::default()),
        census: Err(NotRead {
            why: "nobody has looked".into(),
            later: false,
            not_built: false,
        }),
    }
}

/// The good guest's kernel: one anonymous folio of order 4 and 16 of a page are mapped.
fn judged(counted: &Counted, kernel: &Kernel) -> ProcessVerdict {
    judged_with(counted, kernel, &[], None)
}

/// The same, with entries that lead to swap.
fn judged_with(
    counted: &Counted,
    kernel: &Kernel,
    swapped: &[(u8, u64, u64)],
    unlisted: Option<&str>,
) -> ProcessVerdict {
    judged_as(counted, kernel, (swapped, unlisted), None).0
}

/// The same, where there may be `more` that is mapped; and how many counters were left open for that.
fn judged_as(
    counted: &Counted,
    kernel: &Kernel,
    (swapped, unlisted): (&[(u8, u64, u64)], Option<&str>),
    more: Option<&str>,
) -> (ProcessVerdict, u64) {
    let mut verdicts = [good(Guest::new()).judge()];
    let mapped = AllMapped {
        swapped: swapped.to_vec(),
        ..mapped(more)
    };
    let open = judge_counted(counted, (&mapped, unlisted), kernel, &mut verdicts);
    let [verdict] = verdicts;
    (verdict, open)
}

/// Returns the pages that all processes map, where there may be `more`.
fn mapped(more: Option<&str>) -> AllMapped {
    AllMapped {
        folios: BTreeMap::from([(0, 16), (4, 1)]),
        anonymous: 1000,
        blocks: 512,
        shmem: 300,
        file: 400,
        others: OTHERS,
        more: more.map(str::to_owned),
        swapped: Vec::new(),
        unwalked: None,
        uncounted: 0,
    }
}

fn size(counted: &mut Counted, order: u8) -> &mut Size {
    let sizes = counted.sizes.as_mut().unwrap();
    sizes.iter_mut().find(|size| size.order == order).unwrap()
}

/// A folio of order 4 on the queue that is partially mapped, and all that counts it.
fn queued() -> (Counted, Kernel) {
    let (mut counted, mut kernel) = (counted(), Kernel::default());
    kernel.folio(0x1000, 4, 0);
    kernel.change(0x1000, |page| {
        page.split = Some(Split {
            partially_mapped: true,
            queued: true,
        });
    });
    *size(&mut counted, 4) = Size {
        anonymous: 1,
        partial: 1,
        ..*size(&mut counted, 4)
    };
    let queue = &mut counted.queues.as_mut().unwrap().queues[0];
    queue.length = 1;
    queue.folios = vec![0x1000];
    assert_eq!(errors(&judged(&counted, &kernel)), []);
    (counted, kernel)
}

#[test]
fn l12_fewer_counted_than_mapped() {
    let (mut counted, kernel) = (counted(), Kernel::default());
    let verdict = judged(&counted, &kernel);
    assert_eq!(errors(&verdict), [id("L12")]);
    assert!(verdict.findings[0].message.contains("order 4"));
    assert_eq!(verdict.findings[0].process, None);
    // As many, and more: what others map is counted as well. Single pages are not.
    for more in [1, 2, 1000] {
        size(&mut counted, 4).anonymous = more;
        assert_eq!(errors(&judged(&counted, &kernel)), []);
    }
    size(&mut counted, 5).anonymous = -1;
    assert_eq!(errors(&judged(&counted, &kernel)), [id("L12")]);
}

#[test]
fn l12_partially_mapped_and_queued() {
    let (mut counted, kernel) = queued();
    for wrong in [0, 2, -1] {
        size(&mut counted, 4).partial = wrong;
        let verdict = judged(&counted, &kernel);
        assert_eq!(errors(&verdict), [id("L12")], "{wrong}");
    }
    // A task may have taken the others off the queue; but there is no count below none.
    counted.queues.as_mut().unwrap().is_scanned = true;
    for (count, errors_of) in [(0, 0), (2, 0), (-1, 1)] {
        size(&mut counted, 4).partial = count;
        assert_eq!(errors(&judged(&counted, &kernel)).len(), errors_of);
    }
}

#[test]
fn l13_queues() {
    let (good, _) = queued();
    let wrong = |change: &dyn Fn(&mut Queues, &mut Kernel)| {
        let (mut counted, mut kernel) = (good.clone(), queued().1);
        change(counted.queues.as_mut().unwrap(), &mut kernel);
        let mut found = errors(&judged(&counted, &kernel));
        // A folio that is not there is not counted either.
        found.retain(|rule| *rule != id("L12"));
        found
    };
    assert_eq!(wrong(&|_, _| ()), []);
    assert_eq!(wrong(&|all, _| all.queues[0].length = 2), [id("L13")]);
    assert_eq!(wrong(&|all, _| all.queues[0].length = 0), [id("L13")]);
    assert_eq!(
        wrong(&|all, _| all.queues[0].folios = vec![0x1001]),
        [id("L13")]
    );
    assert_eq!(
        wrong(&|all, _| all.queues[0].folios = vec![0x9999]),
        [id("L13")]
    );
    let looped = |all: &mut Queues, _: &mut Kernel| all.queues[0].problem = Some("it loops".into());
    assert_eq!(wrong(&looped), [id("L13")]);
    let change =
        |change: fn(&mut linux::folio::Page)| wrong(&|_, kernel| kernel.change(0x1000, change));
    assert_eq!(change(|page| page.kind = Kind::File), [id("L13")]);
    assert_eq!(change(|page| page.order = 1), [id("L13")]);
    // While a task splits folios the queue counts what the task has taken off it.
    let scanned = |length| {
        wrong(&|all, _| {
            all.is_scanned = true;
            all.queues[0].length = length;
        })
    };
    assert_eq!((scanned(2), scanned(0)), (vec![], vec![id("L13")]));
}

#[test]
fn l13_partially_mapped_and_on_no_list() {
    for (partially_mapped, queued) in [(false, false), (false, true), (true, true), (true, false)] {
        let mut guest = good(Guest::new());
        let pfn = guest.first();
        for pfn in pfn..pfn + guest.members {
            guest.kernel().change(pfn, |page| {
                page.split = Some(Split {
                    partially_mapped,
                    queued,
                });
            });
        }
        let wrong = partially_mapped && !queued;
        let expected = if wrong { vec![id("L13")] } else { vec![] };
        assert_eq!(guest.errors(), expected);
    }
}

#[test]
fn l14_free_lists() {
    let (good, kernel) = queued();
    let wrong = |change: &dyn Fn(&mut Zone)| {
        let mut counted = good.clone();
        change(&mut counted.zones.as_mut().unwrap()[0]);
        judged(&counted, &kernel)
    };
    let problem = || Some("page frame 0x5 is on it and is no free block".to_owned());
    for change in [
        &(|zone: &mut Zone| zone.areas.as_mut().unwrap()[3].counted = 2) as &dyn Fn(&mut Zone),
        &|zone| zone.areas.as_mut().unwrap()[3].listed = 0,
        &|zone| zone.areas.as_mut().unwrap()[0].problem = problem(),
        &|zone| zone.cpus[0].as_mut().unwrap().counted = 0,
        &|zone| zone.cpus[0].as_mut().unwrap().listed = 2,
        // A page of order 4 that order 3 was charged with: the sum is right.
        &|zone| zone.cpus[0].as_mut().unwrap().orders[1].counted = 0,
        &|zone| zone.cpus[0].as_mut().unwrap().orders[0].listed = 17,
        &|zone| zone.cpus[0].as_mut().unwrap().problem = problem(),
    ] {
        assert_eq!(errors(&wrong(change)), [id("L14")]);
    }
    // The reason is reported, for what is just being changed and for what is never known.
    let held = |later| NotRead {
        why: "the lock was held".into(),
        later,
        not_built: false,
    };
    let verdict = wrong(&|zone| zone.cpus[0] = Err(held(true)));
    assert_eq!(errors(&verdict), []);
    let reason = &verdict.not_judged[0].reason;
    assert!(reason.starts_with("L14 was not judged"), "{reason}");
    let mut counted = good.clone();
    counted.zones = Err(held(false));
    let lacks = judged(&counted, &kernel).lacks;
    assert_eq!(lacks[0].rules, [id("L14"), id("L15")]);
    assert!(lacks[0].reason.starts_with("L14"), "{lacks:?}");
}

#[test]
fn l14_pages_on_no_list() {
    let (mut good, kernel) = queued();
    good.memory.as_mut().unwrap().counting = Some(0);
    let of = |lost: Known<Lost>, change: &dyn Fn(&mut Memory)| {
        let mut counted = good.clone();
        change(counted.memory.as_mut().unwrap());
        counted.census = Ok(Census {
            folios: BTreeMap::from([(4, 1.into())]),
            anonymous: 1000,
            blocks: 512,
            file: 400,
            shmem: 300.into(),
            lost: Some(lost),
            ..Census::default()
        });
        judged(&counted, &kernel)
    };
    let lost = || {
        Ok(Lost {
            pages: 7,
            first: vec![0x81, 0x82, 0x83, 0x84],
        })
    };
    assert_eq!(errors(&of(Ok(Lost::default()), &|_| ())), []);
    let verdict = of(lost(), &|_| ());
    assert_eq!(errors(&verdict), [id("L14")]);
    let message = &verdict.findings[0].message;
    assert!(
        message.contains("7 pages") && message.contains("0x81, 0x82, 0x83, 0x84, ..."),
        "{message}"
    );
    let mut all = Lost::default();
    all.add(0x90);
    let message = of(Ok(all), &|_| ()).findings[0].message.clone();
    assert!(message.contains("page frames 0x90;"), "{message}");
    for change in [
        &(|memory: &mut Memory| memory.counting = None) as &dyn Fn(&mut Memory),
        &|memory| memory.isolating = Some("process 33 (kcompactd0) had taken".into()),
    ] {
        let verdict = of(lost(), change);
        assert_eq!(errors(&verdict), []);
        let mut reasons = verdict.not_judged.iter().map(|it| &it.reason);
        assert!(reasons.any(|it| it.starts_with("L14") && it.contains("0x81")));
    }
    // A CPU may be moving a block of them.
    let busy = |pages: u64| {
        let lost = Lost {
            pages,
            first: vec![0x81],
        };
        let verdict = of(Ok(lost), &|memory| memory.counting = Some(1));
        assert_eq!(errors(&verdict), []);
        let mut reasons = verdict.not_judged.iter();
        reasons.any(|it| it.reason.starts_with("L14"))
    };
    assert!(!busy(1 << 10) && busy((1 << 10) + 1));
    let held = NotRead {
        why: "the lock of a zone was held".into(),
        later: true,
        not_built: false,
    };
    assert_eq!(errors(&of(Err(held), &|_| ())), []);
}

/// The difference that is allowed: a thread may be preempted while it folds a CPU's part of a counter.
const OPEN: i64 = 128;

/// Pages that are mapped beside those of the judged process.
const OTHERS: i64 = 700;

#[test]
fn l15_less_counted_than_mapped() {
    let (good, kernel) = queued();
    let wrong = |change: &dyn Fn(&mut Memory)| {
        let mut counted = good.clone();
        change(counted.memory.as_mut().unwrap());
        judged(&counted, &kernel)
    };
    type Change = fn(&mut Memory, i64);
    let each: [(Change, &str); 4] = [
        (|memory, by| memory.anonymous = 1000 + by, "NR_ANON_MAPPED"),
        (|memory, by| memory.blocks = 512 + by, "NR_ANON_THPS"),
        (|memory, by| memory.shmem = 300 + by, "NR_SHMEM"),
        (
            |memory, by| memory.file = Some((400 + by, 0)),
            "NR_FILE_MAPPED",
        ),
    ];
    for (change, name) in each {
        for right in [-OPEN, 0, OTHERS + OPEN] {
            assert_eq!(errors(&wrong(&|memory| change(memory, right))), []);
        }
        for few in [-OPEN - 1, -5000] {
            let verdict = wrong(&|memory| change(memory, few));
            assert_eq!(errors(&verdict), [id("L15")], "{name} {few}");
            let message = &verdict.findings[0].message;
            assert!(message.contains(name), "{message}");
        }
    }
    // Each CPU may be folding.
    let two = wrong(&|memory| (memory.cpus, memory.blocks) = (2, 512 - 2 * OPEN));
    assert_eq!(errors(&two), []);
    let mut counted = good.clone();
    let why = "it has none".to_owned();
    counted.memory = Err(NotRead {
        why,
        later: false,
        not_built: false,
    });
    let lacks = judged(&counted, &kernel).lacks;
    let said = |lack: &Lack| lack.reason.starts_with("What L15 says of mapped memory");
    assert!(lacks.iter().any(said), "{lacks:?}");
}

#[test]
fn l15_more_counted_than_mapped() {
    let (good, kernel) = queued();
    type Change = fn(&mut Memory);
    let most = OTHERS + OPEN;
    assert_eq!(most, 828);
    let each: [(Change, &str); 3] = [
        (|memory| memory.anonymous = 1829, "NR_ANON_MAPPED"),
        (|memory| memory.blocks = 1341, "NR_ANON_THPS"),
        (|memory| memory.file = Some((1229, 0)), "NR_FILE_MAPPED"),
    ];
    for (change, name) in each {
        let mut counted = good.clone();
        change(counted.memory.as_mut().unwrap());
        let judged = |more| judged_as(&counted, &kernel, (&[], None), more);
        let (verdict, open) = judged(None);
        assert_eq!((errors(&verdict), open), (vec![id("L15")], 0), "{name}");
        assert!(verdict.findings[0].message.contains(name));
        // Not where there may be more; but that is said.
        let (verdict, open) = judged(Some("a lock was held"));
        assert_eq!((errors(&verdict), open), (vec![], 1), "{name}");
        let [said] = verdict.not_judged.as_slice() else {
            panic!("{:?}", verdict.not_judged);
        };
        assert!(said.reason.contains(name) && said.reason.ends_with("a lock was held"));
    }
    // Not all of shmem is mapped.
    let mut counted = good;
    counted.memory.as_mut().unwrap().shmem = 100_000;
    assert_eq!(errors(&judged(&counted, &kernel)), []);
}

#[test]
fn l15_free_pages() {
    let (good, kernel) = queued();
    let wrong = |change: &dyn Fn(&mut Zone)| {
        let mut counted = good.clone();
        change(&mut counted.zones.as_mut().unwrap()[0]);
        errors(&judged(&counted, &kernel))
    };
    for (free, errors) in [
        (8 - OPEN, 0),
        (8 + OPEN, 0),
        (8 - OPEN - 1, 1),
        (9 + OPEN, 1),
    ] {
        let found = wrong(&|zone| zone.free = Some(free));
        assert_eq!(found, vec![id("L15"); errors], "{free}");
    }
    // What is isolated is on the lists and not counted.
    let isolated = |count| {
        wrong(&|zone| {
            let area = &mut zone.areas.as_mut().unwrap()[10];
            (area.counted, area.listed, area.isolated) = (1, 1, count);
        })
    };
    assert_eq!(isolated(1), []);
    assert_eq!(isolated(0), [id("L15")]);
    // Where a list is wrong, the zone's lock held, or others counted as well, nothing can be said of the sum.
    let broken = wrong(&|zone| {
        zone.free = Some(5000);
        zone.areas.as_mut().unwrap()[3].problem = Some("it loops".into());
    });
    assert_eq!(broken, [id("L14")]);
    assert_eq!(wrong(&|zone| zone.free = None), []);
    let held = wrong(&|zone| {
        zone.free = Some(5000);
        let why = "the lock was held".into();
        zone.areas = Err(NotRead {
            why,
            later: true,
            not_built: false,
        });
    });
    assert_eq!(held, []);
}

#[test]
fn l9_a_page_that_a_cpu_keeps() {
    let mut guest = good(Guest::new());
    let pfn = guest.first() + guest.members;
    guest.kernel().kept = vec![0x10..0x20, pfn + 2..pfn + 4];
    let verdict = guest.judge();
    assert_eq!(errors(&verdict), [id("L9")]);
    let finding = &verdict.findings[0];
    assert!(finding.message.contains("a CPU's list of free pages"));
    assert_eq!(finding.va.0, VA + guest.block + 2 * guest.page);
    guest.kernel().kept = vec![pfn - 100..pfn - 50, pfn + 16..pfn + 20];
    guest.assert_legal();
}
