// SPDX-License-Identifier: GPL-2.0-only
use super::*;

const K: u64 = 1024;

fn range(base: u64, bytes: u64) -> Range {
    Range::new(PhysicalAddress(base), bytes).unwrap()
}

fn two_nodes() -> Memory {
    let words = |first: u64| (first..first + 512).collect();
    Memory::new(
        vec![
            Region::owned(PhysicalAddress(0x8000_0000), words(1000)),
            Region::owned(PhysicalAddress(0x4000_0000), words(0)),
            Region::owned(PhysicalAddress(0x4000_1000), words(512)),
        ],
        vec![range(0x8000_0000, 64 * K), range(0x4000_0000, 64 * K)],
    )
    .unwrap()
}

#[test]
fn words_are_found_in_the_region_that_holds_them() {
    let memory = two_nodes();
    assert_eq!(
        memory.words(PhysicalAddress(0x4000_0008), 2),
        Some(&[1, 2][..])
    );
    assert_eq!(
        memory.words(PhysicalAddress(0x8000_0ff8), 1),
        Some(&[1511][..])
    );
    assert_eq!(
        memory.words(PhysicalAddress(0x4000_0ff8), 2),
        None,
        "not in one region"
    );
    assert_eq!(memory.words(PhysicalAddress(0x8000_1000), 1), None);
    assert_eq!(memory.words(PhysicalAddress(0x3fff_fff8), 1), None);
    assert_eq!(
        memory.words(PhysicalAddress(0x4000_0004), 1),
        None,
        "not aligned"
    );
    assert_eq!(
        memory.words(PhysicalAddress(0x4000_0000), usize::MAX / 4),
        None
    );
    assert_eq!(memory.words(PhysicalAddress(!7), 1), None);
}

#[test]
fn not_saved_is_not_outside() {
    let memory = two_nodes();
    assert!(memory.is_ram(PhysicalAddress(0x8000_2000)));
    assert!(!memory.is_ram(PhysicalAddress(0x8001_0000)));
}

#[test]
fn a_write_reaches_the_bytes_it_names() {
    let mut memory = two_nodes();
    memory
        .write(PhysicalAddress(0x4000_0007), &[0xaa, 0xbb])
        .unwrap();
    assert_eq!(
        memory.words(PhysicalAddress(0x4000_0000), 2),
        Some(&[0xaa << 56, 0xbb][..])
    );
    assert!(matches!(
        memory.write(PhysicalAddress(0x4000_1fff), &[0, 0]),
        Err(MemoryError::NotMapped { .. })
    ));
}

#[test]
fn a_write_to_shared_words_is_nobody_elses() {
    let words: Arc<[u64]> = vec![0; 512].into();
    let copy = || {
        let region = Region::shared(PhysicalAddress(0), words.clone());
        Memory::new(vec![region], vec![range(0, 64 * K)]).unwrap()
    };
    let (mut one, other) = (copy(), copy());
    one.write(PhysicalAddress(9), &[0xff]).unwrap();
    assert_eq!(one.words(PhysicalAddress(8), 1), Some(&[0xff00][..]));
    assert_eq!(other.words(PhysicalAddress(8), 1), Some(&[0][..]));
}

#[test]
fn nonsense_is_refused() {
    let page = |base| Region::owned(PhysicalAddress(base), vec![0; 512]);
    let ram = || vec![range(0, 64 * K)];
    assert!(matches!(
        Memory::new(vec![page(0x800)], ram()),
        Err(MemoryError::NotPages(_))
    ));
    assert!(matches!(
        Memory::new(vec![page(0), page(0)], ram()),
        Err(MemoryError::Overlap(_, _))
    ));
    assert!(matches!(
        Memory::new(vec![page(64 * K)], ram()),
        Err(MemoryError::OutsideRam(_))
    ));
}
