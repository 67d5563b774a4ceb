// SPDX-License-Identifier: GPL-2.0-only
//! Reads the control pipe: marks, and the kernel's layout of its pages.

use std::fs::File;
use std::io::Read as _;

use recorder::{PageLayout, What};

use crate::state;

/// Reads numbers until the pipe ends. All events before a number are in the trace before its mark, and are flushed.
pub fn obey(mut control: File) {
    let mut number = [0; 8];
    while control.read_exact(&mut number).is_ok() {
        let Some(mut state) = state() else { return };
        let number = u64::from_le_bytes(number);
        if number == PageLayout::BEGINS {
            drop(state);
            pages(&mut control);
            continue;
        }
        state.tell(0, 0, What::Mark { number });
        if let Some(recorder) = &mut state.recorder {
            // If that fails, the next event reports it.
            let _ = recorder.flush();
        }
    }
}

/// Reads the kernel's layout of its pages: from here on folios are recorded.
fn pages(control: &mut File) {
    let mut numbers = [0; PageLayout::NUMBERS];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        if control.read_exact(&mut bytes).is_err() {
            return;
        }
        *number = u64::from_le_bytes(bytes);
    }
    if let Some(mut state) = state() {
        state.pages = Some(PageLayout::of(numbers));
    }
}
