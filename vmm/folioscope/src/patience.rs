// SPDX-License-Identifier: GPL-2.0-only
//! The time that a run spends on workloads that hang.

use std::time::Duration;

/// Time in all, in deadlines: 80 s of the default, so that a kernel that hangs in every workload is judged in two
/// minutes.
const IN_ALL: u32 = 4;

/// The shortest deadline that is set here. A busy host needs some seconds for an operation that does not hang.
const SHORTEST: Duration = Duration::from_secs(5);

/// The rest of that time. The first workload that hangs has the whole deadline, each later one half of the last.
#[derive(Debug)]
pub struct Patience {
    whole: Duration,
    deadline: Duration,
    left: Duration,
    hung: u32,
}

impl Patience {
    /// Creates the whole time, for a guest whose commands have this deadline.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self {
            whole: deadline,
            deadline,
            left: deadline * IN_ALL,
            hung: 0,
        }
    }

    /// Counts a workload that took this long and hung. Returns the deadline of the next; `None` if no time is left.
    pub fn hung(&mut self, took: Duration) -> Option<Duration> {
        self.hung += 1;
        self.left = self.left.saturating_sub(took);
        self.deadline = (self.deadline / 2).max(SHORTEST.min(self.whole));
        (!self.left.is_zero()).then_some(self.deadline)
    }

    /// Explains why these workloads were not played.
    #[must_use]
    pub fn spent(&self, not_played: &[&str]) -> String {
        format!(
            "workloads {} were not played: {} before them hung, for {} s and more in all; play them by themselves with --only, or \
             give them more time with --deadline",
            not_played.join(", "),
            self.hung,
            (self.whole * IN_ALL).as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many workloads are played where each takes its deadline, and for how long, in seconds.
    fn played(deadline: u64, more: f64) -> (u32, f64) {
        let mut patience = Patience::new(Duration::from_secs(deadline));
        let (mut now, mut seconds, mut count) = (Duration::from_secs(deadline), 0.0, 0);
        loop {
            let took = now + Duration::from_secs_f64(more);
            (seconds, count) = (seconds + took.as_secs_f64(), count + 1);
            match patience.hung(took) {
                Some(next) => now = next,
                None => return (count, seconds),
            }
        }
    }

    #[test]
    fn a_run_in_which_all_hang_ends_within_two_minutes() {
        // 20 + 10 + 5 * 10.
        assert_eq!(played(20, 0.0), (12, 80.0));
        for more in [0.5, 2.0, 20.0] {
            let (count, seconds) = played(20, more);
            assert!(count >= 3 && seconds < 105.0, "{more}: {count}, {seconds}");
        }
    }

    #[test]
    fn a_short_deadline_is_not_made_shorter() {
        assert_eq!(played(2, 0.0), (4, 8.0));
    }
}
