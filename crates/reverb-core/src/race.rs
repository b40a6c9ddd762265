//! Exact draws over several tables, the shards, as if one table had all their items: by a race.
//!
//! Each shard makes the arrivals of a Poisson process whose rate is the sum of its weights. Each arrival is a draw of an
//! item ([`Table::race`](crate::Table::race)). Merged by time, the arrivals of all shards are one Poisson process whose
//! rate is the sum W of all weights, and each arrival is item i with probability w_i / W, whatever came before: Kingman
//! 1993, "Poisson Processes", §2.2 and §5.2. So the first B arrivals are B independent draws. What the caller knew of
//! the weights before decides only how long the race lasts. Weights that have changed since do not bias the draws.
//!
//! Where draws remove items, the first arrival of item i has the exponential distribution of rate w_i. The order of such
//! arrivals is that of successive draws without replacement: Efraimidis and Spirakis 2006, "Weighted random sampling
//! with a reservoir".
//!
//! Items of samplers that draw in an order (Fifo, Lifo, heaps) have no weights. Each of them counts as 1, so each arrival
//! falls on a shard with the probability size / sum of all sizes, and is the next item of that shard. The winners of a
//! shard are its first arrivals: in order within the shard, and in none across shards.
//!
//! A round counts only if all shards have answered, and each shard has to be asked in each round, also one that was
//! empty. Shards with seeds need different ones, since their arrivals have to be independent. What counts must end at a
//! stopping time: whether it ends with an arrival may depend on this one and on earlier ones, never on later ones.
//! Otherwise the draws of the next rounds do not make up for what was left out.

use crate::RateLimiterConfig;

/// What one round of a race asks of every shard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Race {
    /// The arrivals are those in `[0, interval)`, in units of time that are 1 / weight. Above 0; may be infinite.
    pub interval: f64,
    /// Maximum number of arrivals of a shard; at least 1.
    pub limit: usize,
    /// Whether rates are numbers of items instead of sums of weights: where all items of all shards have weight 0.
    pub by_size: bool,
}

/// An arrival of a shard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RaceArrival {
    /// The time since the start of the race.
    pub time: f64,
    /// The weight of the drawn item, or 1 in a race by sizes, up to rounding.
    pub weight: f64,
}

/// The answer of a shard, without the draws themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct RaceReport {
    /// The arrivals, in the order of their times.
    pub arrivals: Vec<RaceArrival>,
    /// Whether the arrivals have reached the limit, so that none is known after the last.
    pub is_cut: bool,
    /// The sum of the weights of all items before the first arrival.
    pub weight: f64,
    /// Number of items before the first arrival.
    pub size: u64,
    /// As `weight`, after the last arrival: less than `weight` where draws remove items.
    pub weight_left: f64,
    /// As `size`, after the last arrival.
    pub size_left: u64,
    /// Number of draws that all items had left before the first arrival. `None` if draws do not remove items.
    pub draws_left: Option<u64>,
    /// Whether the sampler gives one item for certain, the first or the best, so that it draws in an order.
    pub in_order: bool,
    /// The settings of the rate limiter, which the caller applies to all shards together.
    pub limiter: RateLimiterConfig,
}

/// A draw of the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RaceWinner {
    /// Position of the shard in the list of reports.
    pub shard: usize,
    /// Position among the arrivals of the shard.
    pub index: usize,
    /// The weight of the item divided by the sum of all weights before the round. Where draws remove items, earlier
    /// draws of the same round are still in that sum. 1 if the sampler draws in an order, as one table says.
    pub probability: f64,
    /// Number of items of all shards before the round.
    pub table_size: i64,
}

/// What one round has brought.
#[derive(Debug, Clone, PartialEq)]
pub struct RaceRound {
    /// The draws that count, in the order of the batch. All other draws go back to their shards.
    pub winners: Vec<RaceWinner>,
    /// Number of draws that the batch still lacks.
    pub missing: usize,
    /// What comes next.
    pub next: AfterRound,
}

/// What comes after a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AfterRound {
    /// Nothing: the batch is complete.
    Done,
    /// Another round for the missing draws. The winners of this one stay in the batch.
    Race(Race),
    /// No shard has an item left, so the caller waits for inserts. Where draws remove items, it first gives back all
    /// draws that it holds, those of earlier rounds too: two callers that each hold some of the last items would wait
    /// for each other for ever.
    Wait,
}

impl Race {
    /// Returns the race for `wanted` draws, given the last known sums of the weights and sizes of all shards. `None` if
    /// both are 0.
    ///
    /// It brings `wanted + 2·√wanted + 4` arrivals on average, so fewer than wanted in less than 1 of 40 races whose
    /// sums are up to date and whose draws remove nothing.
    pub fn new(wanted: usize, weight: f64, size: u64) -> Option<Self> {
        let by_size = weight <= 0.0;
        let rate = if by_size { size as f64 } else { weight };
        let arrivals = wanted as f64 + 2.0 * (wanted as f64).sqrt() + 4.0;
        (rate > 0.0).then(|| Self { interval: arrivals / rate, limit: wanted.max(1), by_size })
    }

    /// Merges the reports of all shards of one round, and takes the first `wanted` arrivals.
    ///
    /// If a shard was cut, arrivals after its last do not count; its last one does, because the limit is a stopping time.
    /// A race by sizes does not count at all if an item has a weight above 0 by now.
    pub fn merge(&self, wanted: usize, reports: &[RaceReport]) -> RaceRound {
        let sum = |of: fn(&RaceReport) -> f64| reports.iter().map(of).sum::<f64>();
        let count = |of: fn(&RaceReport) -> u64| reports.iter().map(of).sum::<u64>();
        let (weight, size) = (sum(|report| report.weight), count(|report| report.size));
        let horizon = if self.by_size && weight > 0.0 { f64::NEG_INFINITY } else { horizon(reports) };
        let mut first = Vec::new();
        for (shard, report) in reports.iter().enumerate() {
            let known = report.arrivals.iter().enumerate().take_while(|(_, arrival)| arrival.time <= horizon);
            first.extend(known.map(|(index, arrival)| (arrival.time, shard, index)));
        }
        first.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        first.truncate(wanted);
        let rate = if self.by_size { size as f64 } else { weight };
        let winners = first.iter().map(|&(_, shard, index)| {
            let report = &reports[shard];
            let probability = if report.in_order { 1.0 } else { report.arrivals[index].weight / rate };
            RaceWinner { shard, index, probability, table_size: size as i64 }
        });
        let missing = wanted - first.len();
        // Where draws remove items, those that go back are not among the items left.
        let all_won = count(|report| report.arrivals.len() as u64) == first.len() as u64;
        let next = match missing {
            0 => AfterRound::Done,
            _ if all_won => Self::after(missing, sum(|report| report.weight_left), count(|report| report.size_left)),
            _ => Self::after(missing, weight, size),
        };
        RaceRound { winners: winners.collect(), missing, next }
    }

    fn after(missing: usize, weight: f64, size: u64) -> AfterRound {
        Self::new(missing, weight, size).map_or(AfterRound::Wait, AfterRound::Race)
    }
}

/// The time up to which the arrivals of all shards are known.
fn horizon(reports: &[RaceReport]) -> f64 {
    let cut = reports.iter().filter(|report| report.is_cut);
    cut.map(|report| report.arrivals.last().map_or(0.0, |last| last.time)).fold(f64::INFINITY, f64::min)
}
