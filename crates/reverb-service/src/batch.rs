//! A batch of samples, the same type for every road.

use reverb_core::gather::{BatchLayout, Gatherer};
use reverb_core::{BatchInfo, Buffer, CopiedBatch, Drawn, Error, ItemView, Result};
use std::time::{Duration, Instant};

/// A complete batch of samples.
#[derive(Debug)]
pub struct Batch {
    /// Information on each sample.
    pub info: BatchInfo,
    /// Layout of the columns in `buffer`.
    pub layout: BatchLayout,
    /// Bytes of all columns.
    pub buffer: Buffer,
    /// Token of the table's signature; see [`crate::TableHandle::signature_token`].
    pub signature_token: u64,
    /// Whether the receipt may be sent with the next call.
    pub receipt_may_wait: bool,
    /// Time that the draw waited for the table.
    pub waited: Duration,
    /// Time at which the last byte arrived.
    pub arrived: Instant,
}

impl Batch {
    /// Creates a batch from copied samples. No draw waited for it, and its receipt may wait.
    #[inline]
    pub fn new(copied: CopiedBatch, signature_token: u64) -> Self {
        let CopiedBatch { info, layout, buffer } = copied;
        let (waited, arrived) = (Duration::ZERO, Instant::now());
        Self { info, layout, buffer, signature_token, receipt_may_wait: true, waited, arrived }
    }

    /// Copies the items of a gatherer into a batch. The gatherer keeps its items.
    pub fn gather(gatherer: &mut Gatherer, signature_token: u64) -> Self {
        let info = BatchInfo::of(gatherer.items());
        let buffer = gatherer.gather();
        Self::new(CopiedBatch { info, layout: gatherer.layout().clone(), buffer }, signature_token)
    }

    /// Copies items that were not drawn into a batch: the longest prefix of `items` that fits together.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the first item alone does not fit into memory.
    pub fn of_items(items: &[ItemView], table_size: u64, squeeze_time: bool, signature_token: u64) -> Result<Self> {
        let drawn = items.iter().map(|item| Drawn::peeked(item.clone(), table_size)).collect();
        let gatherer = Gatherer::new(drawn, squeeze_time).or_else(|mismatch| {
            let mut fitting = mismatch.items;
            fitting.truncate(mismatch.index);
            if fitting.is_empty() {
                return Err(mismatch.reason);
            }
            Gatherer::new(fitting, squeeze_time).map_err(|mismatch| mismatch.reason)
        });
        let gatherer = gatherer.map_err(|reason| Error::invalid(format!("items do not fit into a batch: {reason}")));
        Ok(Self::gather(&mut gatherer?, signature_token))
    }
}
