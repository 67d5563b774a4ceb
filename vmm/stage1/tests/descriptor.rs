// SPDX-License-Identifier: GPL-2.0-only
//! Raw words as in the Arm ARM's figures, and how they are printed.

use stage1::testing::Layout;
use stage1::{Descriptor, Granule, Half, Kind, Level, PhysicalAddress, Regime};

fn regime(layout: Layout) -> Regime {
    Regime::new(&layout.registers(0), layout.half).unwrap()
}

#[test]
fn user_page_of_linux() {
    let regime = regime(Layout::new(Granule::K4, Half::Lower, 48));
    // UXN PXN Contiguous DBM, PTE_DIRTY (bit 55), nG AF SH=3 AP=1 AttrIndx=0, page.
    let page = Descriptor::new(0x00f8_0000_8765_4f43, Level::L3, &regime);
    assert_eq!(page.kind(), Kind::Page);
    assert_eq!(page.output_address(), PhysicalAddress(0x8765_4000));
    assert_eq!(
        (page.attr_indx(), page.ap(), page.sh()),
        (0, 0b01, Some(0b11))
    );
    assert!(page.af() && page.ng() && page.dbm() && page.contiguous() && page.pxn() && page.uxn());
    assert!(!page.ns() && !page.gp() && !page.nt());
    assert_eq!(
        (page.software(), page.pbha(), page.nonzero_res0()),
        (1, 0, 0)
    );
    assert_eq!(page.memory_attributes(), Some(0xff));
    assert_eq!(
        page.to_string(),
        "page OA=0x0000087654000 AttrIndx=0 AP=0b01 SH=0b11 AF nG DBM Contiguous PXN UXN \
         software=0b0001"
    );
}

#[test]
fn high_address_bits_in_each_format() {
    let lpa2 = regime(Layout::new(Granule::K4, Half::Lower, 52));
    let page = Descriptor::new(0x0003_0000_0000_1303, Level::L3, &lpa2);
    assert_eq!(page.output_address(), PhysicalAddress(0xf_0000_0000_1000));
    assert_eq!(page.sh(), None, "bits [9:8] are address");
    assert_eq!(page.nonzero_res0(), 0);
    let table = Descriptor::new(0x0001_0000_0000_2203, Level::Minus1, &lpa2);
    assert_eq!(table.next_table(), PhysicalAddress(0x9_0000_0000_2000));

    let lpa = regime(Layout::new(Granule::K64, Half::Lower, 52));
    let page = Descriptor::new(0x0000_8000_0001_a003, Level::L3, &lpa);
    assert_eq!(page.output_address(), PhysicalAddress(0xa_8000_0001_0000));
    assert_eq!(page.nonzero_res0(), 0);
    let block = Descriptor::new(0x0000_0400_0000_5001, Level::L1, &lpa);
    assert_eq!(
        (block.kind(), block.output_address()),
        (Kind::Block, PhysicalAddress(0x5_0400_0000_0000))
    );

    let narrow = regime(Layout::new(Granule::K4, Half::Lower, 48));
    let page = Descriptor::new(0x0003_0000_0000_1303, Level::L3, &narrow);
    assert_eq!(page.output_address(), PhysicalAddress(0x1000));
    assert_eq!(
        (page.sh(), page.nonzero_res0()),
        (Some(0b11), 0x0003_0000_0000_0000)
    );
    assert!(
        page.to_string().ends_with(" RES0=0x3000000000000"),
        "{page}"
    );
}

#[test]
fn kinds_by_level() {
    use Kind::{Block, Invalid, Page, Reserved, Table};
    let narrow = regime(Layout::new(Granule::K4, Half::Lower, 48));
    let wide = regime(Layout::new(Granule::K4, Half::Lower, 52));
    for (level, one, with_ds, three) in [
        (Level::Minus1, Reserved, Reserved, Table),
        (Level::L0, Reserved, Block, Table),
        (Level::L1, Block, Block, Table),
        (Level::L2, Block, Block, Table),
        (Level::L3, Reserved, Reserved, Page),
    ] {
        let kinds =
            |regime| [0b00, 0b01, 0b10, 0b11].map(|w| Descriptor::new(w, level, regime).kind());
        assert_eq!(
            kinds(&narrow),
            [Invalid, one, Invalid, three],
            "level {level}"
        );
        assert_eq!(
            kinds(&wide),
            [Invalid, with_ds, Invalid, three],
            "level {level} with DS"
        );
    }
}

#[test]
fn tables_and_others_written_out() {
    let regime = regime(Layout::new(Granule::K4, Half::Lower, 48));
    let show = |word, level| Descriptor::new(word, level, &regime).to_string();
    assert_eq!(
        show(0xf800_0000_4000_1003, Level::L1),
        "table next=0x0000040001000 APTable=0b11 UXNTable PXNTable NSTable"
    );
    assert_eq!(show(0, Level::L3), "invalid 0x0000000000000000");
    assert_eq!(show(0x1001, Level::L3), "reserved 0x0000000000001001");
    assert_eq!(
        show(0x0004_0000_4001_0025, Level::L2),
        "block OA=0x0000040000000 AttrIndx=1 AP=0b00 SH=0b00 nT GP NS RES0=0x10000",
        "the layout's PE has no FEAT_BBM"
    );
}

/// AttrIndx selects a byte of MAIR_EL1.
#[test]
fn memory_attributes_come_from_mair() {
    let regime = regime(Layout::new(Granule::K4, Half::Lower, 48));
    let bytes = (0..8).map(|i| Descriptor::new(i << 2 | 3, Level::L3, &regime).memory_attributes());
    let expected = [0xff, 0xf0, 0x44, 0x00, 0x04, 0x00, 0x00, 0x00];
    assert!(bytes.eq(expected.map(Some)));
}
