// SPDX-License-Identifier: GPL-2.0-only
//! `/proc/PID/maps` and `/proc/PID/smaps`: where a process may have memory at all.
//!
//! The format is `show_map_vma()` in the kernel's `fs/proc/task_mmu.c`. Names are taken unchanged (spaces, `
//! (deleted)`), except for `\012`, by which the kernel writes an end of line. It escapes no other character, not even a
//! backslash. All fields before the name must be exact.

use std::fmt;

use serde::Serialize;
use untrusted::Text;

/// Behind every user address that any arm64 kernel has.
const USER_END: u64 = 1 << 56;

/// One line of `maps`: one virtual memory area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vma {
    /// First byte.
    pub start: u64,
    /// First byte behind it.
    pub end: u64,
    /// `r`, `w`, `x` and `s` or `p`.
    pub permissions: Permissions,
    /// Offset of `start` in the file, in bytes (0 for anonymous memory).
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// Inode number; 0 for memory without a file.
    pub inode: u64,
    /// The last column; empty if there is none.
    pub name: Text,
    /// `VmFlags` of smaps; `None` where only maps was read.
    pub flags: Option<VmFlags>,
    /// Bytes of a page of hugetlb (`KernelPageSize` of smaps); `None` of other VMAs, and where only maps was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb_page: Option<u64>,
}

/// `VmFlags` of smaps: two-letter words. The flags that are looked up for each entry are computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmFlags {
    words: Vec<String>,
    hugetlb: bool,
    pfn_mapped: bool,
    protected: bool,
}

impl VmFlags {
    /// Creates the flags from these words, in the kernel's order.
    pub fn new<'w>(words: impl IntoIterator<Item = &'w str>) -> VmFlags {
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let any = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
        VmFlags {
            hugetlb: any(&["ht"]),
            pfn_mapped: any(&["pf", "mm", "io"]),
            protected: any(&["uw", "ur"]),
            words,
        }
    }

    /// Returns whether the VMA is locked (`VM_LOCKED`).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.has("lo")
    }

    /// Returns whether one of the words is this one.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    /// Returns the words.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }
}

impl Serialize for VmFlags {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words.serialize(serializer)
    }
}

/// The second column of `maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Permissions {
    /// `VM_READ`.
    pub read: bool,
    /// `VM_WRITE`.
    pub write: bool,
    /// `VM_EXEC`.
    pub execute: bool,
    /// `VM_MAYSHARE`: `s`.
    pub shared: bool,
}

/// Kind of memory behind a VMA, as far as its line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Backing {
    /// Private anonymous memory (heap, stack and named areas too).
    Anonymous,
    /// Shared anonymous memory: a nameless shmem file.
    Shmem,
    /// A private or shared mapping of some file.
    File,
    /// `[vdso]`, `[vvar]` and their like: installed by the kernel.
    Special,
    /// hugetlb pages.
    Hugetlb,
}

/// A line that differs from the kernel's format.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} of the process's maps is not a VMA ({expected} expected): {text:?}")]
pub struct MapsError {
    /// Counted from 1.
    pub line: usize,
    /// The field that was expected.
    pub expected: &'static str,
    /// The line itself.
    pub text: String,
}

impl Permissions {
    fn parse(text: &str) -> Option<Permissions> {
        let flag = |c: u8, set: u8, clear: u8| match c {
            c if c == set => Some(true),
            c if c == clear => Some(false),
            _ => None,
        };
        let [r, w, x, s] = text.as_bytes() else {
            return None;
        };
        Some(Permissions {
            read: flag(*r, b'r', b'-')?,
            write: flag(*w, b'w', b'-')?,
            execute: flag(*x, b'x', b'-')?,
            shared: flag(*s, b's', b'p')?,
        })
    }

    /// Returns the permissions as `maps` prints them.
    pub fn text(self) -> String {
        [
            if self.read { 'r' } else { '-' },
            if self.write { 'w' } else { '-' },
            if self.execute { 'x' } else { '-' },
            if self.shared { 's' } else { 'p' },
        ]
        .iter()
        .collect()
    }
}

impl Vma {
    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Returns whether `address` lies inside.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns whether it holds hugetlb pages: `ht` of VmFlags, if they are known. Without them only memory without a
    /// file, or with a name that only hugetlb gives, is certain; else `None`.
    pub fn hugetlb(&self) -> Option<bool> {
        if let Some(flags) = &self.flags {
            return Some(flags.hugetlb);
        }
        if self.name.starts_with("/anon_hugepage") {
            Some(true)
        } else if self.inode == 0 {
            Some(false)
        } else {
            None
        }
    }

    /// Returns what the VMA is of.
    pub fn backing(&self) -> Backing {
        // Shared anonymous memory is "/dev/zero (deleted)" with an inode; a shmem file of a
        // memfd or tmpfs has a path like any other file.
        let special = [
            "[vdso]",
            "[vvar]",
            "[vvar_vclock]",
            "[vectors]",
            "[sigpage]",
            "[uprobes]",
        ];
        if self.hugetlb() == Some(true) {
            Backing::Hugetlb
        } else if self.name.starts_with('[') && special.contains(&self.name.raw()) {
            Backing::Special
        } else if self.permissions.shared && self.name.starts_with("/dev/zero") {
            Backing::Shmem
        } else if self.inode == 0 && !self.name.starts_with('/') && !self.permissions.shared {
            Backing::Anonymous
        } else {
            Backing::File
        }
    }

    /// Returns whether pages of it may be mapped straight from page frame numbers, without a folio (`pf`, `mm` or `io`
    /// of VmFlags); `None` without VmFlags.
    pub fn pfn_mapped(&self) -> Option<bool> {
        self.flags.as_ref().map(|flags| flags.pfn_mapped)
    }

    /// Returns whether a userfaultfd may protect pages of it (`uw` or `ur` of VmFlags); `None` without VmFlags.
    pub fn protected(&self) -> Option<bool> {
        self.flags.as_ref().map(|flags| flags.protected)
    }
}

/// Writes the VMA as `/proc/PID/smaps` does, without the counts: the line, and `VmFlags` if they are known.
impl fmt::Display for Vma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.device;
        write!(
            f,
            "{:08x}-{:08x} {} {:08x} {major:02x}:{minor:02x} {}",
            self.start,
            self.end,
            self.permissions.text(),
            self.offset,
            self.inode
        )?;
        if !self.name.is_empty() {
            // As the kernel escapes it, and as it is parsed here (mangle_path(), fs/seq_file.c).
            write!(f, " {}", self.name.raw().replace('\n', "\\012"))?;
        }
        f.write_str("\n")?;
        if let Some(bytes) = self.hugetlb_page {
            writeln!(f, "{KERNEL_PAGE_SIZE} {} kB", bytes >> 10)?;
        }
        match &self.flags {
            Some(flags) => writeln!(f, "VmFlags: {}", flags.words.join(" ")),
            None => Ok(()),
        }
    }
}

/// Reads the text of `/proc/PID/maps`: VMAs in address order.
pub fn parse_maps(text: &str) -> Result<Vec<Vma>, MapsError> {
    let mut vmas = Vec::new();
    for (index, line) in text.lines().enumerate() {
        push(&mut vmas, parse_numbered(line, index + 1)?, line, index + 1)?;
    }
    Ok(vmas)
}

/// The key of the size of a VMA's pages, which stands before its VmFlags.
const KERNEL_PAGE_SIZE: &str = "KernelPageSize:";

/// Parses the text of `/proc/PID/smaps`: the VMAs with their VmFlags.
pub fn parse_smaps(text: &str) -> Result<Vec<Vma>, MapsError> {
    let mut vmas: Vec<Vma> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let key = line.split_whitespace().next().unwrap_or("");
        if !key.ends_with(':') {
            push(&mut vmas, parse_numbered(line, index + 1)?, line, index + 1)?;
        } else if key == KERNEL_PAGE_SIZE {
            let kib = line.split_whitespace().nth(1);
            if let (Some(vma), Some(kib)) = (vmas.last_mut(), kib.and_then(|kib| kib.parse().ok()))
            {
                vma.hugetlb_page = u64::checked_mul(kib, 1 << 10);
            }
        } else if key == "VmFlags:" {
            let Some(vma) = vmas.last_mut() else {
                return Err(error(index + 1, "a VMA before its VmFlags", line));
            };
            let flags = VmFlags::new(line.split_whitespace().skip(1));
            vma.hugetlb_page = vma.hugetlb_page.filter(|_| flags.hugetlb);
            vma.flags = Some(flags);
        }
    }
    Ok(vmas)
}

fn push(vmas: &mut Vec<Vma>, vma: Vma, line: &str, number: usize) -> Result<(), MapsError> {
    if vmas.last().is_some_and(|last| last.end > vma.start) {
        return Err(error(number, "an address behind the previous VMA", line));
    }
    vmas.push(vma);
    Ok(())
}

fn error(line: usize, expected: &'static str, text: &str) -> MapsError {
    MapsError {
        line,
        expected,
        text: text.to_owned(),
    }
}

/// Reads one line of `/proc/PID/maps`.
pub fn parse_line(text: &str) -> Result<Vma, MapsError> {
    parse_numbered(text, 1)
}

fn parse_numbered(text: &str, line: usize) -> Result<Vma, MapsError> {
    let wrong = |expected| error(line, expected, text);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut rest = text;
    let mut field = || {
        let (head, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        head
    };
    let range = field().split_once('-');
    let (start, end) = range
        .and_then(|(start, end)| Some((hex(start)?, hex(end)?)))
        .filter(|(start, end)| start < end && *end <= USER_END)
        .ok_or_else(|| wrong("START-END in hexadecimal, below 2^56"))?;
    let permissions =
        Permissions::parse(field()).ok_or_else(|| wrong("permissions such as rw-p"))?;
    let offset = hex(field()).ok_or_else(|| wrong("a hexadecimal file offset"))?;
    let device = field()
        .split_once(':')
        .and_then(|(major, minor)| {
            let number = |text| u32::from_str_radix(text, 16).ok();
            Some((number(major)?, number(minor)?))
        })
        .ok_or_else(|| wrong("a device MAJOR:MINOR"))?;
    let inode = field()
        .parse()
        .map_err(|_| wrong("a decimal inode number"))?;
    Ok(Vma {
        start,
        end,
        permissions,
        offset,
        device,
        inode,
        name: rest.trim_start_matches(' ').replace("\\012", "\n").into(),
        flags: None,
        hugetlb_page: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00420000 r-xp 00000000 00:02 1234                               /init
00430000-00431000 rw-p 00020000 00:02 1234                               /init
1b6f9000-1b71a000 rw-p 00000000 00:00 0                                  [heap]
ffff80000000-ffff80200000 rw-p 00000000 00:00 0 
ffff80200000-ffff80400000 rw-s 00000000 00:01 3                          /dev/zero (deleted)
ffff80400000-ffff80600000 rw-s 00000000 00:0f 7                          /anon_hugepage (deleted)
ffff90000000-ffff90001000 r--p 00000000 fd:01 18446744073709551615       /tmp/a b\\012c  d (deleted)
ffff90002000-ffff90003000 rw-p 00000000 00:00 0                          [anon:two words]
ffffa1f00000-ffffa1f02000 r--p 00000000 00:00 0                          [vvar]
ffffa1f02000-ffffa1f04000 r-xp 00000000 00:00 0                          [vdso]
ffffd0000000-ffffd0021000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn every_kind_of_line_is_read() {
        let vmas = parse_maps(MAPS).unwrap();
        let backings: Vec<_> = vmas.iter().map(Vma::backing).collect();
        use Backing::*;
        assert_eq!(
            backings,
            [
                File, File, Anonymous, Anonymous, Shmem, Hugetlb, File, Anonymous, Special,
                Special, Anonymous
            ]
        );
        assert_eq!(vmas[3].name, "");
        assert_eq!((vmas[3].start, vmas[3].size()), (0xffff_8000_0000, 2 << 20));
        assert_eq!(vmas[6].name, "/tmp/a b\nc  d (deleted)");
        assert_eq!(vmas[6].device, (0xfd, 1));
        assert_eq!(vmas[6].inode, u64::MAX);
        assert_eq!(vmas[0].permissions.text(), "r-xp");
        assert!(vmas[4].permissions.shared && vmas[4].permissions.write);
        assert_eq!(vmas[1].hugetlb(), None);
        assert_eq!(vmas[3].hugetlb(), Some(false));
    }

    #[test]
    fn smaps_adds_the_flags() {
        let text = "\
ffff80400000-ffff80600000 rw-s 00000000 00:0f 7                          /hugetlb file: x
Size:               2048 kB
KernelPageSize:       64 kB
VmFlags: rd wr sh mr mw me ms ht sd 
ffff90002000-ffff90003000 rw-p 00000000 00:00 0 
KernelPageSize:        4 kB
VmFlags: rd wr mr mw me ac 
";
        let vmas = parse_smaps(text).unwrap();
        assert_eq!(vmas.len(), 2);
        assert_eq!(vmas[0].hugetlb(), Some(true));
        assert_eq!(vmas[1].hugetlb(), Some(false));
        assert_eq!(vmas[1].pfn_mapped(), Some(false));
        assert_eq!(
            (vmas[0].hugetlb_page, vmas[1].hugetlb_page),
            (Some(64 << 10), None)
        );
        let written: String = vmas.iter().map(Vma::to_string).collect();
        assert_eq!(parse_smaps(&written).unwrap(), vmas);
        assert!(parse_smaps("VmFlags: rd\n").is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        let bad = |text: &str| parse_maps(text).unwrap_err();
        let error = bad("1000-2000 rw-p 00000000 00:00 0 \n3000-z rw-p 0 00:00 0\n");
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains("3000-z"), "{error}");
        assert_eq!(
            bad("2000-1000 rw-p 0 00:00 0").expected,
            "START-END in hexadecimal, below 2^56"
        );
        assert_eq!(
            bad("1000-ffffffffffffffff rw-p 0 00:00 0").expected,
            "START-END in hexadecimal, below 2^56"
        );
        assert_eq!(
            bad("1000-2000 rw-q 0 00:00 0").expected,
            "permissions such as rw-p"
        );
        assert_eq!(
            bad("1000-2000 rw-p 0 0000 0").expected,
            "a device MAJOR:MINOR"
        );
        assert_eq!(
            bad("1000-2000 rw-p 0 00:00 x").expected,
            "a decimal inode number"
        );
        assert_eq!(bad("1000-2000").expected, "permissions such as rw-p");
        let overlap = "1000-3000 rw-p 0 00:00 0\n2000-4000 rw-p 0 00:00 0";
        assert_eq!(bad(overlap).line, 2);
    }
}
