//! How a trace ended.

/// How a trace ended.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Bytes of it.
    pub bytes: u64,
    /// What is missing of it, a sentence each.
    pub said: Vec<String>,
}
