//! A limit on the rate of all lanes together.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::interrupt::Interrupt;

/// The least rate, bits per second: the least step takes about a second at it, and a step of each of 32 lanes
/// half a minute.
pub const LEAST_RATE: u64 = 8_000;

/// Moved at once below a limit, bytes, at most and at least.
const STEP: usize = 64 << 10;
const LEAST_STEP: usize = 1 << 10;
/// What may be sent at once after a pause, as time at the rate.
const BURST: Duration = Duration::from_millis(50);

/// Gives out when how much may be sent.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: f64,
    /// When what has been given out is used up.
    until: Mutex<Instant>,
}

impl Pace {
    /// At most so many bits a second, and not less than [`LEAST_RATE`].
    pub fn new(bits_per_second: u64) -> Self {
        let bytes_per_second = bits_per_second.max(LEAST_RATE) as f64 / 8.0;
        Pace { bytes_per_second, until: Mutex::new(Instant::now()) }
    }

    /// Moved at once, bytes: no more than a burst, so that low rates are even and nobody waits for long.
    fn step(&self) -> usize {
        let burst = self.bytes_per_second * BURST.as_secs_f64();
        (burst as usize).clamp(LEAST_STEP, STEP)
    }

    /// How long to wait before so many bytes, asked for at `now`, may be sent.
    fn take(&self, bytes: usize, now: Instant) -> Duration {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = (*until).max(earliest);
        *until = start + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        start.saturating_duration_since(now)
    }

    /// Takes `bytes` without waiting: what is moved next does.
    pub fn spend(&self, bytes: usize) {
        self.take(bytes, Instant::now());
    }

    /// Gives back what was asked for and is not moved: others need not wait for it.
    fn give_back(&self, bytes: usize) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        *until = until.checked_sub(time).unwrap_or(*until);
    }

    /// Writes of `bytes`, a step of it at most, when that much may go; how much that is, and how long it was
    /// held back.
    ///
    /// # Errors
    ///
    /// Those of `out`; [`io::ErrorKind::ConnectionAborted`] if `interrupt` was raised meanwhile.
    pub fn write(
        &self,
        out: &mut dyn Write,
        bytes: &[u8],
        interrupt: &Interrupt,
    ) -> io::Result<(usize, Duration)> {
        let step = &bytes[..bytes.len().min(self.step())];
        let wait = self.take(step.len(), Instant::now());
        if !wait.is_zero() {
            // What waits in a buffer has had its turn.
            out.flush()?;
            if interrupt.wait(wait) {
                self.give_back(step.len());
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        out.write_all(step)?;
        Ok((step.len(), wait))
    }

    /// Reads into `buf`, a step of it at most, and returns when that much may have come; how much that
    /// is, and how long it was held back.
    ///
    /// # Errors
    ///
    /// Those of `stream`; [`io::ErrorKind::ConnectionAborted`] if `interrupt` was raised meanwhile.
    pub fn read(
        &self,
        stream: &mut dyn Read,
        buf: &mut [u8],
        interrupt: &Interrupt,
    ) -> io::Result<(usize, Duration)> {
        let step = buf.len().min(self.step());
        let count = stream.read(&mut buf[..step])?;
        // What has come counts for what comes next: the sender is held back by what is not read.
        let wait = self.take(count, Instant::now());
        if !wait.is_zero() && interrupt.wait(wait) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok((count, wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_over_any_time_and_bursts_are_short() {
        let pace = Pace::new(8_000_000); // a megabyte a second
        let start = Instant::now() + Duration::from_secs(1);
        let mut now = start;
        let mut sent = 0;
        for _ in 0..1000 {
            now += pace.take(10_000, now);
            sent += 10_000;
        }
        let ideal = Duration::from_secs_f64(f64::from(sent) / 1e6);
        let took = now - start;
        assert!(took <= ideal && ideal - took < BURST + Duration::from_millis(11), "{took:?}");
        // After a pause a short burst, not all that was missed.
        now += Duration::from_secs(60);
        assert_eq!(pace.take(50_000, now), Duration::ZERO);
        assert_eq!(pace.take(1, now), Duration::ZERO);
        assert!(pace.take(1, now) > Duration::ZERO);
    }

    #[test]
    fn what_is_read_counts_as_what_is_written() {
        let run = Interrupt::default();
        let pace = Pace::new(8_000_000_000);
        let mut stream = std::io::Cursor::new(vec![1; 3 * STEP]);
        let mut buf = vec![0; 2 * STEP];
        assert_eq!(pace.read(&mut stream, &mut buf, &run).unwrap().0, STEP, "in steps");
        assert_eq!((Pace::new(1).step(), Pace::new(800_000).step()), (LEAST_STEP, 5000));
        assert_eq!(pace.read(&mut stream, &mut buf[..9], &run).unwrap().0, 9);
        // Much was read; what is to be written waits for it.
        let slow = Pace::new(8_000_000);
        let now = Instant::now();
        *slow.until.lock().unwrap() = now;
        slow.read(&mut stream, &mut buf[..1000], &run).unwrap();
        let wait = slow.take(1, now);
        assert!(wait >= Duration::from_micros(999), "{wait:?}");
    }
    /// What a lane waits for at a rate far too low ends when its connection is given up, and the next
    /// lane does not wait for what was not sent.
    #[test]
    fn waits_end_with_their_connection() {
        let pace = Pace::new(1);
        assert_eq!(pace.bytes_per_second, LEAST_RATE as f64 / 8.0, "not less");
        let over = Interrupt::default();
        over.raise();
        let hour = 3_600 * LEAST_RATE as usize / 8;
        let kind = |moved: io::Result<(usize, Duration)>| moved.unwrap_err().kind();
        let aborted = io::ErrorKind::ConnectionAborted;
        pace.take(hour, Instant::now());
        let wait = pace.take(0, Instant::now());
        assert_eq!(kind(pace.write(&mut io::sink(), &[0; LEAST_STEP], &over)), aborted);
        assert!(pace.take(0, Instant::now()) <= wait, "it is given back");
        let read = pace.read(&mut io::repeat(0), &mut [0; LEAST_STEP], &over);
        assert_eq!(kind(read), aborted);
    }
}
