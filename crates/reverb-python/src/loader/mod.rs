//! The part of `reverb.loaders` that runs for each batch of microseconds.

mod batch_iterator;
mod clock;
mod draws_here;

pub use batch_iterator::BatchIterator;
pub use clock::StatsClock;
pub use draws_here::DrawsHere;
