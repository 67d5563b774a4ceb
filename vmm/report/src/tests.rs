//! Maps, rows and reports of made-up processes.

mod growth;
mod noise;
mod reports;
mod writers;
