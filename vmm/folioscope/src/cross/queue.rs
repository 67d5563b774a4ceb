// SPDX-License-Identifier: GPL-2.0-only
//! Operations of a batch, many in one message: an emulated guest needs longer for a message than for most operations.
//!
//! The model goes on as if each was done. Where one was not, its area is refused, and nothing is concluded from operations
//! behind it: the model is not that of the guest any more. Where the guest does not answer a list, this is so for all its
//! areas.

use protocol::{Expect, Failure, Operation, Outcome, ProcessId};

use super::busy::lost;
use super::compare::mismatch;
use super::files::file_mismatch;
use super::model::Content;
use super::pins::pin_mismatch;
use super::play::{Batch, Cell, Difference};
use super::queued::{Expected, Queued};
use crate::guest::unexpected;
use crate::Error;

/// Maximum number of operations in one message.
const MOST: usize = 64;

/// Operations of one process each that follow each other, as many as one message has.
fn groups(queue: Vec<Queued>) -> Vec<Vec<Queued>> {
    let mut groups: Vec<Vec<Queued>> = Vec::new();
    for queued in queue {
        match groups.last_mut() {
            Some(group) if group.len() < MOST && group[0].process == queued.process => {
                group.push(queued);
            }
            _ => groups.push(vec![queued]),
        }
    }
    groups
}

impl Batch<'_, '_> {
    /// Has an operation done after those before it, at the latest by the next [`Batch::flush`].
    pub(super) fn later(
        &mut self,
        at: usize,
        process: ProcessId,
        op: Operation,
        expected: Expected,
    ) {
        self.queue.push(Queued {
            at,
            process,
            step: self.step,
            op,
            expected,
        });
    }

    /// Does an operation at once, after those before it.
    ///
    /// # Errors
    /// Where the guest refuses it, or is lost.
    pub(super) fn now(&mut self, process: ProcessId, op: Operation) -> Result<Outcome, Error> {
        self.flush()?;
        self.stage.op(process, op)
    }

    /// Does what is to be done, and notes what became of it.
    ///
    /// # Errors
    /// Where the guest is lost.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        for group in groups(std::mem::take(&mut self.queue)) {
            let process = group[0].process;
            let ops = group.iter().map(|queued| queued.op.clone()).collect();
            match self.stage.several(process, ops) {
                Ok(answers) => {
                    for (queued, answer) in group.into_iter().zip(answers) {
                        self.note(&queued, answer)?;
                    }
                }
                Err(Error::Guest { request, failure }) => {
                    for queued in group {
                        self.cells[queued.at].refuse(&queued, &request, &failure);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note(&mut self, queued: &Queued, answer: Result<Outcome, Failure>) -> Result<(), Error> {
        let request = queued.op.name().to_owned();
        let mut answer = answer.map_err(|failure| Error::Guest { request, failure });
        // What was freed may be zero as well.
        if let Expected::Words(words, Content::Freed { .. }) = queued.expected {
            if mismatch(&answer).is_some() {
                let zero = words.verify(Expect::Zero);
                answer = self.stage.op(queued.process, zero);
            }
        }
        self.cells[queued.at].note(queued, answer)
    }
}

impl Cell {
    /// Notes what became of an operation, unless an earlier one was refused.
    ///
    /// # Errors
    /// Where the guest is lost.
    fn note(&mut self, queued: &Queued, answer: Result<Outcome, Error>) -> Result<(), Error> {
        if self.refused.is_some() {
            return Ok(());
        }
        let noted = match &queued.expected {
            Expected::Done => answer.map(drop),
            Expected::Anything => Ok(()),
            Expected::OnNode { range, node } => match answer {
                Ok(Outcome::Nodes { nodes }) => {
                    self.compare_nodes(queued.process, range, *node, &nodes);
                    Ok(())
                }
                Ok(other) => Err(unexpected(queued.op.name(), &other)),
                Err(error) => Err(error),
            },
            Expected::Refused(errno) => self.refusal(queued, errno, answer.map(drop)),
            Expected::Access { range, completes } => {
                let place = (queued.process, range.clone());
                self.compare(place, *completes, answer.map(drop))
            }
            Expected::File { range, .. }
            | Expected::Pinned { range }
            | Expected::Kept { range } => match answer {
                Ok(Outcome::Verified(found)) => {
                    let message = match queued.expected {
                        Expected::File { stored, .. } => file_mismatch(&found, stored),
                        Expected::Kept { .. } => lost(&found),
                        _ => pin_mismatch(&found),
                    };
                    self.wrong.extend(message.map(|message| Difference {
                        process: queued.process,
                        range: range.clone(),
                        message,
                    }));
                    Ok(())
                }
                Ok(other) => Err(unexpected(queued.op.name(), &other)),
                Err(error) if matches!(queued.expected, Expected::Kept { .. }) => {
                    self.compare((queued.process, range.clone()), true, Err(error))
                }
                Err(error) => Err(error),
            },
            Expected::Words(words, _) => {
                self.compare_words(queued.process, *words, &answer);
                match answer {
                    Err(Error::Guest {
                        failure: Failure::Signal { .. },
                        ..
                    })
                    | Ok(Outcome::Verified(_)) => Ok(()),
                    Ok(other) => Err(unexpected("verify", &other)),
                    Err(error) => Err(error),
                }
            }
        };
        match noted {
            Err(Error::Guest { request, failure }) => {
                self.refuse(queued, &request, &failure);
                Ok(())
            }
            noted => noted,
        }
    }

    /// Notes a call that had to be refused, and was not.
    fn refusal(
        &mut self,
        queued: &Queued,
        errno: &str,
        answer: Result<(), Error>,
    ) -> Result<(), Error> {
        match answer {
            Err(Error::Guest { failure, .. }) if failure.errno() == Some(errno) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                let range = self.ranges.last().cloned().unwrap_or_default();
                self.wrong.push(Difference {
                    process: queued.process,
                    message: format!(
                        "expected {} at VA 0x{:016x} to be refused with {errno} and it was done",
                        queued.op.name(),
                        range.start
                    ),
                    range,
                });
                Ok(())
            }
        }
    }

    fn refuse(&mut self, queued: &Queued, request: &str, failure: &Failure) {
        let step = queued
            .step
            .map_or(String::new(), |step| format!("{step:?}: "));
        let why = format!("{step}{request}: {failure}");
        self.refused.get_or_insert(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cross::model::{Below, Memory};
    use crate::cross::states::STATES;

    fn queued(process: u32, expected: Expected) -> Queued {
        Queued {
            at: 0,
            process: ProcessId(process),
            step: None,
            op: Operation::Munmap {
                address: 0,
                length: 0,
            },
            expected,
        }
    }

    fn errno() -> Error {
        Error::Guest {
            request: "munmap".into(),
            failure: Failure::Errno {
                name: "EINVAL".into(),
                number: 22,
                call: "munmap".into(),
            },
        }
    }

    #[test]
    fn a_message_has_operations_of_one_process_in_their_order() {
        let of = |process| queued(process, Expected::Done);
        let queue = (0..MOST + 1).map(|_| of(1)).chain([of(2), of(1)]);
        let queue = queue.enumerate().map(|(at, it)| Queued { at, ..it });
        let groups = groups(queue.collect());
        let lengths: Vec<_> = groups.iter().map(Vec::len).collect();
        assert_eq!(lengths, [MOST, 1, 1, 1]);
        let order: Vec<_> = groups.iter().flatten().map(|it| it.at).collect();
        assert_eq!(order, (0..MOST + 3).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_concluded_behind_a_refusal() {
        let mut cell = Cell::new(&STATES[0], Memory::new(Below::Nothing, 0, 1, 0, 4096));
        let access = || {
            let range = 0..4096;
            queued(
                1,
                Expected::Access {
                    range,
                    completes: false,
                },
            )
        };
        cell.note(&access(), Ok(Outcome::Done {})).unwrap();
        assert_eq!((cell.wrong.len(), &cell.refused), (1, &None));
        cell.note(&queued(1, Expected::Anything), Err(errno()))
            .unwrap();
        assert_eq!(cell.refused, None);
        cell.note(&queued(1, Expected::Done), Err(errno())).unwrap();
        let refused = cell.refused.clone();
        assert!(refused.as_ref().is_some_and(|why| why.contains("EINVAL")));
        cell.note(&access(), Ok(Outcome::Done {})).unwrap();
        assert_eq!((cell.wrong.len(), cell.refused), (1, refused));
    }
}
