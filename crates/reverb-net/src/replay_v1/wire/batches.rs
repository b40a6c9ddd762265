//! Converts batches to messages and back: drawn batches, whose data follows separately, and items that were not drawn.

use super::shapes::{shape_from_wire, to_usize};
use crate::replay_v1::proto::{self as replay, GetResponse, NewerResponse, PeekResponse, peek_response};
use bytes::Bytes;
use reverb_core::gather::{BatchColumn, BatchLayout, Gatherer};
use reverb_core::{BatchInfo, Buffer, CopiedBatch, DType, Drawn, Error, Result, for_each_fact};
use reverb_service::get::{Found, Got};
use reverb_service::peek::Peeked;
use reverb_service::{Batch, TableHandle};
use std::time::Duration;

/// Makes the header of a drawn batch.
pub fn batch_to_wire(gatherer: &Gatherer, table: &TableHandle, waited: Duration) -> replay::Batch {
    replay::Batch {
        columns: columns_to_wire(gatherer.layout()),
        signature_token: table.signature_token(),
        receipt_may_wait: !table.counts_samples(),
        waited_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX),
        ..drawn_to_wire(gatherer.items())
    }
}

/// Makes the header of a batch that was gathered already.
pub fn gathered_to_wire(batch: &Batch) -> replay::Batch {
    replay::Batch {
        columns: columns_to_wire(&batch.layout),
        signature_token: batch.signature_token,
        receipt_may_wait: true,
        ..info_to_wire(&batch.info)
    }
}

macro_rules! facts {
    ($($(#[$doc:meta])* $fact:ident, $column:ident: $type:ty = $dtype:ident;)*) => {
        /// Makes the columns of drawn items; the rest of the header is left out.
        fn drawn_to_wire(items: &[Drawn]) -> replay::Batch {
            let absent = replay::Batch::default();
            replay::Batch { $($column: to_bytes(items, |item| item.$fact.to_le_bytes()),)* ..absent }
        }

        /// As [`drawn_to_wire`], of information that was collected already.
        fn info_to_wire(info: &BatchInfo) -> replay::Batch {
            let absent = replay::Batch::default();
            replay::Batch { $($column: to_bytes(info.$column(), |number| number.to_le_bytes()),)* ..absent }
        }

        fn info_from_wire(batch: &replay::Batch) -> Result<BatchInfo> {
            BatchInfo::from_le_bytes([$(&batch.$column),*])
        }
    };
}

for_each_fact!(facts);

fn columns_to_wire(layout: &BatchLayout) -> Vec<replay::BatchColumn> {
    let to_column = |column: &BatchColumn| replay::BatchColumn {
        dtype: column.dtype as u32,
        shape: column.shape.iter().map(|&dim| dim as u64).collect(),
        row_lengths: column.row_lengths.clone().unwrap_or_default(),
        has_open_rows: column.has_open_rows,
        squeezed: column.squeezed,
        string_bytes: if column.dtype == DType::String { column.size_bytes as u64 } else { 0 },
    };
    layout.columns.iter().map(to_column).collect()
}

fn to_bytes<T, const N: usize>(numbers: &[T], to_le_bytes: impl Fn(&T) -> [u8; N]) -> Bytes {
    let numbers: Vec<[u8; N]> = numbers.iter().map(to_le_bytes).collect();
    numbers.into_flattened().into()
}

/// Reads the header of a batch: its sample information, its layout and its signature token.
///
/// # Errors
/// [`Error::DataLoss`] if the parts are not consistent.
pub fn batch_from_wire(batch: replay::Batch) -> Result<(BatchInfo, BatchLayout, u64)> {
    let info = info_from_wire(&batch)?;
    let count = info.len();
    let to_column = |column: replay::BatchColumn| {
        let shape = shape_from_wire(&column.shape)?;
        let dtype = DType::from_number(column.dtype)?;
        let size_bytes = to_usize(column.string_bytes)?;
        let ragged = !column.row_lengths.is_empty();
        let row_lengths = ragged.then_some(column.row_lengths);
        let rows: Option<usize> = row_lengths.as_ref().map(|lengths| lengths.iter().map(|&n| n as usize).sum());
        let fits = match rows {
            Some(rows) => {
                shape.first() == Some(&rows) && row_lengths.as_ref().is_some_and(|lengths| lengths.len() == count)
            }
            None => shape.first() == Some(&count),
        };
        if !fits {
            return Err(Error::DataLoss(format!("a column of a batch of {count} items has the shape {shape:?}")));
        }
        let (has_open_rows, squeezed) = (ragged && column.has_open_rows, column.squeezed);
        let shape = shape.to_vec();
        Ok(BatchColumn { dtype, shape, row_lengths, has_open_rows, squeezed, offset: 0, size_bytes })
    };
    let columns = batch.columns.into_iter().map(to_column).collect::<Result<_>>()?;
    Ok((info, BatchLayout::new(columns)?, batch.signature_token))
}

/// Converts peeked items to a message.
pub fn peeked_to_wire(items: &[Peeked]) -> PeekResponse {
    let item = |item: &Peeked| peek_response::Item {
        batch: Some(gathered_to_wire(&item.batch)),
        payload: payload_of(&item.batch),
        inserted_at: item.inserted_at,
    };
    PeekResponse { items: items.iter().map(item).collect() }
}

/// Reads peeked items from a message.
///
/// # Errors
/// [`Error::DataLoss`] if a payload does not match the columns of its batch.
pub fn peeked_from_wire(response: PeekResponse) -> Result<Vec<Peeked>> {
    let item = |item: peek_response::Item| {
        let batch = item.batch.ok_or_else(|| Error::DataLoss("a peeked item has no batch".into()))?;
        Ok(Peeked { batch: whole_from_wire(batch, &item.payload)?, inserted_at: item.inserted_at })
    };
    response.items.into_iter().map(item).collect()
}

/// Converts items that were read by their keys to a message.
pub fn got_to_wire(got: Got) -> GetResponse {
    let mut response = GetResponse { num_keys: got.num_keys as u64, ..GetResponse::default() };
    if let Some(Found { places, batch }) = got.found {
        response.places = places;
        response.payload = payload_of(&batch);
        response.batch = Some(gathered_to_wire(&batch));
    }
    response
}

/// Reads the items that a server has found of `asked` keys from a message.
///
/// # Errors
/// [`Error::DataLoss`] if the parts are not consistent.
pub fn got_from_wire(response: GetResponse, asked: usize) -> Result<Got> {
    let GetResponse { num_keys, places, batch, payload } = response;
    let num_keys = to_usize(num_keys)?;
    let found = match batch {
        Some(batch) => Some(Found { places, batch: whole_from_wire(batch, &payload)? }),
        None if places.is_empty() => None,
        None => {
            return Err(Error::DataLoss(format!("{} items were found, but there is no batch of them", places.len())));
        }
    };
    let is_answer = num_keys <= asked && (num_keys > 0 || asked == 0);
    let fits = |found: &Found| {
        let is_key = found.places.last().is_some_and(|&last| (last as usize) < num_keys);
        is_key && found.places.is_sorted_by(|a, b| a < b) && found.places.len() == found.batch.info.len()
    };
    if !is_answer || !found.as_ref().is_none_or(fits) {
        return Err(Error::DataLoss(format!("an answer about {num_keys} of {asked} keys has places that do not fit")));
    }
    Ok(Got { num_keys, found })
}

/// Converts the newest item to a message.
pub fn newer_to_wire(newer: Option<&Batch>) -> NewerResponse {
    newer.map_or_else(NewerResponse::default, |batch| NewerResponse {
        batch: Some(gathered_to_wire(batch)),
        payload: payload_of(batch),
    })
}

/// Reads the newest item from a message.
///
/// # Errors
/// [`Error::DataLoss`] if the payload does not match the columns of the batch, or if there are several items.
pub fn newer_from_wire(response: NewerResponse) -> Result<Option<Batch>> {
    let newer = response.batch.map(|batch| whole_from_wire(batch, &response.payload)).transpose()?;
    match newer.as_ref().map_or(1, |batch| batch.info.len()) {
        1 => Ok(newer),
        count => Err(Error::DataLoss(format!("expected the newest item, got {count} items"))),
    }
}

fn payload_of(batch: &Batch) -> Bytes {
    // SAFETY: the batch was gathered completely, so its buffer is initialised.
    unsafe { batch.buffer.to_vec() }.into()
}

/// Reads a batch whose data is complete.
fn whole_from_wire(batch: replay::Batch, payload: &[u8]) -> Result<Batch> {
    let (info, layout, signature_token) = batch_from_wire(batch)?;
    let buffer = to_buffer(payload, &layout)?;
    Ok(Batch::new(CopiedBatch { info, layout, buffer }, signature_token))
}

fn to_buffer(payload: &[u8], layout: &BatchLayout) -> Result<Buffer> {
    if payload.len() != layout.size_bytes {
        let (got, expected) = (payload.len(), layout.size_bytes);
        return Err(Error::DataLoss(format!("expected {expected} bytes of data of items, got {got}")));
    }
    let mut buffer = Buffer::new(payload.len());
    for (target, byte) in buffer.as_uninit_mut().iter_mut().zip(payload) {
        target.write(*byte);
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(keys: &'static [u8], times_sampled: &'static [u8]) -> replay::Batch {
        let numbers = || Bytes::from_static(&[0; 16]);
        replay::Batch {
            keys: Bytes::from_static(keys),
            probabilities: numbers(),
            table_sizes: numbers(),
            priorities: numbers(),
            times_sampled: Bytes::from_static(times_sampled),
            ..replay::Batch::default()
        }
    }

    #[test]
    fn numbers_of_a_batch_that_do_not_fit_together_are_data_loss() {
        assert_eq!(batch_from_wire(header(&[7; 16], &[1; 8])).unwrap().0.times_sampled(), [0x0101_0101; 2]);
        for (keys, times_sampled) in [(&[7; 15][..], &[1; 8][..]), (&[7; 16], &[1; 7]), (&[7; 8], &[1; 8])] {
            let result = batch_from_wire(header(keys, times_sampled));
            assert!(matches!(result, Err(Error::DataLoss(_))), "{result:?}");
        }
    }
}
