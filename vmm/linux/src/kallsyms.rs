// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own symbol table, found in its memory: no vmlinux, no agent and no address is needed.
//!
//! `scripts/kallsyms.c` writes, one behind the other into .rodata and each aligned to 8 bytes (to 4 from 6.19 on):
//!
//! ```text
//! kallsyms_num_syms      u32
//! kallsyms_names         per symbol: length (ULEB128, one or two bytes), then that many tokens
//! kallsyms_markers       u32 for every 256th symbol: its offset in names
//! kallsyms_token_table   256 strings, each ends with NUL
//! kallsyms_token_index   u16 x 256: where each string begins
//! kallsyms_offsets       i32 per symbol
//! kallsyms_relative_base u64; from 6.19 on there is none, and an offset counts from its own place
//! ```
//!
//! The token table is recognized by the tokens of the digits, which are the digits themselves, since every kernel has
//! names with each of them. All numbers around it must then agree, or it is rejected. Kernels before 6.5 have another
//! sequence and are not read.

use std::ops::Range;

use memchr::memmem;
use stage1::{lookup, Lookup, PhysMemory, Regime, VirtualAddress};

use crate::kernel_memory;
use crate::symbols::{BuildId, SymbolTable, Symbols};

/// Beyond this on either side no kernel image is looked for, in bytes.
const REACH: u64 = 128 << 20;
/// The longest compressed name that is looked for, in bytes with its length.
const LONGEST: usize = 512 + 2;
/// Maximum ratio of the expanded names to the tables that hold them. Tokens have two or three letters; 60,000 each
/// would exhaust all memory.
const MOST_GROWTH: usize = 4;
/// Maximum number of names to read in search of their beginning; a kernel has some 200,000. Memory can be made such
/// that every word of it may be a beginning.
const MOST_NAMES: usize = 1 << 25;
/// A marker points at every 256th name.
const STRIDE: usize = 256;
/// The tokens `0` to `9`.
const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00";

/// The reason why the kernel's symbols could not be read from its memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KallsymsError {
    /// No memory is mapped there.
    #[error("the kernel's symbols were not found in its memory: nothing is mapped at 0x{vbar:016x}, where VBAR_EL1 points")]
    NotMapped {
        /// VBAR_EL1.
        vbar: u64,
    },
    /// Part of the image could not be read.
    #[error("the kernel's symbols were not found in its memory, which could not be read: {0}")]
    Unreadable(String),
    /// There is no table, or one of another shape.
    #[error("the kernel's symbols were not found in the {bytes} bytes around its vectors (a kernel before 6.5, or one without CONFIG_KALLSYMS)")]
    NotFound {
        /// Number of bytes searched.
        bytes: usize,
    },
    /// The table is not of the kernel whose vectors are in use.
    #[error("the symbols that were found in the kernel's memory put `vectors` at {found:x?}, and VBAR_EL1 is 0x{vbar:016x}: they are not this kernel's")]
    OtherKernel {
        /// The address of `vectors`, if there is such a symbol.
        found: Option<u64>,
        /// VBAR_EL1.
        vbar: u64,
    },
}

/// Bytes of the kernel's half, without a gap from `base` on.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The virtual address of the first byte; page aligned.
    pub base: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Stretch {
    /// Returns all that is mapped around `va` without a gap: text and read-only data of the kernel, where `va` is in
    /// its text. (The memory of its init functions is unmapped after boot; `map_kernel()` puts it behind both.)
    ///
    /// # Errors
    /// If no memory is mapped at `va`, or the mapped memory cannot be read.
    pub fn around<M: PhysMemory + ?Sized>(
        memory: &M,
        upper: &Regime,
        va: u64,
    ) -> Result<Stretch, KallsymsError> {
        let page = upper.granule.bytes();
        let is_mapped = |va: u64| {
            matches!(
                lookup(memory, upper, VirtualAddress(va)),
                Lookup::Mapped { .. }
            )
        };
        let middle = va & !(page - 1);
        if !is_mapped(middle) {
            return Err(KallsymsError::NotMapped { vbar: va });
        }
        let reach = REACH / page;
        let below = (1..=reach)
            .take_while(|n| is_mapped(middle.wrapping_sub(n * page)))
            .count() as u64;
        let above = (1..=reach)
            .take_while(|n| is_mapped(middle.wrapping_add(n * page)))
            .count() as u64;
        let base = middle - below * page;
        let mut bytes = vec![0; ((below + 1 + above) * page) as usize];
        kernel_memory::read(memory, upper, base, &mut bytes).map_err(KallsymsError::Unreadable)?;
        Ok(Stretch { base, bytes })
    }

    /// Returns the bytes of a range of virtual addresses, if it lies in this stretch.
    pub fn get(&self, range: Range<u64>) -> Option<&[u8]> {
        let start = usize::try_from(range.start.checked_sub(self.base)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.base)?).ok()?;
        self.bytes.get(start..end)
    }
}

/// Returns the symbols of the kernel whose vectors are at `vbar_el1`, at their runtime addresses.
///
/// `vbar_el1` must be of a CPU in the kernel: in user mode with KPTI it is the trampoline's.
///
/// # Errors
/// If there are no symbols, or they are not this kernel's: `vectors` must be the target of VBAR_EL1 ([`Symbols::slide`]
/// must be 0).
pub fn read<M: PhysMemory + ?Sized>(
    memory: &M,
    upper: &Regime,
    vbar_el1: u64,
) -> Result<Symbols, KallsymsError> {
    let stretch = Stretch::around(memory, upper, vbar_el1)?;
    let table = find(&stretch).ok_or(KallsymsError::NotFound {
        bytes: stretch.bytes.len(),
    })?;
    let mut symbols = Symbols::of_running(table);
    if symbols.slide(vbar_el1) != Some(0) {
        return Err(KallsymsError::OtherKernel {
            found: symbols.address("vectors"),
            vbar: vbar_el1,
        });
    }
    let notes = symbols
        .address("__start_notes")
        .zip(symbols.address("__stop_notes"))
        .and_then(|(start, end)| stretch.get(start..end));
    symbols.set_build_id(notes.and_then(BuildId::from_notes));
    Ok(symbols)
}

/// Returns the address of `vectors` in the kernel whose `_stext` is at `text`: the target of its VBAR_EL1.
///
/// # Errors
/// If there are no symbols, or they are not this kernel's: `_stext` must be at `text`.
pub fn vectors<M: PhysMemory + ?Sized>(
    memory: &M,
    upper: &Regime,
    text: u64,
) -> Result<u64, KallsymsError> {
    let stretch = Stretch::around(memory, upper, text)?;
    let bytes = stretch.bytes.len();
    let table = find(&stretch).ok_or(KallsymsError::NotFound { bytes })?;
    let symbols = Symbols::of_running(table);
    let vectors = symbols.address("vectors");
    let found = symbols.address("_stext").filter(|found| *found == text);
    found.and(vectors).ok_or(KallsymsError::NotFound { bytes })
}

/// Finds the table in a stretch of kernel memory.
pub fn find(stretch: &Stretch) -> Option<SymbolTable> {
    let mut left = MOST_NAMES;
    memmem::find_iter(&stretch.bytes, DIGITS).find_map(|zero| {
        let tokens = Tokens::around(&stretch.bytes, zero)?;
        let names = Names::before(&stretch.bytes, tokens.start, &mut left)?;
        let addresses = addresses(stretch, tokens.index.end, names.count)?;
        expand(&stretch.bytes, &tokens, &names, &addresses)
    })
}

/// Returns the little-endian numbers of `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(N)?)?;
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(field);
    Some(u64::from_le_bytes(whole))
}

/// The token table and its index.
struct Tokens {
    /// Start of the table.
    start: usize,
    /// The 512 bytes of the index.
    index: Range<usize>,
}

impl Tokens {
    /// Returns the table whose token of the digit 0 is at `zero`.
    fn around(bytes: &[u8], zero: usize) -> Option<Tokens> {
        let next = |at: usize| Some(at + memchr::memchr(0, bytes.get(at..)?)? + 1);
        let end = (usize::from(b'0')..256).try_fold(zero, |at, _| next(at))?;
        [2, 4, 8].into_iter().find_map(|alignment| {
            let index = end.next_multiple_of(alignment);
            let begins = |token: usize| number::<2>(bytes, index + 2 * token);
            let start = zero.checked_sub(begins(usize::from(b'0'))? as usize)?;
            let mut at = start;
            for token in 0..256 {
                if begins(token)? != (at - start) as u64 {
                    return None;
                }
                at = next(at)?;
            }
            (at == end).then_some(Tokens {
                start,
                index: index..index + 512,
            })
        })
    }

    fn expand<'b>(&self, bytes: &'b [u8], token: u8) -> &'b [u8] {
        let begins = number::<2>(bytes, self.index.start + 2 * usize::from(token)).unwrap_or(0);
        let rest = &bytes[self.start + begins as usize..];
        &rest[..memchr::memchr(0, rest).unwrap_or(0)]
    }
}

/// The compressed names.
struct Names {
    start: usize,
    count: usize,
}

impl Names {
    /// Returns the names whose markers end before `token_table`.
    fn before(bytes: &[u8], token_table: usize, left: &mut usize) -> Option<Names> {
        [0, 4].into_iter().find_map(|padding| {
            Names::with_markers_up_to(bytes, token_table.checked_sub(padding)?, left)
        })
    }

    fn with_markers_up_to(bytes: &[u8], end: usize, left: &mut usize) -> Option<Names> {
        // Backwards: each marker is above the one before it, and the first is 0.
        let mut first = end.checked_sub(4)?;
        let last = number::<4>(bytes, first)?;
        let mut marker = last;
        while marker != 0 {
            first = first.checked_sub(4)?;
            let before = number::<4>(bytes, first)?;
            if before >= marker {
                return None;
            }
            marker = before;
        }
        let markers = (end - first) / 4;
        // The number of names behind the last marker is unknown. Every place where the names may begin is tried.
        let latest = first.checked_sub(last as usize)? & !3;
        let earliest = latest.saturating_sub(STRIDE * LONGEST);
        (earliest..=latest).rev().step_by(4).find_map(|start| {
            [4, 8].into_iter().find_map(|before| {
                let count = number::<4>(bytes, start.checked_sub(before)?)? as usize;
                let names = Names { start, count };
                let fits = count.div_ceil(STRIDE) == markers;
                (fits && names.agree(bytes, first, left)).then_some(names)
            })
        })
    }

    /// Returns whether the names lead over every marker to the markers themselves.
    fn agree(&self, bytes: &[u8], markers: usize, left: &mut usize) -> bool {
        let mut at = self.start;
        for symbol in 0..self.count {
            let Some(fewer) = left.checked_sub(1) else {
                return false;
            };
            *left = fewer;
            if symbol % STRIDE == 0
                && number::<4>(bytes, markers + symbol / STRIDE * 4)
                    != Some((at - self.start) as u64)
            {
                return false;
            }
            match name_at(bytes, at) {
                Some(tokens) if !tokens.is_empty() && tokens.end <= markers => at = tokens.end,
                _ => return false,
            }
        }
        markers - at < 8
    }
}

/// Returns the tokens of the name whose length is at `at`.
fn name_at(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let low = usize::from(*bytes.get(at)?);
    let (length, start) = if low & 0x80 == 0 {
        (low, at + 1)
    } else {
        (low & 0x7f | usize::from(*bytes.get(at + 1)?) << 7, at + 2)
    };
    Some(start..start + length)
}

/// Returns the addresses of `count` symbols, by the offsets behind `index_end`.
fn addresses(stretch: &Stretch, index_end: usize, count: usize) -> Option<Vec<u64>> {
    [4, 8].into_iter().find_map(|alignment| {
        let start = index_end.next_multiple_of(alignment);
        let offsets: Vec<u32> = stretch
            .bytes
            .get(start..start + count * 4)?
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect();
        let base = number::<8>(&stretch.bytes, (start + count * 4).next_multiple_of(8));
        let from_base = base.filter(|base| base >> 48 == 0xffff).map(|base| {
            offsets
                .iter()
                .map(|&offset| base.wrapping_add(u64::from(offset)))
                .collect()
        });
        let from_place = || {
            (0u64..)
                .zip(&offsets)
                .map(|(at, &offset)| {
                    let place = stretch.base + start as u64 + 4 * at;
                    place.wrapping_add_signed(i64::from(offset as i32))
                })
                .collect()
        };
        // Symbols are sorted by address.
        let sorted = |addresses: &Vec<u64>| addresses.is_sorted();
        from_base
            .filter(sorted)
            .or_else(|| Some(from_place()).filter(sorted))
    })
}

/// Expands the names; returns `None` if they are longer than those of any kernel.
fn expand(bytes: &[u8], tokens: &Tokens, names: &Names, addresses: &[u64]) -> Option<SymbolTable> {
    let most = bytes.len().saturating_mul(MOST_GROWTH);
    let mut table = SymbolTable::default();
    let mut at = names.start;
    for &address in addresses {
        let name = name_at(bytes, at).unwrap_or(at..at);
        at = name.end;
        let start = table.names.len();
        for &token in &bytes[name] {
            table.names.extend_from_slice(tokens.expand(bytes, token));
            if table.names.len() > most {
                return None;
            }
        }
        // The first letter is the type. A damaged name may have none.
        let letters = (start + 1).min(table.names.len());
        table.names.push(0);
        let name = u32::try_from(letters).ok()?;
        table.symbols.push((address, name));
    }
    Some(table)
}

#[cfg(test)]
mod tests;
