//! Handles results of work: answers, ends, and deadlines.

use std::time::Instant;

use protocol::{Answer, Ended, Event, Failure, Message, Outcome, ProcessId};
use rustix::process::{wait, WaitOptions};

use super::{For, Server, UNKNOWN};
use crate::checkpoint::{self, Announced};
use crate::jobs::Job;
use crate::link::WorkloadMessage;
use crate::processes::{Kind, Pending};
use crate::sys;

impl Server {
    /// Handles the messages of a process.
    pub(super) fn receive(&mut self, id: ProcessId) {
        let Ok(process) = self.processes.get(id) else {
            return;
        };
        for said in process.link.receive() {
            match said {
                WorkloadMessage::Ready {
                    pid,
                    pc_start,
                    pc_end,
                } => self.ready(id, pid, (pc_start, pc_end)),
                WorkloadMessage::Forked { pid } => self.forked(id, pid),
                WorkloadMessage::Answer(answer) => self.answered(id, answer),
            }
        }
    }

    fn ready(&mut self, id: ProcessId, pid: i32, range: (u64, u64)) {
        let Ok(process) = self.processes.get(id) else {
            return;
        };
        process.pid = Some(pid);
        process.range = Some(range);
        if process.work.is_some() {
            let spawned = process.spawned();
            self.complete(id, Ok(Outcome::Spawned(spawned)).into());
        } else if let Some(parent) = self.processes.forking(id) {
            self.finish_fork(parent);
        }
    }

    fn forked(&mut self, id: ProcessId, pid: i32) {
        let Ok(process) = self.processes.get(id) else {
            return;
        };
        let Some(Kind::Fork { child, forked }) = process.work.as_mut().map(|w| &mut w.kind) else {
            return;
        };
        *forked = true;
        let child = *child;
        if let Ok(process) = self.processes.get(child) {
            process.pid = Some(pid);
        }
        match self.unknown.remove(&pid) {
            Some(how) => self.ended(child, how),
            None => self.finish_fork(id),
        }
    }

    /// Answers a fork once both the parent and the child have reported.
    fn finish_fork(&mut self, parent: ProcessId) {
        let Ok(process) = self.processes.get(parent) else {
            return;
        };
        let Some(Kind::Fork {
            child,
            forked: true,
        }) = process.work.as_ref().map(|w| &w.kind)
        else {
            return;
        };
        let child = *child;
        match self.processes.get(child) {
            Ok(process) if process.range.is_some() => {
                let spawned = process.spawned();
                self.complete(parent, Ok(Outcome::Spawned(spawned)).into());
            }
            Ok(_) => {}
            Err(failure) => self.complete(parent, Answer::Error(failure)),
        }
    }

    fn answered(&mut self, id: ProcessId, answer: Answer) {
        let Ok(process) = self.processes.get(id) else {
            return;
        };
        let Some(work) = &mut process.work else {
            if process.waiting.take().is_some() {
                sys::log(format_args!("{id} left its checkpoint by itself"));
            }
            return;
        };
        let late = work.late;
        let answer = match (&work.kind, answer) {
            (Kind::Pin(cpu), answer @ Answer::Ok(_)) => {
                process.cpu = *cpu;
                answer
            }
            (Kind::Fork { child, .. }, answer) => {
                let child = *child;
                self.processes.remove(child, None);
                answer
            }
            (Kind::Checkpoint(_), Answer::Error(failure)) => Answer::Error(Failure::Checkpoint {
                why: failure.to_string(),
            }),
            (Kind::Checkpoint(_), Answer::Ok(_)) if !late => Answer::Error(Failure::Checkpoint {
                why: format!("{id} left it before the host could look"),
            }),
            (_, answer) => answer,
        };
        self.drop_gathering(id);
        self.complete(id, answer);
    }

    /// Gives the result of a process's work to the host.
    fn complete(&mut self, id: ProcessId, result: Answer) {
        let Ok(process) = self.processes.get(id) else {
            return;
        };
        let Some(work) = process.work.take() else {
            return;
        };
        if work.late {
            self.send(&Message::Event(Event::LateReply {
                process: id,
                id: work.pending.id,
                result,
            }));
        } else {
            self.answer(Some(work.pending.id), result);
        }
    }

    /// Checks which processes have reached their checkpoints.
    pub(super) fn glance(&mut self) {
        let mut there = Vec::new();
        for process in self.processes.iter_mut() {
            let spawned = process.spawned();
            let Some(work) = process.work.as_mut().filter(|work| !work.late) else {
                continue;
            };
            let Kind::Checkpoint(waiting) = &mut work.kind else {
                continue;
            };
            if !waiting.announced && self.slots.slot(process.slot).has_announced(waiting.number) {
                waiting.announced = true;
                there.push(Announced {
                    process: spawned,
                    nonce: waiting.nonce,
                    cpu: waiting.cpu,
                    smaps: waiting.smaps,
                });
            }
        }
        for announced in there {
            let id = announced.process.process;
            match Job::start(move || checkpoint::gather(&announced)) {
                Ok(job) => self.jobs.push((For::Checkpoint(id), job)),
                Err(failure) => self.gathered(id, Answer::Error(failure)),
            }
        }
    }

    /// Takes the answer of a helper.
    pub(super) fn helped(&mut self, what_for: For, answer: Answer) {
        match what_for {
            For::Request(pending, _) => self.answer(Some(pending.id), answer),
            For::Checkpoint(id) => self.gathered(id, answer),
        }
    }

    /// Handles the data that were read of a waiting process, or the error of reading them.
    fn gathered(&mut self, id: ProcessId, answer: Answer) {
        let Ok(process) = self.processes.get(id) else {
            return;
        };
        let Some(work) = &mut process.work else {
            return;
        };
        let Kind::Checkpoint(waiting) = work.kind else {
            return;
        };
        if matches!(answer, Answer::Ok(_)) {
            process.waiting = Some(waiting);
            self.complete(id, answer);
            return;
        }
        // It has to leave the loop before it can be used again, and the answer to that is dropped.
        let pending = work.pending;
        work.late = true;
        self.slots.slot(process.slot).release(waiting.number);
        self.answer(Some(pending.id), answer);
    }

    fn drop_gathering(&mut self, id: ProcessId) {
        self.jobs.retain(|(what_for, job)| {
            let drop = matches!(what_for, For::Checkpoint(of) if *of == id);
            if drop {
                job.kill();
            }
            !drop
        });
    }

    /// Reaps ended processes, including inherited orphans.
    pub(super) fn reap(&mut self) {
        loop {
            let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) else {
                return;
            };
            let (pid, how) = (pid.as_raw_pid(), sys::ended(status.as_raw()));
            if let Some(id) = self.processes.with_pid(pid) {
                self.ended(id, how);
            } else if self.unknown.len() < UNKNOWN && self.is_forking() {
                self.unknown.insert(pid, how);
            }
        }
    }

    fn is_forking(&self) -> bool {
        self.processes
            .iter()
            .any(|p| p.parent.is_some() && p.pid.is_none())
    }

    fn ended(&mut self, id: ProcessId, how: Ended) {
        // Its last messages may still be in the pipe.
        self.receive(id);
        self.drop_gathering(id);
        let Some(process) = self.processes.remove(id, Some(how.clone())) else {
            return;
        };
        let mut told = false;
        if let Some(work) = process.work.filter(|work| !work.late) {
            told = true;
            let result = match work.kind {
                Kind::Exit => Ok(Outcome::Ended { how: how.clone() }),
                Kind::Start
                | Kind::Operation(_)
                | Kind::Pin(_)
                | Kind::Fork { .. }
                | Kind::Checkpoint(_)
                | Kind::Release => Err(Failure::ProcessLost { how: how.clone() }),
            };
            self.reply(Some(work.pending.id), result);
        }
        if let Some(pending) = process.killed.flatten() {
            told = true;
            self.reply(Some(pending.id), Ok(Outcome::Ended { how: how.clone() }));
        }
        if let Some(parent) = self.processes.forking(id) {
            told = true;
            self.complete(
                parent,
                Answer::Error(Failure::ProcessLost { how: how.clone() }),
            );
        }
        if !told {
            self.send(&Message::Event(Event::ProcessEnded {
                process: id,
                pid: process.pid.unwrap_or(0),
                how,
            }));
        }
    }

    /// Gives up work whose deadline has passed.
    pub(super) fn check_deadlines(&mut self) {
        let now = Instant::now();
        let mut failures: Vec<(Pending, Failure)> = Vec::new();
        let mut gathering = Vec::new();
        for process in self.processes.iter_mut() {
            let doing = process.current_work();
            if let Some(work) = process
                .work
                .as_mut()
                .filter(|w| !w.late && w.pending.until <= now)
            {
                work.late = true;
                failures.push((work.pending, work.pending.failure(doing)));
                match &work.kind {
                    // When it comes there after all, it must not stay.
                    Kind::Checkpoint(waiting) => {
                        self.slots.slot(process.slot).release(waiting.number);
                        gathering.push(process.id);
                    }
                    Kind::Start => {
                        if let Some(pid) = process.pid {
                            sys::kill(pid);
                        }
                    }
                    Kind::Operation(_)
                    | Kind::Pin(_)
                    | Kind::Fork { .. }
                    | Kind::Exit
                    | Kind::Release => {}
                }
            }
            if let Some(Some(pending)) =
                process.killed.filter(|k| k.is_some_and(|p| p.until <= now))
            {
                process.killed = Some(None);
                failures.push((
                    pending,
                    pending.failure(format!("the end of {}", process.id)),
                ));
            }
        }
        for id in gathering {
            self.drop_gathering(id);
        }
        self.jobs.retain(|(what_for, job)| match what_for {
            For::Request(pending, what) if pending.until <= now => {
                job.kill();
                failures.push((*pending, pending.failure(what.as_str())));
                false
            }
            For::Request(..) | For::Checkpoint(_) => true,
        });
        for (pending, failure) in failures {
            self.reply(Some(pending.id), Err(failure));
        }
    }
}
