//! Waiting for the network, for another thread or for a time, to the microsecond.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::UdpSocket;

/// Wakes a thread that waits in [`UdpSocket::wait`] or [`UdpSocket::gather`]: at once, or at a time that another
/// thread may put off.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
    alarm: OwnedFd,
}

impl Waker {
    /// A waker for one thread.
    ///
    /// # Errors
    ///
    /// The system is out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes two integers.
        let event = owned(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: timerfd_create takes two integers.
        let alarm = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        Ok(Waker { event, alarm })
    }

    /// Ends the wait, or the next one.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: writes the eight bytes of `one`. It can only fail when the count is at its
        // limit, and then the waiter wakes all the same.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Ends the wait, or the next one, `after` this time, and at no other that was set before.
    pub fn wake_after(&self, after: Duration) {
        // All zeros would turn the alarm off.
        let after = timespec(after.max(Duration::from_nanos(1)));
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let times = libc::itimerspec { it_interval: once, it_value: after };
        // SAFETY: `times` outlives the call, and the times before are not asked for. It can only fail for
        // times out of range, which `timespec` makes none of.
        unsafe {
            libc::timerfd_settime(
                self.alarm.as_raw_fd(),
                0,
                &raw const times,
                core::ptr::null_mut(),
            )
        };
    }

    /// What to wait for.
    fn poll_entries(&self) -> [libc::pollfd; 2] {
        [readable(&self.event), readable(&self.alarm)]
    }

    /// Takes note of what has ended the wait; true if anything has.
    fn clear(fds: &[libc::pollfd]) -> bool {
        let mut woken = false;
        for fd in fds.iter().filter(|fd| fd.revents != 0) {
            let mut count = 0u64;
            // SAFETY: reads at most eight bytes into `count`; without an event it fails at once.
            unsafe { libc::read(fd.fd, (&raw mut count).cast(), size_of::<u64>()) };
            woken = true;
        }
        woken
    }
}

/// A descriptor that a system call has just made, or its error.
fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created, and no other owner knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn readable(fd: &impl AsRawFd) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: time.subsec_nanos() as _,
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
        let socket = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        let [event, alarm] = waker.poll_entries();
        let mut fds = [socket, event, alarm];
        poll(&mut fds, timeout)?;
        self.look_for_errors(fds[0]);
        Ok(Readiness { readable: fds[0].revents != 0, woken: Waker::clear(&fds[1..]) })
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

    /// Waits until `waker` is used or `timeout` is over (none: for ever), and lets arrivals gather.
    ///
    /// # Errors
    ///
    /// Those of `ppoll`.
    pub fn gather(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        let mut fds = waker.poll_entries();
        poll(&mut fds, timeout)?;
        Waker::clear(&fds);
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
    let time = timeout.map(timespec);
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::Options;

    /// Longer than any wait here takes on the slowest machine.
    const TOO_LONG: Option<Duration> = Some(Duration::from_secs(60));

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap()
    }

    #[test]
    fn an_alarm_ends_a_wait_once() {
        let (socket, waker) = (socket(), Waker::new().unwrap());
        let since = Instant::now();
        waker.wake_after(Duration::from_millis(5));
        let ended = socket.wait(&waker, TOO_LONG).unwrap();
        assert_eq!(ended, Readiness { readable: false, woken: true });
        assert!(since.elapsed() >= Duration::from_millis(5));
        let again = socket.wait(&waker, Some(Duration::from_millis(1))).unwrap();
        assert_eq!(again, Readiness::default());
    }

    #[test]
    fn an_alarm_that_is_put_off_does_not_ring_at_its_first_time() {
        let (socket, waker) = (socket(), Waker::new().unwrap());
        waker.wake_after(Duration::from_millis(1));
        waker.wake_after(Duration::from_secs(3600));
        assert!(!socket.wait(&waker, Some(Duration::from_millis(5))).unwrap().woken);
    }

    #[test]
    fn a_time_that_has_passed_rings_at_once() {
        let (socket, waker) = (socket(), Waker::new().unwrap());
        waker.wake_after(Duration::ZERO);
        assert!(socket.wait(&waker, TOO_LONG).unwrap().woken);
    }

    #[test]
    fn arrivals_gather_until_the_alarm() {
        let (socket, waker) = (socket(), Waker::new().unwrap());
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"news", socket.local_addr()).unwrap();
        let since = Instant::now();
        waker.wake_after(Duration::from_millis(5));
        socket.gather(&waker, TOO_LONG).unwrap();
        assert!(since.elapsed() >= Duration::from_millis(5), "an arrival has ended it");
    }
}
