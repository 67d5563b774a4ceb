// SPDX-License-Identifier: GPL-2.0-only
//! Recognises kernel images, checks that they boot here, and unpacks the plain `Image` inside.
//!
//! A bootable kernel for this rig is a plain arm64 `Image` (`Documentation/arch/arm64/booting.rst`), bare, compressed
//! as a whole, or inside an EFI zboot image. For any other file the error names its format and the file to give
//! instead.

mod foreign;
mod unpack;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::release::{in_banner, BANNER};

pub use unpack::{Compression, Container};

/// The 64-byte header of a plain `Image`, as far as a loader needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// Offset of the image from a 2 MiB aligned base of RAM, in bytes.
    pub text_offset: u64,
    /// Bytes that the kernel occupies in memory from its start, `.bss` included: device tree and
    /// initrd go behind this, not behind the file.
    pub image_size: u64,
    /// Bytes per page (granule); `None` if the header does not have it.
    pub page_size: Option<u64>,
    /// True if the image may be anywhere in memory.
    pub anywhere: bool,
}

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The plain `Image`.
    pub image: Source,
    /// Its header.
    pub header: Header,
    /// The layers around it, outermost first; empty for a plain `Image`.
    pub unpacked: Vec<Container>,
}

/// Place of the plain `Image`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The given file is one.
    File(PathBuf),
    /// Unpacked into memory.
    Bytes(Vec<u8>),
}

/// The reason why a file cannot be booted. The message is one sentence or two, for people.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file could not be read.
    #[error("cannot read the kernel {path}: {source}")]
    Read {
        /// The kernel.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not an arm64 kernel image.
    #[error("{path} is {what}, not an arm64 kernel image: {instead}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        what: String,
        /// The file to give instead.
        instead: &'static str,
    },
    /// The file is an arm64 image that this rig cannot use.
    #[error("{path} is an arm64 kernel image that cannot be used: {why}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// "ARM\x64" at offset 56.
pub const MAGIC: [u8; 4] = *b"ARM\x64";
const HEADER_SIZE: usize = 64;
/// Number of first bytes by which a file's format is recognised.
const HEAD: u64 = 4096;
/// No kernel is larger than this, packed or not.
const LARGEST: u64 = 512 << 20;
/// Layers of packing that are looked through: a compressed zboot image has three.
const MAX_LAYERS: usize = 3;

impl Header {
    /// Reads the header at the start of `image`; returns `None` if there is none.
    pub fn parse(image: &[u8]) -> Option<Result<Header, String>> {
        let head = image.get(..HEADER_SIZE)?;
        if head[56..60] != MAGIC {
            return None;
        }
        let flags = u64_at(head, 24)?;
        let image_size = u64_at(head, 16)?;
        if flags & 1 != 0 {
            return Some(Err(
                "it is big-endian, and only little-endian kernels are read".into(),
            ));
        }
        if image_size == 0 {
            // Before v3.17 the header had no size.
            return Some(Err(
                "its header has no image size (a kernel older than 3.17)".into(),
            ));
        }
        Some(Ok(Header {
            text_offset: u64_at(head, 8)?,
            image_size,
            page_size: [None, Some(4 << 10), Some(16 << 10), Some(64 << 10)]
                [(flags >> 1 & 3) as usize],
            anywhere: flags & 8 != 0,
        }))
    }
}

/// Reads the kernel at `path`, and unpacks it if it is packed.
pub fn prepare(path: &Path) -> Result<Prepared, ImageError> {
    let read = |source| ImageError::Read {
        path: path.to_owned(),
        source,
    };
    if path.is_dir() {
        return Err(ImageError::Foreign {
            path: path.to_owned(),
            what: "a directory".into(),
            instead: "give the Image file itself, arch/arm64/boot/Image in a built kernel tree",
        });
    }
    // A vmlinux or a disk image is known by its first bytes, and need not be read as a whole.
    let mut file = File::open(path).map_err(read)?;
    let size = file.metadata().map_err(read)?.len();
    let mut bytes = Vec::new();
    (&mut file)
        .take(HEAD)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.starts_with(b"\x7fELF") || size > LARGEST {
        let (what, instead) = foreign::name(&bytes);
        return Err(ImageError::Foreign {
            path: path.to_owned(),
            what,
            instead,
        });
    }
    // Nor has a plain Image: it is used as it is.
    if let Some(header) = Header::parse(&bytes) {
        return plain(path, header, size);
    }
    file.read_to_end(&mut bytes).map_err(read)?;
    prepare_bytes(path, bytes)
}

/// Returns a plain `Image` of `size` bytes that is used as it is.
fn plain(path: &Path, header: Result<Header, String>, size: u64) -> Result<Prepared, ImageError> {
    let whole = header.and_then(|header| is_whole(&header, size).map(|()| header));
    let header = whole.map_err(|why| ImageError::Unusable {
        path: path.to_owned(),
        why,
    })?;
    Ok(Prepared {
        image: Source::File(path.to_owned()),
        header,
        unpacked: Vec::new(),
    })
}

/// Checks that an `Image` of `size` bytes has all that its header requires.
fn is_whole(header: &Header, size: u64) -> Result<(), String> {
    if size < header.image_size / 4 {
        return Err(format!(
            "it is cut short ({size} bytes of a kernel that occupies {}): copy or unpack it again",
            header.image_size
        ));
    }
    Ok(())
}

/// Prepares a kernel from bytes that were read already; `path` is for messages and for [`Source::File`].
pub fn prepare_bytes(path: &Path, mut bytes: Vec<u8>) -> Result<Prepared, ImageError> {
    let unusable = |why: String| ImageError::Unusable {
        path: path.to_owned(),
        why,
    };
    let mut unpacked = Vec::new();
    loop {
        if let Some(header) = Header::parse(&bytes) {
            if unpacked.is_empty() {
                return plain(path, header, bytes.len() as u64);
            }
            let header = header.map_err(unusable)?;
            is_whole(&header, bytes.len() as u64).map_err(unusable)?;
            return Ok(Prepared {
                image: Source::Bytes(bytes),
                header,
                unpacked,
            });
        }
        let layer = if unpacked.len() < MAX_LAYERS {
            unpack::layer(&bytes).map_err(unusable)?
        } else {
            None
        };
        let Some((container, inner)) = layer else {
            let (what, instead) = foreign::name(&bytes);
            let what = match unpacked.last() {
                Some(Container::EfiZboot) => format!("an EFI zboot image around {what}"),
                Some(Container::Compressed(how)) => format!("a {how} file around {what}"),
                None => what,
            };
            return Err(ImageError::Foreign {
                path: path.to_owned(),
                what,
                instead,
            });
        };
        unpacked.push(container);
        bytes = inner;
    }
}

/// Returns the release in the kernel's banner (`linux_banner`): `6.12.117` of `Linux version 6.12.117 (…`.
pub fn release(image: &[u8]) -> Option<String> {
    let mut places = memchr::memmem::find_iter(image, BANNER);
    places.find_map(|at| in_banner(&image[at..]).map(str::to_owned))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests;
