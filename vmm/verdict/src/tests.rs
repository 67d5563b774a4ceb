//! The rules on made-up tables: a good one passes, one that is broken in just one way is caught by
//! just that rule, and nothing on the "never assert" list is an error.

mod guest;
mod kernel_half;
mod legal;
mod linux_rules;
mod noise;
mod sharing_rule;
mod states;
mod writers;
