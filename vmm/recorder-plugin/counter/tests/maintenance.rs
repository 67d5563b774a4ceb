// SPDX-License-Identifier: GPL-2.0-only
//! The instructions that maintain the TLB or order accesses are recognised.

#[path = "../src/maintenance.rs"]
mod maintenance;

use maintenance::Kind;

#[test]
fn each_kind_has_a_place() {
    let kinds = [Kind::Tlbi, Kind::Dsb, Kind::Dmb, Kind::Isb];
    assert_eq!(kinds.map(|kind| kind as usize), [0, 1, 2, 3]);
    assert_eq!(kinds.len(), Kind::COUNT);
}

#[test]
fn opcodes_as_the_assembler_makes_them() {
    for (opcode, kind) in [
        // dsb ishst; dsb ish; dsb nsh; dsb sy; dsb oshld; dsb ishnxs; ssbb; pssbb
        (0xd503_3a9f, Some(Kind::Dsb)),
        (0xd503_3b9f, Some(Kind::Dsb)),
        (0xd503_379f, Some(Kind::Dsb)),
        (0xd503_3f9f, Some(Kind::Dsb)),
        (0xd503_319f, Some(Kind::Dsb)),
        (0xd503_3a3f, Some(Kind::Dsb)),
        (0xd503_309f, None),
        (0xd503_349f, None),
        // dmb ish; dmb ishld; isb; sb; clrex; nop
        (0xd503_3bbf, Some(Kind::Dmb)),
        (0xd503_39bf, Some(Kind::Dmb)),
        (0xd503_3fdf, Some(Kind::Isb)),
        (0xd503_30ff, None),
        (0xd503_3f5f, None),
        (0xd503_201f, None),
        // tlbi vmalle1is; tlbi vae1is, x3; tlbi rvale1is, x4; tlbi aside1is, x0; tlbi vale1isnxs, x1; tlbi ipas2e1is, x2
        (0xd508_831f, Some(Kind::Tlbi)),
        (0xd508_8323, Some(Kind::Tlbi)),
        (0xd508_82a4, Some(Kind::Tlbi)),
        (0xd508_8340, Some(Kind::Tlbi)),
        (0xd508_93a1, Some(Kind::Tlbi)),
        (0xd50c_8022, Some(Kind::Tlbi)),
        // dc zva, x0; dc civac, x0; at s1e1r, x0; msr ttbr0_el1, x1; ret
        (0xd50b_7420, None),
        (0xd50b_7e20, None),
        (0xd508_7800, None),
        (0xd518_2001, None),
        (0xd65f_03c0, None),
    ] {
        assert_eq!(Kind::of(opcode), kind, "{opcode:#x}");
    }
}
