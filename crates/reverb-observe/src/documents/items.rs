//! Describes items, and reads their columns.

use super::columns::{dtype_name, names};
use super::schema::{ItemColumnDocument, ItemDocument, ItemsDocument};
use reverb_core::gather::Gatherer;
use reverb_core::{DType, Drawn, Error, ItemView, Result, Signature, Trajectory};
use reverb_service::{Batch, TableHandle};

// limit (HTTP, metrics and logs): a column of an item over HTTP | {} | 413
/// Maximum size in bytes of a column that is read.
const MAX_COLUMN_BYTES: u64 = 16 << 20;
/// Size in bytes of the end of a string in a batch.
const END_BYTES: usize = 4;

/// Describes items of a table. Reads none of their data.
pub fn items(table: &TableHandle, items: &[ItemView]) -> ItemsDocument {
    let signature = table.with_table(|table| table.config().signature.clone());
    ItemsDocument { items: items.iter().map(|item| describe(item, signature.as_deref())).collect() }
}

fn describe(item: &ItemView, signature: Option<&Signature>) -> ItemDocument {
    ItemDocument {
        key: item.key.to_string(),
        priority: item.priority.is_finite().then_some(item.priority),
        times_sampled: item.times_sampled,
        inserted_at: item.inserted_at as f64 / 1e9,
        bytes: item.trajectory.size_bytes(),
        columns: columns(&item.trajectory, signature),
    }
}

fn columns(trajectory: &Trajectory, signature: Option<&Signature>) -> Vec<ItemColumnDocument> {
    let column = |(number, name)| {
        let array = trajectory.array_type(number);
        let shape: Vec<_> = array.shape.iter().map(|&size| size as u64).collect();
        let steps = array.has_time.then(|| shape[0]);
        ItemColumnDocument { number, name, dtype: dtype_name(array.dtype), shape, steps }
    };
    names(signature, trajectory.num_columns()).into_iter().enumerate().map(column).collect()
}

/// A column of an item as bytes.
#[derive(Debug, PartialEq)]
pub struct ColumnBytes {
    /// Element type as NumPy names it, or `string`.
    pub dtype: &'static str,
    /// Shape.
    pub shape: Vec<usize>,
    /// The elements in C order, little-endian. For strings, a JSON list of texts.
    pub bytes: Vec<u8>,
}

/// Reads a column of an item. `None` if it has no such column.
///
/// # Errors
/// [`Error::ResourceExhausted`] if the column has more than 16 MiB; [`Error::DataLoss`] if its chunk does not decode.
pub fn column_bytes(item: &ItemView, number: usize) -> Result<Option<ColumnBytes>> {
    let Some(trajectory) = item.trajectory.only_column(number) else { return Ok(None) };
    let array = trajectory.array_type(0);
    // Of strings, this is an estimate.
    check_size(number, trajectory.size_bytes())?;
    let alone = Drawn::peeked(ItemView { trajectory, ..item.clone() }, 1);
    let mut gatherer = Gatherer::new(vec![alone], false).map_err(|mismatch| Error::DataLoss(mismatch.reason))?;
    check_size(number, gatherer.layout().size_bytes as u64)?;
    let batch = Batch::gather(&mut gatherer, 0);
    // SAFETY: the batch was gathered, so all of its bytes were written.
    let bytes = unsafe { batch.buffer.to_vec() };
    let bytes = match array.dtype {
        DType::String => texts(&bytes, array.shape.iter().product())?,
        _ => bytes,
    };
    Ok(Some(ColumnBytes { dtype: dtype_name(array.dtype), shape: array.shape, bytes }))
}

fn check_size(number: usize, size_bytes: u64) -> Result<()> {
    if size_bytes <= MAX_COLUMN_BYTES {
        return Ok(());
    }
    Err(Error::ResourceExhausted(format!(
        "column {number} has {size_bytes} bytes; columns of at most {MAX_COLUMN_BYTES} bytes can be shown"
    )))
}

/// Converts strings from their layout in a batch, ends and then text, to a JSON list.
fn texts(bytes: &[u8], count: usize) -> Result<Vec<u8>> {
    let damaged = || Error::DataLoss("a column of strings is shorter than its layout".into());
    let (ends, text) = bytes.split_at_checked(END_BYTES * (count + 1)).ok_or_else(damaged)?;
    let ends: Vec<_> = ends.as_chunks().0.iter().map(|&end| u32::from_le_bytes(end) as usize).collect();
    let strings = ends.windows(2).map(|range| Some(String::from_utf8_lossy(text.get(range[0]..range[1])?)));
    let strings: Vec<_> = strings.collect::<Option<_>>().ok_or_else(damaged)?;
    serde_json::to_vec(&strings).map_err(|error| Error::Internal(error.to_string()))
}
