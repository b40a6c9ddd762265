//! The records in the payload of a frame. A record is a byte for its kind and its fields.
//!
//! Numbers are varints as in Protobuf; *signed* ones are zigzag encoded first. Keys, ids, times and the bits of floats are
//! eight bytes, little endian. A *text* is the number of its bytes and the bytes.
//!
//! | record | fields |
//! |---|---|
//! | [`BEGIN`] | version of the format; number of tables, text of each name; number of ledgers, each: writer, `through`, `lost`, number of ranges, first and last number of each |
//! | [`FORGET`] | |
//! | [`FIRST_OF`], [`EFFECTS_OF`] | index of a table |
//! | [`CHUNK`] | flags, slot of the layout (a byte each); the layout if it is new; key, episode; signed first step, signed number of steps to the last; number of bytes of the data, the data |
//! | [`WRITER`] | writer |
//! | [`PUT_ROWS`] | item; chunk, first row, number of rows; 0 is one row that is squeezed |
//! | [`PUT_COLUMNS`] | item; number of columns, each: twice the number of slices, plus 1 if it is squeezed; each slice: chunk, column, first row, number of rows |
//! | [`GONE`] | key, time of the insert, reason (a byte) |
//! | [`BACK`] | key, time of the insert |
//! | [`PRIORITIES`] | number of items, each: key, priority |
//! | [`FLIGHT_PRIORITY`] | key, time of the insert, priority |
//! | [`COUNT`] | key, time of the insert, signed number of draws |
//! | [`RESET`] | |
//! | [`OPTIONS`] | flags (a byte); those of the values that changed: `max_size`; `max_bytes`; signed `max_times_sampled`; `samples_per_insert`, signed `min_size_to_sample`, `min_diff`, `max_diff` |
//! | [`COUNTERS`] | signed inserts, samples, deletes and items; episodes, unique samples; largest priority |
//! | [`WROTE`] | sequence number |
//!
//! | part | fields |
//! |---|---|
//! | item | key, priority, time of the insert, signed number of draws |
//! | chunk | 0 for the newest chunk, 1 for the one before, and so on |
//! | writer | 0, or 1 more than the number of bytes of its owner, and these; id |
//! | layout | number of rows, arrangement (a byte), number of columns; each column: its dtype, plus 128 for differences (a byte); number of dimensions, each; for strings, bytes of the region |
//!
//! [`BEGIN`] begins an epoch: chunks, layouts and tables of those before mean nothing in it. [`FORGET`] ends the same for
//! chunks and layouts. [`FIRST_OF`] and [`EFFECTS_OF`] name the table of all effects behind them in the frame; those of
//! [`FIRST_OF`] are for a replay that begins with this epoch. A [`CHUNK`] comes before the first record that refers to it.
//! A [`WRITER`] is the one of each [`WROTE`] behind it, until the next table or writer.

/// The version of the format. It rises when a reader of the version before could misunderstand a record that it knows.
pub const VERSION: u64 = 1;

/// Begins an epoch.
pub const BEGIN: u8 = 1;
/// Chunks and layouts before it mean nothing any more.
pub const FORGET: u8 = 2;
/// Effects follow that only a replay repeats which begins with this epoch.
pub const FIRST_OF: u8 = 3;
/// Effects follow.
pub const EFFECTS_OF: u8 = 4;
/// A chunk.
pub const CHUNK: u8 = 5;
/// The writer of the next items.
pub const WRITER: u8 = 6;

/// [`Effect::Put`](reverb_core::Effect::Put) of the same rows of all columns of a chunk.
pub const PUT_ROWS: u8 = 16;
/// [`Effect::Put`](reverb_core::Effect::Put) of any slices.
pub const PUT_COLUMNS: u8 = 17;
/// [`Effect::Gone`](reverb_core::Effect::Gone).
pub const GONE: u8 = 18;
/// [`Effect::Back`](reverb_core::Effect::Back).
pub const BACK: u8 = 19;
/// [`Effect::Priorities`](reverb_core::Effect::Priorities).
pub const PRIORITIES: u8 = 20;
/// [`Effect::FlightPriority`](reverb_core::Effect::FlightPriority).
pub const FLIGHT_PRIORITY: u8 = 21;
/// [`Effect::Count`](reverb_core::Effect::Count).
pub const COUNT: u8 = 22;
/// [`Effect::Reset`](reverb_core::Effect::Reset).
pub const RESET: u8 = 23;
/// [`Effect::Options`](reverb_core::Effect::Options).
pub const OPTIONS: u8 = 24;
/// [`Effect::Counters`](reverb_core::Effect::Counters).
pub const COUNTERS: u8 = 25;
/// [`Effect::Wrote`](reverb_core::Effect::Wrote).
pub const WROTE: u8 = 26;

/// Flag of a chunk: its layout follows.
pub const HAS_LAYOUT: u8 = 1;
/// Flag of a chunk: each row belongs to an episode of its own.
pub const EPISODE_PER_ROW: u8 = 2;
/// Flag of a chunk: it lacks steps between the first and the last.
pub const SPARSE: u8 = 4;

/// Number of layouts that are known at a time.
pub const LAYOUT_SLOTS: usize = 256;
/// Arrangement of a chunk that is not encoded. Compressed ones have the number of their codec.
pub const PLAIN: u8 = 0;
/// Arrangement of an interleaved chunk.
pub const INTERLEAVED: u8 = 3;
/// Added to the dtype of a column whose rows are stored as differences.
pub const DELTA: u8 = 0x80;

/// Flag of options: `max_size` has changed.
pub const MAX_SIZE: u8 = 1;
/// Flag of options: `max_bytes` has changed to a number.
pub const MAX_BYTES: u8 = 2;
/// Flag of options: there is no `max_bytes` any more.
pub const NO_MAX_BYTES: u8 = 4;
/// Flag of options: `max_times_sampled` has changed.
pub const MAX_TIMES_SAMPLED: u8 = 8;
/// Flag of options: the rate limiter has changed.
pub const RATE_LIMITER: u8 = 16;
