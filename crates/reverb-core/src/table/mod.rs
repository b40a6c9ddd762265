//! A table: items, a selector to sample by, a selector to remove by, and a rate limiter.
//!
//! A table never waits. Callers ask [`Table::can_insert`] or [`Table::can_sample`] first and wait elsewhere. Calls that
//! release data put it into a list of the caller, which drops it outside the lock that guards the table.
//!
//! An insert under a key that the table has assigns the priority to that item. Otherwise it adds the item; above
//! `max_size` the remover chooses an item to remove, possibly the new one, and while the chunks in use exceed
//! `max_bytes` it chooses more. A mutation checks all priorities first, then deletes, then updates.
//!
//! The files here add to [`Table`]: `contents` defines it and changes its items, `check` decides what it accepts,
//! `change` updates and deletes, `configure` changes options, `draw`, `copied` and `race` sample and take draws back,
//! `in_flight` tracks draws until they are delivered, `journal` notes effects in `noted`, `replay` repeats them, `snapshot`
//! saves and restores, `compaction` finds unused memory, `counters`, `figures`, `histograms`, `info`, `pages`, `peek` and
//! `removal` report, `largest` compares a table with others, and `limiter_words` says what the rate limiter allows.

mod change;
mod check;
mod compaction;
mod config;
mod configure;
mod contents;
mod copied;
mod counters;
mod draw;
mod figures;
mod histograms;
mod in_flight;
mod info;
mod journal;
mod largest;
mod limiter_words;
mod noted;
mod pages;
mod peek;
mod race;
mod removal;
mod replay;
mod snapshot;

pub use config::{TableChanges, TableConfig};
pub use configure::Shrinking;
pub use contents::{OldContents, OldCounts, Table};
pub use copied::{CopiedBatch, CopiedDraws, DrawnSlot};
pub use figures::{ClientCounts, FIGURES, Figure, FigureValue, Metric, MetricKind, TableInfo};
pub use histograms::{LOG2_BUCKETS, Log2Histogram, WAIT_BOUNDS, WaitHistogram};
pub use in_flight::Delivery;
pub use limiter_words::{LimiterKind, LimiterView, WaitingBatches};
pub use pages::{ItemNumbers, ItemPages};
pub use peek::PeekSearch;
pub use removal::{RemovalCounts, RemovalReason};
pub use replay::Replay;
pub use snapshot::TableSnapshot;
