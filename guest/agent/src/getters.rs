//! Reads the kernel's own interfaces for a process's memory. Runs in a helper.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use protocol::{
    category, pagemap, Failure, Getters, Outcome, Packed, PageRun, SizeCounted, ENOUGH_RUNS,
    MAX_GETTER_PAGES,
};

use crate::{files, sys};

/// `PAGEMAP_SCAN`, `_IOWR('f', 16, struct pm_scan_arg)`; include/uapi/linux/fs.h.
const PAGEMAP_SCAN: u32 = 3 << 30 | (size_of::<ScanArgument>() as u32) << 16 | 0x66 << 8 | 16;
/// Regions that are taken from one call.
const REGIONS: usize = 1024;
/// Number of pages whose entries are read at once.
const AT_ONCE: u64 = 1 << 12;
const SIZES: &str = "/sys/kernel/mm/transparent_hugepage";

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Reads all of them. The process should be stopped meanwhile.
pub fn read(pid: i32) -> Result<Outcome, Failure> {
    let areas = areas(&files::text(&format!("/proc/{pid}/maps"))?);
    let file = read_only(&format!("/proc/{pid}/pagemap"))?;
    let (scan, scanned) = scan(&file, &areas)?;
    let (pages, read) = Reader::new(file)?.pages(&areas)?;
    let cut = scanned.into_iter().chain(read).min();
    let smaps = files::text(&format!("/proc/{pid}/smaps"))?;
    Ok(Outcome::Getters(Box::new(Getters {
        // Last: by then this process has mapped all that it will.
        reader: Packed(also_ours(&pages)?),
        pages: Packed(pages.into_iter().map(Into::into).collect()),
        scan: scan.map(Packed),
        smaps,
        sizes: sizes(),
        cut,
    })))
}

fn read_only(path: &str) -> Result<File, Failure> {
    Ok(File::from(sys::open(path, libc::O_RDONLY)?))
}

/// Returns the ranges of a text of `/proc/PID/maps`.
fn areas(maps: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(start)?, number(end)?))
    };
    maps.lines().filter_map(range).collect()
}

/// The files of pages.
struct Reader {
    pagemap: File,
    flags: File,
    counts: File,
    runs: Vec<PageRun>,
}

impl Reader {
    fn new(pagemap: File) -> Result<Self, Failure> {
        Ok(Self {
            pagemap,
            flags: read_only("/proc/kpageflags")?,
            counts: read_only("/proc/kpagecount")?,
            runs: Vec::new(),
        })
    }

    /// Returns the runs, and where it was too much.
    fn pages(mut self, areas: &[(u64, u64)]) -> Result<(Vec<PageRun>, Option<u64>), Failure> {
        let (page, mut left) = (sys::page_size(), MAX_GETTER_PAGES);
        for &(start, end) in areas {
            let mut at = start;
            while at < end {
                let pages = ((end - at) / page).min(AT_ONCE).min(left);
                if pages == 0 || self.runs.len() >= ENOUGH_RUNS {
                    return Ok((self.runs, Some(at)));
                }
                self.piece(at, pages).map_err(|error| {
                    sys::io_failure(&error, "read what the kernel says of pages")
                })?;
                left -= pages;
                at += pages * page;
            }
        }
        Ok((self.runs, None))
    }

    fn piece(&mut self, address: u64, pages: u64) -> io::Result<()> {
        let page = sys::page_size();
        let entries = files::words(&self.pagemap, address / page, pages)?;
        let present = |entry: u64| entry & pagemap::PRESENT != 0;
        let mut at = 0;
        while at < entries.len() {
            let (first, entry) = (at, entries[at]);
            at += 1;
            while present(entry)
                && entries.get(at).is_some_and(|next| {
                    present(*next)
                        && (next ^ entry.wrapping_add((at - first) as u64)) & pagemap::FRAME == 0
                })
            {
                at += 1;
            }
            let (frame, count) = (entry & pagemap::FRAME, (at - first) as u64);
            let (flags, counts) = match present(entry) {
                true => (
                    files::words(&self.flags, frame, count)?,
                    files::words(&self.counts, frame, count)?,
                ),
                false => (Vec::new(), Vec::new()),
            };
            for (n, entry) in entries[first..at].iter().enumerate() {
                let of = |words: &[u64]| words.get(n).copied().unwrap_or(0);
                self.add(PageRun {
                    address: address + (first + n) as u64 * page,
                    pages: 1,
                    entry: *entry,
                    flags: of(&flags),
                    count: of(&counts),
                });
            }
        }
        Ok(())
    }

    /// Adds a page behind all others, unless it is nothing.
    fn add(&mut self, page: PageRun) {
        if page.entry == 0 {
            return;
        }
        if let Some(last) = self.runs.last_mut() {
            let behind = last.address + last.pages * sys::page_size() == page.address;
            let alike = (last.flags, last.count) == (page.flags, page.count);
            if behind && alike && last.entry_of(last.pages) == page.entry {
                last.pages += 1;
                return;
            }
        }
        self.runs.push(page);
    }
}

/// Returns the page frames of these that this process maps as well, since it runs the same program.
fn also_ours(pages: &[PageRun]) -> Result<Vec<[u64; 1]>, Failure> {
    let (file, page) = (read_only("/proc/self/pagemap")?, sys::page_size());
    let mut ours = BTreeSet::new();
    for (start, end) in areas(&files::text("/proc/self/maps")?) {
        let entries = files::words(&file, start / page, (end - start) / page)
            .map_err(|error| sys::io_failure(&error, "read /proc/self/pagemap"))?;
        let present = entries
            .iter()
            .filter(|entry| *entry & pagemap::PRESENT != 0);
        ours.extend(present.map(|entry| entry & pagemap::FRAME));
    }
    let present = pages.iter().filter(|run| run.entry & pagemap::PRESENT != 0);
    let frames = present.flat_map(|run| {
        let first = run.entry & pagemap::FRAME;
        first..first + run.pages
    });
    let theirs: BTreeSet<u64> = frames.collect();
    Ok(ours.intersection(&theirs).map(|frame| [*frame]).collect())
}

type Scanned = (Option<Vec<[u64; 3]>>, Option<u64>);

/// Returns what `PAGEMAP_SCAN` finds, and where it was too much; nothing on a kernel that does not have it.
fn scan(pagemap: &File, areas: &[(u64, u64)]) -> Result<Scanned, Failure> {
    let (Some((start, _)), Some((_, end))) = (areas.first(), areas.last()) else {
        return Ok((Some(Vec::new()), None));
    };
    let (mut found, mut at) = (Vec::new(), *start);
    while at < *end {
        if found.len() >= ENOUGH_RUNS {
            return Ok((Some(found), Some(at)));
        }
        let mut regions = vec![[0; 3]; REGIONS];
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: at,
            end: *end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            category_anyof_mask: category::PRESENT | category::SWAPPED,
            return_mask: category::ALL,
            ..ScanArgument::default()
        };
        // SAFETY: the argument has the request's structure, and its vector has room for as many regions as it states.
        let result =
            unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument) };
        match sys::check(i64::from(result), "PAGEMAP_SCAN") {
            Ok(count) => found.extend_from_slice(&regions[..count as usize]),
            Err(failure) if failure.errno() == Some("ENOTTY") => return Ok((None, None)),
            Err(failure) => return Err(failure),
        }
        if argument.walk_end <= at {
            return Err(Failure::bad("PAGEMAP_SCAN does not get on"));
        }
        at = argument.walk_end;
    }
    Ok((Some(found), None))
}

/// Returns what sysfs counts of each size that has both counters.
fn sizes() -> Vec<SizeCounted> {
    let size = |name: &str| {
        let kilobytes = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let pages = kilobytes.parse::<u64>().ok()? * 1024 / sys::page_size();
        let counter = |of: &str| {
            let text = std::fs::read_to_string(format!("{SIZES}/{name}/stats/{of}"));
            text.ok()?.trim().parse().ok()
        };
        Some(SizeCounted {
            order: pages.checked_ilog2()? as u8,
            anonymous: counter("nr_anon")?,
            partial: counter("nr_anon_partially_mapped")?,
        })
    };
    let entries = std::fs::read_dir(SIZES).into_iter().flatten().flatten();
    let mut sizes: Vec<_> = entries
        .filter_map(|entry| size(entry.file_name().to_str()?))
        .collect();
    sizes.sort_unstable_by_key(|size| size.order);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_maps() {
        let maps = "400000-401000 r-xp 00000000 00:01 2 /init\nfff0-10000 rw-p 0 00:00 0 [stack]\n";
        assert_eq!(areas(maps), [(0x40_0000, 0x40_1000), (0xfff0, 0x1_0000)]);
    }

    #[test]
    fn pages_that_follow_each_other_are_one_run() {
        let Ok(file) = File::open("/proc/self/pagemap") else {
            return;
        };
        let null = || File::open("/dev/null").unwrap();
        let mut reader = Reader {
            pagemap: file,
            flags: null(),
            counts: null(),
            runs: Vec::new(),
        };
        let page = sys::page_size();
        let of = |n: u64, entry, flags| PageRun::from([n * page, 1, entry, flags, 1]);
        let present = pagemap::PRESENT;
        for page in [
            of(1, present | 5, 8),
            of(2, present | 6, 8),
            of(3, 0, 0),
            of(4, present | 8, 8),
            of(5, present | 9, 9),
            of(6, present | 11, 9),
        ] {
            reader.add(page);
        }
        let runs: Vec<_> = reader
            .runs
            .iter()
            .map(|run| (run.address / page, run.pages))
            .collect();
        assert_eq!(runs, [(1, 2), (4, 1), (5, 1), (6, 1)]);
    }
}
