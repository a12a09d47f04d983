//! Waiting for the network, for another thread or for a time, to the microsecond.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::UdpSocket;

/// Wakes a thread that waits in [`UdpSocket::wait`].
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// A waker for one thread.
    ///
    /// # Errors
    ///
    /// The system is out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes two integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and belongs to nobody else.
        Ok(Waker { event: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Ends the wait, or the next one.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: writes the eight bytes of `one`. It can only fail when the count is at its
        // limit, and then the waiter wakes all the same.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: reads at most eight bytes into `count`; without an event it fails at once.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Something has arrived.
    pub readable: bool,
    /// The waker was used.
    pub woken: bool,
}

impl UdpSocket {
    /// Waits until something arrives, `waker` is used, or `timeout` is over; none: for ever.
    ///
    /// # Errors
    ///
    /// Those of `ppoll`, of which a caller can cause none.
    pub fn wait(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<Readiness> {
        let mut fds = [
            libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: waker.event.as_raw_fd(), events: libc::POLLIN, revents: 0 },
        ];
        poll(&mut fds, timeout)?;
        self.look_for_errors(fds[0]);
        let woken = fds[1].revents != 0;
        if woken {
            waker.clear();
        }
        Ok(Readiness { readable: fds[0].revents != 0, woken })
    }

    /// Waits until something arrives or `timeout` is over.
    ///
    /// # Errors
    ///
    /// Those of `ppoll`.
    pub fn wait_arrival(&self, timeout: Duration) -> io::Result<()> {
        let mut fds = [libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 }];
        poll(&mut fds, Some(timeout))?;
        self.look_for_errors(fds[0]);
        Ok(())
    }

    /// Errors end a wait until they are taken from their queue.
    fn look_for_errors(&self, fd: libc::pollfd) {
        if fd.revents & libc::POLLERR != 0 {
            self.note_errors();
        }
    }

    /// Waits until `waker` is used or `timeout` is over, and lets arrivals gather.
    ///
    /// # Errors
    ///
    /// Those of `ppoll`.
    pub fn gather(&self, waker: &Waker, timeout: Duration) -> io::Result<()> {
        let fd = waker.event.as_raw_fd();
        let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        poll(&mut fds, Some(timeout))?;
        if fds[0].revents != 0 {
            waker.clear();
        }
        Ok(())
    }

    /// Waits until the kernel's send buffer has room or something arrives, at most `timeout`.
    ///
    /// # Errors
    ///
    /// Those of `ppoll`.
    pub fn wait_room(&self, timeout: Duration) -> io::Result<()> {
        let events = libc::POLLOUT | libc::POLLIN;
        let mut fds = [libc::pollfd { fd: self.fd(), events, revents: 0 }];
        poll(&mut fds, Some(timeout))?;
        self.look_for_errors(fds[0]);
        Ok(())
    }
}

fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: t.subsec_nanos() as _,
    });
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `fds` is a slice of initialised entries, and `time` is null or points to a timespec
    // that outlives the call.
    let status = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, time, core::ptr::null()) };
    if status >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // A signal ends the wait early, which a caller must expect anyway.
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

/// Lets this thread's waits end on time instead of up to 50 microseconds late, the kernel's
/// default for saving wake-ups.
pub fn precise_sleep() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}
