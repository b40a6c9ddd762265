//! A table's part in a race of several tables: see `race.rs` of the crate for what the race is.

use super::contents::Table;
use super::draw::BLOCK;
use crate::{Drawn, Error, Race, RaceArrival, RaceReport, Result, SelectorKind, Trajectory};
use rand::{Rng, rngs::SmallRng};

/// Sums of weights below this count as 0: times are up to 1 / weight, and must be finite.
const LEAST_WEIGHT: f64 = 1e-290;

impl Table {
    /// Makes the arrivals of a Poisson process whose rate is the sum of the weights of the items, as [`Table::weight`]
    /// defines it, and adds the draws to `drawn` in the order of their times. A draw that removes its item lowers the
    /// rate for the next.
    ///
    /// The draws are like those of [`Table::sample_up_to`], but no figure counts them as samples yet: the caller calls
    /// [`Table::count_winners`] with those that win, which are then delivered or given back as others are, and gives all
    /// others back by [`Table::give_back_loser`]. The rate limiter counts all until then, and is not asked: whoever calls
    /// the race decides by all shards together whether samples may go. A race by sizes draws nothing if an item has a
    /// weight above 0 by now.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the interval is not above 0, or the limit is 0.
    pub fn race(&mut self, race: Race, drawn: &mut Vec<Drawn>) -> Result<RaceReport> {
        check_race(race)?;
        let (weight, size) = self.race_sums();
        let mut report = RaceReport {
            weight,
            size,
            arrivals: Vec::new(),
            is_cut: false,
            weight_left: weight,
            size_left: size,
            draws_left: self.draws_left(),
            in_order: !matches!(self.config.sampler, SelectorKind::Uniform | SelectorKind::Prioritized { .. }),
            limiter: self.limiter.config.clone(),
        };
        if !race.by_size || weight == 0.0 {
            self.make_arrivals(race, &mut report, drawn);
        }
        // Not whether another arrival would have come within the interval: the counted arrivals must end at a stopping
        // time.
        report.is_cut = report.arrivals.len() == race.limit;
        (report.weight_left, report.size_left) = self.race_sums();
        Ok(report)
    }

    /// Counts draws of races as samples that have won. `now_nanos` is as in [`Table::sample`].
    pub fn count_winners(&mut self, drawn: &[Drawn], now_nanos: u64) {
        if !drawn.is_empty() {
            self.count_new(drawn, now_nanos);
        }
    }

    /// As [`Table::give_back`], for a draw of a race that has not won. No figure counts it as a sample, so none counts it
    /// as one that went back.
    pub fn give_back_loser(&mut self, drawn: Drawn, removed: &mut Vec<Trajectory>) -> bool {
        self.take_back(drawn, removed)
    }

    /// The sum of all weights, and the number of items.
    fn race_sums(&mut self) -> (f64, u64) {
        let weight = self.weight();
        (if weight < LEAST_WEIGHT { 0.0 } else { weight }, self.slab.len() as u64)
    }

    fn make_arrivals(&mut self, race: Race, report: &mut RaceReport, drawn: &mut Vec<Drawn>) {
        // If a draw may remove its item, the next waiting time must see the removal.
        let block = if self.config.max_times_sampled > 0 { 1 } else { BLOCK };
        let mut time = 0.0;
        loop {
            let (weight, size) = self.race_sums();
            let rate = if race.by_size { size as f64 } else { weight };
            if rate == 0.0 {
                return;
            }
            let times = &mut [0.0; BLOCK][..block.min(race.limit - report.arrivals.len())];
            let count = times.iter_mut().position(|next| {
                time += exponential(&mut self.rng) / rate;
                *next = time;
                time >= race.interval
            });
            let count = count.unwrap_or(times.len());
            let first = drawn.len();
            match count {
                0 => {}
                1 => self.draw(false, drawn),
                _ => self.draw_block(count, false, drawn),
            }
            let new = times.iter().zip(&drawn[first..]);
            report.arrivals.extend(new.map(|(&time, draw)| RaceArrival { time, weight: draw.probability * rate }));
            if count < block {
                return;
            }
        }
    }
}

fn check_race(Race { interval, limit, .. }: Race) -> Result<()> {
    if interval.is_nan() || interval <= 0.0 {
        return Err(Error::invalid(format!("the interval of a race must be above 0, got {interval}")));
    }
    if limit == 0 {
        return Err(Error::invalid("the limit of a race must be at least 1, got 0"));
    }
    Ok(())
}

/// Draws from the exponential distribution of mean 1.
fn exponential(rng: &mut SmallRng) -> f64 {
    // The random number is below 1, so the logarithm is finite.
    -(-rng.random::<f64>()).ln_1p()
}
