// SPDX-License-Identifier: GPL-2.0-only
//! Recognises a file that is not an ELF file: dumps of other formats, and files often mistaken for one.

use crate::CoreError;

const UNPACK: &str = "unpack it first (unzstd, gunzip, unxz, bunzip2, unlz4, lzop -d)";
const ELF_DUMP: &str =
    "have it written as an ELF core: makedumpfile -E /proc/vmcore CORE in the crash kernel, dump-guest-memory without -z in QEMU";
const FLATTENED: &str = "join it first: makedumpfile -R DUMP < FLATTENED";
const TRACE: &str = "judge it with: folioscope record --judge TRACE";
const MIGRATION: &str = "have QEMU write an ELF core: dump-guest-memory";

/// First bytes, the format, and the way to an ELF core.
const KINDS: [(&[u8], &str, &str); 11] = [
    (
        b"DISKDUMP",
        "a dump that is compressed by page (diskdump)",
        ELF_DUMP,
    ),
    (
        b"makedumpfile\0",
        "a flattened dump of makedumpfile",
        FLATTENED,
    ),
    (
        b"QEVM",
        "a saved state of QEMU (migrate, savevm)",
        MIGRATION,
    ),
    (
        b"\x28\xb5\x2f\xfd",
        "a file that zstd has compressed",
        UNPACK,
    ),
    (b"\x1f\x8b", "a file that gzip has compressed", UNPACK),
    (b"\xfd7zXZ\0", "a file that xz has compressed", UNPACK),
    (b"BZh", "a file that bzip2 has compressed", UNPACK),
    (
        b"\x04\x22\x4d\x18",
        "a file that lz4 has compressed",
        UNPACK,
    ),
    (b"\x89LZO", "a file that lzop has compressed", UNPACK),
    (b"QFI\xfb", "a disk image of QEMU (qcow2)", MIGRATION),
    (b"FOLIOREC", "a trace of `folioscope record`", TRACE),
];

/// Returns the error for a file that begins so.
pub(crate) fn not_elf(bytes: &[u8]) -> CoreError {
    let kind = KINDS.iter().find(|(magic, ..)| bytes.starts_with(magic));
    match kind {
        Some((_, what, advice)) => CoreError::OtherKind { what, advice },
        None => CoreError::NotElf {
            found: bytes[..bytes.len().min(4)].to_vec(),
        },
    }
}
