//! The part of `reverb.loaders` that runs for each batch, of which small ones take microseconds.

mod batch_iterator;
mod clock;
mod local_draws;

pub use batch_iterator::BatchIterator;
pub use clock::StatsClock;
pub use local_draws::LocalDraws;
