// SPDX-License-Identifier: GPL-2.0-only
//! Markers are recognised, and so are loads and stores.

#[path = "../src/marker.rs"]
mod marker;

use marker::{accesses_memory, marker};

#[test]
fn a_marker_has_a_number() {
    assert_eq!(marker(0xd2e0_001f), Some(0));
    assert_eq!(marker(0xd2ff_ffff), Some(0xffff));
    // movz x30, #1, lsl #48; movz xzr, #1, lsl #32; movz wzr, #1; movk xzr, #1, lsl #48; nop
    for other in [
        0xd2e0_003e,
        0xd2c0_003f,
        0x5280_003f,
        0xf2e0_003f,
        0xd503_201f,
    ] {
        assert_eq!(marker(other), None, "{other:#x}");
    }
}

#[test]
fn loads_and_stores_access_memory() {
    // str x0, [x1]; ldp x0, x1, [x2]; ldxr x0, [x1]; ld1 {v0.16b}, [x0]; dc zva, x3
    for one in [
        0xf900_0020,
        0xa940_0440,
        0xc85f_7c20,
        0x4c40_7000,
        0xd50b_7423,
    ] {
        assert!(accesses_memory(one), "{one:#x}");
    }
    // add x0, x1, x2; b .; nop; svc #0; fmov d0, x0
    for one in [
        0x8b02_0020,
        0x1400_0000,
        0xd503_201f,
        0xd400_0001,
        0x9e67_0000,
    ] {
        assert!(!accesses_memory(one), "{one:#x}");
    }
}
