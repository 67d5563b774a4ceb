//! Swap areas. All of this runs in helpers: it takes as long as the device does.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use protocol::{Failure, Outcome};

use crate::sys;

/// Offset of the numbers of the header (`union swap_header`, include/linux/swap.h).
const INFO: usize = 1024;
const MAGIC: &[u8] = b"SWAPSPACE2";

/// Calls `swapon(2)`, and writes a header first if `format` is set.
pub fn on(path: &str, format: bool) -> Result<Outcome, Failure> {
    if format {
        make(path)?;
    }
    swap(libc::SYS_swapon, path, "swapon")
}

/// Calls `swapoff(2)`.
pub fn off(path: &str) -> Result<Outcome, Failure> {
    swap(libc::SYS_swapoff, path, "swapoff")
}

/// Makes one of the two calls. Both take a path; swapon takes flags as well, of which none is set.
fn swap(call: libc::c_long, path: &str, name: &str) -> Result<Outcome, Failure> {
    let c = sys::c_path(path)?;
    // SAFETY: `c` is a string that ends in a zero byte.
    let result = unsafe { libc::syscall(call, c.as_ptr(), 0) };
    sys::check(result, &format!("{name} {path}")).map(|_| Outcome::Done {})
}

fn make(path: &str) -> Result<(), Failure> {
    let mut file = File::from(sys::open(path, libc::O_RDWR)?);
    let size = file
        .seek(SeekFrom::End(0))
        .map_err(|e| sys::io_failure(&e, format!("seek {path}")))?;
    let header = header(sys::page_size(), size)?;
    file.write_all_at(&header, 0)
        .and_then(|()| file.sync_all())
        .map_err(|e| sys::io_failure(&e, format!("write {path}")))
}

/// Returns the first page of a swap area of `size` bytes.
fn header(page: u64, size: u64) -> Result<Vec<u8>, Failure> {
    let pages = size / page;
    if pages < 2 {
        return Err(Failure::bad(format!(
            "{size} bytes are too few to swap to: a page is the header's"
        )));
    }
    let mut bytes = vec![0; page as usize];
    let last = u32::try_from(pages - 1).unwrap_or(u32::MAX);
    for (at, number) in [(0, 1), (4, last), (8, 0u32)] {
        bytes[INFO + at..INFO + at + 4].copy_from_slice(&number.to_le_bytes());
    }
    let at = bytes.len() - MAGIC.len();
    bytes[at..].copy_from_slice(MAGIC);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_as_the_kernel_reads_it() {
        for page in [4096u64, 16384, 65536] {
            let bytes = header(page, 5 * page + 17).unwrap();
            assert_eq!(bytes.len() as u64, page);
            let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            // version, last_page, nr_badpages
            assert_eq!((number(1024), number(1028), number(1032)), (1, 4, 0));
            assert_eq!(&bytes[bytes.len() - 10..], b"SWAPSPACE2");
            assert!(header(page, page).is_err());
        }
    }
}
