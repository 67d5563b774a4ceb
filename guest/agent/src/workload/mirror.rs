// SPDX-License-Identifier: GPL-2.0-only
//! A copy of the process's page tables that MMU notifiers alone keep up to date (mm/mmu_mirror_test.c of the series).

use std::fs::File;
use std::io::{Read, Seek, Write};

use protocol::{Failure, Mirrored, MirroredPage, Outcome, StalePage};

use super::own::Own;
use crate::sys;

const PATH: &str = "/sys/kernel/debug/mmu_mirror";
/// Maximum number of stale pages in an answer.
const MOST: usize = 512;

/// The file of this process's copy.
static COPIED: Own<File> = Own::new();

/// Copies the page tables of the process.
pub fn copy() -> Result<Outcome, Failure> {
    let open = || Ok(sys::open(PATH, libc::O_RDWR | libc::O_CLOEXEC)?.into());
    COPIED.with(open, |file| {
        file.write_all(b"1")
            .map_err(|error| sys::io_failure(&error, format!("write {PATH}")))?;
        Ok(Outcome::Done {})
    })
}

/// Compares the rest of the copy with the page tables.
pub fn verify() -> Result<Outcome, Failure> {
    let none = || Err(Failure::bad("no page tables were copied"));
    let text = COPIED.with(none, |file| {
        let mut text = String::new();
        file.rewind()
            .and_then(|()| file.read_to_string(&mut text))
            .map_err(|error| sys::io_failure(&error, format!("read {PATH}")))?;
        Ok(text)
    })?;
    let read = read(&text).ok_or_else(|| {
        let last = text.lines().last().unwrap_or_default();
        Failure::bad(format!("{PATH} ended with {last:?}"))
    });
    read.map(Outcome::Mirrored)
}

/// Parses the file: a line for each stale page, and one of counts.
fn read(text: &str) -> Option<Mirrored> {
    let mut lines: Vec<&str> = text.lines().collect();
    let last: Vec<&str> = lines.pop()?.split(' ').collect();
    let ["copied", copied, "dropped", dropped, "left", _] = last[..] else {
        return None;
    };
    let first = lines.iter().take(MOST).map(|line| page(line));
    Some(Mirrored {
        copied: copied.parse().ok()?,
        dropped: dropped.parse().ok()?,
        stale: lines.len() as u64,
        first: first.collect::<Option<_>>()?,
    })
}

/// Parses a line: address, page frame of the copy and its right, page frame of now and its right, `-` for none.
fn page(line: &str) -> Option<StalePage> {
    let words: Vec<&str> = line.split(' ').collect();
    let [address, copied, had, pfn, has] = words[..] else {
        return None;
    };
    let number = |word| u64::from_str_radix(word, 16).ok();
    let page = |pfn, right| {
        Some(MirroredPage {
            pfn: number(pfn)?,
            writable: right == "w",
        })
    };
    Some(StalePage {
        address: number(address)?,
        copied: page(copied, had)?,
        now: match has {
            "-" => None,
            right => Some(page(pfn, right)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_stale_page() {
        let text = "ffff8000 1a w 0 -\nffff9000 1b w 1b r\ncopied 7 dropped 2 left 5\n";
        let page = |pfn, writable| MirroredPage { pfn, writable };
        let expected = Mirrored {
            copied: 7,
            dropped: 2,
            stale: 2,
            first: vec![
                StalePage {
                    address: 0xffff_8000,
                    copied: page(0x1a, true),
                    now: None,
                },
                StalePage {
                    address: 0xffff_9000,
                    copied: page(0x1b, true),
                    now: Some(page(0x1b, false)),
                },
            ],
        };
        assert_eq!(read(text), Some(expected));
    }

    #[test]
    fn what_is_cut_off_is_no_answer() {
        for text in [
            "",
            "ffff8000 1a w 0 -\n",
            "x\ncopied 1 dropped 0 left 1\n",
            "copied 1\n",
        ] {
            assert_eq!(read(text), None);
        }
    }
}
