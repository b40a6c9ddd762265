//! What the shards of a round have together: whether their rate limiter lets draws go, and what a draw lacks that waits.

use reverb_core::words::{counted, number};
use reverb_core::{Error, RaceReport, RateLimiterConfig, Result};
use reverb_service::Stock;

/// The amounts of all shards of a round, before its first arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Sums {
    /// The sum of all weights.
    pub weight: f64,
    /// Number of items.
    pub size: u64,
    /// Number of draws that all items have left. `None` if draws do not remove items.
    draws: Option<u64>,
    /// `min_size_to_sample`, which all shards have alike. It counts the items of all.
    min_size: u64,
    /// The size and the draws of each shard.
    each: Vec<(u64, u64)>,
}

/// What a draw lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What the draw waits for at each shard. Unless one of them has its stock, all together cannot have enough.
    pub stocks: Vec<Stock>,
    /// What the shards have of what the draw needs: `12 of 100 items`.
    pub words: String,
}

impl Sums {
    /// Adds up what the shards of a table have.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the settings and the names of two shards whose rate limiters differ.
    pub fn of(table: &str, reports: &[RaceReport], name: impl Fn(usize) -> String) -> Result<Self> {
        let min_size = match reports {
            [first, others @ ..] => {
                if let Some(other) = others.iter().position(|other| other.limiter != first.limiter) {
                    let (one, another) = (settings(&first.limiter), settings(&others[other].limiter));
                    return Err(Error::invalid(format!(
                        "expected the same rate limiter of table `{table}` at all shards, but {} has {one}, and {} has \
                         {another}",
                        name(0),
                        name(other + 1)
                    )));
                }
                first.limiter.min_size_to_sample
            }
            [] => 1,
        };
        Ok(Self {
            weight: reports.iter().map(|report| report.weight).sum(),
            size: reports.iter().map(|report| report.size).sum(),
            draws: reports.iter().map(|report| report.draws_left).sum(),
            min_size: u64::try_from(min_size).unwrap_or(0),
            each: reports.iter().map(|report| (report.size, report.draws_left.unwrap_or(0))).collect(),
        })
    }

    /// The number of draws, at most `wanted`, that `min_size_to_sample` lets go: as one table of all items would, it
    /// holds before each draw. Where an item can be drawn several times, the next round may let more go.
    pub fn allowed(&self, wanted: usize) -> usize {
        if self.size < self.min_size {
            return 0;
        }
        match self.draws {
            Some(_) if self.min_size > 1 => {
                usize::try_from(self.size - self.min_size + 1).map_or(wanted, |most| most.min(wanted))
            }
            _ => wanted,
        }
    }

    /// Says what a draw of `at_least` items lacks that has found too few, once it has given back what it holds: so many
    /// draws of each shard from earlier rounds.
    ///
    /// If the shards lack `n` items together, one of `s` shards gets at least `n / s` before they have enough. So each wait
    /// is for that many more, and a draw that lacks many is woken seldom.
    pub fn lack(&self, at_least: u64, held: &[u64]) -> Lack {
        let (size, min_size, all_held) = (self.size, self.min_size, held.iter().sum::<u64>());
        let all = at_least + min_size.max(1) - 1;
        let (of_draws, lacks, (have, need, noun)) = match self.draws {
            // Each item has one draw, so all that follows counts items.
            Some(draws) if draws == size => {
                (true, all.saturating_sub(draws + all_held), (size + all_held, all, "item"))
            }
            Some(draws) if min_size <= 1 => {
                (true, at_least.saturating_sub(draws + all_held), (draws + all_held, at_least, "draw"))
            }
            // How many more it takes depends on which items were drawn.
            Some(draws) if size >= min_size || all_held > 0 => (true, 1, (draws + all_held, at_least, "draw")),
            _ => (false, min_size.saturating_sub(size), (size, min_size, "item")),
        };
        let more = lacks.max(1).div_ceil(self.each.len().max(1) as u64);
        let stock = |(&(size, draws), held): (&(u64, u64), &u64)| {
            let at_least = more + if of_draws { draws + held } else { size };
            Stock { at_least, of_draws, min_size: i64::try_from(min_size).unwrap_or(i64::MAX) }
        };
        let stocks = self.each.iter().zip(held).map(stock).collect();
        Lack { stocks, words: format!("{} of {}", number(have), counted(need, noun)) }
    }

    /// Whether there is more than there was in another round.
    pub fn exceeds(&self, other: &Self) -> bool {
        self.size > other.size || self.draws > other.draws
    }
}

fn settings(limiter: &RateLimiterConfig) -> String {
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = limiter;
    format!(
        "samples_per_insert={samples_per_insert}, min_size_to_sample={min_size_to_sample}, min_diff={min_diff}, \
         max_diff={max_diff}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(min_size_to_sample: i64) -> RateLimiterConfig {
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample, min_diff: -f64::MAX, max_diff: f64::MAX }
    }

    /// The sums of shards of these sizes, whose items have so many draws left; all together, if draws remove items.
    fn sums(min_size: i64, each: &[(u64, Option<u64>)]) -> Sums {
        let report = |&(size, draws_left): &(u64, Option<u64>)| RaceReport {
            arrivals: Vec::new(),
            is_cut: false,
            weight: size as f64,
            size,
            weight_left: size as f64,
            size_left: size,
            draws_left,
            in_order: false,
            limiter: limiter(min_size),
        };
        Sums::of("table", &each.iter().map(report).collect::<Vec<_>>(), |shard| shard.to_string()).unwrap()
    }

    #[test]
    fn as_many_draws_are_allowed_as_one_table_of_all_items_allows() {
        for (min_size, each, wanted, allowed) in [
            (10, &[(4, None), (5, None)][..], 8, 0),
            (9, &[(4, None), (5, None)], 8, 8),
            (9, &[(4, Some(4)), (5, Some(5))], 8, 1),
            (5, &[(4, Some(4)), (5, Some(5))], 8, 5),
            (1, &[(4, Some(4)), (5, Some(5))], 8, 8),
            (1, &[(0, None)], 8, 0),
            // The items that are left might be drawn several times. The next round is told.
            (5, &[(4, Some(40)), (5, Some(50))], 8, 5),
        ] {
            assert_eq!(sums(min_size, each).allowed(wanted), allowed, "{min_size} of {each:?}");
        }
    }

    #[test]
    fn a_draw_waits_for_its_share_of_what_all_lack() {
        let lack = |min_size, each: &[(u64, Option<u64>)], at_least, held: &[u64]| {
            let Lack { stocks, words } = sums(min_size, each).lack(at_least, held);
            let of_draws = stocks[0].of_draws;
            assert!(stocks.iter().all(|stock| (stock.of_draws, stock.min_size) == (of_draws, min_size)));
            (of_draws, stocks.iter().map(|stock| stock.at_least).collect::<Vec<_>>(), words)
        };
        let is = |of_draws, at_least: &[u64], words: &str| (of_draws, at_least.to_vec(), words.to_owned());
        assert_eq!(lack(100, &[(4, None), (8, None)], 3, &[0, 0]), is(false, &[48, 52], "12 of 100 items"));
        assert_eq!(lack(1, &[(0, None), (0, None)], 3, &[0, 0]), is(false, &[1, 1], "0 of 1 item"));
        assert_eq!(lack(1, &[(4, Some(4)), (0, Some(0))], 6, &[0, 0]), is(true, &[5, 1], "4 of 6 items"));
        // What it holds goes back, and is no news.
        assert_eq!(lack(1, &[(1, Some(1)), (0, Some(0))], 6, &[2, 1]), is(true, &[4, 2], "4 of 6 items"));
        // The last draw needs ten items, too.
        assert_eq!(lack(10, &[(6, Some(6)), (6, Some(6))], 7, &[0, 0]), is(true, &[8, 8], "12 of 16 items"));
        assert_eq!(lack(1, &[(1, Some(2)), (1, Some(1))], 9, &[0, 0]), is(true, &[5, 4], "3 of 9 draws"));
        // Items that have several draws each: any of them might help.
        assert_eq!(lack(2, &[(1, Some(3)), (1, Some(1))], 9, &[0, 0]), is(true, &[4, 2], "4 of 9 draws"));
        assert_eq!(lack(5, &[(1, Some(3)), (1, Some(1))], 9, &[0, 0]), is(false, &[3, 3], "2 of 5 items"));
        assert_eq!(lack(5, &[(1, Some(3)), (1, Some(1))], 9, &[1, 0]), is(true, &[5, 2], "5 of 9 draws"));
    }
}
