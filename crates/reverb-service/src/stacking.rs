//! Stacks drawn items into a batch.

use reverb_core::gather::{BatchColumn, Gatherer};
use reverb_core::{DType, Drawn, Error, Result};

/// Plans a batch of items that were drawn from a table. If not all of them fit together, takes the longest prefix that
/// does and has at least `at_least` items, and calls `give_back` with the others.
///
/// # Errors
/// [`Error::InvalidArgument`], naming the item and how it differs, if too few items fit. All items were given back then.
pub fn stack(
    table: &str,
    drawn: Vec<Drawn>,
    at_least: usize,
    squeeze_time: bool,
    give_back: impl Fn(Vec<Drawn>),
) -> Result<Gatherer> {
    let gatherer = Gatherer::new(drawn, squeeze_time).or_else(|mismatch| {
        let (mut items, index) = (mismatch.items, mismatch.index);
        // A single item fits with itself, so the index is 0 only if the item does not fit into memory.
        if index < at_least.max(1) {
            give_back(items);
            return Err(Error::invalid(format!(
                "items of table `{table}` cannot be stacked into a batch: item {index} differs from earlier ones: {}",
                mismatch.reason
            )));
        }
        give_back(items.split_off(index));
        Gatherer::new(items, squeeze_time).map_err(|mismatch| {
            give_back(mismatch.items);
            Error::invalid(format!("items of table `{table}` cannot be stacked: {}", mismatch.reason))
        })
    })?;
    // The ends of strings are 32-bit numbers.
    let columns = &gatherer.layout().columns;
    let too_large = |column: &&BatchColumn| column.dtype == DType::String && column.size_bytes > u32::MAX as usize;
    let Some(size_bytes) = columns.iter().find(too_large).map(|column| column.size_bytes) else { return Ok(gatherer) };
    give_back(gatherer.into_items());
    Err(Error::invalid(format!(
        "a batch of table `{table}` has a column of strings with {size_bytes} bytes, more than the maximum of {}",
        u32::MAX
    )))
}
