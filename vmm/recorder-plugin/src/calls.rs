// SPDX-License-Identifier: GPL-2.0-only
//! The current call chain of a CPU, by its frame records (AAPCS64, 6.4.6).

use recorder::trace::MOST_FRAMES;

use crate::virtual_memory::read;

/// Bytes of the stack that are read at once: a read costs a walk of the tables.
const AT_ONCE: usize = 512;
/// Maximum distance to the next frame record.
const FARTHEST: u64 = 1 << 16;

/// Returns the return addresses, the innermost first: the link register, then those of the frame records from `frame`
/// on. It ends where a record leads nowhere.
pub fn chain(pc: u64, link: u64, frame: u64) -> Vec<u64> {
    // Return addresses may be signed (FEAT_PAuth): the bits above the VA are those of the PC.
    let plain = |address: u64| {
        if pc >> 63 == 0 {
            return address & !3;
        }
        (address | pc & 0xffff_8000_0000_0000) & !3
    };
    let mut frames = vec![plain(link)];
    let mut stack = Vec::new();
    let mut begins = 0;
    let mut at = frame;
    while frames.len() < MOST_FRAMES && at != 0 && at & 7 == 0 {
        let within = at
            .checked_sub(begins)
            .filter(|offset| begins != 0 && *offset as usize <= AT_ONCE - 16);
        let offset = match within {
            Some(offset) => offset as usize,
            None => {
                match read(at, AT_ONCE) {
                    Some(bytes) => (stack, begins) = (bytes, at),
                    None => break,
                }
                0
            }
        };
        let word = |at: usize| {
            let bytes = stack[at..at + 8].try_into();
            bytes.map_or(0, u64::from_le_bytes)
        };
        let (next, back) = (word(offset), word(offset + 8));
        if back == 0 {
            break;
        }
        frames.push(plain(back));
        if next <= at || next - at > FARTHEST {
            break;
        }
        at = next;
    }
    frames
}
