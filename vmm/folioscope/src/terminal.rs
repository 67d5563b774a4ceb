//! The terminal on standard input.

/// The terminal in raw mode, until this is dropped.
#[derive(Debug)]
pub struct Raw(libc::termios);

impl Raw {
    /// Sets it; `None` where standard input is no terminal.
    #[must_use]
    pub fn set() -> Option<Self> {
        // SAFETY: all-zero is a valid termios, and the calls get valid ones.
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(libc::STDIN_FILENO, &mut before) != 0 {
                return None;
            }
            let mut raw = before;
            libc::cfmakeraw(&mut raw);
            (libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw) == 0).then_some(Self(before))
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the structure is what was read.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &self.0) };
    }
}
