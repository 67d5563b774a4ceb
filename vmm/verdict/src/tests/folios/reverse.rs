// SPDX-License-Identifier: GPL-2.0-only
//! Tests of what the reverse mapping finds.

use super::files::of_a_file;
use crate::testing::folios::{errors, good, ANON_VMA};
use crate::testing::id;
use crate::tests::guest::*;
use linux::counted::NotRead;

#[test]
fn l19_anonymous_pages_that_are_not_found() {
    for guest in Guest::all() {
        let mut guest = good(guest);
        // It hangs in another tree beside its own: a child's in that of its parent.
        guest.kernel().numbering[0].found_by = Some(Ok(vec![ANON_VMA + 0x100, ANON_VMA]));
        guest.assert_legal();
        let at = guest.members + 1;
        let pfn = guest.first() + at;
        guest.kernel().change(pfn, |page| page.mapping += 0x200);
        let verdict = guest.judge();
        assert_eq!(errors(&verdict), [id("L19")]);
        assert_eq!(verdict.findings[0].va.0, VA + at * guest.page);
        guest.kernel().change(pfn, |page| page.mapping -= 0x200);
        guest.kernel().numbering[0].found_by = Some(Ok(Vec::new()));
        let verdict = guest.judge();
        assert!(!verdict.findings.is_empty());
        assert!(errors(&verdict).iter().all(|rule| *rule == id("L19")));
    }
}

#[test]
fn l19_pages_of_a_file_that_are_not_found() {
    for guest in Guest::all() {
        let mut guest = of_a_file(guest, true);
        guest.kernel().numbering[0].found_by = Some(Ok(vec![ANON_VMA]));
        assert!(errors(&guest.judge()).contains(&id("L19")));
        // The tree of a driver's file may be no tree of pages.
        guest.kernel().numbering[0].of = None;
        guest.assert_legal();
    }
}

#[test]
fn l19_what_is_not_known() {
    let mut guest = good(Guest::new());
    let why = |later| NotRead {
        why: "a tree that changes".into(),
        later,
        not_built: false,
    };
    // At another instant it may be known.
    guest.kernel().numbering[0].found_by = Some(Err(why(true)));
    let verdict = guest.judge();
    assert!(errors(&verdict).is_empty() && verdict.lacks.is_empty());
    let said: Vec<&str> = verdict
        .not_judged
        .iter()
        .map(|it| it.reason.as_ref())
        .collect();
    assert_eq!(said, ["L19 was not judged: a tree that changes"]);
    // At none.
    for found_by in [Some(Err(why(false))), None] {
        guest.kernel().numbering[0].found_by = found_by;
        let verdict = guest.judge();
        assert!(errors(&verdict).is_empty() && verdict.not_judged.is_empty());
        assert_eq!(verdict.lacks.len(), 1);
        assert_eq!(verdict.lacks[0].rules, [id("L19")]);
        assert!(verdict.lacks[0].reason.starts_with("L19 was not judged: "));
    }
}
