//! How a block passes between a lane and its connection, told while it does.
//!
//! A block takes seconds where a rate is low and shared by several lanes. Where time goes is judged every two
//! seconds, from what both sides have told: what is told only when a block has passed is missing from some
//! of these times and fills others twice.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::interrupt::Interrupt;
use super::link::LinkHandle;
use super::pace::Pace;
use super::stages::{Stage, Stages};

/// What has passed since it was last told is told after so long.
const TELL: Duration = Duration::from_millis(100);

/// When it was last told, and for how long a rate that its owner has set had held the connection back by
/// then.
struct Told<'a> {
    handle: &'a dyn LinkHandle,
    at: Instant,
    held: Duration,
}

impl<'a> Told<'a> {
    fn now(handle: &'a dyn LinkHandle) -> Self {
        Told { handle, at: Instant::now(), held: handle.held_back() }
    }

    /// Whether it is to be told again.
    fn is_due(&self) -> bool {
        self.at.elapsed() >= TELL
    }

    /// How long that is ago, and for how much of it the connection was held back.
    fn again(&mut self) -> (Duration, Duration) {
        let before = std::mem::replace(self, Told::now(self.handle));
        (self.at - before.at, self.held.saturating_sub(before.held))
    }
}

/// What comes in. Whatever has not been told when it is dropped is told then.
pub struct Incoming<'a> {
    stream: &'a mut (dyn Read + Send),
    stages: &'a Stages,
    told: Told<'a>,
}

impl<'a> Incoming<'a> {
    /// From now on.
    pub fn new(
        stream: &'a mut (dyn Read + Send),
        handle: &'a dyn LinkHandle,
        stages: &'a Stages,
    ) -> Self {
        Incoming { stream, stages, told: Told::now(handle) }
    }

    fn tell(&mut self) {
        let (took, held) = self.told.again();
        self.stages.add(Stage::Limit, held);
        self.stages.add(Stage::Receive, took.saturating_sub(held));
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buf);
        if self.told.is_due() {
            self.tell();
        }
        read
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.tell();
    }
}

/// What goes out. Whatever has not been told when it is dropped is told then.
pub struct Outgoing<'a> {
    stream: &'a mut (dyn Write + Send),
    /// A limit on the rate of this lane and others.
    pace: Option<&'a Pace>,
    interrupt: &'a Interrupt,
    stages: &'a Stages,
    told: Told<'a>,
    /// What this thread had used of its processor when it was last told.
    processor: Duration,
    /// For how long the pace has held it back since then.
    paced: Duration,
}

impl<'a> Outgoing<'a> {
    /// From now on.
    pub fn new(
        stream: &'a mut (dyn Write + Send),
        handle: &'a dyn LinkHandle,
        pace: Option<&'a Pace>,
        interrupt: &'a Interrupt,
        stages: &'a Stages,
    ) -> Self {
        let (told, processor, paced) = (Told::now(handle), processor_time(), Duration::ZERO);
        Outgoing { stream, pace, interrupt, stages, told, processor, paced }
    }

    fn tell(&mut self) {
        let before = std::mem::replace(&mut self.processor, processor_time());
        let processor = self.processor.saturating_sub(before);
        let (took, held) = self.told.again();
        let held = held + std::mem::take(&mut self.paced);
        self.stages.add(Stage::Limit, held);
        self.stages.add(Stage::Seal, processor);
        self.stages.add(Stage::Send, took.saturating_sub(held).saturating_sub(processor));
    }
}

impl Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.pace {
            None => self.stream.write(bytes),
            Some(pace) => pace.write(self.stream, bytes, self.interrupt).map(|(count, held)| {
                self.paced += held;
                count
            }),
        };
        if self.told.is_due() {
            self.tell();
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Drop for Outgoing<'_> {
    fn drop(&mut self) {
        self.tell();
    }
}

/// What this thread has used of its processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A connection that a rate has held back for so many milliseconds.
    #[derive(Default)]
    struct HeldBack(AtomicU64);

    impl LinkHandle for HeldBack {
        fn abort(&self) {}

        fn held_back(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn describe(&self) -> String {
            "memory".into()
        }
    }

    /// Milliseconds of a stage.
    fn told(stages: &Stages, stage: Stage) -> u64 {
        stages.read()[stage as usize] / 1_000
    }

    #[test]
    fn what_comes_in_is_told_before_the_block_ends_and_the_rest_at_its_end() {
        let (stages, handle) = (Stages::default(), HeldBack::default());
        let mut stream = io::repeat(0);
        let mut incoming = Incoming::new(&mut stream, &handle, &stages);
        incoming.told.at -= 2 * TELL;
        handle.0.store(150, Ordering::Relaxed);
        incoming.read_exact(&mut [0]).unwrap();
        assert_eq!(told(&stages, Stage::Limit), 150);
        assert!(told(&stages, Stage::Receive) >= 50, "what is left of the time");
        handle.0.store(160, Ordering::Relaxed);
        drop(incoming);
        assert_eq!(told(&stages, Stage::Limit), 160);
    }

    #[test]
    fn what_goes_out_is_told_before_the_block_ends_and_the_rest_at_its_end() {
        let (stages, handle, run) = (Stages::default(), HeldBack::default(), Interrupt::default());
        let mut stream = io::sink();
        let mut outgoing = Outgoing::new(&mut stream, &handle, None, &run, &stages);
        outgoing.told.at -= 100 * TELL;
        handle.0.store(150, Ordering::Relaxed);
        outgoing.write_all(&[0]).unwrap();
        assert_eq!(told(&stages, Stage::Limit), 150);
        assert!(told(&stages, Stage::Send) >= 1_000, "what is left of the time");
        handle.0.store(160, Ordering::Relaxed);
        drop(outgoing);
        assert_eq!(told(&stages, Stage::Limit), 160);
    }
}
