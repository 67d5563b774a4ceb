// SPDX-License-Identifier: GPL-2.0-only
//! `folioscope page`: a page, its folio, and the processes that map it.

use clap::Args;

use super::{output, Outcome};
use crate::inside::{InsideOptions, ListingFormat};
use crate::{Error, EXIT_NOT_JUDGED, EXIT_OK};

/// Most pages that are listed at once.
const MOST: u64 = 1 << 20;

/// Show a page and its folio, as the kernel keeps them, and which processes map it, live or from a core of all RAM
#[derive(Args, Debug)]
#[command(after_help = "Example: folioscope page 0x41200,0x41210-0x41220 full.core")]
pub struct Page {
    /// Page frame numbers and ranges of them (FIRST-END, END exclusive), with commas between; 0x for hexadecimal
    #[arg(value_name = "PFNS", value_parser = parse)]
    pfns: Pfns,
    #[command(flatten)]
    pub inside: InsideOptions,
}

#[derive(Clone, Debug)]
struct Pfns(Vec<u64>);

fn parse(text: &str) -> Result<Pfns, String> {
    let number = |text: &str| {
        let found = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        found
            .map_err(|_| format!("expected a page frame number such as 0x41200 and found {text:?}"))
    };
    let mut pfns = Vec::new();
    for part in text.split(',') {
        let (first, end) = match part.split_once('-') {
            Some((first, end)) => (number(first)?, number(end)?),
            None => (number(part)?, number(part)?.saturating_add(1)),
        };
        if first >= end || end - first + pfns.len() as u64 > MOST {
            return Err(format!("expected 1 to {MOST} pages and found {text:?}"));
        }
        pfns.extend(first..end);
    }
    Ok(Pfns(pfns))
}

impl Page {
    pub fn run(self) -> Outcome {
        let found = self.inside.frames(&self.pfns.0)?;
        match self.inside.format {
            ListingFormat::Json => output::line(format_args!("{:#}", serde_json::json!(found)))?,
            ListingFormat::Text => found
                .write(&mut output::stdout())
                .map_err(Error::io(output::STDOUT))?,
        }
        // A frame that is no memory, or whose struct page cannot be read, has its reason in the output.
        let known = found.pages.iter().all(|frame| frame.page.is_some());
        Ok(if known { EXIT_OK } else { EXIT_NOT_JUDGED })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        assert_eq!(parse("0x10,7,0x20-0x22").unwrap().0, [0x10, 7, 0x20, 0x21]);
        for wrong in ["", "x", "2-2", "3-1", "0-0xffffffffffffffff", "1,"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
