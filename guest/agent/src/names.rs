//! The names of errors, signals and their codes, which are the same on arm64 and x86-64.

macro_rules! name_of {
    ($value:expr, $($name:ident)*) => {
        match $value {
            $(libc::$name => stringify!($name).to_owned(),)*
            other => other.to_string(),
        }
    };
}

/// Returns an errno's name, or its number if it has none here.
pub fn errno(number: i32) -> String {
    name_of!(number,
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
        ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
        ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
        ELOOP ENOMSG EIDRM ENOSTR ENODATA ETIME ENOLINK EPROTO EBADMSG EOVERFLOW EILSEQ ERESTART
        EUSERS ENOTSOCK EMSGSIZE EPROTONOSUPPORT EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL
        ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT
        ECONNREFUSED EALREADY EINPROGRESS ESTALE EDQUOT ENOMEDIUM ECANCELED EOWNERDEAD
        ENOTRECOVERABLE EHWPOISON)
}

/// Returns a signal's name.
pub fn signal(number: i32) -> String {
    name_of!(number,
        SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
        SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG
        SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS)
}

/// Returns the name of a `si_code` of SIGSEGV or SIGBUS (include/uapi/asm-generic/siginfo.h).
pub fn signal_code(signal: i32, code: i32) -> String {
    let name = match (signal, code) {
        (libc::SIGSEGV, 1) => "SEGV_MAPERR",
        (libc::SIGSEGV, 2) => "SEGV_ACCERR",
        (libc::SIGSEGV, 3) => "SEGV_BNDERR",
        (libc::SIGSEGV, 4) => "SEGV_PKUERR",
        (libc::SIGSEGV, 8) => "SEGV_MTEAERR",
        (libc::SIGSEGV, 9) => "SEGV_MTESERR",
        (libc::SIGBUS, 1) => "BUS_ADRALN",
        (libc::SIGBUS, 2) => "BUS_ADRERR",
        (libc::SIGBUS, 3) => "BUS_OBJERR",
        (libc::SIGBUS, 4) => "BUS_MCEERR_AR",
        (libc::SIGBUS, 5) => "BUS_MCEERR_AO",
        _ => return code.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(errno(libc::ENOMEM), "ENOMEM");
        assert_eq!(errno(9999), "9999");
        assert_eq!(signal(libc::SIGKILL), "SIGKILL");
        assert_eq!(signal(40), "40");
        assert_eq!(signal_code(libc::SIGBUS, 2), "BUS_ADRERR");
        assert_eq!(signal_code(libc::SIGSEGV, 128), "128");
    }
}
