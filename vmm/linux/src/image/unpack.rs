// SPDX-License-Identifier: GPL-2.0-only
//! Removes one layer of packing around a kernel: whole-file compression, or EFI zboot.

use std::fmt;
use std::io::{self, Read};

use serde::Serialize;

/// Compression of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // the names say it
pub enum Compression {
    Gzip,
    Zstd,
    Xz,
    Lzma,
    Lz4,
    Bzip2,
    Lzo,
}

/// One layer around a plain `Image`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Container {
    /// An EFI zboot image.
    EfiZboot,
    /// Compressed as a whole.
    Compressed(Compression),
}

/// More than any kernel occupies, to stop decompression bombs.
const MAX_UNPACKED: u64 = 512 << 20;

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Xz => "xz",
            Compression::Lzma => "lzma",
            Compression::Lz4 => "lz4",
            Compression::Bzip2 => "bzip2",
            Compression::Lzo => "lzo",
        })
    }
}

impl Compression {
    fn of_magic(bytes: &[u8]) -> Option<Compression> {
        let known: [(&[u8], Compression); 8] = [
            (b"\x1f\x8b\x08", Compression::Gzip),
            (b"\x28\xb5\x2f\xfd", Compression::Zstd),
            (b"\xfd7zXZ\0", Compression::Xz),
            (b"\x5d\0\0", Compression::Lzma),
            (b"\x02\x21\x4c\x18", Compression::Lz4),
            (b"\x04\x22\x4d\x18", Compression::Lz4),
            (b"BZh", Compression::Bzip2),
            (b"\x89LZO", Compression::Lzo),
        ];
        let found = known.iter().find(|(magic, _)| bytes.starts_with(magic))?;
        Some(found.1)
    }

    fn of_name(name: &[u8]) -> Option<Compression> {
        // EFI_ZBOOT's comp-type: the tool's name, NUL-terminated.
        let end = name.iter().position(|&byte| byte == 0)?;
        Some(match &name[..end] {
            b"gzip" => Compression::Gzip,
            b"zstd" | b"zstd22" => Compression::Zstd,
            b"xz" | b"xzkern" => Compression::Xz,
            b"lzma" => Compression::Lzma,
            b"lz4" => Compression::Lz4,
            b"lzo" => Compression::Lzo,
            _ => return None,
        })
    }

    fn unpack(self, packed: &[u8]) -> Result<Vec<u8>, String> {
        let result = match self {
            Compression::Gzip => drain(flate2::read::GzDecoder::new(packed)),
            Compression::Zstd => ruzstd::decoding::StreamingDecoder::new(packed)
                .map_err(io::Error::other)
                .and_then(drain),
            Compression::Xz => {
                let mut out = Limited::default();
                lzma_rs::xz_decompress(&mut io::BufReader::new(packed), &mut out)
                    .map_err(other)
                    .map(|()| out.bytes)
            }
            Compression::Lzma => {
                let mut out = Limited::default();
                lzma_rs::lzma_decompress(&mut io::BufReader::new(packed), &mut out)
                    .map_err(other)
                    .map(|()| out.bytes)
            }
            Compression::Lz4 => drain(lz4_flex::frame::FrameDecoder::new(packed)),
            Compression::Bzip2 | Compression::Lzo => {
                return Err(format!(
                    "it is compressed with {self}, which is not unpacked here: unpack it first, \
                     or build the kernel with gzip or zstd"
                ))
            }
        };
        result.map_err(|error| format!("its {self} data cannot be unpacked ({error})"))
    }
}

fn other(error: lzma_rs::error::Error) -> io::Error {
    io::Error::other(format!("{error:?}"))
}

fn drain(from: impl Read) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    from.take(MAX_UNPACKED + 1).read_to_end(&mut out)?;
    check(out.len())?;
    Ok(out)
}

fn check(size: usize) -> io::Result<()> {
    if size as u64 > MAX_UNPACKED {
        return Err(io::Error::other("more than 512 MiB come out of it"));
    }
    Ok(())
}

/// A growing buffer that refuses to hold more than a kernel can be.
#[derive(Default)]
struct Limited {
    bytes: Vec<u8>,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check(self.bytes.len() + bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes one layer; returns `None` if `bytes` are in no known packing.
pub(super) fn layer(bytes: &[u8]) -> Result<Option<(Container, Vec<u8>)>, String> {
    if bytes.starts_with(b"MZ") && bytes.get(4..8) == Some(b"zimg") {
        return zboot(bytes).map(|image| Some((Container::EfiZboot, image)));
    }
    let Some(how) = Compression::of_magic(bytes) else {
        return Ok(None);
    };
    let image = how.unpack(bytes)?;
    Ok(Some((Container::Compressed(how), image)))
}

/// Unpacks zboot (`drivers/firmware/efi/libstub/zboot-header.S`): "MZ", "zimg" at 4, then the payload's offset and
/// size, two reserved words, and at 24 the compression's name.
fn zboot(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let short = || "its EFI zboot header or payload is cut short: copy it again".to_owned();
    let offset = u32_at(bytes, 8).ok_or_else(short)? as usize;
    let size = u32_at(bytes, 12).ok_or_else(short)? as usize;
    let payload = offset
        .checked_add(size)
        .and_then(|end| bytes.get(offset..end))
        .ok_or_else(short)?;
    let name = bytes.get(24..56).ok_or_else(short)?;
    let how = Compression::of_name(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(name);
        let name = name.trim_end_matches('\0');
        format!("its EFI zboot payload is compressed with {name:?}, which is not known here")
    })?;
    how.unpack(payload)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
