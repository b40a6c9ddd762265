//! Draws by a race over many shards have the probabilities of one table; those of simpler ways do not.
//!
//! Every check counts draws by shard and tenth of the priority, and compares them with what the items in the shards
//! predict at the moment of each draw. Where weights change, the changes follow what was drawn: others would cancel out
//! over time, and hide the mistakes of the simpler ways.

use crate::common::plain::{Plain, weight};
use crate::common::{chunk, config, prioritized, row_item};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use reverb_core::{AfterRound, Chunk, Drawn, Race, RaceReport, RaceRound, SelectorKind, Table, TableConfig};
use std::sync::Arc;

/// What the statistic of correct draws stays below, and what that of wrong ones must exceed. It has mean 0 and standard
/// deviation 1 if draws are correct.
const PASSES_BELOW: f64 = 5.0;
const FAILS_ABOVE: f64 = 25.0;

const TENTHS: usize = 10;
/// The shard that is slow, in the ways in which that matters.
const SLOW: usize = 3;

/// A drawn item.
struct Won {
    shard: usize,
    key: u64,
    priority: f64,
}

/// Draws a batch and counts it.
type Draw = fn(&mut Trial);
/// Merges the reports of a round: [`Race::merge`], or a wrong way.
type Merge = fn(&Trial, Race, &[RaceReport]) -> RaceRound;

/// Shards that are drawn from, and what was drawn.
struct Trial {
    kind: SelectorKind,
    shards: Vec<Table>,
    batch: usize,
    /// Maximum number of arrivals of a shard, if it is not that of the race.
    limit: Option<usize>,
    chunk: Arc<Chunk>,
    next_key: u64,
    rng: SmallRng,
    /// The sums of all shards in the last round.
    known: (f64, u64),
    /// The weight of each shard when the batch was asked for, and as last seen by a client that remembers it.
    sums: Vec<f64>,
    ceilings: Vec<f64>,
    /// What happens between two rounds of a batch.
    between: fn(&mut Trial),
    /// The last batch, and the keys of the shard that grew for it.
    won: Vec<Won>,
    grown: (usize, Vec<u64>),
    is_scaled: Vec<bool>,
    batches: usize,
    rounds: usize,
    observed: Vec<u64>,
    expected: Vec<f64>,
}

impl Trial {
    /// Shards with so many items of random priorities each. Every eighth evicts the oldest above its first size.
    fn new(kind: SelectorKind, sizes: &[usize], batch: usize) -> Self {
        let table = |shard: usize| {
            let max_size = if shard % 8 == SLOW { sizes[shard].max(1) as u64 } else { 1 << 20 };
            let seed = Some(shard as u64 + 1);
            Table::new(TableConfig { seed, ..config(kind.clone(), SelectorKind::Fifo, max_size) }).unwrap()
        };
        let cells = sizes.len() * TENTHS;
        let mut trial = Self {
            shards: (0..sizes.len()).map(table).collect(),
            kind,
            batch,
            limit: None,
            chunk: chunk(1, 1),
            next_key: 0,
            rng: SmallRng::seed_from_u64(9),
            known: (1.0, 1),
            sums: Vec::new(),
            ceilings: Vec::new(),
            between: |_| {},
            won: Vec::new(),
            grown: (0, Vec::new()),
            is_scaled: vec![false; sizes.len()],
            batches: 0,
            rounds: 0,
            observed: vec![0; cells],
            expected: vec![0.0; cells],
        };
        for (shard, &size) in sizes.iter().enumerate() {
            trial.insert(shard, size, 0.0);
        }
        trial.known = (trial.weights().iter().sum(), 1);
        trial.ceilings = trial.weights();
        trial
    }

    fn weights(&mut self) -> Vec<f64> {
        self.shards.iter_mut().map(Table::weight).collect()
    }

    /// Inserts items with priorities from `above` to 1, and returns their keys.
    fn insert(&mut self, shard: usize, count: usize, above: f64) -> Vec<u64> {
        let keys: Vec<_> = (self.next_key..).take(count).collect();
        self.next_key += count as u64;
        for &key in &keys {
            let priority = self.rng.random_range(above..1.0);
            self.shards[shard].insert(row_item(key, priority, &self.chunk, 0), 0, &mut Vec::new());
        }
        keys
    }

    fn cell(shard: usize, priority: f64) -> usize {
        shard * TENTHS + ((priority * TENTHS as f64) as usize).min(TENTHS - 1)
    }

    /// Counts draws from the shards as they are now. Returns the sum of all weights and the number of items.
    fn count(&mut self, won: Vec<Won>) -> (f64, i64) {
        let mut cells = vec![0.0; self.expected.len()];
        let mut size = 0;
        for (shard, table) in self.shards.iter().enumerate() {
            size += table.len() as i64;
            for item in table.pages(0..64).items() {
                let plain = Plain { priority: item.priority, inserted: 0, changed: 0 };
                cells[Self::cell(shard, item.priority)] += weight(&self.kind, &plain);
            }
        }
        let total: f64 = cells.iter().sum();
        for (expected, weight) in self.expected.iter_mut().zip(cells) {
            *expected += won.len() as f64 * weight / total;
        }
        for won in &won {
            self.observed[Self::cell(won.shard, won.priority)] += 1;
        }
        self.won.extend(won);
        (total, size)
    }

    /// Chi-square of all cells, those that expect few draws taken together, as a normal deviate.
    fn statistic(&self) -> f64 {
        let (mut sum, mut cells, mut few) = (0.0, 0, (0.0, 0.0));
        let mut add = |observed: f64, expected: f64| {
            if expected > 0.0 {
                sum += (observed - expected).powi(2) / expected;
                cells += 1;
            }
        };
        for (&observed, &expected) in self.observed.iter().zip(&self.expected) {
            if expected < 5.0 {
                few = (few.0 + observed as f64, few.1 + expected);
            } else {
                add(observed as f64, expected);
            }
        }
        add(few.0, few.1);
        let freedom = f64::from(cells - 1);
        (sum - freedom) / (2.0 * freedom).sqrt()
    }

    /// Draws a batch by a race whose rounds are merged in this way.
    fn race(&mut self, merge: Merge) {
        let mut wanted = self.batch;
        let mut race = Race::new(wanted, self.known.0, self.known.1).expect("the shards have items");
        while wanted > 0 {
            race.limit = self.limit.unwrap_or(race.limit);
            let mut drawn = vec![Vec::new(); self.shards.len()];
            let ask = |(table, drawn): (&mut Table, &mut Vec<Drawn>)| table.race(race, drawn).unwrap();
            let reports: Vec<_> = self.shards.iter_mut().zip(&mut drawn).map(ask).collect();
            let round = merge(self, race, &reports);
            self.rounds += 1;
            let winners = &round.winners[..round.winners.len().min(wanted)];
            let won = |shard: usize, index: usize| {
                let &Drawn { key, priority, .. } = &drawn[shard][index];
                Won { shard, key, priority }
            };
            let (total, size) = self.count(winners.iter().map(|winner| won(winner.shard, winner.index)).collect());
            for winner in winners {
                let Drawn { priority, .. } = drawn[winner.shard][winner.index];
                let probability = weight(&self.kind, &Plain { priority, inserted: 0, changed: 0 }) / total;
                assert!((winner.probability / probability - 1.0).abs() < 1e-9);
                assert_eq!(winner.table_size, size);
            }
            self.known = (total, size as u64);
            wanted -= winners.len();
            if wanted > 0 {
                (self.between)(self);
                race = match round.next {
                    AfterRound::Race(next) => Race { limit: wanted, ..next },
                    // A wrong way may think that it is done.
                    _ => Race::new(wanted, total, size as u64).unwrap(),
                };
            }
        }
    }

    /// Draws a batch one by one from shards that `choose` chooses.
    fn one_by_one(&mut self, mut choose: impl FnMut(&mut Trial) -> usize) {
        let mut won = Vec::new();
        while won.len() < self.batch {
            let shard = choose(self);
            if let Some(Drawn { key, priority, .. }) = self.shards[shard].sample(0) {
                won.push(Won { shard, key, priority });
            }
        }
        self.count(won);
    }

    fn choose(&mut self, weights: &[f64]) -> usize {
        let mut rest = self.rng.random::<f64>() * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        chosen.unwrap_or(0)
    }
}

/// Draws batches while the weights change before and after each. Returns the statistic.
fn check(trial: &mut Trial, draw: Draw, batches: usize, before: fn(&mut Trial), after: fn(&mut Trial)) -> f64 {
    for _ in 0..batches {
        trial.sums = trial.weights();
        before(trial);
        trial.won.clear();
        draw(trial);
        after(trial);
        trial.batches += 1;
    }
    trial.statistic()
}

fn exact(trial: &mut Trial) {
    trial.race(|trial, race, reports| race.merge(missing(trial), reports));
}

/// Number of draws that the batch lacks.
fn missing(trial: &Trial) -> usize {
    trial.batch - trial.won.len()
}

/// Wrong: each shard gives the same number of draws.
fn equal_shares(trial: &mut Trial) {
    trial.one_by_one(|trial| trial.rng.random_range(0..trial.shards.len()));
}

/// Wrong: the sums are asked for before the draws.
fn sums_then_draws(trial: &mut Trial) {
    let sums = trial.sums.clone();
    trial.one_by_one(|trial| trial.choose(&sums));
}

/// Wrong: shards are asked as often as the weights that they last told predict, and thin the draws by what they are now.
fn remembered_sums(trial: &mut Trial) {
    let (mut told, mut now) = (trial.ceilings.clone(), trial.weights());
    let mut asked = Vec::new();
    trial.one_by_one(|trial| {
        loop {
            if asked.is_empty() {
                (told, now) = (trial.ceilings.clone(), trial.weights());
                asked = (0..trial.batch).map(|_| trial.choose(&told)).collect();
            }
            let shard = asked.remove(0);
            trial.ceilings[shard] = now[shard];
            if trial.rng.random::<f64>() * told[shard] < now[shard] {
                return shard;
            }
        }
    });
}

/// Wrong: the batch is complete with the first answers that suffice, and the slow shard answers last.
fn first_answers(trial: &mut Trial) {
    trial.race(|trial, race, reports| {
        let mut round = race.merge(usize::MAX, reports);
        round.winners.sort_by_key(|winner| winner.shard == SLOW);
        round.winners.truncate(missing(trial));
        round
    });
}

/// Wrong: the slow shard misses the deadline, and the arrivals of the others are the batch.
fn prefix_at_deadline(trial: &mut Trial) {
    trial.race(|trial, race, reports| {
        let mut in_time = reports.to_vec();
        in_time[SLOW].arrivals.clear();
        in_time[SLOW].is_cut = false;
        race.merge(missing(trial), &in_time)
    });
}

/// Wrong: the last arrival of a shard that was cut does not count.
fn before_the_last(trial: &mut Trial) {
    trial.race(|trial, race, reports| {
        let cut = reports.iter().filter(|report| report.is_cut);
        let end = cut.map(|report| report.arrivals.last().unwrap().time).fold(f64::INFINITY, f64::min);
        let mut earlier = reports.to_vec();
        for report in &mut earlier {
            report.arrivals.retain(|arrival| arrival.time < end);
            report.is_cut = false;
        }
        race.merge(missing(trial), &earlier)
    });
}

/// The shard that was drawn most, but not the last one that grew, grows by far just before the next batch: it evicts if
/// it is full.
fn most_drawn_grows(trial: &mut Trial) {
    let mut draws = vec![0; trial.shards.len()];
    trial.won.iter().for_each(|won| draws[won.shard] += 1);
    draws[trial.grown.0] = 0;
    let most = (0..draws.len()).max_by_key(|&shard| draws[shard]).unwrap();
    trial.grown = (most, trial.insert(most, 800, 0.5));
}

/// After the batch, what was drawn gets new priorities, and that shard shrinks again.
fn drawn_change(trial: &mut Trial) {
    for Won { shard, key, .. } in std::mem::take(&mut trial.won) {
        let priority = trial.rng.random();
        trial.shards[shard].mutate(&[(key, priority)], &[], &mut Vec::new()).unwrap();
        trial.won.push(Won { shard, key, priority });
    }
    let (shard, keys) = (trial.grown.0, std::mem::take(&mut trial.grown.1));
    let left = trial.shards[shard].len();
    trial.shards[shard].mutate(&[], &keys, &mut Vec::new()).unwrap();
    if trial.shards[shard].config().max_size < 1 << 20 {
        trial.insert(shard, left - trial.shards[shard].len(), 0.0);
    }
}

/// 32 shards of different sizes, and batches of 64.
fn many(kind: SelectorKind) -> Trial {
    let sizes: Vec<_> = (0..32).map(|shard| [16, 24, 40, 200][shard % 4]).collect();
    Trial::new(kind, &sizes, 64)
}

fn churn(kind: SelectorKind, draw: Draw, batches: usize) -> f64 {
    check(&mut many(kind), draw, batches, most_drawn_grows, drawn_change)
}

#[test]
fn draws_of_shards_that_change_with_them_are_those_of_one_table() {
    for kind in [SelectorKind::Uniform, prioritized(0.0), prioritized(0.6), prioritized(1.0)] {
        let z = churn(kind.clone(), exact, 400);
        assert!(z < PASSES_BELOW, "{kind:?}: {z}");
        let z = check(&mut Trial::new(kind.clone(), &[5, 40, 0, 60], 8), exact, 2000, most_drawn_grows, drawn_change);
        assert!(z < PASSES_BELOW, "{kind:?} over few shards: {z}");
    }
}

#[test]
fn simpler_ways_to_draw_fail_the_same_check() {
    let ways: [(&str, Draw); 5] = [
        ("equal shares", equal_shares),
        ("first answers", first_answers),
        ("sums, then draws", sums_then_draws),
        ("remembered sums", remembered_sums),
        ("prefix at a deadline", prefix_at_deadline),
    ];
    for kind in [SelectorKind::Uniform, prioritized(0.6)] {
        for (name, draw) in ways {
            let z = churn(kind.clone(), draw, 800);
            assert!(z > FAILS_ABOVE, "{name} of {kind:?}: {z}");
        }
    }
}

#[test]
fn empty_shard_that_fills_is_drawn_as_soon_as_it_has_items() {
    let run = |draw: Draw| {
        let mut sizes = [32; 32];
        sizes[30] = 0;
        let fills = |trial: &mut Trial| {
            if (20..120).contains(&trial.batches) {
                trial.insert(30, 10, 0.0);
            }
        };
        check(&mut Trial::new(prioritized(0.6), &sizes, 64), draw, 300, fills, |_| {})
    };
    assert!(run(exact) < PASSES_BELOW);
    assert!(run(remembered_sums) > FAILS_ABOVE);
}

/// The weights of about half of the shards become ten times what they were, or go back.
fn jump(trial: &mut Trial) {
    for shard in 0..trial.shards.len() {
        if trial.rng.random() {
            let factor = if trial.is_scaled[shard] { 0.1 } else { 10.0 };
            trial.is_scaled[shard] = !trial.is_scaled[shard];
            let items: Vec<_> = trial.shards[shard].snapshot().items().map(|item| (item.key, item.priority)).collect();
            let updates: Vec<_> = items.iter().map(|(key, priority)| (*key, priority * factor)).collect();
            trial.shards[shard].mutate(&updates, &[], &mut Vec::new()).unwrap();
        }
    }
}

#[test]
fn sums_that_jump_tenfold_between_rounds_do_not_bias_draws() {
    let run = |draw: Draw| {
        let mut trial = Trial { between: jump, ..Trial::new(prioritized(1.0), &[20, 1, 40, 8, 15, 3], 32) };
        let z = check(&mut trial, draw, 1000, jump, |_| {});
        (z, trial.rounds)
    };
    let (z, rounds) = run(exact);
    assert!(z < PASSES_BELOW, "{z}");
    assert!(rounds > 1200, "{rounds} rounds for 1000 batches are too few for a test of further rounds");
    assert!(run(sums_then_draws).0 > FAILS_ABOVE);
}

#[test]
fn very_small_shard_has_its_small_share() {
    let run =
        |draw: Draw| check(&mut Trial::new(SelectorKind::Uniform, &[1, 500, 500, 500], 64), draw, 600, |_| {}, |_| {});
    assert!(run(exact) < PASSES_BELOW);
    assert!(run(equal_shares) > FAILS_ABOVE);
}

#[test]
fn shard_that_is_cut_ends_what_counts_with_its_last_arrival() {
    let run = |draw: Draw| {
        let mut trial = Trial { limit: Some(3), ..Trial::new(prioritized(0.6), &[5, 10, 20, 80], 16) };
        check(&mut trial, draw, 1500, |_| {}, |_| {})
    };
    assert!(run(exact) < PASSES_BELOW);
    assert!(run(before_the_last) > FAILS_ABOVE);
}
