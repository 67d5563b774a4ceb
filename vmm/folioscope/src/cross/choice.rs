// SPDX-License-Identifier: GPL-2.0-only
//! The states and the sequences of operations of a crossing: all, those that are named, or some that are drawn.

use std::collections::BTreeSet;

use verdict::crossing::Acting;

use super::{Operation, State, OPERATIONS, STATES};
use crate::Error;

/// States and operations to play.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// The states.
    pub states: Vec<&'static State>,
    /// Sequences of operations.
    pub operations: Vec<Vec<&'static Operation>>,
}

/// The processes in which an operation may be played.
const ACTING: [Acting; 3] = [Acting::Alone, Acting::Parent, Acting::Child];

impl Chosen {
    /// Returns what is played in one process: a sequence of operations, and who acts. If `quick`, each sequence has one of
    /// the processes that it makes sense in, in turn.
    pub fn batches(&self, quick: bool) -> Vec<(&[&'static Operation], Acting)> {
        let numbered = self.operations.iter().enumerate();
        let all = numbered.flat_map(|(at, operations)| {
            let mut acting = ACTING.to_vec();
            if quick {
                acting.retain(|acting| operations.iter().all(|it| it.acts_in(*acting)));
                acting = acting
                    .get(at % acting.len().max(1))
                    .copied()
                    .into_iter()
                    .collect();
            }
            acting
                .into_iter()
                .map(|acting| (operations.as_slice(), acting))
        });
        all.collect()
    }
}

/// A random choice of sequences of operations.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Number of sequences.
    pub count: usize,
    /// The seed: the same one chooses the same sequences.
    pub seed: u64,
}

/// The longest sequences that are played whole.
const WHOLE_DEPTH: usize = 2;

/// Chooses by names; each may name a state or an operation, and a kind of which none is named is played whole. The first
/// operation of each sequence is one of those, the others are any.
///
/// # Errors
/// Where a name is neither, and where there are too many sequences to play all.
pub fn chosen(only: &[String], depth: usize, sample: Option<Sample>) -> Result<Chosen, Error> {
    for name in only {
        let known =
            STATES.iter().any(|it| it.name == name) || OPERATIONS.iter().any(|it| it.name == name);
        if !known {
            let all = STATES.iter().map(|it| it.name);
            let all: Vec<&str> = all.chain(OPERATIONS.iter().map(|it| it.name)).collect();
            return Err(Error::Input(format!(
                "expected a state or an operation of the crossing and found {name:?}; it has {}",
                all.join(", ")
            )));
        }
    }
    if depth > WHOLE_DEPTH && sample.is_none() {
        return Err(Error::Input(format!(
            "expected --sample with --depth {depth}, as there are too many sequences of more than {WHOLE_DEPTH} operations to play all"
        )));
    }
    let named = |name: &str| only.iter().any(|it| it == name);
    let mut states: Vec<&State> = STATES.iter().filter(|it| named(it.name)).collect();
    if states.is_empty() {
        states = STATES.iter().collect();
    }
    let mut first: Vec<&Operation> = OPERATIONS.iter().filter(|it| named(it.name)).collect();
    if first.is_empty() {
        first = OPERATIONS.iter().collect();
    }
    let operations = match sample {
        Some(sample) => sampled(&first, depth, sample),
        None => all_of(&first, depth),
    };
    Ok(Chosen { states, operations })
}

/// All sequences of so many operations. Nothing is no second one.
fn all_of(first: &[&'static Operation], depth: usize) -> Vec<Vec<&'static Operation>> {
    let mut operations: Vec<Vec<&Operation>> = first.iter().map(|it| vec![*it]).collect();
    for _ in 1..depth {
        let longer = operations.iter().flat_map(|before| {
            let next = OPERATIONS.iter().skip(1);
            next.map(|next| before.iter().copied().chain([next]).collect())
        });
        operations = longer.collect();
    }
    operations
}

/// Some of them, in the order in which they were drawn; fewer if there are no more.
fn sampled(
    first: &[&'static Operation],
    depth: usize,
    Sample { count, seed }: Sample,
) -> Vec<Vec<&'static Operation>> {
    let others = OPERATIONS.len() - 1;
    let all = (1..depth).fold(first.len(), |all, _| all.saturating_mul(others));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut drawn, mut known) = (Vec::new(), BTreeSet::new());
    while drawn.len() < count.min(all) {
        let mut sequence = vec![first[random.usize(..first.len())]];
        sequence.extend((1..depth).map(|_| &OPERATIONS[1 + random.usize(..others)]));
        if known.insert(name_of(&sequence)) {
            drawn.push(sequence);
        }
    }
    drawn
}

/// The name of a sequence of operations.
pub fn name_of(operations: &[&Operation]) -> String {
    let names: Vec<&str> = operations.iter().map(|it| it.name).collect();
    names.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_states_and_operations() {
        let all = chosen(&[], 1, None).unwrap();
        assert_eq!(all.states.len(), STATES.len());
        assert_eq!(all.operations.len(), OPERATIONS.len());
        let some = chosen(&["swapped".into(), "move".into()], 1, None).unwrap();
        assert_eq!((some.states.len(), some.operations.len()), (1, 1));
        let two = chosen(&["move".into()], 2, None).unwrap();
        // Nothing is no second one.
        assert_eq!(two.operations.len(), OPERATIONS.len() - 1);
        assert_eq!(name_of(&two.operations[0]), "move+read");
        let error = chosen(&["frozen".into()], 1, None).unwrap_err().to_string();
        assert!(error.contains("frozen") && error.contains("swapped-in-part"));
    }

    #[test]
    fn a_quick_crossing_has_each_operation_where_it_makes_sense() {
        let all = chosen(&[], 1, None).unwrap();
        assert_eq!(all.batches(false).len(), 3 * OPERATIONS.len());
        let quick = all.batches(true);
        let named = |name| quick.iter().find(|(it, _)| it[0].name == name).unwrap().1;
        assert_eq!(quick.len(), OPERATIONS.len());
        assert_eq!(named("uffd-move-all"), Acting::Alone);
        for other in ["other-writes", "other-exits", "other-pageout"] {
            assert_ne!(named(other), Acting::Alone);
        }
        for acting in ACTING {
            let its = quick.iter().filter(|(_, it)| *it == acting).count();
            assert!((20..40).contains(&its), "{its} of {acting:?}");
        }
    }

    #[test]
    fn a_seed_draws_the_same_sequences_and_each_once() {
        let names = |depth, count, seed| {
            let only = ["move".into(), "read".into()];
            let chosen = chosen(&only, depth, Some(Sample { count, seed })).unwrap();
            let names = chosen.operations.iter().map(|it| name_of(it));
            names.collect::<Vec<String>>()
        };
        let drawn = names(3, 40, 7);
        assert_eq!((drawn.len(), &drawn), (40, &names(3, 40, 7)));
        assert_ne!(drawn, names(3, 40, 8));
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 40);
        let of_three = |name: &&String| name.split('+').count() == 3 && !name.contains("+nothing");
        assert_eq!(drawn.iter().filter(of_three).count(), 40);
        let begins = |name: &&String| name.starts_with("move+") || name.starts_with("read+");
        assert_eq!(drawn.iter().filter(begins).count(), 40);
        // There are no more of them.
        assert_eq!(names(1, 40, 7).len(), 2);
        let error = chosen(&[], 3, None).unwrap_err().to_string();
        assert!(error.contains("--sample"), "{error}");
    }
}
