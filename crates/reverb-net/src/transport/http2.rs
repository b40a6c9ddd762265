//! HTTP/2 settings, the same at both ends of a connection.

use std::time::Duration;

/// Flow-control window of one stream, in bytes.
pub const STREAM_WINDOW: u32 = 8 << 20;
/// Flow-control window of all streams of a connection together, in bytes.
pub const CONNECTION_WINDOW: u32 = 16 << 20;
/// Maximum size of a frame, in bytes. The default of HTTP/2, 16 KiB, would halve the throughput of a receiver.
pub const FRAME_BYTES: u32 = 256 << 10;
// limit (Connections and calls): keep-alive ping, on both sides | every {}, {KEEP_ALIVE_TIMEOUT} for the answer; at
// servers of dm-reverb, which allow no pings, probes of the operating system as often | the connection ends; there
// after {dial.rs:KEEP_ALIVE_PROBES} probes without an answer
/// Time without data after which an end sends a ping.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time for the answer to a ping. The connection is closed after that.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
