//! TCP connections that have not said a word. They cost a descriptor each and no thread, so there may be
//! thousands: who waits a round trip for a newcomer's first bytes meets a flood's silent ones here.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use farhaul::newcomers::{Crowd, Source};
use nix::sys::resource::{Resource, getrlimit};

use super::HANDSHAKE_TIME;

/// Places, where the process may have that many descriptors four times.
const MOST: usize = 4096;

pub struct Lobby {
    crowd: Crowd<(Instant, Source, TcpStream)>,
}

/// What has come of those that wait.
#[derive(Default)]
pub struct Looked {
    /// They have begun to speak.
    pub speaking: Vec<TcpStream>,
    /// They have gone without a word.
    pub gone: Vec<Source>,
}

impl Lobby {
    pub fn new(seed: u64) -> Self {
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(256, |(soft, _)| soft);
        let share = usize::try_from(descriptors / 4).unwrap_or(MOST);
        Lobby { crowd: Crowd::new(share.clamp(16, MOST), seed) }
    }

    /// One more, which does not block; returns the source of one that had to go for it.
    pub fn enter(&mut self, source: Source, stream: TcpStream, now: Instant) -> Option<Source> {
        let (_, gone) = self.crowd.enter(source, (now, source, stream));
        gone.map(|(source, _)| source)
    }

    /// The numbers of those that wait, and their descriptors.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.crowd.iter().map(|(number, (.., stream))| (number, stream.as_fd()))
    }

    /// Looks at those with these numbers, of which something was heard.
    pub fn look(&mut self, numbers: &[u64]) -> Looked {
        let mut looked = Looked::default();
        for number in numbers {
            let Some((_, source, stream)) = self.crowd.get(*number) else { continue };
            let source = *source;
            match stream.peek(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Ok(1..) => {
                    let stream = self.crowd.leave(*number).map(|(.., stream)| stream);
                    looked.speaking.extend(stream);
                }
                Ok(0) | Err(_) => {
                    self.crowd.leave(*number);
                    looked.gone.push(source);
                }
            }
        }
        looked
    }

    /// Ends those that have waited for too long.
    pub fn expire(&mut self, now: Instant) -> Vec<Source> {
        let mut gone = Vec::new();
        while let Some((number, (since, source, _))) = self.crowd.oldest()
            && now.saturating_duration_since(*since) >= HANDSHAKE_TIME
        {
            gone.push(*source);
            self.crowd.leave(number);
        }
        gone
    }

    /// When the next one has waited for too long.
    pub fn next(&self, now: Instant) -> Option<Duration> {
        let (_, (since, ..)) = self.crowd.oldest()?;
        Some((*since + HANDSHAKE_TIME).saturating_duration_since(now))
    }
}
