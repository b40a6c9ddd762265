//! The documents. Times are seconds since the Unix epoch, sizes are bytes, and `null` means that there is no value. Keys
//! of items are strings, because JavaScript cannot represent all of them as numbers.

use serde::Serialize;
use serde_json::Value;

/// The answer of the call `Observe`: the documents of a server at one time.
#[derive(Debug, Clone, Serialize)]
pub struct ObservedDocument {
    /// The process and its service.
    pub server: ServerDocument,
    /// Whether the server works, in one line.
    pub verdict: VerdictDocument,
    /// See [`TablesDocument::tables`].
    pub tables: Vec<TableDocument>,
    /// See [`WaitsDocument::waits`].
    pub waits: Vec<WaitDocument>,
    /// See [`ClientsDocument::clients`].
    pub clients: Vec<ClientDocument>,
    /// See [`ClientsDocument::left`].
    pub left: Vec<LeftClientDocument>,
    /// The checkpoints.
    pub checkpoints: CheckpointsDocument,
}

/// `/api/v1/server`: the process and its service.
#[derive(Debug, Clone, Serialize)]
pub struct ServerDocument {
    /// Version of the package.
    pub version: String,
    /// The id of the server in hexadecimal digits.
    pub server_id: String,
    /// `loading` while a checkpoint is loaded, `serving`, or `stopping`.
    pub state: &'static str,
    /// Progress of the load, while a checkpoint is loaded.
    pub loading: Option<ProgressDocument>,
    /// Name of the machine.
    pub hostname: String,
    /// Process id.
    pub pid: u32,
    /// The addresses of the gRPC service, such as `127.0.0.1:8000` and `unix:/run/user/0/reverb/8000.sock`.
    pub addresses: Vec<String>,
    /// The address of the page; `null` if HTTP is off.
    pub dashboard_url: Option<String>,
    /// Time at which the server was started.
    pub started_at: f64,
    /// Time at which this document was made.
    pub now: f64,
    /// Resident memory of the process; `null` where the system does not tell.
    pub resident_bytes: Option<u64>,
    /// Memory that the process may use: the lowest limit of its control groups, or the memory of the machine; `null` where
    /// the system does not tell.
    pub memory_limit_bytes: Option<u64>,
    /// Processor time of the process in seconds; `null` where the system does not tell.
    pub cpu_seconds: Option<f64>,
    /// Buffers that are kept for further batches.
    pub buffer_pool_bytes: u64,
    /// Memory that clients of this host share with the server, where they find the data of their batches.
    pub shared_bytes: u64,
    /// Number of open connections.
    pub connections: u64,
    /// Bytes received over all connections since the start.
    pub receive_bytes: u64,
    /// Bytes sent over all connections since the start.
    pub transmit_bytes: u64,
}

/// `/api/v1/verdict`: whether the server works, in one line.
#[derive(Debug, Clone, Serialize)]
pub struct VerdictDocument {
    /// `flowing`, `waiting`, `stalled` or `idle`.
    pub state: &'static str,
    /// How good that is: `good`, `quiet` (nothing moves, and nothing is wrong), `warning` or `alarm`.
    pub level: &'static str,
    /// Time in seconds for which the server has waited, stalled or been idle; `null` while it flows.
    pub seconds: Option<f64>,
    /// The verdict as a sentence. It contains names, which are text of users.
    pub line: String,
    /// Numbers of the tables of which the sentence tells, the one where the wait began first.
    pub tables: Vec<usize>,
    /// What else is wrong. The line ends with it, and the level is `warning` at least.
    pub troubles: Vec<TroubleDocument>,
}

/// Something that is wrong with a server, whether its tables flow or not.
#[derive(Debug, Clone, Serialize)]
pub struct TroubleDocument {
    /// `save_failed`, `log_closed`, `log_late`, `disk_low` or `memory`.
    pub kind: &'static str,
    /// What is wrong.
    pub sentence: String,
}

/// Whether a table makes progress.
#[derive(Debug, Clone, Serialize)]
pub struct TableProgressDocument {
    /// As in [`VerdictDocument::state`].
    pub state: &'static str,
    /// As in [`VerdictDocument::level`].
    pub level: &'static str,
    /// Time in seconds without an insert or a sample while requests wait; `null` if none waits, or the table flows.
    pub seconds: Option<f64>,
    /// Why it stands still; empty while it does not.
    pub sentence: String,
    /// Time in seconds after which a pause is a stall, even if a connected client could end it.
    pub stall_after_seconds: f64,
    /// Inserts a second in the last ten seconds.
    pub inserts_per_second: f64,
    /// Samples a second in the last ten seconds.
    pub samples_per_second: f64,
    /// Samples per insert in the last minute; `null` without inserts.
    pub ratio: Option<f64>,
}

/// Requests of one client of one kind that wait at one table.
#[derive(Debug, Clone, Serialize)]
pub struct ClientWaitDocument {
    /// Number of the table.
    pub table: usize,
    /// Name of the table.
    pub table_name: String,
    /// `insert` or `sample`.
    pub operation: &'static str,
    /// Who waits: the program (`call`), a loader that draws ahead of it (`ahead`), or a program that waits for a newer
    /// version (`newer`). Only the first can stall.
    pub kind: &'static str,
    /// Number of requests.
    pub count: u64,
    /// Time in seconds that the first of them has waited.
    pub seconds: f64,
    /// What the first of them waits for, as a sentence.
    pub reason: String,
}

/// A client that has left.
#[derive(Debug, Clone, Serialize)]
pub struct LeftClientDocument {
    /// Name that the client gave itself. Text of users; empty if it gave none.
    pub name: String,
    /// The program in that name.
    pub program: String,
    /// Remote address.
    pub address: String,
    /// `tcp` or `unix`.
    pub transport: &'static str,
    /// What it did: `writes`, `draws`, `both` or `none`.
    pub role: &'static str,
    /// Items that it inserted.
    pub inserts: u64,
    /// Items that it drew.
    pub samples: u64,
    /// Time at which it connected.
    pub since: f64,
    /// Time at which its last connection ended.
    pub at: f64,
    /// How it left: `closed` if it said so, `lost` if its connection broke, `stopped` if it did not answer any more.
    pub how: &'static str,
}

/// `/api/v1/tables`.
#[derive(Debug, Clone, Serialize)]
pub struct TablesDocument {
    /// All tables, in the order of the server.
    pub tables: Vec<TableDocument>,
}

/// A table.
#[derive(Debug, Clone, Serialize)]
pub struct TableDocument {
    /// Number of the table, by which addresses name it.
    pub number: usize,
    /// Name of the table. Text of users: it may contain anything.
    pub name: String,
    /// The sampler: `fifo`, `lifo`, `uniform`, `min_heap`, `max_heap` or `prioritized(0.6)`.
    pub sampler: String,
    /// The remover, named like the sampler.
    pub remover: String,
    /// Maximum number of items.
    pub max_items: u64,
    /// Limit of `bytes`.
    pub max_bytes: Option<u64>,
    /// Number of draws after which an item leaves; 0 for no limit.
    pub max_times_sampled: i32,
    /// The figures of [`FIGURES`](reverb_core::FIGURES) by name, except histograms and those of waiting requests; removals
    /// by reason.
    #[serde(flatten)]
    pub figures: Value,
    /// Whether the table makes progress.
    pub progress: TableProgressDocument,
    /// The rate limiter.
    pub limiter: LimiterDocument,
    /// Waiting inserts.
    pub waiting_inserts: WaitingDocument,
    /// Waiting draws.
    pub waiting_samples: WaitingDocument,
    /// The columns of the signature, flattened; `null` without a signature.
    pub signature: Option<Vec<ColumnDocument>>,
}

/// A rate limiter. `null` stands for an infinite bound, and for an unlimited number.
#[derive(Debug, Clone, Serialize)]
pub struct LimiterDocument {
    /// `min_size` if only the number of items matters; `queue` and `stack`, which deliver each item once; or `ratio`.
    pub kind: &'static str,
    /// Samples per insert.
    pub samples_per_insert: f64,
    /// Number of items below which no draw may go.
    pub min_size: i64,
    /// Inserts times `samples_per_insert`, less samples.
    pub diff: f64,
    /// Lower bound of `diff`: no draw may take it below.
    pub min_diff: Option<f64>,
    /// Upper bound of `diff`: no insert may take it above.
    pub max_diff: Option<f64>,
    /// Items by which the actors, who insert, are ahead of the learner, who samples; below 0 if the learner is ahead.
    /// `null` without a ratio.
    pub ahead: Option<f64>,
    /// The least that `ahead` may be: no draw may take it below.
    pub least_ahead: Option<f64>,
    /// The most that `ahead` may be: no insert may take it above.
    pub most_ahead: Option<f64>,
    /// Number of inserts that may go now, if nothing else happens.
    pub inserts_allowed: Option<u64>,
    /// Number of draws that may go now, if nothing else happens.
    pub samples_allowed: Option<u64>,
    /// What holds back inserts, such as `actors may be at most 50 items ahead`; `null` if they are not limited.
    pub insert_bound: Option<String>,
    /// What holds back samples once there are enough items, such as `the learner must not be ahead`; `null` if nothing
    /// does.
    pub sample_bound: Option<String>,
    /// Who is ahead and what may go now in words, such as `actors are 12 items ahead (up to 50 allowed); 40 more samples or
    /// 12 more inserts may go`; or what the first request that waits waits for: `actors are 50 items ahead (up to 50
    /// allowed); 64 more samples until 8 inserts may go`.
    pub sentence: String,
}

/// Requests of one kind that wait at a table.
#[derive(Debug, Clone, Serialize)]
pub struct WaitingDocument {
    /// Number of requests that wait now.
    pub count: Option<u64>,
    /// Time in seconds that the first of them has waited; 0 if none waits.
    pub longest_seconds: Option<f64>,
    /// Time in seconds during which a request waited, since the table was created.
    pub blocked_seconds: f64,
    /// What the first of them waits for, as a sentence.
    pub reason: Option<String>,
}

/// A column of a signature.
#[derive(Debug, Clone, Serialize)]
pub struct ColumnDocument {
    /// Number of the column, by which addresses name it.
    pub number: usize,
    /// Path of the column, such as `data/observation/image`. Text of users.
    pub name: String,
    /// Element type as NumPy names it: `float32`, `uint8`, `string`.
    pub dtype: String,
    /// Shape: `null` in it for a length that is not fixed, and `null` in its place if not even their number is.
    pub shape: Option<Vec<Option<u64>>>,
}

/// `/api/v1/waits`: the requests that wait, longest first. At most 20 inserts and 20 draws of each table.
#[derive(Debug, Clone, Serialize)]
pub struct WaitsDocument {
    /// The requests.
    pub waits: Vec<WaitDocument>,
}

/// A request that waits.
#[derive(Debug, Clone, Serialize)]
pub struct WaitDocument {
    /// Number of the table.
    pub table: usize,
    /// Name of the table.
    pub table_name: String,
    /// `insert` or `sample`.
    pub operation: &'static str,
    /// As in [`ClientWaitDocument::kind`].
    pub kind: &'static str,
    /// Number of the client; see [`ClientDocument::id`].
    pub client: u64,
    /// Name that the client gave itself, by default its program, host and process id. Text of users.
    pub client_name: String,
    /// Remote address; empty in the same process.
    pub address: String,
    /// `tcp`, `unix` or `same_process`.
    pub transport: &'static str,
    /// Time in seconds that it has waited.
    pub seconds: f64,
    /// What it waits for, as a sentence.
    pub reason: String,
}

/// `/api/v1/role`: who asks, and what it may do.
#[derive(Debug, Clone, Serialize)]
pub struct RoleDocument {
    /// Name of its token. Text of users; `null` if the server asks nobody for one.
    pub token: Option<String>,
    /// `view`, `use` or `admin`; `admin` if the server asks nobody.
    pub role: &'static str,
}

/// `/api/v1/clients`.
#[derive(Debug, Clone, Serialize)]
pub struct ClientsDocument {
    /// The clients that are connected: a process each, in the order in which they connected. The process of the server
    /// itself is one if a client in it is used.
    pub clients: Vec<ClientDocument>,
    /// The clients that have left in the last ten minutes, the latest first, at most 256.
    pub left: Vec<LeftClientDocument>,
}

/// A client: all connections of a process.
#[derive(Debug, Clone, Serialize)]
pub struct ClientDocument {
    /// Number of its first connection that is open.
    pub id: u64,
    /// Name that the client gave itself. Text of users.
    pub name: String,
    /// The program in that name.
    pub program: String,
    /// Remote address of its first connection; empty in the same process.
    pub address: String,
    /// Name of the token that it showed last; empty if it needs none.
    pub token: String,
    /// What it may do: `view`, `use` or `admin`; empty where nobody is asked.
    pub may: &'static str,
    /// `tcp`, `unix` or `same_process`.
    pub transport: &'static str,
    /// Time at which it connected.
    pub since: f64,
    /// Number of open connections: one for calls, and one for writers. 0 in the same process.
    pub connections: u64,
    /// Number of open streams.
    pub streams: u64,
    /// What it does: `writes`, `draws`, `both` or `none`.
    pub role: &'static str,
    /// Items that it inserted.
    pub inserts: u64,
    /// Items that it drew.
    pub samples: u64,
    /// Items that it inserted a second of late.
    pub inserts_per_second: f64,
    /// Items that it drew a second of late.
    pub samples_per_second: f64,
    /// Time at which it sent something last; `null` before the first look.
    pub last_seen: Option<f64>,
    /// Bytes received from it.
    pub receive_bytes: u64,
    /// Bytes sent to it.
    pub transmit_bytes: u64,
    /// Memory that the server shares with it.
    pub shared_bytes: u64,
    /// What it waits for, longest first.
    pub waits: Vec<ClientWaitDocument>,
}

/// `/api/v1/checkpoints`.
#[derive(Debug, Clone, Serialize)]
pub struct CheckpointsDocument {
    /// The folder.
    pub path: String,
    /// Seconds between saves in the background.
    pub interval_seconds: Option<f64>,
    /// Time at which the next one is due.
    pub next_due_at: Option<f64>,
    /// The running save.
    pub saving: Option<ProgressDocument>,
    /// Number of saves that succeeded.
    pub saves_ok: u64,
    /// Number of saves that failed.
    pub saves_failed: u64,
    /// The error of the latest save, if it failed.
    pub last_error: Option<String>,
    /// The checkpoint that was loaded at the start.
    pub restored_from: Option<String>,
    /// Time at which that was saved; `null` also if its name does not say so.
    pub restored_saved_at: Option<f64>,
    /// Checkpoints in the folder, newest first.
    pub checkpoints: Vec<CheckpointDocument>,
    /// The log of changes since the newest one; `null` without `durability`.
    pub log: Option<StoreLogDocument>,
}

/// The log of changes.
#[derive(Debug, Clone, Serialize)]
pub struct StoreLogDocument {
    /// What a confirmed change survives: `process` or `power`.
    pub mode: &'static str,
    /// Size in bytes. What earlier servers have written counts as the size of its files.
    pub size_bytes: u64,
    /// Time in seconds for which something has been written and not synced; 0 if all is synced.
    pub sync_age_seconds: f64,
    /// Time in seconds after which what was written is synced at the latest.
    pub sync_interval_seconds: f64,
    /// Whether the disk has too little free space for the log and a save.
    pub is_disk_low: bool,
    /// What has closed it: inserts, deletes, resets and changes of options are refused; `null` while it works.
    pub failure: Option<String>,
}

/// Progress of a save or of a load.
#[derive(Debug, Clone, Serialize)]
pub struct ProgressDocument {
    /// The checkpoint.
    pub path: String,
    /// Time at which it began.
    pub since: f64,
    /// Bytes written or read.
    pub done_bytes: u64,
    /// Bytes in all; `null` if that is not known.
    pub total_bytes: Option<u64>,
}

/// A checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct CheckpointDocument {
    /// Its path.
    pub path: String,
    /// Time at which it was saved.
    pub saved_at: f64,
    /// Size of its files.
    pub size_bytes: u64,
    /// Time in seconds that the save took; `null` if another process saved it.
    pub duration_seconds: Option<f64>,
    /// Whether its files were read and compared with their hashes.
    pub is_verified: bool,
}

/// `/api/v1/log?since=N`: log lines with numbers above N, oldest first.
#[derive(Debug, Clone, Serialize)]
pub struct LogDocument {
    /// Number of the last line, for the next request.
    pub next: u64,
    /// The lines.
    pub lines: Vec<LogLineDocument>,
}

/// A log line.
#[derive(Debug, Clone, Serialize)]
pub struct LogLineDocument {
    /// Number of the line.
    pub number: u64,
    /// Time.
    pub at: f64,
    /// `info`, `warning` or `error`.
    pub level: &'static str,
    /// Text.
    pub message: String,
}

/// `/api/v1/history?since=N`: one point a second of the last 300 s, and one in 10 s of the rest of an hour. Counts are
/// totals; readers compute rates.
#[derive(Debug, Clone, Serialize)]
pub struct HistoryDocument {
    /// Number of the last point, for the next request. Points are numbered from 1.
    pub next: u64,
    /// Times of the points with numbers above N, oldest first.
    pub times: Vec<f64>,
    /// Resident memory at each point.
    pub resident_bytes: Vec<Option<u64>>,
    /// Bytes received so far at each point.
    pub receive_bytes: Vec<u64>,
    /// Bytes sent so far at each point.
    pub transmit_bytes: Vec<u64>,
    /// The first 64 tables.
    pub tables: Vec<TableHistoryDocument>,
    /// What happened after point N, oldest first.
    pub events: Vec<EventDocument>,
}

/// Something that happened to the server.
#[derive(Debug, Clone, Serialize)]
pub struct EventDocument {
    /// Time at which it happened, or was noticed within a second.
    pub at: f64,
    /// `start`, `restore` (a checkpoint was loaded), `save`, `save_failed`, `log_closed` (by a failure), `log_opened`
    /// (again), `options` (of a table were changed), `client_came` or `client_left`.
    pub kind: &'static str,
    /// Number of the table; `null` if it is not about one.
    pub table: Option<usize>,
    /// What happened, such as `actor.py ×2 connected`. It has names of users.
    pub text: String,
}

/// The history of a table: a value for each point.
#[derive(Debug, Clone, Serialize)]
pub struct TableHistoryDocument {
    /// Number of the table.
    pub number: usize,
    /// Number of items.
    pub items: Vec<u64>,
    /// Size of the chunks.
    pub bytes: Vec<u64>,
    /// Inserts since the server started.
    pub inserts: Vec<u64>,
    /// Samples since the server started, also those that went back.
    pub samples: Vec<u64>,
    /// See [`LimiterDocument::diff`].
    pub diff: Vec<f64>,
    /// Waiting inserts.
    pub waiting_inserts: Vec<u64>,
    /// Waiting draws.
    pub waiting_samples: Vec<u64>,
}

/// `/api/v1/tables/{table}/histograms`.
#[derive(Debug, Clone, Serialize)]
pub struct HistogramsDocument {
    /// Time at which the pages were read. Answers are kept for 5 s.
    pub at: f64,
    /// Number of items in the table.
    pub items: u64,
    /// Number of items that were looked at. If it is less than `items`, the first three histograms are estimates.
    pub looked_at: u64,
    /// Priorities of items.
    pub priority: HistogramDocument,
    /// Ages of items in seconds.
    pub age_seconds: HistogramDocument,
    /// Numbers of draws of items.
    pub times_sampled: HistogramDocument,
    /// Ages of items in seconds when they were drawn, of all draws since the table was created.
    pub sample_age_seconds: HistogramDocument,
    /// Numbers of draws of items that have left the table, since it was created.
    pub removed_times_sampled: HistogramDocument,
}

/// A histogram.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistogramDocument {
    /// Bounds of the buckets, ascending: bucket `i` holds values above `edges[i]`, up to `edges[i + 1]`. The first bucket
    /// also holds values equal to its lower bound.
    pub edges: Vec<f64>,
    /// Number of values in each bucket: one less than there are edges.
    pub counts: Vec<u64>,
}

/// `/api/v1/tables/{table}/items?order=newest&count=20`; `order` is `newest`, `oldest` or `highest` (priority), and
/// `key=K` asks for one item instead.
#[derive(Debug, Clone, Serialize)]
pub struct ItemsDocument {
    /// The items.
    pub items: Vec<ItemDocument>,
}

/// An item.
#[derive(Debug, Clone, Serialize)]
pub struct ItemDocument {
    /// Its key in decimal digits.
    pub key: String,
    /// Its priority; `null` if JSON has no number for it.
    pub priority: Option<f64>,
    /// Number of its draws.
    pub times_sampled: i32,
    /// Time of its insert.
    pub inserted_at: f64,
    /// Size of its data.
    pub bytes: u64,
    /// Its columns. The bytes of one are read from `/api/v1/tables/{table}/items/{key}/columns/{number}?raw`: the
    /// elements in C order, little-endian; for `string` columns, a JSON list of texts.
    pub columns: Vec<ItemColumnDocument>,
}

/// A column of an item.
#[derive(Debug, Clone, Serialize)]
pub struct ItemColumnDocument {
    /// Number of the column, by which addresses name it.
    pub number: usize,
    /// See [`ColumnDocument::name`].
    pub name: String,
    /// See [`ColumnDocument::dtype`].
    pub dtype: &'static str,
    /// Shape that a sample of the item has.
    pub shape: Vec<u64>,
    /// Number of steps, which are the first axis of the shape; `null` if the column is one step without that axis.
    pub steps: Option<u64>,
}
