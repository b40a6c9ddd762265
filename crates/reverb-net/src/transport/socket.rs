//! A TCP or Unix connection that is polled for a short time before its thread sleeps.
//!
//! Putting a thread to sleep and waking it costs about 25 µs at each end on a virtual machine, which is more than the
//! rest of a short call. So if the last answer of the peer took less than [`WATCH`], the socket is polled repeatedly
//! for that long. If answers take longer, the socket is not polled, and no processor time is spent.
//!
//! Other work has priority. Between two polls, all other tasks of the runtime run. After the first few polls, the
//! thread also yields its processor to other threads. If one of them runs for a whole time slice, polling pauses for a
//! while.

use super::passing::Passing;
use reverb_service::{Peer, Transport};
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};
use std::cell::Cell;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

// limit (Processes): time for which an answer is polled for | {}; then a pause of {PAUSES.0} to {PAUSES.1} where others
// are busy |
/// Time for which the socket is polled for an answer. It is longer than a short call takes if all threads that serve it
/// have to be woken. Otherwise the first answer would always be too late, and polling would never begin.
const WATCH: Duration = Duration::from_micros(200);
// limit (Processes): bytes on their way through a Unix socket | twice {:bytes}, or what the system allows
// (`net.core.wmem_max`) | the sender waits
/// Bytes that a Unix socket holds until the other end reads them: several chunks. With the default of Linux, 208 KiB, a
/// writer and its server would wait for each other at each chunk of 64 KiB.
const UNIX_BUFFER_BYTES: usize = 1 << 20;
/// Number of polls after which this thread yields its processor. New data means that this thread has work, so it polls
/// a few times before it yields.
const BUSY_LOOKS: u32 = 3;
/// A thread that keeps the processor for longer than this has work of its own, and is not about to answer.
const LONG_TURN: Duration = Duration::from_millis(1);
/// The first and the longest pause of polling after a long turn. The pause doubles if the next long turn follows soon. A
/// long turn takes milliseconds, so it costs at most a few percent of the time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(640));

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of reads from sockets by this thread that were complete at once.
pub fn reads_of_this_thread() -> u64 {
    READS.get()
}

/// What is known of a connection by the calls over it.
#[derive(Debug, Clone)]
pub struct Introduced {
    /// The program at the other end.
    pub peer: Arc<Peer>,
    /// Descriptors on their way, if the connection can pass them.
    pub passing: Option<Arc<Passing>>,
}

/// A connection that is polled for a short time before its thread sleeps. See the documentation of this module.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    watch: Watch,
    /// The program at the other end.
    peer: Arc<Peer>,
    /// Descriptors on their way, if it is a Unix socket.
    passing: Option<Arc<Passing>>,
    /// Whether descriptors are taken.
    takes: bool,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        let address = stream.peer_addr().map_or_else(|_| String::new(), |address| address.to_string());
        let peer = Arc::new(Peer::new(Transport::Tcp, address));
        Self { stream: Stream::Tcp(stream), watch: Watch::new(), peer, passing: None, takes: false }
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        let process = stream.peer_cred().ok().and_then(|of| of.pid());
        let address = process.map_or_else(String::new, |number| format!("pid:{number}"));
        let peer = Arc::new(Peer::new(Transport::Unix, address));
        let passing = Some(Arc::default());
        // The system may be told to give more by itself. Without it, the socket is only slower.
        if socket_send_buffer_size(&stream).is_ok_and(|bytes| bytes < UNIX_BUFFER_BYTES) {
            let _slow = set_socket_send_buffer_size(&stream, UNIX_BUFFER_BYTES);
        }
        Self { stream: Stream::Unix(stream), watch: Watch::new(), peer, passing, takes: false }
    }
}

/// Decides whether polling for an answer is worthwhile.
#[derive(Debug)]
struct Watch {
    /// Time of the last write to the peer.
    written: Instant,
    /// Whether the peer has answered since.
    answered: bool,
    /// Time that the peer took for its last answer.
    took: Duration,
    /// Number of polls since the last read or write.
    looks: u32,
    /// End of the current pause. There is no polling before it, because the processors have other work.
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

    /// Whether to poll again. After a few polls it calls `give_way`, which lets other threads run on this processor and
    /// returns the time at which this one goes on.
    fn should_poll_again(&mut self, give_way: impl FnOnce() -> Instant) -> bool {
        let now = Instant::now();
        if self.took >= WATCH || now.saturating_duration_since(self.written) >= WATCH || now < self.paused_until {
            return false;
        }
        self.looks += 1;
        if self.looks <= BUSY_LOOKS {
            return true;
        }
        let back = give_way();
        if back.saturating_duration_since(now) < LONG_TURN {
            return true;
        }
        // On a busy processor, waking a thread costs little, and polling again would cost another time slice.
        let is_usual = now.saturating_duration_since(self.paused_until) < self.pause;
        self.pause = if is_usual { (2 * self.pause).min(PAUSES.1) } else { PAUSES.0 };
        self.paused_until = back + self.pause;
        false
    }
}

fn give_way() -> Instant {
    std::thread::yield_now();
    Instant::now()
}

impl Socket {
    /// Returns the program at the other end.
    pub fn peer(&self) -> Arc<Peer> {
        self.peer.clone()
    }

    /// Returns the descriptors on their way, if the socket can pass them.
    pub fn passing(&self) -> Option<Arc<Passing>> {
        self.passing.clone()
    }

    /// Makes it a socket that takes descriptors. Others discard those that come.
    pub fn taking(self, passing: Arc<Passing>) -> Self {
        Self { passing: Some(passing), takes: true, ..self }
    }

    /// Counts bytes that were written.
    fn count_written(&self, written: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            self.peer.traffic.transmit_bytes.fetch_add(*count as u64, Relaxed);
        }
        written
    }
}

fn poll_read_passing(
    stream: &UnixStream,
    passing: &Passing,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<std::io::Result<()>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        // SAFETY: nothing but values are written to it.
        let target = unsafe { buf.unfilled_mut() };
        let room = target.len();
        match stream.try_io(Interest::READABLE, || passing.read(stream, target)) {
            Ok((count, has_descriptors)) => {
                // SAFETY: so many bytes were written.
                unsafe { buf.assume_init(count) };
                buf.advance(count);
                if count < room && count > 0 && !has_descriptors {
                    // Nothing more is there: this saves a call that would say so.
                    let _empty = stream.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
                }
                return Poll::Ready(Ok(()));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

fn poll_write_passing(
    stream: &UnixStream,
    passing: &Passing,
    cx: &mut Context<'_>,
    parts: &[IoSlice<'_>],
) -> Poll<std::io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_io(Interest::WRITABLE, || passing.write(stream.as_fd(), parts)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let Self { stream, watch, peer, passing, takes } = self.get_mut();
        let before = buf.filled().len();
        let result = match (stream, passing) {
            (Stream::Tcp(stream), _) => Pin::new(stream).poll_read(cx, buf),
            (Stream::Unix(stream), Some(passing)) if *takes => poll_read_passing(stream, passing, cx, buf),
            (Stream::Unix(stream), _) => Pin::new(stream).poll_read(cx, buf),
        };
        match result {
            Poll::Ready(result) => {
                READS.set(READS.get() + 1);
                watch.read();
                peer.traffic.receive_bytes.fetch_add((buf.filled().len() - before) as u64, Relaxed);
                Poll::Ready(result)
            }
            Poll::Pending => {
                if watch.should_poll_again(give_way) {
                    // The first poll of `yield_now` wakes the task after the runtime has checked all sockets for new
                    // data.
                    let _pending = pin!(tokio::task::yield_now()).poll(cx);
                }
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let socket = self.get_mut();
        socket.watch.write();
        let written = match &mut socket.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Unix(stream) => match socket.passing.as_ref().filter(|passing| passing.is_leaving()) {
                Some(passing) => poll_write_passing(stream, passing, cx, &[IoSlice::new(buf)]),
                None => Pin::new(stream).poll_write(cx, buf),
            },
        };
        socket.count_written(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let socket = self.get_mut();
        socket.watch.write();
        let written = match &mut socket.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Unix(stream) => match socket.passing.as_ref().filter(|passing| passing.is_leaving()) {
                Some(passing) => poll_write_passing(stream, passing, cx, bufs),
                None => Pin::new(stream).poll_write_vectored(cx, bufs),
            },
        };
        socket.count_written(written)
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
        // An answer is still expected, however slow the machine is.
        watch.written += AGES;
        watch
    }

    #[tokio::test]
    async fn a_unix_socket_holds_several_chunks_and_never_less_than_before() {
        let before_and_after = |bytes| {
            let (stream, _other) = UnixStream::pair().unwrap();
            set_socket_send_buffer_size(&stream, bytes).unwrap();
            let before = socket_send_buffer_size(&stream).unwrap();
            let Stream::Unix(stream) = Socket::from(stream).stream else { unreachable!("it is a Unix socket") };
            (before, socket_send_buffer_size(&stream).unwrap())
        };
        let (before, after) = before_and_after(64 << 10);
        assert!(after > before, "{before}, then {after}");
        let (before, after) = before_and_after(2 * UNIX_BUFFER_BYTES);
        assert!(after >= before, "{before}, then {after}");
    }

    #[test]
    fn a_socket_with_quick_answers_is_polled_again() {
        assert!(!Watch::new().should_poll_again(Instant::now), "there was no answer yet");
        let (mut quick, begun) = (watch(Duration::ZERO), Instant::now());
        assert!((0..2 * BUSY_LOOKS).all(|_| quick.should_poll_again(|| begun)));
    }

    #[test]
    fn a_socket_with_slow_answers_is_not_watched() {
        assert!(!watch(WATCH).should_poll_again(Instant::now));
        let mut late = watch(Duration::ZERO);
        late.written -= AGES + WATCH;
        assert!(!late.should_poll_again(Instant::now));
    }

    #[test]
    fn polling_pauses_once_other_threads_run_for_long() {
        let mut watch = Watch { looks: BUSY_LOOKS, ..watch(Duration::ZERO) };
        watch.paused_until -= AGES;
        let later = Instant::now() + AGES;
        assert!(!watch.should_poll_again(|| later));
        assert_eq!(watch.paused_until, later + PAUSES.0);
    }

    #[test]
    fn only_the_first_bytes_after_a_write_set_the_answer_time() {
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
        assert!(!watch.should_poll_again(Instant::now));
    }
}
