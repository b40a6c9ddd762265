//! The draws that a batch has so far.

use super::parts::Parts;
use super::sorted::Member;
use crate::client::DrawCall;
use reverb_core::{CopiedBatch, Error, RaceWinner, Result, ShardBatch, merge_batches};
use reverb_service::Batch;
use reverb_service::decoding::on_bytes;
use std::sync::Arc;
use std::time::Duration;

/// The winners of all rounds of one batch, in the order of their arrivals.
#[derive(Debug, Default)]
pub struct Gathered {
    batches: Vec<ShardBatch>,
    calls: Vec<DrawCall>,
    /// Each is a row of one of the batches.
    winners: Vec<RaceWinner>,
    receipt_may_wait: bool,
    /// The address of the first shard that gave a batch, and the token of its signature.
    signature: Option<(Arc<str>, u64)>,
}

/// The part of one shard in a round.
#[derive(Debug)]
pub struct RoundPart {
    /// The shard.
    pub member: Member,
    /// The positions of its winners among its arrivals, which ascend.
    pub winners: Vec<usize>,
    /// The winners, in this order.
    pub batch: Batch,
    /// The draw of the batch.
    pub call: DrawCall,
}

impl Gathered {
    /// Whether draws went back with the connection to their shard.
    pub fn is_lost(&self) -> bool {
        self.calls.iter().any(DrawCall::is_lost)
    }

    /// Number of draws from a shard.
    pub fn held(&self, shard: u32) -> u64 {
        let of_shard = self.batches.iter().filter(|part| part.shard == shard);
        of_shard.map(|part| part.batch.info.len() as u64).sum()
    }

    /// Number of draws.
    pub fn len(&self) -> usize {
        self.winners.len()
    }

    /// Adds a round. The `shard` of a winner is the position of its part.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the tables of two shards have different signatures. [`Error::DataLoss`] if a batch has
    /// not the rows of its winners.
    pub fn add(&mut self, parts: Vec<RoundPart>, winners: &[RaceWinner]) -> Result<()> {
        let first = self.batches.len();
        for winner in winners {
            let index = parts[winner.shard].winners.binary_search(&winner.index);
            let index = index.map_err(|_| Error::Internal("a winner was not chosen".into()))?;
            self.winners.push(RaceWinner { shard: first + winner.shard, index, ..*winner });
        }
        for RoundPart { member, winners, batch, call } in parts {
            let (rows, expected) = (batch.info.len(), winners.len());
            if rows != expected {
                let peer = &member.peer;
                return Err(Error::DataLoss(format!("expected {expected} rows from the shard at {peer}, got {rows}")));
            }
            self.receipt_may_wait = batch.receipt_may_wait && (self.receipt_may_wait || self.calls.is_empty());
            let (peer, token) = self.signature.get_or_insert((member.peer.clone(), batch.signature_token));
            if *token != batch.signature_token {
                return Err(Error::invalid(format!(
                    "expected tables of the same signature at all shards; those at {peer} and {} differ",
                    member.peer
                )));
            }
            let Batch { info, layout, buffer, .. } = batch;
            self.batches.push(ShardBatch { shard: member.id, batch: CopiedBatch { info, layout, buffer } });
            self.calls.push(call);
        }
        Ok(())
    }

    /// Makes the batch.
    ///
    /// # Errors
    /// Those of [`merge_batches`].
    pub fn finish(self, squeeze_time: bool, waited: Duration) -> Result<(Batch, Parts)> {
        let Self { batches, calls, winners, receipt_may_wait, signature } = self;
        let bytes = batches.iter().map(|part| part.batch.buffer.len()).sum();
        let merged = on_bytes(bytes, || merge_batches(batches, &winners, squeeze_time))?;
        let batch = Batch::new(merged, signature.map_or(0, |(_, token)| token));
        Ok((Batch { receipt_may_wait, waited, ..batch }, Parts::new(calls)))
    }
}
