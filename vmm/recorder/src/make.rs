// SPDX-License-Identifier: GPL-2.0-only
//! The *make* of break-before-make: checks what a TLB may still hold when a valid word is written.

use stage1::{transition, BbmLevel, Cause, Descriptor, Kind, Level, Maintenance};

use crate::finding::Scene;
use crate::shadow::{Root, State};
use crate::stale::{Holder, Key, Miss, Stale};
use crate::{Finding, Judge, Rule, Stored};

impl Judge {
    /// A valid word is written for `va`.
    pub(crate) fn made(
        &mut self,
        root: Root,
        va: u64,
        entry: u64,
        new: &Descriptor<'_>,
        by: Stored,
    ) {
        if self.stales.is_empty() {
            return;
        }
        let regime = new.regime();
        let size = regime.entry_size(new.level);
        let mut keys: Vec<Key> = Vec::new();
        for level in Level::ALL {
            if level >= regime.root_level && level <= new.level {
                keys.push((root, va & !(regime.entry_size(level) - 1), level));
            }
        }
        if new.kind() != Kind::Table {
            keys.extend(
                self.stales
                    .below(root, va, va.wrapping_add(size - 1), new.level),
            );
        }
        for key in keys {
            let mut wrong = Vec::new();
            let mut over = Vec::new();
            let mut overtaken = Vec::new();
            for stale in self.stales.at(&key) {
                match self.conflict(root, key.2, stale, new) {
                    Some(Err(())) => {
                        self.not_judged.read_only += 1;
                        over.push(stale.stored.event);
                    }
                    Some(Ok(Some(found))) if self.overtakes(stale, found.1, by) => {
                        overtaken.push(stale.stored.event);
                    }
                    Some(Ok(Some(found))) => {
                        over.push(stale.stored.event);
                        wrong.push((stale.clone(), found));
                    }
                    Some(Ok(None)) => over.push(stale.stored.event),
                    None => (),
                }
            }
            for (stale, (rule, cause, sentence)) in wrong {
                self.found(Finding {
                    rule,
                    made: by,
                    broken: Some(stale.stored),
                    tlbi: stale.miss.map(|(_, tlbi, _)| tlbi),
                    root: root.base(),
                    va: key.1,
                    level: key.2,
                    entry,
                    old: stale.old,
                    new: new.word,
                    cause,
                    block: None,
                    scene: stale.scene(),
                    sentence,
                });
            }
            self.overtaken += overtaken.len() as u64;
            for event in overtaken {
                self.stales.overtake(key, event);
            }
            if !over.is_empty() {
                self.stales
                    .remove(key, |stale| over.contains(&stale.stored.event));
            }
        }
    }

    /// Returns the conflict of `new` with `stale` in the same place: `None` if there is none, `Some(Ok(None))` if no
    /// TLB can hold `stale` any more, `Some(Err)` if the words do not suffice to decide.
    #[allow(clippy::type_complexity)]
    fn conflict(
        &self,
        root: Root,
        level: Level,
        stale: &Stale,
        new: &Descriptor<'_>,
    ) -> Option<Result<Option<(Rule, Cause, String)>, ()>> {
        let old = Descriptor::new(stale.old, level, new.regime());
        let change = transition(&old, new, self.bbm);
        if change.need < Maintenance::BreakBeforeMake {
            return None;
        }
        self.tracker.spaces.get(&root)?;
        let Some(worst) = self.held(root, stale) else {
            return Some(Ok(None));
        };
        if change.cause == Cause::ReadOnlyOutputAddress {
            return Some(Err(()));
        }
        let (rule, missing) = missing(level, stale, worst);
        let sentence = format!("{}: {missing}", change.cause.phrase());
        Some(Ok(Some((rule, change.cause, sentence))))
    }

    /// Judges the words of a table that was linked.
    pub(crate) fn made_table(&mut self, base: u64, by: Stored) {
        if self.stales.is_empty() {
            return;
        }
        let shadow = &self.tracker.shadow;
        let Some(table) = shadow.table(base) else {
            return;
        };
        if table.state != State::Known {
            return;
        }
        let (level, words, roots) = (table.level, table.words.clone(), table.roots.clone());
        for root in roots {
            let Some(regime) = self.tracker.shadow.format(root).copied() else {
                continue;
            };
            for (index, word) in words.iter().enumerate().filter(|(_, word)| **word & 1 != 0) {
                let new = Descriptor::new(*word, level, &regime);
                if matches!(new.kind(), Kind::Page | Kind::Block | Kind::Table) {
                    let va = self.tracker.shadow.va(root, base, index);
                    self.made(root, va, base + index as u64 * 8, &new, by);
                }
            }
        }
    }

    /// Checks rule S4: a member of a contiguous group that is written while others are valid must be consistent with
    /// them.
    pub(crate) fn group(&mut self, base: u64, index: usize, word: u64, by: Stored) {
        let shadow = &self.tracker.shadow;
        let Some(table) = shadow.table(base) else {
            return;
        };
        let Some(root) = table.roots.first().copied() else {
            return;
        };
        let Some(regime) = shadow.format(root) else {
            return;
        };
        let Some(members) = regime.contiguous_entries(table.level) else {
            return;
        };
        let new = Descriptor::new(word, table.level, regime);
        if !new.kind().is_leaf() || self.bbm >= BbmLevel::One {
            return;
        }
        // A table that no PE has walked since may be assembled in any order.
        let Some(space) = self.tracker.spaces.get(&root) else {
            return;
        };
        let first = index / members * members;
        let size = regime.entry_size(table.level);
        let end = (first + members).min(table.words.len());
        for other in (first..end).filter(|other| *other != index) {
            let member = Descriptor::new(table.words[other], table.level, regime);
            if !member.kind().is_leaf() || !(member.contiguous() || new.contiguous()) {
                continue;
            }
            let live = |until: Option<u64>| until.is_none_or(|until| until > table.since[other]);
            if !space.contexts.iter().any(|context| live(context.until)) {
                continue;
            }
            let step = size.wrapping_mul(index.wrapping_sub(other) as u64);
            let expected = member.output_address().0.wrapping_add(step);
            let sentence = if member.contiguous() != new.contiguous() {
                format!(
                    "member {} of the group of {members} is valid with the Contiguous bit {}, and this one is written with it {}",
                    other - first,
                    u8::from(member.contiguous()),
                    u8::from(new.contiguous())
                )
            } else if new.output_address().0 != expected {
                format!(
                    "member {} of the group of {members} is valid and this one's output address does not go with it",
                    other - first
                )
            } else {
                continue;
            };
            let finding = Finding {
                rule: Rule::S4,
                made: by,
                broken: None,
                tlbi: None,
                root: root.base(),
                va: shadow.va(root, base, index),
                level: table.level,
                entry: base + index as u64 * 8,
                old: table.words[index],
                new: word,
                cause: Cause::Contiguous,
                block: None,
                scene: Scene::default(),
                sentence,
            };
            self.found(finding);
            return;
        }
    }
}

/// Returns the operation that is missing until no TLB can hold a word that `worst` can hold, and the rule that requires
/// it.
pub(crate) fn missing(level: Level, stale: &Stale, worst: &Holder) -> (Rule, String) {
    let (rule, missing) = match (worst.ordered(), stale.miss) {
        (Some(true), _) => (Rule::S3, "no DSB came after the TLBI".to_owned()),
        (Some(false), _) => (
            Rule::S3,
            "no DSB came between the store that ended the old word and the TLBI".to_owned(),
        ),
        (None, Some((Miss::Level, _, cover))) => (
            Rule::S6,
            format!("{cover} came with a hint that leaves level {level} out"),
        ),
        (None, Some((Miss::LastLevel, _, cover))) => (
            Rule::S6,
            format!("{cover} leaves out the table descriptor of level {level}"),
        ),
        (None, Some((Miss::Range, _, cover))) => {
            (Rule::S6, format!("{cover} does not reach this VA"))
        }
        (None, Some((Miss::Scope, _, cover))) => {
            (Rule::S2, format!("{cover} does not reach that CPU"))
        }
        (None, Some((Miss::Asid, _, _)) | None) => (Rule::S2, "no TLBI came between".to_owned()),
    };
    let holder = match worst.asid {
        Some(asid) => format!("CPU {} (ASID {asid})", worst.cpu),
        None => format!("CPU {}", worst.cpu),
    };
    (
        rule,
        format!("{missing}, and {holder} may hold the old one"),
    )
}
