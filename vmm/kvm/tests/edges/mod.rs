// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts that are counted.

use std::sync::atomic::{AtomicUsize, Ordering};

use kvm::device::Interrupt;

/// Number of edges since the last call.
#[derive(Debug, Default)]
pub struct Edges(AtomicUsize);

impl Interrupt for Edges {
    fn pulse(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Edges {
    pub fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}
