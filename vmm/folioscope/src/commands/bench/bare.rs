// SPDX-License-Identifier: GPL-2.0-only
//! The guest for comparison: the same kernel with an init that prints one line.
//!
//! That init is a dozen instructions, written here, so that no compiler is needed to measure.

use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cpio::newc;

use crate::Error;

/// The init's line.
pub const READY: &str = "do-nothing init is ready";
/// Beyond this a guest is taken to hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Load address of the program.
const BASE: u64 = 0x40_0000;
/// ELF header and one program header.
const HEADERS: u64 = 64 + 56;

/// Action of the init after its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It waits without end.
    Waits,
    /// It switches the machine off.
    PowersOff,
}

/// Writes the initramfs into `directory`.
pub fn initramfs(directory: &Path, then: Then) -> Result<PathBuf, Error> {
    let path = directory.join("bare.cpio");
    let entry =
        |name, mode, content: Vec<u8>| (newc::Builder::new(name).mode(mode), Cursor::new(content));
    // The kernel opens /dev/console for init's standard output (init/main.c, console_on_rootfs).
    let (console, nothing) = entry("dev/console", 0o020_600, vec![]);
    let entries = [
        entry("dev", 0o040_755, vec![]),
        (console.rdev_major(5).rdev_minor(1), nothing),
        entry("init", 0o100_755, program(then)),
    ];
    let failed = |error| Error::io(format!("write {}", path.display()))(error);
    let file = File::create(&path).map_err(failed)?;
    cpio::write_cpio(entries.into_iter(), file).map_err(failed)?;
    Ok(path)
}

/// Returns the error of a guest without output.
pub fn silent() -> Error {
    Error::GuestLost {
        what: format!(
            "bare QEMU's guest did not print {READY:?} within {} s; see whether this kernel boots at all: folioscope boot",
            PATIENCE.as_secs()
        ),
    }
}

/// Returns a static arm64 program: `write(1, READY)`, then `ppoll` without end or `reboot`.
fn program(then: Then) -> Vec<u8> {
    let text = format!("{READY}\n");
    let code = instructions(text.len() as u32, then);
    let bytes = HEADERS + code.len() as u64 * 4 + text.len() as u64;
    let mut elf = Vec::new();
    elf.extend(b"\x7fELF\x02\x01\x01"); // 64-bit, little endian
    elf.resize(16, 0);
    elf.extend([2_u16, 183].iter().flat_map(|half| half.to_le_bytes())); // ET_EXEC, EM_AARCH64
    elf.extend(1_u32.to_le_bytes());
    // Entry, program headers at 64, no section headers.
    elf.extend(
        [BASE + HEADERS, 64, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    elf.extend(0_u32.to_le_bytes());
    let sizes = [64_u16, 56, 1, 0, 0, 0];
    elf.extend(sizes.iter().flat_map(|half| half.to_le_bytes()));
    elf.extend([1_u32, 5].iter().flat_map(|word| word.to_le_bytes())); // PT_LOAD, read and execute
    let segment = [0, BASE, BASE, bytes, bytes, 0x1_0000];
    elf.extend(segment.iter().flat_map(|word: &u64| word.to_le_bytes()));
    elf.extend(code.iter().flat_map(|word| word.to_le_bytes()));
    elf.extend(text.bytes());
    elf
}

/// Returns the instructions; the text follows them. System call numbers: include/uapi/asm-generic/unistd.h.
fn instructions(length: u32, then: Then) -> Vec<u32> {
    const WRITE: u32 = 64;
    const PPOLL: u32 = 73;
    const REBOOT: u32 = 142;
    const SVC: u32 = 0xd400_0001;
    let movz = |register: u32, value: u32| 0xd280_0000 | value << 5 | register;
    let movk_high = |register: u32, value: u32| 0xf2a0_0000 | value << 5 | register;
    let adr = |register: u32, words: u32| 0x1000_0000 | words << 5 | register;
    let back = |words: u32| 0x1400_0000 | (words.wrapping_neg() & 0x3ff_ffff);
    let end = match then {
        // No descriptors, no time-out, no signal mask; and again.
        Then::Waits => vec![
            movz(0, 0),
            movz(1, 0),
            movz(2, 0),
            movz(3, 0),
            movz(8, PPOLL),
            SVC,
            back(6),
        ],
        // LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_POWER_OFF.
        Then::PowersOff => vec![
            movz(0, 0xdead),
            movk_high(0, 0xfee1),
            movz(1, 0x1969),
            movk_high(1, 0x2812),
            movz(2, 0xfedc),
            movk_high(2, 0x4321),
            movz(8, REBOOT),
            SVC,
        ],
    };
    let start = [
        movz(0, 1),
        adr(1, 4 + end.len() as u32),
        movz(2, length),
        movz(8, WRITE),
        SVC,
    ];
    [&start[..], &end].concat()
}
