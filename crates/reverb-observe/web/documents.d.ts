// @generated from `crates/reverb-observe/src/documents/schema.rs` by `make document-types`.

/** The answer of the call `Observe`: the documents of a server at one time. */
interface ObservedDocument {
  /** The process and its service. */
  server: ServerDocument;
  /** Whether the server works, in one line. */
  verdict: VerdictDocument;
  /** See `TablesDocument.tables`. */
  tables: TableDocument[];
  /** See `WaitsDocument.waits`. */
  waits: WaitDocument[];
  /** See `ClientsDocument.clients`. */
  clients: ClientDocument[];
  /** See `ClientsDocument.left`. */
  left: LeftClientDocument[];
  /** The checkpoints. */
  checkpoints: CheckpointsDocument;
}

/** `/api/v1/server`: the process and its service. */
interface ServerDocument {
  /** Version of the package. */
  version: string;
  /** The id of the server in hexadecimal digits. */
  server_id: string;
  /** `loading` while a checkpoint is loaded, `serving`, or `stopping`. */
  state: string;
  /** Progress of the load, while a checkpoint is loaded. */
  loading: ProgressDocument | null;
  /** Name of the machine. */
  hostname: string;
  /** Process id. */
  pid: number;
  /** The addresses of the gRPC service, such as `127.0.0.1:8000` and `unix:/run/user/0/reverb/8000.sock`. */
  addresses: string[];
  /** The address of the page; `null` if HTTP is off. */
  dashboard_url: string | null;
  /** Time at which the server was started. */
  started_at: number;
  /** Time at which this document was made. */
  now: number;
  /** Resident memory of the process; `null` where the system does not tell. */
  resident_bytes: number | null;
  /** Memory that the process may use: the lowest limit of its control groups, or the memory of the machine; `null` where the system does not tell. */
  memory_limit_bytes: number | null;
  /** Processor time of the process in seconds; `null` where the system does not tell. */
  cpu_seconds: number | null;
  /** Buffers that are kept for further batches. */
  buffer_pool_bytes: number;
  /** Memory that clients of this host share with the server, where they find the data of their batches. */
  shared_bytes: number;
  /** Number of open connections. */
  connections: number;
  /** Bytes received over all connections since the start. */
  receive_bytes: number;
  /** Bytes sent over all connections since the start. */
  transmit_bytes: number;
}

/** `/api/v1/verdict`: whether the server works, in one line. */
interface VerdictDocument {
  /** `flowing`, `waiting`, `stalled` or `idle`. */
  state: string;
  /** How good that is: `good`, `quiet` (nothing moves, and nothing is wrong), `warning` or `alarm`. */
  level: string;
  /** Time in seconds for which the server has waited, stalled or been idle; `null` while it flows. */
  seconds: number | null;
  /** The verdict as a sentence. It contains names, which are text of users. */
  line: string;
  /** Numbers of the tables of which the sentence tells, the one where the wait began first. */
  tables: number[];
  /** What else is wrong. The line ends with it, and the level is `warning` at least. */
  troubles: TroubleDocument[];
}

/** Something that is wrong with a server, whether its tables flow or not. */
interface TroubleDocument {
  /** `save_failed`, `log_closed`, `log_late`, `disk_low` or `memory`. */
  kind: string;
  /** What is wrong. */
  sentence: string;
}

/** Whether a table makes progress. */
interface TableProgressDocument {
  /** As in `VerdictDocument.state`. */
  state: string;
  /** As in `VerdictDocument.level`. */
  level: string;
  /** Time in seconds without an insert or a sample while requests wait; `null` if none waits, or the table flows. */
  seconds: number | null;
  /** Why it stands still; empty while it does not. */
  sentence: string;
  /** Time in seconds after which a pause is a stall, even if a connected client could end it. */
  stall_after_seconds: number;
  /** Inserts a second in the last ten seconds. */
  inserts_per_second: number;
  /** Samples a second in the last ten seconds. */
  samples_per_second: number;
  /** Samples per insert in the last minute; `null` without inserts. */
  ratio: number | null;
}

/** Requests of one client of one kind that wait at one table. */
interface ClientWaitDocument {
  /** Number of the table. */
  table: number;
  /** Name of the table. */
  table_name: string;
  /** `insert` or `sample`. */
  operation: string;
  /** Who waits: the program (`call`), a loader that draws ahead of it (`ahead`), or a program that waits for a newer version (`newer`). Only the first can stall. */
  kind: string;
  /** Number of requests. */
  count: number;
  /** Time in seconds that the first of them has waited. */
  seconds: number;
  /** What the first of them waits for, as a sentence. */
  reason: string;
}

/** A client that has left. */
interface LeftClientDocument {
  /** Name that the client gave itself. Text of users; empty if it gave none. */
  name: string;
  /** The program in that name. */
  program: string;
  /** Remote address. */
  address: string;
  /** `tcp` or `unix`. */
  transport: string;
  /** What it did: `writes`, `draws`, `both` or `none`. */
  role: string;
  /** Items that it inserted. */
  inserts: number;
  /** Items that it drew. */
  samples: number;
  /** Time at which it connected. */
  since: number;
  /** Time at which its last connection ended. */
  at: number;
  /** How it left: `closed` if it said so, `lost` if its connection broke, `stopped` if it did not answer any more. */
  how: string;
}

/** `/api/v1/tables`. */
interface TablesDocument {
  /** All tables, in the order of the server. */
  tables: TableDocument[];
}

/** A table. */
interface TableDocument {
  /** Number of the table, by which addresses name it. */
  number: number;
  /** Name of the table. Text of users: it may contain anything. */
  name: string;
  /** The sampler: `fifo`, `lifo`, `uniform`, `min_heap`, `max_heap` or `prioritized(0.6)`. */
  sampler: string;
  /** The remover, named like the sampler. */
  remover: string;
  /** Maximum number of items. */
  max_items: number;
  /** Limit of `bytes`. */
  max_bytes: number | null;
  /** Number of draws after which an item leaves; 0 for no limit. */
  max_times_sampled: number;
  /** Items in the table. */
  items: number;
  /** Distinct episodes that items refer to. */
  episodes: number;
  /** Episodes whose last item has left the table. */
  deleted_episodes: number;
  /** Items that were sampled at least once, also of those that have left. */
  unique_samples: number;
  /** Items inserted since the last reset, also before a checkpoint. */
  inserts: number;
  /** Items sampled since the last reset, also before a checkpoint, without samples that went back. */
  samples: number;
  /** Time since the table was created. */
  age_seconds: number;
  /** Size of the chunks that items refer to. Each chunk counts once. */
  bytes: number | null;
  /** Samples that were drawn and have not arrived yet. */
  undelivered_samples: number | null;
  /** Items that left the table, by reason. One that came back and left again counts twice. */
  removals: Record<string, number> | null;
  /** Sum of the weights of all items in draws: for a prioritized sampler of their priorities to the power of its exponent, otherwise their number. */
  weight: number | null;
  /** Size of the rows that items refer to. A row counts once for each item. */
  referenced_bytes: number | null;
  /** Estimated size of the table without its chunks: slots of items, index of keys, and selectors. */
  index_bytes: number | null;
  /** Distinct chunks that items refer to. */
  chunks: number | null;
  /** Items that left the table without a sample. */
  unsampled_removals: number | null;
  /** Items whose priority was set after their insert. */
  priority_updates: number | null;
  /** Size of the rows of inserted items. */
  insert_bytes: number | null;
  /** Size of the rows of sampled items, also of samples that went back. */
  sample_bytes: number | null;
  /** Unix time of the latest insert. Absent before the first. */
  last_insert_at: number | null;
  /** Unix time of the latest sample. Absent before the first. */
  last_sample_at: number | null;
  /** Largest finite priority of inserts and updates since the last reset. 1 before the first above 0. */
  largest_priority: number | null;
  /** Items inserted since the server started. */
  process_inserts: number | null;
  /** Items sampled since the server started, also of samples that went back. */
  process_samples: number | null;
  /** Samples that went back to the table, since their receiver never got them. */
  returned_samples: number | null;
  /** Items that came back to the table after their last sample, which went back. */
  returned_items: number | null;
  /** Items inserted, by the name of the program that inserted them: of at most 1,024, and of `others`. */
  inserts_by_client: Record<string, number> | null;
  /** Whether the table makes progress. */
  progress: TableProgressDocument;
  /** The rate limiter. */
  limiter: LimiterDocument;
  /** Waiting inserts. */
  waiting_inserts: WaitingDocument;
  /** Waiting draws. */
  waiting_samples: WaitingDocument;
  /** The columns of the signature, flattened; `null` without a signature. */
  signature: ColumnDocument[] | null;
}

/** A rate limiter. `null` stands for an infinite bound, and for an unlimited number. */
interface LimiterDocument {
  /** `min_size` if only the number of items matters; `queue` and `stack`, which deliver each item once; or `ratio`. */
  kind: string;
  /** Samples per insert. */
  samples_per_insert: number;
  /** Number of items below which no draw may go. */
  min_size: number;
  /** Inserts times `samples_per_insert`, less samples. */
  diff: number;
  /** Lower bound of `diff`: no draw may take it below. */
  min_diff: number | null;
  /** Upper bound of `diff`: no insert may take it above. */
  max_diff: number | null;
  /** Items by which the actors, who insert, are ahead of the learner, who samples; below 0 if the learner is ahead. `null` without a ratio. */
  ahead: number | null;
  /** The least that `ahead` may be: no draw may take it below. */
  least_ahead: number | null;
  /** The most that `ahead` may be: no insert may take it above. */
  most_ahead: number | null;
  /** Number of inserts that may go now, if nothing else happens. */
  inserts_allowed: number | null;
  /** Number of draws that may go now, if nothing else happens. */
  samples_allowed: number | null;
  /** What holds back inserts, such as `actors may be at most 50 items ahead`; `null` if they are not limited. */
  insert_bound: string | null;
  /** What holds back samples once there are enough items, such as `the learner must not be ahead`; `null` if nothing does. */
  sample_bound: string | null;
  /** Who is ahead and what may go now in words, such as `actors are 12 items ahead (up to 50 allowed); 40 more samples or 12 more inserts may go`; or what the first request that waits waits for: `actors are 50 items ahead (up to 50 allowed); 64 more samples until 8 inserts may go`. */
  sentence: string;
}

/** Requests of one kind that wait at a table. */
interface WaitingDocument {
  /** Number of requests that wait now. */
  count: number | null;
  /** Time in seconds that the first of them has waited; 0 if none waits. */
  longest_seconds: number | null;
  /** Time in seconds during which a request waited, since the table was created. */
  blocked_seconds: number;
  /** What the first of them waits for, as a sentence. */
  reason: string | null;
}

/** A column of a signature. */
interface ColumnDocument {
  /** Number of the column, by which addresses name it. */
  number: number;
  /** Path of the column, such as `data/observation/image`. Text of users. */
  name: string;
  /** Element type as NumPy names it: `float32`, `uint8`, `string`. */
  dtype: string;
  /** Shape: `null` in it for a length that is not fixed, and `null` in its place if not even their number is. */
  shape: (number | null)[] | null;
}

/** `/api/v1/waits`: the requests that wait, longest first. At most 20 inserts and 20 draws of each table. */
interface WaitsDocument {
  /** The requests. */
  waits: WaitDocument[];
}

/** A request that waits. */
interface WaitDocument {
  /** Number of the table. */
  table: number;
  /** Name of the table. */
  table_name: string;
  /** `insert` or `sample`. */
  operation: string;
  /** As in `ClientWaitDocument.kind`. */
  kind: string;
  /** Number of the client; see `ClientDocument.id`. */
  client: number;
  /** Name that the client gave itself, by default its program, host and process id. Text of users. */
  client_name: string;
  /** Remote address; empty in the same process. */
  address: string;
  /** `tcp`, `unix` or `same_process`. */
  transport: string;
  /** Time in seconds that it has waited. */
  seconds: number;
  /** What it waits for, as a sentence. */
  reason: string;
}

/** `/api/v1/role`: who asks, and what it may do. */
interface RoleDocument {
  /** Name of its token. Text of users; `null` if the server asks nobody for one. */
  token: string | null;
  /** `view`, `use` or `admin`; `admin` if the server asks nobody. */
  role: string;
}

/** `/api/v1/clients`. */
interface ClientsDocument {
  /** The clients that are connected: a process each, in the order in which they connected. The process of the server itself is one if a client in it is used. */
  clients: ClientDocument[];
  /** The clients that have left in the last ten minutes, the latest first, at most 256. */
  left: LeftClientDocument[];
}

/** A client: all connections of a process. */
interface ClientDocument {
  /** Number of its first connection that is open. */
  id: number;
  /** Name that the client gave itself. Text of users. */
  name: string;
  /** The program in that name. */
  program: string;
  /** Remote address of its first connection; empty in the same process. */
  address: string;
  /** Name of the token that it showed last; empty if it needs none. */
  token: string;
  /** What it may do: `view`, `use` or `admin`; empty where nobody is asked. */
  may: string;
  /** `tcp`, `unix` or `same_process`. */
  transport: string;
  /** Time at which it connected. */
  since: number;
  /** Number of open connections: one for calls, and one for writers. 0 in the same process. */
  connections: number;
  /** Number of open streams. */
  streams: number;
  /** What it does: `writes`, `draws`, `both` or `none`. */
  role: string;
  /** Items that it inserted. */
  inserts: number;
  /** Items that it drew. */
  samples: number;
  /** Items that it inserted a second of late. */
  inserts_per_second: number;
  /** Items that it drew a second of late. */
  samples_per_second: number;
  /** Time at which it sent something last; `null` before the first look. */
  last_seen: number | null;
  /** Bytes received from it. */
  receive_bytes: number;
  /** Bytes sent to it. */
  transmit_bytes: number;
  /** Memory that the server shares with it. */
  shared_bytes: number;
  /** What it waits for, longest first. */
  waits: ClientWaitDocument[];
}

/** `/api/v1/checkpoints`. */
interface CheckpointsDocument {
  /** The folder. */
  path: string;
  /** Seconds between saves in the background. */
  interval_seconds: number | null;
  /** Time at which the next one is due. */
  next_due_at: number | null;
  /** The running save. */
  saving: ProgressDocument | null;
  /** Number of saves that succeeded. */
  saves_ok: number;
  /** Number of saves that failed. */
  saves_failed: number;
  /** The error of the latest save, if it failed. */
  last_error: string | null;
  /** The checkpoint that was loaded at the start. */
  restored_from: string | null;
  /** Time at which that was saved; `null` also if its name does not say so. */
  restored_saved_at: number | null;
  /** Checkpoints in the folder, newest first. */
  checkpoints: CheckpointDocument[];
  /** The log of changes since the newest one; `null` without `durability`. */
  log: StoreLogDocument | null;
}

/** The log of changes. */
interface StoreLogDocument {
  /** What a confirmed change survives: `process` or `power`. */
  mode: string;
  /** Size in bytes. What earlier servers have written counts as the size of its files. */
  size_bytes: number;
  /** Time in seconds for which something has been written and not synced; 0 if all is synced. */
  sync_age_seconds: number;
  /** Time in seconds after which what was written is synced at the latest. */
  sync_interval_seconds: number;
  /** Whether the disk has too little free space for the log and a save. */
  is_disk_low: boolean;
  /** What has closed it: inserts, deletes, resets and changes of options are refused; `null` while it works. */
  failure: string | null;
}

/** Progress of a save or of a load. */
interface ProgressDocument {
  /** The checkpoint. */
  path: string;
  /** Time at which it began. */
  since: number;
  /** Bytes written or read. */
  done_bytes: number;
  /** Bytes in all; `null` if that is not known. */
  total_bytes: number | null;
}

/** A checkpoint. */
interface CheckpointDocument {
  /** Its path. */
  path: string;
  /** Time at which it was saved. */
  saved_at: number;
  /** Size of its files. */
  size_bytes: number;
  /** Time in seconds that the save took; `null` if another process saved it. */
  duration_seconds: number | null;
  /** Whether its files were read and compared with their hashes. */
  is_verified: boolean;
}

/** `/api/v1/log?since=N`: log lines with numbers above N, oldest first. */
interface LogDocument {
  /** Number of the last line, for the next request. */
  next: number;
  /** The lines. */
  lines: LogLineDocument[];
}

/** A log line. */
interface LogLineDocument {
  /** Number of the line. */
  number: number;
  /** Time. */
  at: number;
  /** `info`, `warning` or `error`. */
  level: string;
  /** Text. */
  message: string;
}

/** `/api/v1/history?since=N`: one point a second of the last 300 s, and one in 10 s of the rest of an hour. Counts are totals; readers compute rates. */
interface HistoryDocument {
  /** Number of the last point, for the next request. Points are numbered from 1. */
  next: number;
  /** Times of the points with numbers above N, oldest first. */
  times: number[];
  /** Resident memory at each point. */
  resident_bytes: (number | null)[];
  /** Bytes received so far at each point. */
  receive_bytes: number[];
  /** Bytes sent so far at each point. */
  transmit_bytes: number[];
  /** The first 64 tables. */
  tables: TableHistoryDocument[];
  /** What happened after point N, oldest first. */
  events: EventDocument[];
}

/** Something that happened to the server. */
interface EventDocument {
  /** Time at which it happened, or was noticed within a second. */
  at: number;
  /** `start`, `restore` (a checkpoint was loaded), `save`, `save_failed`, `log_closed` (by a failure), `log_opened` (again), `options` (of a table were changed), `client_came` or `client_left`. */
  kind: string;
  /** Number of the table; `null` if it is not about one. */
  table: number | null;
  /** What happened, such as `actor.py ×2 connected`. It has names of users. */
  text: string;
}

/** The history of a table: a value for each point. */
interface TableHistoryDocument {
  /** Number of the table. */
  number: number;
  /** Number of items. */
  items: number[];
  /** Size of the chunks. */
  bytes: number[];
  /** Inserts since the server started. */
  inserts: number[];
  /** Samples since the server started, also those that went back. */
  samples: number[];
  /** See `LimiterDocument.diff`. */
  diff: number[];
  /** Waiting inserts. */
  waiting_inserts: number[];
  /** Waiting draws. */
  waiting_samples: number[];
}

/** `/api/v1/tables/{table}/histograms`. */
interface HistogramsDocument {
  /** Time at which the pages were read. Answers are kept for 5 s. */
  at: number;
  /** Number of items in the table. */
  items: number;
  /** Number of items that were looked at. If it is less than `items`, the first three histograms are estimates. */
  looked_at: number;
  /** Priorities of items. */
  priority: HistogramDocument;
  /** Ages of items in seconds. */
  age_seconds: HistogramDocument;
  /** Numbers of draws of items. */
  times_sampled: HistogramDocument;
  /** Ages of items in seconds when they were drawn, of all draws since the table was created. */
  sample_age_seconds: HistogramDocument;
  /** Numbers of draws of items that have left the table, since it was created. */
  removed_times_sampled: HistogramDocument;
}

/** A histogram. */
interface HistogramDocument {
  /** Bounds of the buckets, ascending: bucket `i` holds values above `edges[i]`, up to `edges[i + 1]`. The first bucket also holds values equal to its lower bound. */
  edges: number[];
  /** Number of values in each bucket: one less than there are edges. */
  counts: number[];
}

/** `/api/v1/tables/{table}/items?order=newest&count=20`; `order` is `newest`, `oldest` or `highest` (priority), and `key=K` asks for one item instead. */
interface ItemsDocument {
  /** The items. */
  items: ItemDocument[];
}

/** An item. */
interface ItemDocument {
  /** Its key in decimal digits. */
  key: string;
  /** Its priority; `null` if JSON has no number for it. */
  priority: number | null;
  /** Number of its draws. */
  times_sampled: number;
  /** Time of its insert. */
  inserted_at: number;
  /** Size of its data. */
  bytes: number;
  /** Its columns. The bytes of one are read from `/api/v1/tables/{table}/items/{key}/columns/{number}?raw`: the elements in C order, little-endian; for `string` columns, a JSON list of texts. */
  columns: ItemColumnDocument[];
}

/** A column of an item. */
interface ItemColumnDocument {
  /** Number of the column, by which addresses name it. */
  number: number;
  /** See `ColumnDocument.name`. */
  name: string;
  /** See `ColumnDocument.dtype`. */
  dtype: string;
  /** Shape that a sample of the item has. */
  shape: number[];
  /** Number of steps, which are the first axis of the shape; `null` if the column is one step without that axis. */
  steps: number | null;
}
