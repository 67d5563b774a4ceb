// SPDX-License-Identifier: GPL-2.0-only
//! Reads a vmlinux's symbols and build id: it names addresses in the kernel, and checks that the vmlinux is of the
//! running kernel.
//!
//! Only the symbol and string tables and the notes are read; of a 200 MB vmlinux with DWARF that
//! is a few MB.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, Object, ReadCache};
pub use protocol::BuildId;

/// Symbols of one vmlinux, at the addresses it was linked at.
#[derive(Debug)]
pub struct Symbols {
    path: PathBuf,
    build_id: Option<BuildId>,
    /// Names, NUL-terminated, as in the file.
    names: Vec<u8>,
    /// Address and offset into `names`, by address.
    by_address: Vec<(u64, u32)>,
    /// Indices into `by_address`, by name.
    by_name: Vec<u32>,
}

/// A symbol table as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolTable {
    /// Names, each ends with NUL; without the letter of the symbol's type that kallsyms puts before it.
    pub names: Vec<u8>,
    /// The address of each symbol, and where its name begins.
    pub symbols: Vec<(u64, u32)>,
}

/// The reason why symbols cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// The file could not be opened or read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The vmlinux.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Not a 64-bit ELF file, or a truncated one.
    #[error("{path} is not a usable vmlinux ({what}): give the ELF file `vmlinux` that the kernel build left beside the Image")]
    NotElf {
        /// The file.
        path: PathBuf,
        /// The error in it.
        what: String,
    },
    /// The ELF file is for another machine.
    #[error("{path} is a vmlinux for another architecture (e_machine {machine}, arm64 is 183): give the arm64 one")]
    Machine {
        /// The file.
        path: PathBuf,
        /// `e_machine`.
        machine: u16,
    },
    /// The file was stripped.
    #[error("{path} has no symbol table: give the vmlinux before it was stripped")]
    Stripped {
        /// The file.
        path: PathBuf,
    },
    /// The vmlinux is not of the running kernel.
    #[error("{path} is not the kernel that runs: its build id is {ours}, the guest's is {theirs}; give the vmlinux of that very build")]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The file's build id, or `none`.
        ours: String,
        /// The running kernel's.
        theirs: String,
    },
    /// A symbol that is needed is not there.
    #[error("{path} has no symbol `{name}`{hint}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The symbol.
        name: String,
        /// A hint for the user, which begins with a colon; or empty.
        hint: &'static str,
    },
}

impl Symbols {
    /// Reads the symbols of the vmlinux at `path`.
    pub fn open(path: &Path) -> Result<Symbols, SymbolsError> {
        let file = File::open(path).map_err(|source| SymbolsError::Read {
            path: path.to_owned(),
            source,
        })?;
        Symbols::read(path, &ReadCache::new(file))
    }

    fn read<'data, R: object::ReadRef<'data>>(
        path: &Path,
        data: R,
    ) -> Result<Symbols, SymbolsError> {
        let not_elf = |what: &dyn std::fmt::Display| SymbolsError::NotElf {
            path: path.to_owned(),
            what: what.to_string(),
        };
        let elf = ElfFile64::<Endianness, R>::parse(data).map_err(|e| not_elf(&e))?;
        let endian = elf.endian();
        let machine = elf.elf_header().e_machine(endian);
        if machine != object::elf::EM_AARCH64 {
            return Err(SymbolsError::Machine {
                path: path.to_owned(),
                machine,
            });
        }
        let build_id = elf.build_id().map_err(|e| not_elf(&e))?;
        let symbols = elf.elf_symbol_table();
        let stripped = || SymbolsError::Stripped {
            path: path.to_owned(),
        };
        if symbols.is_empty() {
            return Err(stripped());
        }
        let strings = elf
            .elf_section_table()
            .section(symbols.string_section())
            .and_then(|section| section.data(endian, data))
            .map_err(|e| not_elf(&e))?;
        let mut by_address = Vec::new();
        for symbol in symbols.symbols() {
            let offset = symbol.st_name(endian);
            let name = name_at(strings, offset);
            // Mapping symbols ($x, $d) and nameless section symbols name nothing.
            let named = !name.is_empty() && !name.starts_with(b"$");
            if named && symbol.st_shndx(endian) != object::elf::SHN_UNDEF {
                by_address.push((symbol.st_value(endian), offset));
            }
        }
        if by_address.is_empty() {
            return Err(stripped());
        }
        let mut symbols = Symbols::sorted(path.to_owned(), strings.to_vec(), by_address);
        symbols.build_id = build_id.map(|bytes| BuildId(bytes.to_vec()));
        Ok(symbols)
    }

    fn sorted(path: PathBuf, names: Vec<u8>, mut by_address: Vec<(u64, u32)>) -> Symbols {
        by_address.sort_unstable();
        let mut by_name: Vec<u32> = (0..by_address.len() as u32).collect();
        by_name.sort_unstable_by_key(|&index| name_at(&names, by_address[index as usize].1));
        Symbols {
            path,
            build_id: None,
            names,
            by_address,
            by_name,
        }
    }

    /// Creates the symbols that a running kernel has of itself, at their runtime addresses.
    pub fn of_running(table: SymbolTable) -> Symbols {
        let path = PathBuf::from("the kernel's own symbol table");
        Symbols::sorted(path, table.names, table.symbols)
    }

    pub(crate) fn set_build_id(&mut self, build_id: Option<BuildId>) {
        self.build_id = build_id;
    }

    /// Returns the number of symbols.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Returns whether variables are among them. A running kernel without `CONFIG_KALLSYMS_ALL` has only its functions.
    /// The absence of a variable then proves nothing.
    pub fn has_variables(&self) -> bool {
        self.address("init_mm").is_some()
    }

    /// Returns the GNU build id, if the file has one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// Returns the linked address of `name`. Where several static symbols share the name, `None`: any choice would be a
    /// guess.
    pub fn address(&self, name: &str) -> Option<u64> {
        let of = |index: &u32| self.by_address[*index as usize];
        let name_of = |index: &u32| name_at(&self.names, of(index).1);
        let first = self
            .by_name
            .partition_point(|index| name_of(index) < name.as_bytes());
        let mut found = self.by_name[first..]
            .iter()
            .take_while(|index| name_of(index) == name.as_bytes());
        let address = of(found.next()?).0;
        found.all(|index| of(index).0 == address).then_some(address)
    }

    /// Returns the address, or an error that names the file.
    pub fn require(&self, name: &str, hint: &'static str) -> Result<u64, SymbolsError> {
        self.address(name).ok_or_else(|| SymbolsError::Missing {
            path: self.path.clone(),
            name: name.to_owned(),
            hint,
        })
    }

    /// Returns the range from a symbol to the next one at another address.
    pub fn range(&self, name: &str) -> Option<std::ops::Range<u64>> {
        let start = self.address(name)?;
        let after = self.by_address.partition_point(|&(at, _)| at <= start);
        Some(start..self.by_address.get(after)?.0)
    }

    /// Returns the symbol at or before a linked address, and the distance to it in bytes. Of several at one address,
    /// one that bounds a section comes last: `__sched_text_start` at the address of `__switch_to` is no help.
    pub fn name(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.by_address.partition_point(|&(at, _)| at <= address);
        let (at, last) = *self.by_address.get(after.checked_sub(1)?)?;
        let here = self.by_address[..after].iter().rev();
        let mut names = here
            .take_while(|symbol| symbol.0 == at)
            .map(|symbol| name_at(&self.names, symbol.1));
        let name = names
            .find(|name| !bounds_a_section(name))
            .unwrap_or(name_at(&self.names, last));
        // Damaged kernel memory may hold any bytes in place of a name.
        let is_letter = |it: u8| it.is_ascii_graphic() && it != b'\\';
        let is_name = |name: &&str| !name.is_empty() && name.bytes().all(is_letter);
        let name = std::str::from_utf8(name).ok().filter(is_name)?;
        Some((name, address - at))
    }

    /// Checks that this is the running kernel, whose build id is `running`.
    pub fn matches(&self, running: &BuildId) -> Result<(), SymbolsError> {
        if self.build_id.as_ref() == Some(running) {
            return Ok(());
        }
        let ours = self.build_id.as_ref();
        Err(SymbolsError::Mismatch {
            path: self.path.clone(),
            ours: ours.map_or("none".to_owned(), BuildId::to_string),
            theirs: running.to_string(),
        })
    }

    /// Returns the KASLR offset: the number to add, wrapping, to a linked address.
    ///
    /// VBAR_EL1 of a running CPU is `vectors` (`this_cpu_set_vectors()`), or with Spectre-BHB mitigation one of the
    /// three 2K slots of `__bp_harden_el1_vectors`. With KPTI a CPU in user mode has it in the trampoline, from which
    /// no slide follows. The result is then `None`, as for any distance that is not a multiple of 64K (KASLR keeps the
    /// offset within that: `MIN_KIMG_ALIGN` and `SEGMENT_ALIGN`).
    pub fn slide(&self, vbar_el1: u64) -> Option<u64> {
        let hardened = self.address("__bp_harden_el1_vectors");
        let slots = (0..3).filter_map(|slot| Some(hardened? + slot * 2048));
        self.address("vectors")
            .into_iter()
            .chain(slots)
            .map(|linked| vbar_el1.wrapping_sub(linked))
            .find(|slide| slide % (64 << 10) == 0)
    }

    /// Returns how many bytes a byte of KASAN's shadow is for, as a power of two, where the kernel has a shadow
    /// (`KASAN_SHADOW_SCALE_SHIFT`, arch/arm64/Makefile): with memory tagging it has none.
    pub fn kasan_scale(&self) -> Option<u8> {
        self.address("kasan_early_shadow_page")?;
        let by_tags = self.address("__hwasan_tag_memory").is_some();
        Some(if by_tags { 4 } else { 3 })
    }

    /// Returns whether the kernel was built with `CONFIG_ARM64_CONTPTE`.
    pub fn has_contpte(&self) -> bool {
        self.address("contpte_set_ptes").is_some()
    }

    /// Returns whether the kernel was built with `CONFIG_PRINTK`: `_printk()`, or `printk()` before 5.15, is a function
    /// only then (include/linux/printk.h).
    pub fn has_printk(&self) -> bool {
        ["_printk", "printk"]
            .iter()
            .any(|name| self.address(name).is_some())
    }
}

/// Returns whether a linker script puts the symbol around a section, by the test of `scripts/kallsyms.c`,
/// `may_be_linker_script_provide_symbol()`.
fn bounds_a_section(name: &[u8]) -> bool {
    let Some(name) = name.strip_prefix(b"__") else {
        return false;
    };
    let begins = ["start_", "stop_", "end_"];
    let ends = ["_start", "_end"];
    begins.iter().any(|word| name.starts_with(word.as_bytes()))
        || ends.iter().any(|word| name.ends_with(word.as_bytes()))
}

fn name_at(strings: &[u8], offset: u32) -> &[u8] {
    let rest = strings.get(offset as usize..).unwrap_or(&[]);
    &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests;
