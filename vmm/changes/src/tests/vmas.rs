// SPDX-License-Identifier: GPL-2.0-only
//! Events of VMAs.

use super::scene::*;

fn of(vmas: &[(u64, u64, &str, &str)]) -> Instant {
    let mut instant = Instant::new();
    let lines = vmas.iter();
    let lines = lines.map(|(start, end, permissions, flags)| {
        vma(VA + start * PAGE, VA + end * PAGE, permissions, flags)
    });
    instant.vmas = lines.collect();
    instant
}

#[test]
fn they_come_go_and_change() {
    let one = of(&[(0, 16, "rw-p", "rd wr")]);
    let longer = of(&[(0, 32, "rw-p", "rd wr")]);
    assert_eq!(told(&one, &longer), ["map 16-32"]);
    assert_eq!(told(&longer, &one), ["unmap 16-32"]);
    assert_eq!(detail(&longer, &one), "rw-p, 0 of its pages were mapped");
    // The kernel may cut them as it likes.
    let cut = of(&[(0, 7, "rw-p", "rd wr"), (7, 16, "rw-p", "rd wr")]);
    assert_eq!(told(&one, &cut), [""; 0]);
    let part = of(&[
        (0, 4, "rw-p", "rd wr"),
        (4, 8, "r--p", "rd"),
        (8, 16, "rw-p", "rd wr hg"),
    ]);
    assert_eq!(told(&one, &part), ["protection 4-8", "flags 8-16"]);
    let hinted = of(&[(0, 16, "rw-p", "rd wr hg")]);
    assert_eq!(detail(&one, &hinted), "+hg");
    assert_eq!(detail(&hinted, &one), "-hg");
    // Soft-dirty comes by itself.
    assert_eq!(told(&one, &of(&[(0, 16, "rw-p", "rd wr sd")])), [""; 0]);
}

#[test]
fn pages_go_with_their_vma() {
    let before = of(&[(0, 32, "rw-p", "rd wr")])
        .folio(0, FRAME, 2, DIRTY)
        .page(20, FRAME + 9, DIRTY);
    let after = of(&[(0, 2, "rw-p", "rd wr")]).folio(0, FRAME, 1, DIRTY);
    let after = after
        .with(FRAME, |page| page.order = 2)
        .with(FRAME + 1, |page| page.order = 2);
    assert_eq!(told(&before, &after), ["unmap 2-32"]);
    assert_eq!(detail(&before, &after), "rw-p, 3 of its pages were mapped");
}

#[test]
fn another_file_is_another_vma() {
    let file = |inode: u64, offset: u64| {
        let mut instant = Instant::new();
        instant.vmas = format!(
            "{VA:x}-{:x} r--s {offset:08x} 00:01 {inode} /a\nVmFlags: rd \n",
            VA + 16 * PAGE
        );
        instant
    };
    assert_eq!(told(&file(1, 0), &file(1, 0)), [""; 0]);
    assert_eq!(told(&file(1, 0), &file(2, 0)), ["map 0-16", "unmap 0-16"]);
    assert_eq!(
        told(&file(1, 0), &file(1, PAGE)),
        ["map 0-16", "unmap 0-16"]
    );
}
