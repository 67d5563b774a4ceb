//! Made-up processes and kernels, for tests: here and in the crates that print verdicts.

#![allow(missing_docs)]

pub mod folios;
pub mod guest;
pub mod random;
