// SPDX-License-Identifier: GPL-2.0-only
//! The kernel to boot: its image made bootable, its symbols if there is a vmlinux.

use std::path::{Path, PathBuf};

use linux::image::{prepare, Header, Source};
use linux::symbols::{BuildId, Symbols};

use crate::options::GuestOptions;
use crate::Error;

/// CPU models of QEMU that lack the 16K granule (`ID_AA64MMFR0_EL1.TGran16` is 0).
const WITHOUT_16K: [&str; 4] = ["cortex-a35", "cortex-a53", "cortex-a57", "cortex-a72"];

/// Returns whether `kernel`, which has 16K pages, can run on this CPU model.
///
/// # Errors
/// If the CPU has no such granule.
pub fn check_16k(kernel: &str, cpu: &str) -> Result<(), Error> {
    if WITHOUT_16K.contains(&cpu) {
        return Err(Error::Input(format!(
            "{kernel} is a kernel with 16K pages and CPU {cpu} has no 16K granule; choose another CPU (max, neoverse-n1) or granule (4k, 64k)"
        )));
    }
    Ok(())
}

/// Facts about the kernel before it boots.
#[derive(Debug)]
pub struct Kernel {
    /// The file that was given.
    pub given: PathBuf,
    /// A plain Image: the same file, or one unpacked from it.
    pub image: PathBuf,
    /// The Image's header.
    pub header: Header,
    /// Symbols of the vmlinux, if there is one.
    pub symbols: Option<Symbols>,
}

impl Kernel {
    /// Reads and unpacks the image that the options name; an unpacked one goes to `scratch`. The symbols are left for
    /// [`Kernel::read_symbols`].
    ///
    /// # Errors
    /// One sentence with the error in the file, and the file to give instead.
    pub fn prepare(options: &GuestOptions, scratch: &Path) -> Result<Self, Error> {
        let given = options.kernel_path()?;
        let prepared = prepare(&given)?;
        let image = match prepared.image {
            Source::File(path) => path,
            Source::Bytes(bytes) => {
                let path = scratch.join("Image");
                std::fs::write(&path, bytes).map_err(Error::io(format!(
                    "write the unpacked kernel to {}",
                    path.display()
                )))?;
                path
            }
        };
        if prepared.header.page_size == Some(16 << 10) {
            check_16k(&given.display().to_string(), options.cpu_name())?;
        }
        Ok(Self {
            given,
            image,
            header: prepared.header,
            symbols: None,
        })
    }

    /// Reads the symbols of the vmlinux, if there is one. That takes so long that the machine should be started
    /// meanwhile.
    ///
    /// # Errors
    /// One sentence with the error in the file, and the file to give instead.
    pub fn read_symbols(&self, options: &GuestOptions) -> Result<Option<Symbols>, Error> {
        let path = options.vmlinux_path(&self.given)?;
        Ok(path.map(|path| Symbols::open(&path)).transpose()?)
    }

    /// Checks that the vmlinux is that of the running kernel; without one there is nothing to compare.
    ///
    /// # Errors
    /// If it is another's, with both build ids.
    pub fn check_running(&self, build_id: Option<&str>) -> Result<(), Error> {
        let (Some(symbols), Some(running)) = (&self.symbols, build_id.and_then(BuildId::parse))
        else {
            return Ok(());
        };
        Ok(symbols.matches(&running)?)
    }

    /// Returns whether the kernel folds at all, if the symbols show it.
    #[must_use]
    pub fn contpte(&self) -> Option<bool> {
        self.symbols.as_ref().map(Symbols::has_contpte)
    }
}
