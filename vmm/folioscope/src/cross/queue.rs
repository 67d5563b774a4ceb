// SPDX-License-Identifier: GPL-2.0-only
//! Operations of a batch, many in one message: an emulated guest needs longer for a message than for
//! most operations. The model goes on as if each was done. Where one was not, its area is refused, and nothing of it is judged.

use protocol::{Failure, Operation, Outcome, ProcessId};

use super::play::Batch;
use super::queued::{Expected, Queued};
use crate::Error;

/// Maximum number of operations in one message.
const MOST: usize = 64;

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
        let mut queue = std::mem::take(&mut self.queue).into_iter().peekable();
        while let Some(first) = queue.next() {
            let process = first.process;
            let mut group = vec![first];
            while group.len() < MOST {
                match queue.next_if(|next| next.process == process) {
                    Some(next) => group.push(next),
                    None => break,
                }
            }
            let ops = group.iter().map(|queued| queued.op.clone()).collect();
            let answers = self.stage.several(process, ops)?;
            for (queued, answer) in group.into_iter().zip(answers) {
                self.note(queued, answer)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, queued: Queued, answer: Result<Outcome, Failure>) -> Result<(), Error> {
        let Queued {
            at,
            process,
            step,
            op,
            expected,
        } = queued;
        let request = op.name().to_owned();
        let answer = answer.map_err(|failure| Error::Guest { request, failure });
        let noted = match expected {
            Expected::Done => answer.map(drop),
            Expected::Anything => Ok(()),
            Expected::Access { range, completes } => {
                self.compare(at, (process, range), completes, answer.map(drop))
            }
            Expected::Content { words, content } => {
                self.compare_content(at, process, words, content, answer)
            }
        };
        match noted {
            Err(Error::Guest { request, failure }) => {
                let what = step.map_or(String::new(), |step| format!("{step:?}: "));
                let why = format!("{what}{request}: {failure}");
                self.cells[at].refused.get_or_insert(why);
                Ok(())
            }
            noted => noted,
        }
    }
}
