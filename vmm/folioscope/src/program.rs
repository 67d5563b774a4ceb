// SPDX-License-Identifier: GPL-2.0-only
//! A program that runs in the guest: one of the guest's initramfs, or a file of this host that is put behind it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use cpio::newc;
use machine::private;
use protocol::Failure;
use untrusted::Text;

use crate::Error;

/// The directory in the guest for files of this host.
const DIRECTORY: &str = "program";

// Of elf.h.
const EXECUTABLE: u16 = 2;
const SHARED: u16 = 3;
const AARCH64: u16 = 183;
const INTERPRETER: u32 = 3;
/// Maximum length of the first line of a script that Linux reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE: usize = 256;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program as the user named it.
    pub name: String,
    /// The guest's command line.
    pub argv: Vec<String>,
    /// The file of this host.
    file: Option<PathBuf>,
    /// The program of the guest that runs it: a script's interpreter, or a loader.
    needs: Option<Text>,
}

impl Program {
    /// Takes a name without a slash for a program of the guest, any other for a file of this host. A program that is linked
    /// dynamically is taken where the initramfs is the user's, `own_initrd`, which may have its libraries.
    ///
    /// # Errors
    /// If there is no such file, or none that an arm64 guest runs.
    pub fn new(words: &[String], own_initrd: bool) -> Result<Self, Error> {
        let [name, arguments @ ..] = words else {
            return Err(Error::Input("expected a program behind --".into()));
        };
        if name.is_empty() {
            return Err(Error::Input(
                "expected the name of a program behind -- and found an empty word".into(),
            ));
        }
        let (mut argv, mut file, mut needs) = (vec![name.clone()], None, None);
        if name.contains('/') {
            let path = Path::new(name);
            needs = check(path, own_initrd)?.map(Text::from);
            let base = path.file_name().and_then(|base| base.to_str());
            argv = vec![format!("/{DIRECTORY}/{}", base.unwrap_or("program"))];
            file = Some(path.to_owned());
        }
        argv.extend_from_slice(arguments);
        Ok(Self {
            name: name.clone(),
            argv,
            file,
            needs,
        })
    }

    /// Returns why the guest did not start it, where that is known.
    #[must_use]
    pub fn why_not(&self, failure: &Failure) -> Option<String> {
        if failure.errno() != Some("ENOENT") {
            return None;
        }
        match (&self.file, &self.needs) {
            (None, _) => Some(format!(
                "expected a program {} in the guest and found none; give one of this host by a path with a slash",
                self.name
            )),
            (Some(_), Some(needs)) => Some(format!(
                "expected {needs} in the guest, by which {} is run, and found none; give an initramfs that has it with --initrd, or take what the guest has, as #!/bin/sh",
                self.name
            )),
            (Some(_), None) => None,
        }
    }

    /// Makes an initramfs in `scratch` of the given one and the program's file; returns the given one if there is no
    /// file. The kernel unpacks one archive behind the other
    /// (Documentation/driver-api/early-userspace/buffer-format.rst).
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn added(&self, initrd: &Path, scratch: &Path) -> Result<PathBuf, Error> {
        let Some(file) = &self.file else {
            return Ok(initrd.to_owned());
        };
        let made = scratch.join("program.cpio");
        let failed = |error| {
            let what = format!(
                "write {}, which is {} with {} behind it",
                made.display(),
                initrd.display(),
                file.display()
            );
            Error::io(what)(error)
        };
        self.write(initrd, file, &made).map_err(failed)?;
        Ok(made)
    }

    fn write(&self, initrd: &Path, file: &Path, made: &Path) -> io::Result<()> {
        let mut out = private::create(made)?;
        io::copy(&mut File::open(initrd)?, &mut out)?;
        let before = out.stream_position()?;
        out.write_all(&[0; 4][..(before.next_multiple_of(4) - before) as usize])?;
        let directory = newc::Builder::new(DIRECTORY).mode(0o040_755);
        let out = directory.write(out, 0).finish()?;
        let content = File::open(file)?;
        let length = u32::try_from(content.metadata()?.len()).map_err(io::Error::other)?;
        let entry = newc::Builder::new(self.argv[0].trim_start_matches('/')).mode(0o100_755);
        let mut entry = entry.write(out, length);
        io::copy(&mut content.take(length.into()), &mut entry)?;
        newc::trailer(entry.finish()?).map(drop)
    }
}

/// Refuses a file that no arm64 guest runs; returns the interpreter of a script or a dynamically linked program.
fn check(path: &Path, own_initrd: bool) -> Result<Option<String>, Error> {
    let place = path.display();
    let refused = |found: String| {
        Err(Error::Input(format!(
            "expected a static arm64 program, or a script, at {place} and found {found}"
        )))
    };
    let metadata = fs::metadata(path);
    match &metadata {
        Ok(metadata) if !metadata.is_file() => return refused("no regular file".into()),
        Ok(metadata) if metadata.len() > u32::MAX.into() => {
            return refused("one of 4 GiB or more, which no initramfs holds".into())
        }
        Ok(_) => {}
        Err(error) => {
            return refused(format!(
                "none ({error}); a name without a slash is the guest's own"
            ))
        }
    }
    let file = File::open(path).map_err(Error::io(format!("open {place}")))?;
    let mut header = [0; 64];
    let mut read = 0;
    while read < header.len() {
        match file.read_at(&mut header[read..], read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) => return Err(Error::io(format!("read {place}"))(error)),
        }
    }
    if header.starts_with(b"#!") {
        let mut line = vec![0; FIRST_LINE];
        let read = file.read_at(&mut line, 0).unwrap_or(0);
        let line = line[2..read.max(2)].split(|&byte| byte == b'\n').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
        return Ok(line.split_whitespace().next().map(str::to_owned));
    }
    if read < header.len() || !header.starts_with(b"\x7fELF") {
        return refused("neither an ELF file nor the #! of a script".into());
    }
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    // 64-bit, little-endian.
    if (header[4], header[5], half(18)) != (2, 1, AARCH64) {
        return refused(format!(
            "one for another machine (ELF class {}, data {}, machine {}); compile it with: aarch64-linux-gnu-gcc -static",
            header[4],
            header[5],
            half(18)
        ));
    }
    if !matches!(half(16), EXECUTABLE | SHARED) {
        return refused(format!(
            "an ELF file that is no program (type {})",
            half(16)
        ));
    }
    match interpreter(&file, &header) {
        Some(interpreter) if !own_initrd => refused(format!(
            "one that is linked dynamically (for {}); link it with -static, or give an initramfs that has its libraries with --initrd",
            interpreter.escape_default()
        )),
        interpreter => Ok(interpreter),
    }
}

/// Returns the interpreter of a dynamically linked program.
fn interpreter(file: &File, header: &[u8; 64]) -> Option<String> {
    let word =
        |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (table, size, count) = (word(header, 32)?, half(54), half(56));
    for index in 0..count {
        let mut segment = [0; 56];
        let at = table.checked_add(index * size)?;
        file.read_exact_at(&mut segment, at).ok()?;
        if u32::from_le_bytes(segment[..4].try_into().ok()?) != INTERPRETER {
            continue;
        }
        let mut name = vec![0; word(&segment, 32)?.min(4096) as usize];
        file.read_exact_at(&mut name, word(&segment, 8)?).ok()?;
        let end = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        return Some(String::from_utf8_lossy(&name[..end]).into_owned());
    }
    None
}
