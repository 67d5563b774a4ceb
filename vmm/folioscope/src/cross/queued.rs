// SPDX-License-Identifier: GPL-2.0-only
//! Operations that are to be done, and what is expected of each.

use std::ops::Range;

use protocol::{Expect, Operation, ProcessId};

use super::model::Content;
use super::steps::Step;

/// Words that are compared at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The address of the first one.
    pub(super) start: u64,
    pub(super) count: u64,
    /// Bytes from one to the next.
    pub(super) stride: u64,
}

impl Words {
    /// Bytes from the first to the end of the last one's stride.
    pub(super) fn length(self) -> u64 {
        self.count * self.stride
    }

    /// The operation that compares them.
    pub(super) fn verify(self, expect: Expect) -> Operation {
        Operation::Verify {
            address: self.start,
            length: self.length(),
            stride: Some(self.stride),
            expect,
        }
    }
}

/// The expectation of an operation.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// That it is done.
    Done,
    /// That `move_pages()` has moved all that is there to this node.
    OnNode { range: Range<u64>, node: i32 },
    /// Nothing: it makes no promise.
    Anything,
    /// That it is refused with this error.
    Refused(&'static str),
    /// An access that completes, or raises a signal.
    Access { range: Range<u64>, completes: bool },
    /// Words that the operation compares, which the model has with this content.
    Words(Words, Content),
    /// Words at these addresses that a second thread has compared each time with what they held before.
    Kept { range: Range<u64> },
    /// Pinned pages, which the operation compares with those that are mapped at these addresses.
    Pinned { range: Range<u64> },
    /// Words of a file that the operation compares, in the page cache or as they are stored.
    File {
        /// The addresses that map them.
        range: Range<u64>,
        stored: bool,
    },
}

/// An operation that is to be done.
#[derive(Debug)]
pub(super) struct Queued {
    /// The area that it is for.
    pub(super) at: usize,
    pub(super) process: ProcessId,
    pub(super) step: Option<Step>,
    pub(super) op: Operation,
    pub(super) expected: Expected,
}
