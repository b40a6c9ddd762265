//! The writers, each in its own file.

mod batched_writer;
mod column_history;
mod pattern_reader;
mod pattern_writer;
mod row_writer;
pub mod session;
mod signatures;
mod steps_in;
mod trajectory_writer;

pub use batched_writer::BatchedWriter;
pub use column_history::ColumnHistory;
pub use pattern_reader::PatternReader;
pub use pattern_writer::PatternWriter;
pub use row_writer::RowWriter;
pub use trajectory_writer::TrajectoryWriter;
