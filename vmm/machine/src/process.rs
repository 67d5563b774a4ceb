// SPDX-License-Identifier: GPL-2.0-only
//! A child process that cannot outlive us, however we end.
//!
//! Linux kills the child when its parent dies (PR_SET_PDEATHSIG), even if the parent was killed and could not act.
//! "Parent" is the *thread* that forked. Each child is therefore forked by a thread of its own, its keeper, which ends
//! only after it has reaped the child.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{mpsc, Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::{fcntl_setfd, Errno, FdFlags};
use rustix::process::{
    getpid, getppid, kill_process_group, set_parent_process_death_signal, waitid, Pid, Signal,
    WaitId, WaitIdOptions,
};

/// A child process, killed and reaped when dropped.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    end: Arc<End>,
    keeper: Option<JoinHandle<()>>,
}

/// Exit status of the child, once it has ended.
#[derive(Debug, Default)]
struct End {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl End {
    fn lock(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        // The value is a plain Option: a panic elsewhere cannot have left it half changed.
        self.status
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Process {
    /// Starts `command` in a process group of its own, so that Ctrl-C in a terminal reaches us and not it. It inherits
    /// `inherited` under the same numbers and its standard streams, and no other descriptor. Our copies of `inherited`
    /// are closed. Files that it creates are accessible to its user only.
    pub fn spawn(command: Command, inherited: Vec<OwnedFd>) -> io::Result<Self> {
        let end = Arc::new(End::default());
        let (started, start) = mpsc::channel();
        let keeper = std::thread::Builder::new().name("keeper".into()).spawn({
            let end = Arc::clone(&end);
            move || {
                let child = fork(command, inherited);
                match child {
                    Ok(child) => {
                        // The receiver waits right below.
                        let _ = started.send(Ok(Pid::from_child(&child)));
                        keep(child, &end);
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            }
        })?;
        let pid = start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the keeper thread died")))?;
        Ok(Self {
            pid,
            end,
            keeper: Some(keeper),
        })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Returns how it ended, if it has.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.end.lock()
    }

    /// Returns how it ended, if it does within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        let locked = self.end.lock();
        let waited = self
            .end
            .changed
            .wait_timeout_while(locked, timeout, |status| status.is_none());
        *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// Kills the child if it lives, and waits until it has ended.
    pub fn kill(&mut self) {
        let status = self.end.lock();
        if status.is_none() {
            // The whole group: the program may be a script around the real one. The keeper reaps the child only under
            // this lock and sets the status with it, so the number is still the child's.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        drop(status);
        if let Some(keeper) = self.keeper.take() {
            // The keeper never panics; if it did, nothing could be done about it here.
            let _ = keeper.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn fork(mut command: Command, inherited: Vec<OwnedFd>) -> io::Result<Child> {
    let parent = getpid();
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and so may do only what is safe in a signal handler: it makes
    // plain system calls and allocates nothing (an `io::Error` from an errno holds no heap memory).
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent had died before, no signal would ever come.
            if getppid() != Some(parent) {
                return Err(Errno::SRCH.into());
            }
            keep_from_child();
            for fd in &inherited {
                fcntl_setfd(fd, FdFlags::empty())?;
            }
            rustix::process::umask(Mode::RWXG | Mode::RWXO);
            batch();
            Ok(())
        });
    }
    // The command is dropped, and our copies of the descriptors with it.
    command.spawn()
}

/// Lets `command` inherit its standard streams only. A shell or a build may have left us descriptors of files and pipes
/// that the child could read, write, or hold open.
///
/// [`Process::spawn`] does so itself.
pub fn without_descriptors(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes plain system calls and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            keep_from_child();
            Ok(())
        })
    }
}

/// Marks all descriptors but the standard streams to be closed by exec. The library's own pipe, which reports a failed
/// exec, is among them, so none may be closed before.
fn keep_from_child() {
    const FIRST: libc::c_uint = 3;
    /// Number of descriptors to mark one by one if the kernel cannot mark them itself (before 5.11).
    const MOST: libc::rlim_t = 1 << 16;
    // SAFETY: plain system calls with numbers alone, except for the limit, which is a structure of ours.
    unsafe {
        let marked = libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if marked == 0 {
            return;
        }
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for fd in FIRST as libc::c_int..limit.rlim_cur.min(MOST) as libc::c_int {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Sets `SCHED_BATCH` for the threads of this process and its later program, so that they preempt no other task when
/// they wake.
///
/// A guest's CPU that wakes another holds a lock that the other needs first. If the host has no CPU left for the
/// second, it would otherwise preempt the first and wait for the lock in a loop until its time slice ends. Two guests
/// on two CPUs spent a third of their time so.
fn batch() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: both are plain system calls of this process, and the second reads a structure that is there.
    unsafe {
        // A policy that the user has chosen, such as real time, is kept. If it may not be changed, the process runs
        // without.
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters);
        }
    }
}

/// Waits until the child has ended, reaps it, and publishes its status.
fn keep(mut child: Child, end: &End) {
    // Not reaped yet (WNOWAIT), so that its number cannot become another process's before the lock is held.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(Errno::INTR) = waitid(WaitId::Pid(Pid::from_child(&child)), ended) {}
    let mut status = end.lock();
    // If other code in this process has reaped it (SIGCHLD ignored, for example), its status is lost, but it has ended.
    *status = Some(child.wait().unwrap_or_default());
    end.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::fd::{AsRawFd as _, FromRawFd as _};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::time::Instant;

    use super::*;

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("600");
        command
    }

    fn lives(pid: u32) -> bool {
        // A zombie is gone as far as we are concerned.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
    }

    #[test]
    fn drop_kills_and_reaps() {
        let process = Process::spawn(sleeper(), Vec::new()).unwrap();
        let pid = process.pid();
        assert!(lives(pid));
        assert_eq!(process.status(), None);
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn the_exit_status_is_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let mut process = Process::spawn(command, Vec::new()).unwrap();
        let status = process.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(3));
        process.kill();
        assert_eq!(process.status().unwrap().code(), Some(3));
        let mut process = Process::spawn(sleeper(), Vec::new()).unwrap();
        process.kill();
        assert_eq!(process.status().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn it_takes_no_cpu_from_others_as_it_wakes() {
        let process = Process::spawn(sleeper(), Vec::new()).unwrap();
        // SAFETY: a plain system call.
        let policy = unsafe { libc::sched_getscheduler(process.pid() as libc::pid_t) };
        assert_eq!(policy, libc::SCHED_BATCH);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = Process::spawn(Command::new("/nonexistent"), Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn only_what_is_given_is_inherited() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (_other, secret) = std::os::unix::net::UnixStream::pair().unwrap();
        let theirs: OwnedFd = theirs.into();
        // Not sh, which may take no number above 9 behind >&.
        let mut command = Command::new("bash");
        command.args([
            "-c",
            &format!(
                "echo /proc/self/fd/* >&{}; test ! -e /proc/self/fd/{}",
                theirs.as_raw_fd(),
                secret.as_raw_fd()
            ),
        ]);
        let process = Process::spawn(command, vec![theirs]).unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert!(
            process.wait(Duration::from_secs(10)).unwrap().success(),
            "{text}"
        );
    }

    #[test]
    fn what_we_were_started_with_is_not_passed_on() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (left, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        // As a shell leaves it: open across exec, and with a high number.
        // SAFETY: plain system calls on descriptors of ours.
        let high = unsafe {
            let high = libc::fcntl(left.as_raw_fd(), libc::F_DUPFD, 251);
            assert!(high >= 251);
            OwnedFd::from_raw_fd(high)
        };
        let theirs: OwnedFd = theirs.into();
        let line = format!("ls /proc/self/fd >&{}; umask >&{0}", theirs.as_raw_fd());
        let mut command = Command::new("bash");
        command.args(["-c", &line]);
        let process = Process::spawn(command, vec![theirs]).unwrap();
        let (mut ours, mut text) = (ours, String::new());
        ours.read_to_string(&mut text).unwrap();
        drop(process);
        let (fds, umask) = text.trim().rsplit_once('\n').unwrap();
        let fds: Vec<i32> = fds.lines().map(|fd| fd.parse().unwrap()).collect();
        // Its streams, ours twice (bash moves it to >&), and the directory that ls reads.
        assert!(
            fds.len() <= 6 && !fds.contains(&high.as_raw_fd()),
            "{fds:?}"
        );
        assert_eq!(umask, "0077");
        let mut command = Command::new("ls");
        command.arg("/proc/self/fd");
        let listed = without_descriptors(&mut command).output().unwrap();
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), "0\n1\n2\n3\n");
    }

    /// Not a test by itself: the parent that the next test kills.
    #[test]
    #[ignore = "run by a_killed_parent_takes_its_child_along"]
    fn helper_parent() {
        let process = Process::spawn(sleeper(), Vec::new()).unwrap();
        println!("child {}", process.pid());
        std::thread::sleep(Duration::from_secs(600));
    }

    #[test]
    fn a_killed_parent_takes_its_child_along() {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "process::tests::helper_parent",
                "--ignored",
                "--nocapture",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let child: u32 = lines
            .map_while(Result::ok)
            .find_map(|line| line.split("child ").nth(1)?.trim().parse().ok())
            .expect("the helper names its child");
        assert!(lives(child));
        parent.kill().unwrap();
        parent.wait().unwrap();
        let start = Instant::now();
        while lives(child) {
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "{child} outlived its parent"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
