// SPDX-License-Identifier: GPL-2.0-only
//! Contents of RAM when the first CPU starts (Documentation/arch/arm64/booting.rst).
//!
//! ```text
//!  RAM  +------------------+
//!       | (load offset)    |  a multiple of 2 MiB
//!       +------------------+
//!       | (text offset)    |  what the Image's header asks for, mostly nothing
//!       +------------------+  entry
//!       | Image            |
//!       | .bss             |  in the header's image_size, behind the end of the file
//!       +------------------+  on a page of 64 KiB
//!       | initrd           |
//!       +------------------+  on 2 MiB, and in no block of 2 MiB with anything else
//!       | device tree      |
//!       +------------------+
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use linux::image::Header;
use vm_memory::{Bytes, GuestAddress};

use crate::layout::RAM;
use crate::memory::Ram;
use crate::{Config, KvmError};
use machine::host::GRAIN;

/// The largest page, on which an initrd starts.
const PAGE: u64 = 64 << 10;
/// The most that a device tree may take.
const MOST_TREE: u64 = 2 << 20;

/// Places as guest physical addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// The first instruction: the start of the Image.
    pub(crate) entry: u64,
    /// The initramfs.
    pub(crate) initrd: Option<Range<u64>>,
    /// The device tree.
    pub(crate) tree: u64,
}

/// Sizes of the parts to place.
struct Sizes {
    header: Header,
    image: u64,
    initrd: Option<u64>,
}

impl Places {
    /// Finds a place for everything in `ram_bytes` of RAM, or returns the part that does not fit.
    fn find(sizes: &Sizes, load_offset: u64, ram_bytes: u64) -> Result<Self, KvmError> {
        let ram_end = RAM + ram_bytes;
        // A sum that overflows ends behind any RAM.
        let part = |what, start: Option<u64>, bytes: u64| {
            let end = start.and_then(|start| start.checked_add(bytes));
            match (start, end) {
                (Some(start), Some(end)) if end <= ram_end => Ok(start..end),
                _ => Err(KvmError::TooLittleMemory {
                    what,
                    end: end.unwrap_or(u64::MAX),
                    ram_end,
                }),
            }
        };
        let header = &sizes.header;
        let entry = RAM
            .checked_add(load_offset)
            .and_then(|base| base.checked_add(header.text_offset));
        let kernel = part("kernel", entry, header.image_size.max(sizes.image))?;
        let mut end = kernel.end;
        let initrd = match sizes.initrd {
            Some(bytes) => {
                let initrd = part("initrd", end.checked_next_multiple_of(PAGE), bytes)?;
                end = initrd.end;
                Some(initrd)
            }
            None => None,
        };
        let tree = part(
            "device tree",
            end.checked_next_multiple_of(GRAIN),
            MOST_TREE,
        )?;
        Ok(Self {
            entry: kernel.start,
            initrd,
            tree: tree.start,
        })
    }
}

/// Copies kernel and initrd into the guest's memory. [`load_tree`] adds the device tree, which describes them.
pub(crate) fn load(config: &Config, ram: &Ram) -> Result<Places, KvmError> {
    let mut kernel = Source::open("kernel", &config.kernel)?;
    let mut initrd = match &config.initrd {
        Some(path) => Some(Source::open("initrd", path)?),
        None => None,
    };
    let sizes = Sizes {
        header: header(&mut kernel)?,
        image: kernel.bytes,
        initrd: initrd.as_ref().map(|initrd| initrd.bytes),
    };
    let places = Places::find(&sizes, config.load_offset, ram.range().bytes)?;
    kernel.copy(ram, places.entry)?;
    if let (Some(initrd), Some(place)) = (&mut initrd, &places.initrd) {
        initrd.copy(ram, place.start)?;
    }
    Ok(places)
}

/// Copies the device tree to its place.
pub(crate) fn load_tree(tree: &[u8], places: &Places, ram: &Ram) -> Result<(), KvmError> {
    if tree.len() as u64 > MOST_TREE {
        return Err(KvmError::TooLittleMemory {
            what: "device tree",
            end: places.tree + tree.len() as u64,
            ram_end: places.tree + MOST_TREE,
        });
    }
    let written = ram.guest().write_slice(tree, GuestAddress(places.tree));
    written.map_err(|reason| KvmError::System {
        what: "write the device tree",
        source: io::Error::other(reason),
    })
}

fn header(kernel: &mut Source) -> Result<Header, KvmError> {
    use std::io::{Read, Seek};
    let mut head = Vec::new();
    let read = (&kernel.file).take(64).read_to_end(&mut head);
    read.and_then(|_| kernel.file.rewind())
        .map_err(|source| kernel.error(source))?;
    let why = match Header::parse(&head) {
        Some(Ok(header)) => return Ok(header),
        Some(Err(why)) => why,
        None => "it is not an arm64 Image".into(),
    };
    let path = kernel.path.to_owned();
    Err(KvmError::Kernel { path, why })
}

/// A file to copy.
struct Source<'a> {
    what: &'static str,
    path: &'a Path,
    file: File,
    bytes: u64,
}

impl<'a> Source<'a> {
    fn open(what: &'static str, path: &'a Path) -> Result<Self, KvmError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = opened.map_err(|source| KvmError::Load {
            what,
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            what,
            path,
            file,
            bytes,
        })
    }

    fn copy(&mut self, ram: &Ram, address: u64) -> Result<(), KvmError> {
        let (address, bytes) = (GuestAddress(address), self.bytes as usize);
        ram.guest()
            .read_exact_volatile_from(address, &mut self.file, bytes)
            .map_err(|reason| self.error(io::Error::other(reason)))
    }

    fn error(&self, source: io::Error) -> KvmError {
        KvmError::Load {
            what: self.what,
            path: self.path.to_owned(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sizes(text_offset: u64, image_size: u64, initrd: Option<u64>) -> Sizes {
        Sizes {
            header: Header {
                text_offset,
                image_size,
                page_size: None,
                anywhere: true,
            },
            image: image_size / 2,
            initrd,
        }
    }

    #[test]
    fn nothing_lies_in_the_kernel_s_bss() {
        let places = Places::find(&sizes(0, 11 * MIB, Some(3 * MIB + 5)), 0, 64 * MIB).unwrap();
        assert_eq!(places.entry, RAM);
        assert_eq!(places.initrd, Some(RAM + 11 * MIB..RAM + 14 * MIB + 5));
        assert_eq!(places.tree, RAM + 16 * MIB);
        let places = Places::find(&sizes(0x8_0000, 11 * MIB, None), 6 * MIB, 64 * MIB).unwrap();
        assert_eq!(places.entry, RAM + 6 * MIB + 0x8_0000);
        assert_eq!((places.initrd, places.tree), (None, RAM + 18 * MIB));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (sizes, load_offset, what) in [
            (sizes(0, 65 * MIB, None), 0, "guest's kernel needs"),
            (sizes(u64::MAX, MIB, None), 0, "guest's kernel needs"),
            (sizes(0, u64::MAX, None), 0, "guest's kernel needs"),
            (sizes(0, MIB, None), u64::MAX << 21, "guest's kernel needs"),
            (sizes(0, MIB, Some(64 * MIB)), 0, "guest's initrd needs"),
            (sizes(0, MIB, Some(u64::MAX)), 0, "guest's initrd needs"),
            (
                sizes(0, MIB, Some(62 * MIB)),
                0,
                "guest's device tree needs",
            ),
        ] {
            let error = Places::find(&sizes, load_offset, 64 * MIB)
                .unwrap_err()
                .to_string();
            assert!(error.contains(what), "{error:?} lacks {what:?}");
        }
        assert!(Places::find(&sizes(0, 64 * MIB - 2 * MIB, None), 0, 64 * MIB).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn parts_never_overlap(
            text_offset in 0..4 * MIB, image_size in 1..300 * MIB, initrd in 0..300 * MIB,
            load_offset in 0..100_u64, ram in 1..512_u64,
        ) {
            let sizes = sizes(text_offset, image_size, Some(initrd));
            if let Ok(places) = Places::find(&sizes, load_offset * GRAIN, ram * MIB) {
                let initrd = places.initrd.unwrap();
                assert!(places.entry >= RAM && places.entry + image_size <= initrd.start);
                assert!(initrd.end <= places.tree && places.tree % GRAIN == 0);
                assert!(places.tree + MOST_TREE <= RAM + ram * MIB);
            }
        }
    }
}
