//! Samples and requests of draws that were given up. A server of dm-reverb takes nothing back, and it answers a request
//! even after its stream was cancelled. So the next draws from the table get both.

use super::answering::Answering;
use parking_lot::Mutex;
use reverb_core::Drawn;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What is left, by table.
#[derive(Debug, Default)]
pub struct Left(Mutex<HashMap<String, OfTable>>);

#[derive(Debug, Default)]
struct OfTable {
    samples: VecDeque<Drawn>,
    requests: VecDeque<Answering>,
}

/// The samples of a batch until their receiver has confirmed them. Dropping it leaves them to the next draws.
#[derive(Debug)]
pub struct Unconfirmed {
    left: Arc<Left>,
    table: String,
    samples: Vec<Drawn>,
}

impl Left {
    /// Takes up to `wanted` samples.
    pub fn take(&self, table: &str, wanted: usize) -> Vec<Drawn> {
        let mut tables = self.0.lock();
        let Some(of_table) = tables.get_mut(table) else { return Vec::new() };
        let taken = of_table.samples.drain(..wanted.min(of_table.samples.len())).collect();
        if of_table.samples.is_empty() && of_table.requests.is_empty() {
            tables.remove(table);
        }
        taken
    }

    /// Takes a request that the server still answers.
    pub fn take_request(&self, table: &str) -> Option<Answering> {
        self.0.lock().get_mut(table)?.requests.pop_front()
    }

    /// Keeps samples, and after them those of a request, for the next draws, before others that are kept.
    pub fn keep(&self, table: &str, samples: Vec<Drawn>, request: Option<Answering>) {
        let (later, request) = request.map(Answering::give_up).unwrap_or_default();
        if samples.is_empty() && later.is_empty() && request.is_none() {
            return;
        }
        let mut tables = self.0.lock();
        let of_table = tables.entry(table.into()).or_default();
        samples.into_iter().chain(later).rev().for_each(|sample| of_table.samples.push_front(sample));
        request.into_iter().for_each(|request| of_table.requests.push_front(request));
    }
}

impl Unconfirmed {
    /// Makes it of the samples of a batch.
    pub fn new(left: &Arc<Left>, table: &str, samples: Vec<Drawn>) -> Self {
        Self { left: left.clone(), table: table.into(), samples }
    }

    /// Forgets the samples, which have arrived where they belong.
    pub fn confirm(mut self) {
        self.samples.clear();
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        self.left.keep(&self.table, std::mem::take(&mut self.samples), None);
    }
}
