// SPDX-License-Identifier: GPL-2.0-only
//! Names the format of a file that is not an arm64 kernel image, and the file to give instead.

use super::u16_at;
use super::unpack::u32_at;

const GIVE_IMAGE: &str = "give arch/arm64/boot/Image of an arm64 build, or an arm64 vmlinuz";
const GIVE_IMAGE_BESIDE: &str =
    "give the Image that was built from it (arch/arm64/boot/Image) as KERNEL= and this file as VMLINUX=";

/// Returns the format of the file, and the file to give instead.
pub(super) fn name(bytes: &[u8]) -> (String, &'static str) {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    let is = |what: &str| (what.to_owned(), GIVE_IMAGE);
    if bytes.is_empty() {
        return is("empty");
    }
    if starts(b"\x7fELF") {
        return elf(bytes);
    }
    // Documentation/arch/x86/boot.rst: "HdrS" at 0x202.
    if bytes.get(0x202..0x206) == Some(b"HdrS") {
        return is("an x86 kernel (bzImage)");
    }
    if bytes.get(56..60) == Some(b"RSC\x05") {
        return is("a RISC-V kernel image");
    }
    if u32_at(bytes, 0x24) == Some(0x016f_2818) {
        return is("a 32-bit Arm zImage");
    }
    if starts(b"MZ") {
        return pe(bytes);
    }
    let known: [(&[u8], &str); 8] = [
        (b"\x27\x05\x19\x56", "a U-Boot uImage"),
        (b"\xd0\x0d\xfe\xed", "a device tree or a U-Boot FIT image"),
        (b"070701", "a cpio archive (an initramfs)"),
        (
            b"!<arch>\ndebian",
            "a Debian package (unpack it with dpkg-deb -x; the kernel is in boot/)",
        ),
        (b"!<arch>", "an ar archive"),
        (b"ANDROID!", "an Android boot image"),
        (b"QFI\xfb", "a qcow2 disk image"),
        (b"#!", "a script"),
    ];
    let found = known.iter().find(|(magic, _)| starts(magic));
    is(found.map_or("of no format that is known here", |(_, what)| what))
}

/// `e_type` of a core.
const CORE: u16 = 4;

fn elf(bytes: &[u8]) -> (String, &'static str) {
    // e_machine, from the ELF specification's list.
    match u16_at(bytes, 18) {
        Some(183) if u16_at(bytes, 16) == Some(CORE) => (
            "an ELF core of an arm64 machine, as `folioscope save` writes it".into(),
            GIVE_IMAGE,
        ),
        Some(183) => (
            "an ELF file for arm64, probably a vmlinux".into(),
            GIVE_IMAGE_BESIDE,
        ),
        Some(machine) => {
            let architecture = match machine {
                3 | 62 => "x86",
                40 => "32-bit Arm",
                243 => "RISC-V",
                21 => "PowerPC",
                22 => "s390",
                258 => "LoongArch",
                _ => "another architecture",
            };
            let what = format!("an ELF file for {architecture} (e_machine {machine})");
            (what, GIVE_IMAGE)
        }
        None => ("an ELF file that is cut short".into(), GIVE_IMAGE),
    }
}

fn pe(bytes: &[u8]) -> (String, &'static str) {
    let at = u32_at(bytes, 0x3c).unwrap_or(0) as usize;
    let machine = (bytes.get(at..at.saturating_add(4)) == Some(b"PE\0\0"))
        .then(|| u16_at(bytes, at + 4))
        .flatten();
    // include/linux/pe.h, IMAGE_FILE_MACHINE_*.
    let architecture = match machine {
        Some(0xaa64) => "arm64",
        Some(0x8664) | Some(0x014c) => "x86",
        Some(0x01c2) | Some(0x01c4) => "32-bit Arm",
        Some(0x5064) => "64-bit RISC-V",
        Some(0x6264) | Some(0x6232) => "LoongArch",
        _ => return ("a DOS or EFI program".into(), GIVE_IMAGE),
    };
    (format!("an EFI program for {architecture}"), GIVE_IMAGE)
}
