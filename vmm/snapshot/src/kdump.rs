// SPDX-License-Identifier: GPL-2.0-only
//! Opens a dump that is compressed by page: QEMU's `dump-guest-memory -z`, makedumpfile's of a kernel (kdump), each as it is
//! or flattened.
//!
//! ```text
//! block 0             header: signature, version, uname, how it is compressed, the length of a block (which is a page)
//! block 1             sub header: where VMCOREINFO and the notes are, how many pages there are
//! behind it           a bitmap of the pages that there are, and one as long of those that were dumped
//! behind the bitmaps  for each page that was dumped: where its data is, how many bytes, how they are compressed
//! ```
//!
//! Sources: makedumpfile's `diskdump_mod.h` and IMPLEMENTATION, QEMU's `include/system/dump.h`.

use std::sync::{Arc, Mutex};

use flate2::{Decompress, FlushDecompress, Status};
use object::read::elf::NoteIterator;
use stage1::PhysicalAddress;

use self::bitmap::Bitmap;
use self::bytes::{damaged, Bytes, FLATTENED};
use crate::elf_file::LE;
use crate::fetched::{Fetched, Pages};
use crate::other::{self, OtherCore};
use crate::saved::Saved;
use crate::{CoreError, Memory, Range, RangeSet, Region, PAGE};

mod bitmap;
mod bytes;

const SIGNATURE: &[u8; 8] = b"KDUMP   ";
/// The first version that has the notes and the number of pages as 64 bits in its sub header.
const VERSION: u32 = 6;
/// `DUMP_DH_COMPRESSED_...`, of the header and of each page; and `DUMP_DH_COMPRESSED_INCOMPLETE`, of the header alone.
const ZLIB: u32 = 1;
const METHODS: [(u32, &str); 3] = [(2, "lzo"), (4, "snappy"), (0x20, "zstd")];
const INCOMPLETE: u32 = 8;
/// A page's place, its bytes, its flags, and the kernel's flags of it.
const DESCRIPTOR: u64 = 24;
/// More pieces of RAM than any machine has.
const MOST_PIECES: usize = 4096;
/// The end of the largest physical address space.
const MOST_ADDRESS: u64 = 1 << 52;
/// The longest notes: a CPU has some 400 bytes.
const MOST_NOTES: u64 = 16 << 20;

/// Reads the dump; returns `None` if the file is no such dump.
pub(crate) fn read(file: &Saved) -> Result<Option<OtherCore>, CoreError> {
    if !file.starts_with(SIGNATURE) && !file.starts_with(FLATTENED) {
        return Ok(None);
    }
    let bytes = Bytes::new(file)?;
    // A flattened file may contain an ELF core.
    if bytes.array(0).as_ref() != Some(SIGNATURE) {
        return Ok(None);
    }
    dump(bytes).map(Some)
}

fn dump(bytes: Bytes) -> Result<OtherCore, CoreError> {
    let short = |what: &str| damaged(format!("it ends before {what}"));
    let half = |at: u64| bytes.array(at).map(u32::from_le_bytes);
    let word = |at: u64| bytes.array(at).map(u64::from_le_bytes);
    let header = |at: u64| half(at).ok_or_else(|| short("its header"));
    let (version, status) = (header(8)?, header(424)?);
    if version < VERSION {
        return Err(damaged(format!(
            "expected version {VERSION} of its header or a later one, found {version}"
        )));
    }
    if let Some((_, method)) = METHODS.iter().find(|(flag, _)| status & flag != 0) {
        return Err(CoreError::Packed { method });
    }
    if status & INCOMPLETE != 0 {
        return Err(damaged("it says of itself that it is not complete".into()));
    }
    let block = u64::from(header(428)?);
    if ![4096, 16384, 65536].contains(&block) {
        return Err(damaged(format!(
            "expected blocks of 4096, 16384 or 65536 bytes, found {block}"
        )));
    }
    let (sub_blocks, map_blocks) = (u64::from(header(432)?), u64::from(header(436)?));
    let sub = |at: u64| word(block + at).ok_or_else(|| short("its sub header"));
    let pages = sub(96)?;
    if pages
        .checked_mul(block)
        .is_none_or(|end| end > MOST_ADDRESS)
    {
        return Err(damaged(format!(
            "{pages:#x} pages of {block} bytes reach beyond physical addresses of 52 bits"
        )));
    }
    let one_map = map_blocks / 2 * block;
    let map_bytes = pages.div_ceil(8);
    if map_bytes > one_map {
        return Err(damaged(format!(
            "expected bitmaps of at least {map_bytes:#x} bytes for {pages:#x} pages, found {one_map:#x}"
        )));
    }
    let maps = (1 + sub_blocks) * block;
    let map = |at: u64| {
        let map = bytes.part(at, map_bytes);
        map.map(Bitmap::new).ok_or_else(|| short("its bitmaps"))
    };
    let (there, dumped) = (map(maps)?, map(maps + one_map)?);
    let (cpus, mut vmcoreinfo) = match (sub(48)?, sub(56)?) {
        (_, 0) => (Vec::new(), None),
        (at, length) => {
            let notes = (length <= MOST_NOTES)
                .then(|| bytes.part(at, length))
                .flatten();
            let notes = notes.ok_or_else(|| short("its notes"))?;
            let elf = |problem| CoreError::Elf { problem };
            other::notes_of(&notes, NoteIterator::new(LE, 4, &notes).map_err(elf)?)?
        }
    };
    if let (None, at, length @ 1..) = (&vmcoreinfo, sub(32)?, sub(40)?) {
        let length = length.min(other::LONGEST_INFO as u64);
        vmcoreinfo = bytes.part(at, length).map(|text| other::info(&text));
    }
    let left_out = !there.is_within(&dumped);
    let mut ram = Vec::new();
    let mut bit = 0;
    while let Some(run) = there.run(bit) {
        let base = PhysicalAddress(run.start * block);
        ram.extend(Range::new(base, (run.end - run.start) * block));
        bit = run.end;
        if ram.len() > MOST_PIECES {
            return Err(damaged(format!(
                "its memory has more than {MOST_PIECES} pieces"
            )));
        }
    }
    let dump = Arc::new(Dump {
        table: maps + map_blocks * block,
        block,
        dumped,
        bytes,
        last: Mutex::default(),
    });
    let region = |range: &Range| {
        let io = |source| CoreError::Io {
            what: "make room for memory of",
            source,
        };
        Ok(Region::fetched(
            Fetched::new(*range, dump.clone()).map_err(io)?,
        ))
    };
    let regions = ram.iter().map(region).collect::<Result<_, CoreError>>()?;
    let ram: RangeSet = ram.into_iter().collect();
    let memory = Memory::new(regions, ram.iter().collect())?;
    Ok(OtherCore {
        cpus,
        memory: memory.with_pages_left_out(left_out),
        vmcoreinfo,
    })
}

/// A dump as a source of pages.
#[derive(Debug)]
struct Dump {
    bytes: Bytes,
    /// Bytes of a block.
    block: u64,
    dumped: Bitmap,
    /// Start of the pages' descriptors.
    table: u64,
    /// The block that was read last, where it has several pages, and its number.
    last: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Dump {
    /// Returns the bytes of a block.
    fn block(&self, number: u64) -> Option<Vec<u8>> {
        let at = self.dumped.rank(number)?.checked_mul(DESCRIPTOR)?;
        let at = self.table.checked_add(at)?;
        let place = self.bytes.array(at).map(u64::from_le_bytes)?;
        let [length, flags] = [8, 12].map(|field| self.bytes.array(at + field));
        let (length, flags) = (u32::from_le_bytes(length?), u32::from_le_bytes(flags?));
        if u64::from(length) > self.block {
            return None;
        }
        let packed = self.bytes.part(place, length.into())?;
        match flags {
            0 => (u64::from(length) == self.block).then_some(packed),
            ZLIB => inflated(&packed, self.block as usize),
            _ => None,
        }
    }

    fn page(&self, address: PhysicalAddress, to: &mut [u8]) -> Option<()> {
        let (number, inside) = (address.0 / self.block, (address.0 % self.block) as usize);
        if self.block == PAGE {
            to.copy_from_slice(self.block(number)?.get(..to.len())?);
            return Some(());
        }
        let mut last = self.last.lock().ok()?;
        if last.as_ref().is_none_or(|(kept, _)| *kept != number) {
            *last = Some((number, self.block(number)?));
        }
        let (_, block) = last.as_ref()?;
        to.copy_from_slice(block.get(inside..inside + to.len())?);
        Some(())
    }
}

impl Pages for Dump {
    fn read(&self, page: PhysicalAddress, to: &mut [u8]) -> bool {
        self.page(page, to).is_some()
    }

    fn data(&self, range: Range) -> Option<Range> {
        let run = self.dumped.run(range.base.0 / self.block)?;
        let start = range.base.0.max(run.start * self.block);
        let end = range.end().min(run.end * self.block);
        Range::new(
            PhysicalAddress(start),
            end.checked_sub(start).filter(|bytes| *bytes > 0)?,
        )
    }
}

/// Unpacks exactly `bytes` bytes.
fn inflated(packed: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; bytes];
    let mut zlib = Decompress::new(true);
    let status = zlib
        .decompress(packed, &mut out, FlushDecompress::Finish)
        .ok()?;
    let whole = status == Status::StreamEnd && zlib.total_out() == bytes as u64;
    whole.then_some(out)
}
