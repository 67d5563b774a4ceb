// SPDX-License-Identifier: GPL-2.0-only
//! Images made by hand from `Documentation/arch/arm64/booting.rst`, packed in every way.

use super::*;
use std::io::Write;

/// Returns a 64 KiB arm64 `Image` for 16K pages with a banner in it.
fn image() -> Vec<u8> {
    let mut image = vec![0u8; 64 << 10];
    image[..2].copy_from_slice(b"MZ");
    image[16..24].copy_from_slice(&0x1_8000u64.to_le_bytes());
    image[24..32].copy_from_slice(&(2u64 << 1 | 8).to_le_bytes());
    image[56..60].copy_from_slice(b"ARM\x64");
    let text = b"Linux version %s (x)\0Linux version 6.12.117+deb (a@b) (gcc) #1 SMP\n\0";
    image[0x8000..0x8000 + text.len()].copy_from_slice(text);
    image
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn prepare_it(bytes: Vec<u8>) -> Result<Prepared, ImageError> {
    prepare_bytes(Path::new("kernel"), bytes)
}

fn message(bytes: Vec<u8>) -> String {
    prepare_it(bytes).unwrap_err().to_string()
}

fn zboot(kind: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0u8; 4096];
    file[..8].copy_from_slice(b"MZ\0\0zimg");
    file[8..12].copy_from_slice(&4096u32.to_le_bytes());
    file[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    file[24..24 + kind.len()].copy_from_slice(kind);
    file.extend(payload);
    file.extend([0; 512]);
    file
}

#[test]
fn a_plain_image_is_used_as_it_is() {
    let prepared = prepare_it(image()).unwrap();
    assert_eq!(prepared.image, Source::File("kernel".into()));
    assert_eq!(
        prepared.header,
        Header {
            text_offset: 0,
            image_size: 0x1_8000,
            page_size: Some(16 << 10),
            anywhere: true
        }
    );
    assert_eq!(release(&image()).as_deref(), Some("6.12.117+deb"));
    assert!(prepared.unpacked.is_empty());
}

#[test]
fn every_packing_yields_the_image() {
    let plain = image();
    let mut xz = Vec::new();
    lzma_rs::xz_compress(&mut plain.as_slice(), &mut xz).unwrap();
    let mut lzma = Vec::new();
    lzma_rs::lzma_compress(&mut plain.as_slice(), &mut lzma).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&plain).unwrap();
    let lz4 = lz4.finish().unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(
        plain.as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    // The kernel's own lz4 is the legacy frame: magic, then blocks that each follow their size.
    let block = lz4_flex::block::compress(&plain);
    let mut legacy = b"\x02\x21\x4c\x18".to_vec();
    legacy.extend((block.len() as u32).to_le_bytes());
    legacy.extend(block);
    let cases = [
        (gzip(&plain), vec![Container::Compressed(Compression::Gzip)]),
        (xz, vec![Container::Compressed(Compression::Xz)]),
        (lzma, vec![Container::Compressed(Compression::Lzma)]),
        (lz4, vec![Container::Compressed(Compression::Lz4)]),
        (legacy, vec![Container::Compressed(Compression::Lz4)]),
        (zstd.clone(), vec![Container::Compressed(Compression::Zstd)]),
        (zboot(b"gzip", &gzip(&plain)), vec![Container::EfiZboot]),
        (zboot(b"zstd", &zstd), vec![Container::EfiZboot]),
        (
            gzip(&zboot(b"gzip", &gzip(&plain))),
            vec![
                Container::Compressed(Compression::Gzip),
                Container::EfiZboot,
            ],
        ),
    ];
    for (packed, unpacked) in cases {
        let prepared = prepare_it(packed).unwrap_or_else(|e| panic!("{unpacked:?}: {e}"));
        assert_eq!(prepared.unpacked, unpacked);
        assert_eq!(prepared.image, Source::Bytes(plain.clone()), "{unpacked:?}");
    }
}

#[test]
fn other_things_are_named() {
    let mut bzimage = vec![0u8; 1024];
    bzimage[0x202..0x206].copy_from_slice(b"HdrS");
    assert!(message(bzimage.clone()).contains("x86 kernel (bzImage)"));
    assert!(message(gzip(&bzimage)).contains("a gzip file around an x86 kernel"));
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(64, 0);
    elf[18] = 183;
    assert!(message(elf.clone()).contains("VMLINUX="));
    elf[18] = 62;
    assert!(message(elf).contains("an ELF file for x86 (e_machine 62)"));
    let mut pe = vec![0u8; 512];
    pe[..2].copy_from_slice(b"MZ");
    pe[0x3c] = 0x80;
    pe[0x80..0x86].copy_from_slice(b"PE\0\0\x64\x86");
    assert!(message(pe).contains("an EFI program for x86"));
    assert!(message(Vec::new()).contains("is empty"));
    assert!(message(b"070701000000".to_vec()).contains("an initramfs"));
    assert!(message(b"hello".to_vec()).contains("no format that is known"));
    assert!(message(b"BZh91AY".to_vec()).contains("bzip2"));
}

#[test]
fn damaged_images_are_said_to_be_so() {
    let mut big_endian = image();
    big_endian[24] |= 1;
    assert!(message(big_endian).contains("big-endian"));
    assert!(message(image()[..4096].to_vec()).contains("cut short"));
    let whole = gzip(&image());
    assert!(message(whole[..whole.len() / 2].to_vec()).contains("cannot be unpacked"));
    let whole = zboot(b"gzip", &gzip(&image()));
    assert!(message(whole[..4100].to_vec()).contains("cut short"));
    assert!(message(zboot(b"brotli", b"x")).contains("brotli"));
}

#[test]
fn a_file_that_is_not_there_and_a_directory() {
    let missing = prepare(Path::new("/nonexistent/Image")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read the kernel"));
    let directory = prepare(Path::new("/")).unwrap_err();
    assert!(directory.to_string().contains("is a directory"));
    // This test program as a file: an ELF file that is not a kernel.
    let program = std::env::current_exe().unwrap();
    let elf = prepare(&program).unwrap_err();
    assert!(elf.to_string().contains("is an ELF file for"), "{elf}");
    let file = std::env::temp_dir().join(format!("linux-image-test-{}", std::process::id()));
    std::fs::write(&file, gzip(&image())).unwrap();
    let prepared = prepare(&file);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(prepared.unwrap().image, Source::Bytes(image()));
}
