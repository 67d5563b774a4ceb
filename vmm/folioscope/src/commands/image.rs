// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope image`: prints the properties of a kernel image.

use std::path::PathBuf;

use clap::Args;
use linux::image::{prepare, release, Container, Source};
use serde::Serialize;

use super::{output, Outcome};
use crate::report::ReportFormat;
use crate::{Error, EXIT_OK};

/// Print the properties of a kernel image: its release, its page size, how it is packed
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope image /boot/vmlinuz-6.12.0-arm64")]
pub struct Image {
    /// An arm64 Image, gzip or EFI zboot image
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print it as text for people, or as JSON
    #[arg(long, value_enum, default_value = "text")]
    format: ReportFormat,
}

/// The output as JSON.
#[derive(Debug, Serialize)]
struct Properties {
    /// The release as in `uname -r`, from the banner in the image.
    release: Option<String>,
    /// Bytes per page; null if the header does not have it.
    page_size: Option<u64>,
    /// The layers of packing, outermost first.
    packed: Vec<Container>,
}

impl Image {
    pub fn run(self) -> Outcome {
        let prepared = prepare(&self.file)?;
        let image = match prepared.image {
            Source::File(path) => std::fs::read(&path)
                .map_err(Error::io(format!("read the kernel {}", path.display())))?,
            Source::Bytes(bytes) => bytes,
        };
        let properties = Properties {
            release: release(&image),
            page_size: prepared.header.page_size,
            packed: prepared.unpacked,
        };
        match self.format {
            ReportFormat::Json => {
                let json = serde_json::to_string(&properties).unwrap_or_default();
                output::line(format_args!("{json}"))?;
            }
            ReportFormat::Text => {
                let release = properties
                    .release
                    .map_or("an arm64 kernel".into(), |release| {
                        format!("Linux {release}")
                    });
                let pages = match properties.page_size {
                    Some(bytes) => format!("{} KiB pages", bytes / 1024),
                    None => "its header does not tell the page size".into(),
                };
                let packed = match properties.packed.as_slice() {
                    [] => "not packed".into(),
                    all => format!("packed: {all:?}"),
                };
                output::line(format_args!("{release}, {pages}, {packed}"))?;
            }
        }
        Ok(EXIT_OK)
    }
}
