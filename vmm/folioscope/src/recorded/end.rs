//! How a trace ended.

/// How a trace ended.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Bytes of it.
    pub bytes: u64,
    /// What is missing of it, a sentence each.
    pub said: Vec<String>,
}

impl End {
    /// Whether any of a trace came: where QEMU or its plugin never began, there is nothing to tell.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.bytes > 0
    }
}
