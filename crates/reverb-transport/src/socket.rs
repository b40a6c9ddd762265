//! A connection of either kind, that is watched for a moment before the thread that waits for it sleeps.
//!
//! To put a thread to sleep and wake it again costs some 25 µs on a virtual machine, at either end: more than all the
//! rest of a short call. So where the other side has lately answered within [`WATCH`], its next answer is looked for
//! again and again for as long. Where answers take longer, nothing is watched, and nobody's time is spent.
//!
//! Others come first: each look is a turn of the runtime, in which its other tasks go on, and after the first few the
//! thread offers its processor to other threads before each. Where one of them has work for a whole time slice, there is
//! a pause.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tonic::transport::server::Connected;

/// How long an answer is looked for. Some more than a short call takes with all who serve it asleep, or the first would
/// never be seen to be worth it.
const WATCH: Duration = Duration::from_micros(200);
/// Looks after which this thread offers its processor: what has just come has work for it first, and its tasks look again
/// before they send what they made of it.
const BUSY_LOOKS: u32 = 3;
/// Whoever keeps the processor for longer has work of its own, and is not about to answer.
const LONG_TURN: Duration = Duration::from_millis(1);
/// How long nothing is watched after a long turn, at first and at most: twice as long each time that it comes soon again.
/// A long turn takes milliseconds, so this bounds what they cost to a few in a hundred.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(640));

/// See the module.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    watch: Watch,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self { stream: Stream::Tcp(stream), watch: Watch::new() }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self { stream: Stream::Unix(stream), watch: Watch::new() }
    }
}

/// Whether an answer is worth looking for.
#[derive(Debug)]
struct Watch {
    /// When the other side was last written to.
    written: Instant,
    /// Whether it has answered since.
    answered: bool,
    /// How long it took for the last answer.
    took: Duration,
    /// Looks since something came or went.
    looks: u32,
    /// Nothing is looked for before this: the processors have other work.
    paused_until: Instant,
    pause: Duration,
}

impl Watch {
    fn new() -> Self {
        let now = Instant::now();
        Self { written: now, answered: true, took: Duration::MAX, looks: 0, paused_until: now, pause: PAUSES.0 }
    }

    fn write(&mut self) {
        self.written = Instant::now();
        self.answered = false;
        self.looks = 0;
    }

    fn read(&mut self) {
        self.looks = 0;
        if !self.answered {
            self.answered = true;
            self.took = self.written.elapsed();
        }
    }

    /// Whether to look again, after all others have had their turn on this processor.
    fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        if self.took >= WATCH || now.saturating_duration_since(self.written) >= WATCH || now < self.paused_until {
            return false;
        }
        self.looks += 1;
        if self.looks <= BUSY_LOOKS {
            return true;
        }
        std::thread::yield_now();
        let back = Instant::now();
        if back - now < LONG_TURN {
            return true;
        }
        // To wake costs little where the processor is busy, and to look again would cost another time slice.
        let is_usual = now.saturating_duration_since(self.paused_until) < self.pause;
        self.pause = if is_usual { (2 * self.pause).min(PAUSES.1) } else { PAUSES.0 };
        self.paused_until = back + self.pause;
        false
    }
}

impl Connected for Socket {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let Self { stream, watch } = self.get_mut();
        let result = match stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        match result {
            Poll::Ready(result) => {
                watch.read();
                Poll::Ready(result)
            }
            Poll::Pending => {
                if watch.goes_on() {
                    // The first poll wakes the task once the runtime has looked for what has come.
                    let _pending = pin!(tokio::task::yield_now()).poll(cx);
                }
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let Self { stream, watch } = self.get_mut();
        watch.write();
        match stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let Self { stream, watch } = self.get_mut();
        watch.write();
        match stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGES: Duration = Duration::from_secs(3600);

    fn watch(took: Duration) -> Watch {
        let mut watch = Watch { took, ..Watch::new() };
        watch.write();
        // Whatever the machine does meanwhile, the answer is still to be expected.
        watch.written += AGES;
        watch
    }

    #[test]
    fn a_quick_answer_is_looked_for_again() {
        assert!(!Watch::new().goes_on(), "before the first answer nobody knows");
        let looks_on = || {
            let mut quick = watch(Duration::ZERO);
            (0..2 * BUSY_LOOKS).all(|_| quick.goes_on())
        };
        assert!((0..3).any(|_| looks_on()), "unless somebody took every turn");
    }

    #[test]
    fn slow_answers_are_not_watched_for() {
        assert!(!watch(WATCH).goes_on());
        let mut late = watch(Duration::ZERO);
        late.written -= AGES + WATCH;
        assert!(!late.goes_on());
    }

    #[test]
    fn only_the_first_bytes_after_a_write_tell_how_soon_the_answer_came() {
        let mut watch = watch(Duration::MAX);
        watch.written -= AGES + WATCH;
        watch.read();
        let took = watch.took;
        assert!(took >= WATCH && took < AGES);
        watch.written -= AGES;
        watch.read();
        assert_eq!(watch.took, took);
    }

    #[test]
    fn nothing_is_watched_in_a_pause() {
        let mut watch = watch(Duration::ZERO);
        watch.paused_until = Instant::now() + AGES;
        assert!(!watch.goes_on());
    }
}
