//! Waiting for sockets and for times.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use super::Socket;

/// Sleeps until sockets or devices can be read.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    fds: Vec<libc::pollfd>,
}

impl Poller {
    /// Watches these sockets or devices for input, in this order, and no others.
    pub(crate) fn watch<'a, F: AsRawFd + 'a>(&mut self, files: impl Iterator<Item = &'a F>) {
        self.fds.clear();
        self.fds.extend(files.map(|file| libc::pollfd {
            fd: file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
    }

    /// Sleeps until a watched file has something to say or `timeout` is over. Returns whether one
    /// has. A signal ends the sleep as well.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        ppoll(&mut self.fds, timeout)
    }

    /// Whether the last [`wait`](Poller::wait) found input, or an error, on the watched file of
    /// this number.
    pub(crate) fn is_ready(&self, index: usize) -> bool {
        self.fds.get(index).is_some_and(|fd| fd.revents != 0)
    }
}

/// Sleeps for `span`; a signal ends it earlier. Unlike the standard library's sleep it does not go
/// on after a signal.
pub(crate) fn sleep(span: Duration) -> io::Result<()> {
    ppoll(&mut [], span).map(|_| ())
}

/// Waits until the send buffer of `socket` has room, for `longest` at most.
pub(super) fn for_room(socket: &Socket, longest: Duration) {
    let fd = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // Whatever the outcome, the next attempt tells.
    let _ = ppoll(&mut [fd], longest);
}

/// Makes the calling thread's sleeps end on time instead of up to 50 us late.
pub(crate) fn set_timer_slack() {
    let slack_ns: libc::c_ulong = 1;
    // SAFETY: this option takes one integer argument and no pointer. Failure leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

fn ppoll(fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<bool> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as _,
    };
    // SAFETY: `fds` is an exclusively borrowed array of the stated length, `timeout` is living and
    // only read, and a null signal mask leaves the mask alone.
    let ready = unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &raw const timeout, ptr::null())
    };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}
