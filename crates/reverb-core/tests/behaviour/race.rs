//! What a race promises besides probabilities, and its draws where they remove items.

use crate::common::{config, item, keys, min_size, prioritized, queue};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use reverb_core::{
    AfterRound, Drawn, Error, Race, RaceArrival, RaceReport, RaceWinner, SelectorKind, Table, TableConfig,
};

/// A table of these items whose draws remove an item after so many; 0 for never.
fn table(
    sampler: SelectorKind,
    max_times_sampled: i32,
    seed: u64,
    items: impl IntoIterator<Item = (u64, f64)>,
) -> Table {
    let config = TableConfig { max_times_sampled, seed: Some(seed), ..config(sampler, SelectorKind::Fifo, 1000) };
    let mut table = Table::new(config).unwrap();
    for (key, priority) in items {
        table.insert(item(key, priority), 0, &mut Vec::new());
    }
    table
}

fn interval(interval: f64) -> Race {
    Race { interval, limit: usize::MAX, by_size: false }
}

fn report(arrivals: &[(f64, f64)], weight: f64, size: u64) -> RaceReport {
    RaceReport {
        arrivals: arrivals.iter().map(|&(time, weight)| RaceArrival { time, weight }).collect(),
        is_cut: false,
        weight,
        size,
        weight_left: weight,
        size_left: size,
        draws_left: None,
        in_order: false,
        limiter: config(SelectorKind::Uniform, SelectorKind::Fifo, 1).rate_limiter,
    }
}

/// A client of some shards whose draws remove items, with what it holds.
#[derive(Default)]
struct Client {
    held: Vec<(usize, Drawn)>,
    missing: usize,
}

impl Client {
    fn wanting(missing: usize) -> Self {
        Self { held: Vec::new(), missing }
    }

    /// Asks one shard.
    fn ask(shard: &mut Table, race: Race) -> (RaceReport, Vec<Drawn>) {
        let mut drawn = Vec::new();
        (shard.race(race, &mut drawn).unwrap(), drawn)
    }

    /// Ends a round whose answers are all here: keeps the winners, and gives back the others.
    fn end_round(&mut self, shards: &mut [Table], race: Race, answers: Vec<(RaceReport, Vec<Drawn>)>) -> AfterRound {
        let (reports, drawn): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
        let round = race.merge(self.missing, &reports);
        let mut drawn: Vec<Vec<_>> = drawn.into_iter().map(|drawn| drawn.into_iter().map(Some).collect()).collect();
        let winners = round
            .winners
            .iter()
            .map(|&RaceWinner { shard, index, .. }| (shard, drawn[shard][index].take().expect("an arrival wins once")));
        self.held.extend(winners);
        for (shard, drawn) in drawn.into_iter().enumerate() {
            drawn
                .into_iter()
                .flatten()
                .for_each(|drawn| assert!(shards[shard].give_back_loser(drawn, &mut Vec::new())));
        }
        self.missing = round.missing;
        round.next
    }

    fn round(&mut self, shards: &mut [Table], race: Race) -> AfterRound {
        let answers = shards.iter_mut().map(|shard| Self::ask(shard, race)).collect();
        self.end_round(shards, race, answers)
    }

    /// Races until the batch is complete. False if the client has to wait; then it holds nothing.
    fn draw(&mut self, shards: &mut [Table]) -> bool {
        let sums = |shards: &mut [Table]| {
            (shards.iter_mut().map(Table::weight).sum(), shards.iter().map(Table::len).sum::<usize>())
        };
        let (weight, size) = sums(shards);
        let mut next = Race::new(self.missing, weight, size as u64).map_or(AfterRound::Wait, AfterRound::Race);
        while let AfterRound::Race(race) = next {
            next = self.round(shards, race);
        }
        if next == AfterRound::Wait {
            self.give_all_back(shards);
        }
        next == AfterRound::Done
    }

    fn give_all_back(&mut self, shards: &mut [Table]) {
        self.missing += self.held.len();
        for (shard, drawn) in self.held.drain(..) {
            assert!(shards[shard].give_back(drawn, &mut Vec::new()));
        }
    }

    /// Delivers the batch, and returns its keys in order.
    fn deliver(&mut self, shards: &mut [Table]) -> Vec<u64> {
        let keys = self.held.iter().map(|(_, drawn)| drawn.key).collect();
        for (shard, drawn) in self.held.drain(..) {
            shards[shard].delivered(&[drawn], &mut Vec::new());
        }
        keys
    }
}

/// How often each item of a batch was drawn as its nth, in many batches of the same items.
fn orders(shards: &mut [Table], batch: usize, items: usize, batches: usize) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; items]; batch];
    for _ in 0..batches {
        let mut client = Client::wanting(batch);
        assert!(client.draw(shards));
        for (nth, (_, drawn)) in client.held.iter().enumerate() {
            counts[nth][drawn.key as usize] += 1.0;
        }
        client.give_all_back(shards);
    }
    counts
}

/// The same of draws from one table.
fn orders_of_one(table: &mut Table, batch: usize, items: usize, batches: usize) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; items]; batch];
    for _ in 0..batches {
        let drawn: Vec<_> = (0..batch).map(|_| table.sample(0).unwrap()).collect();
        for (nth, drawn) in drawn.into_iter().enumerate() {
            counts[nth][drawn.key as usize] += 1.0;
            table.give_back(drawn, &mut Vec::new());
        }
    }
    counts
}

/// Chi-square of two samples of the same size, as a normal deviate.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    let pairs = a.iter().zip(b).filter(|(a, b)| *a + *b > 0.0);
    let freedom = pairs.clone().count() as f64 - 1.0;
    let sum: f64 = pairs.map(|(a, b)| (a - b).powi(2) / (a + b)).sum();
    (sum - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn draws_that_remove_come_in_the_order_of_one_table() {
    const ITEMS: usize = 24;
    const BATCH: usize = 10;
    const BATCHES: usize = 8000;
    let priority = |key: u64| (1 + key % 5 * key % 7) as f64;
    for (sampler, times) in [(prioritized(1.0), 1), (prioritized(0.6), 2), (SelectorKind::Uniform, 1)] {
        let items = |range: std::ops::Range<u64>| range.map(|key| (key, priority(key)));
        let mut shards =
            [(0..2), (2..2), (2..9), (9..24)].map(|keys| table(sampler.clone(), times, 10 + keys.end, items(keys)));
        let mut one = table(sampler.clone(), times, 1, items(0..ITEMS as u64));
        let raced = orders(&mut shards, BATCH, ITEMS, BATCHES);
        let drawn = orders_of_one(&mut one, BATCH, ITEMS, BATCHES);
        let all =
            |counts: &[Vec<f64>]| (0..ITEMS).map(|item| counts.iter().map(|nth| nth[item]).sum()).collect::<Vec<f64>>();
        let nths: Vec<_> = raced.iter().zip(&drawn).map(|(raced, drawn)| difference(raced, drawn)).collect();
        let included = difference(&all(&raced), &all(&drawn));
        assert!(included < 5.0, "{sampler:?}: {included}");
        assert!(nths.iter().all(|nth| *nth < 5.0), "{sampler:?}: {nths:?}");
        // Everything has gone back.
        assert_eq!(shards.iter().map(Table::len).sum::<usize>(), ITEMS);
        assert!(shards.iter().all(|shard| shard.limiter().samples == 0 && shard.num_tracked_draws() == 0));
    }
}

#[test]
fn equal_shares_of_shards_that_lose_items_are_not_the_draws_of_one_table() {
    let mut shards = [
        table(prioritized(1.0), 1, 1, (0..4).map(|key| (key, 1.0))),
        table(prioritized(1.0), 1, 2, (4..24).map(|key| (key, 1.0))),
    ];
    let mut one = table(prioritized(1.0), 1, 1, (0..24).map(|key| (key, 1.0)));
    let mut counts = vec![0.0; 24];
    for _ in 0..2000 {
        let drawn: Vec<_> = (0..6).map(|nth| (nth % 2, shards[nth % 2].sample(0).unwrap())).collect();
        for (shard, drawn) in drawn {
            counts[drawn.key as usize] += 1.0;
            shards[shard].give_back(drawn, &mut Vec::new());
        }
    }
    let of_one = orders_of_one(&mut one, 6, 24, 2000);
    let all: Vec<_> = (0..24).map(|item| of_one.iter().map(|nth| nth[item]).sum()).collect();
    assert!(difference(&counts, &all) > 25.0);
}

/// Two clients want 64 each of 100 items, and 28 more come while the second waits.
#[test]
fn two_clients_that_want_more_than_there_is_both_go_on() {
    for crossed in [false, true] {
        let mut shards =
            [0, 1, 2, 3].map(|shard| table(prioritized(1.0), 1, 1 + shard, (0..25).map(|n| (25 * shard + n, 1.0))));
        let (mut first, mut second) = (Client::wanting(64), Client::wanting(64));
        if crossed {
            // Each reaches two shards first, so that each holds a part of the items, and no item is left.
            let race = interval(1e9);
            let mut answers = [const { Vec::new() }; 2];
            for (number, shard) in shards.iter_mut().enumerate() {
                let (a, b) = if number < 2 { (0, 1) } else { (1, 0) };
                answers[a].push(Client::ask(shard, race));
                answers[b].push(Client::ask(shard, race));
            }
            for (client, answers) in [&mut first, &mut second].into_iter().zip(answers) {
                assert_eq!(client.end_round(&mut shards, race, answers), AfterRound::Wait);
                assert_eq!((client.held.len(), client.missing), (50, 14));
            }
            first.give_all_back(&mut shards);
            second.give_all_back(&mut shards);
        }
        assert!(first.draw(&mut shards));
        assert!(!second.draw(&mut shards), "36 items are left");
        assert_eq!(second.held.len(), 0, "who waits holds nothing");
        let mut all = first.deliver(&mut shards);
        (100..128).for_each(|key| shards[3].insert(item(key, 1.0), 0, &mut Vec::new()));
        assert!(second.draw(&mut shards));
        all.extend(second.deliver(&mut shards));
        all.sort_unstable();
        assert_eq!(all, (0..128).collect::<Vec<_>>(), "each item was delivered once");
        assert!(shards.iter().all(|shard| shard.is_empty() && shard.num_tracked_draws() == 0));
        assert_eq!(shards.iter().map(|shard| shard.limiter().samples).sum::<i64>(), 128);
    }
}

#[test]
fn draws_given_back_are_not_counted_whether_the_table_tracks_draws_or_not() {
    for (times, limiter) in [(0, min_size(1)), (0, queue(10)), (1, min_size(1)), (3, min_size(1))] {
        let mut config = config(prioritized(1.0), SelectorKind::Fifo, 10);
        (config.max_times_sampled, config.rate_limiter) = (times, limiter);
        let mut table = Table::new(config).unwrap();
        (0..10).for_each(|key| table.insert(item(key, 1.0), 0, &mut Vec::new()));
        let mut drawn = Vec::new();
        let report = table.race(Race { limit: 8, ..interval(100.0) }, &mut drawn).unwrap();
        assert!(report.is_cut);
        assert_eq!((report.arrivals.len(), drawn.len(), table.limiter().samples), (8, 8, 8));
        let winner = drawn.pop().unwrap();
        let drawn_once = winner.key;
        table.count_winners(std::slice::from_ref(&winner), 0);
        drawn.into_iter().for_each(|loser| assert!(table.give_back_loser(loser, &mut Vec::new())));
        table.delivered(&[winner], &mut Vec::new());
        let info = table.info();
        assert_eq!((info.samples, info.num_unique_samples), (1, 1));
        assert_eq!((info.process_samples, info.returned_samples), (Some(1), Some(0)), "losers were never samples");
        assert_eq!((table.len(), table.num_tracked_draws()), (if times == 1 { 9 } else { 10 }, 0));
        for key in keys(&table) {
            assert_eq!(table.get(key).unwrap().times_sampled, i32::from(key == drawn_once));
        }
    }
}

#[test]
fn race_does_not_ask_the_rate_limiter() {
    let config = TableConfig { rate_limiter: min_size(50), ..config(SelectorKind::Uniform, SelectorKind::Fifo, 50) };
    let mut table = Table::new(config).unwrap();
    table.insert(item(1, 1.0), 0, &mut Vec::new());
    assert!(!table.can_sample(1));
    let mut drawn = Vec::new();
    table.race(interval(100.0), &mut drawn).unwrap();
    assert!(!drawn.is_empty() && drawn.iter().all(|draw| !draw.rate_limited));
}

#[test]
fn report_tells_the_sums_before_the_race_and_after_it() {
    let mut table = table(prioritized(2.0), 1, 1, [(1, 1.0), (2, 2.0), (3, 3.0), (4, 0.0)]);
    let mut drawn = Vec::new();
    let report = table.race(interval(1e9), &mut drawn).unwrap();
    assert_eq!((report.weight, report.size, report.weight_left, report.size_left), (14.0, 4, 0.0, 1));
    assert!(!report.is_cut && report.arrivals.is_sorted_by(|a, b| a.time < b.time));
    // The weight of an item is its own, although earlier draws have lowered the sum.
    for (draw, arrival) in drawn.iter().zip(&report.arrivals) {
        assert!((arrival.weight / draw.priority.powi(2) - 1.0).abs() < 1e-12);
    }
    assert_eq!(drawn.len(), 3, "an item of weight 0 does not arrive");
}

#[test]
fn removals_slow_the_arrivals_that_follow() {
    // The last of 10 items has the mean time 1 + 1/2 + ... + 1/10, not that of ten arrivals at the first rate, 1.
    let mut table = table(SelectorKind::Uniform, 1, 1, (0..10).map(|key| (key, 1.0)));
    let mut sum = 0.0;
    for _ in 0..4000 {
        let mut drawn = Vec::new();
        sum += table.race(interval(f64::INFINITY), &mut drawn).unwrap().arrivals[9].time;
        drawn.into_iter().for_each(|draw| assert!(table.give_back(draw, &mut Vec::new())));
    }
    let mean: f64 = (1..=10).map(|n| 1.0 / f64::from(n)).sum();
    assert!((sum / 4000.0 - mean).abs() < 0.1, "{} instead of {mean}", sum / 4000.0);
}

#[test]
fn rounds_count_as_many_draws_of_each_shard_as_its_weight_says_whether_cut_or_not() {
    // The heavier shard reaches the limit in about half of the rounds, and often exactly.
    let race = Race { limit: 2, ..interval(0.6) };
    let mut shards = [(1, 3.0), (2, 1.0)].map(|(key, weight)| table(prioritized(1.0), 0, key, [(key, weight)]));
    let mut won = [0.0_f64; 2];
    for _ in 0..40_000 {
        let reports = shards.each_mut().map(|shard| Client::ask(shard, race).0);
        race.merge(9, &reports).winners.iter().for_each(|winner| won[winner.shard] += 1.0);
    }
    let (draws, p) = (won[0] + won[1], 0.75);
    let z = (won[0] - p * draws) / (p * (1.0 - p) * draws).sqrt();
    assert!(z.abs() < 5.0, "{z}: {won:?}");
}

#[test]
fn items_of_weight_0_everywhere_are_raced_for_by_the_sizes_of_their_shards() {
    let mut shards =
        [(1, 0..3), (2, 3..12)].map(|(seed, keys)| table(prioritized(1.0), 1, seed, keys.map(|key| (key, 0.0))));
    let (report, drawn) = Client::ask(&mut shards[1], Race { by_size: true, ..interval(1e9) });
    assert_eq!(report.arrivals.len(), 9);
    assert!(report.arrivals.iter().all(|arrival| (arrival.weight - 1.0).abs() < 1e-12));
    drawn.into_iter().for_each(|draw| assert!(shards[1].give_back(draw, &mut Vec::new())));
    let mut client = Client::wanting(4);
    let weighted = interval(8.0);
    let AfterRound::Race(next) = client.round(&mut shards, weighted) else { panic!("there are items") };
    assert_eq!(next, Race { interval: 1.0, limit: 4, by_size: true });
    let mut firsts = [0.0; 12];
    for _ in 0..6000 {
        assert!(client.draw(&mut shards));
        firsts[client.held[0].1.key as usize] += 1.0;
        client.give_all_back(&mut shards);
    }
    assert!(difference(&firsts, &[500.0; 12]) < 5.0, "{firsts:?}");
}

#[test]
fn race_by_sizes_does_not_count_once_an_item_has_weight() {
    let by_size = Race { interval: 1e9, limit: 4, by_size: true };
    let mut shards = [table(prioritized(1.0), 1, 1, [(1, 0.0)]), table(prioritized(1.0), 1, 2, [(2, 0.5)])];
    let mut drawn = Vec::new();
    shards[1].race(by_size, &mut drawn).unwrap();
    assert!(drawn.is_empty(), "they could not count");
    let mut client = Client::wanting(1);
    let next = client.round(&mut shards, by_size);
    assert_eq!(next, AfterRound::Race(Race { interval: 7.0 / 0.5, limit: 1, by_size: false }));
    assert!(client.held.is_empty() && shards.iter().all(|shard| shard.len() == 1));
}

#[test]
fn batch_larger_than_all_weighted_items_takes_the_others_last() {
    let mut shards = [
        table(prioritized(1.0), 1, 1, (0..9).map(|key| (key, 0.0))),
        table(prioritized(1.0), 1, 2, [(9, 5.0), (10, 1e-3)]),
    ];
    let mut client = Client::wanting(11);
    assert!(client.draw(&mut shards));
    let keys = client.deliver(&mut shards);
    assert_eq!(keys.len(), 11);
    assert!(keys[..2].iter().all(|key| *key >= 9), "{keys:?}");
}

#[test]
fn weights_too_small_for_times_count_as_0() {
    let mut table = table(prioritized(1.0), 0, 1, [(1, 5e-324)]);
    let mut drawn = Vec::new();
    let report = table.race(interval(f64::INFINITY), &mut drawn);
    assert_eq!((report.unwrap().weight, drawn.len()), (0.0, 0));
    table.race(Race { interval: 100.0, limit: 5, by_size: true }, &mut drawn).unwrap();
    assert_eq!(drawn.len(), 5);
}

#[test]
fn samplers_with_an_order_race_by_sizes_and_in_their_order() {
    use SelectorKind::*;
    let items = [(1, 5.0), (2, 9.0), (3, 1.0)];
    for (sampler, order) in [(Fifo, [1, 2, 3]), (Lifo, [3, 2, 1]), (MinHeap, [3, 1, 2]), (MaxHeap, [2, 1, 3])] {
        let mut removing = table(sampler.clone(), 1, 1, items);
        let mut drawn = Vec::new();
        let report = removing.race(interval(f64::INFINITY), &mut drawn).unwrap();
        assert!(drawn.iter().map(|draw| draw.key).eq(order), "{sampler}");
        assert_eq!((report.weight, report.size, report.draws_left, report.in_order), (3.0, 3, Some(3), true));
        // All that lose are drawn again, in the same order.
        drawn.drain(1..).for_each(|draw| assert!(removing.give_back_loser(draw, &mut Vec::new())));
        let mut again = Vec::new();
        removing.race(interval(f64::INFINITY), &mut again).unwrap();
        assert!(again.iter().map(|draw| draw.key).eq(order[1..].iter().copied()), "{sampler}");
        // Without a limit, each draw is of the same item.
        let mut staying = table(sampler.clone(), 0, 1, items);
        drawn.clear();
        let report = staying.race(Race { limit: 40, ..interval(f64::INFINITY) }, &mut drawn).unwrap();
        assert!(drawn.len() == 40 && drawn.iter().all(|draw| draw.key == order[0]), "{sampler}");
        let round = Race { limit: 40, ..interval(f64::INFINITY) }.merge(2, &[report, report_of_nothing()]);
        let winners = [(1.0, 3); 2];
        assert!(round.winners.iter().map(|winner| (winner.probability, winner.table_size)).eq(winners), "{round:?}");
    }
}

fn report_of_nothing() -> RaceReport {
    RaceReport { in_order: true, ..report(&[], 0.0, 0) }
}

/// The number of draws that a table has left, counted item by item.
fn draws_left(table: &Table, limit: i32) -> u64 {
    table.keys().map(|key| (limit - table.get(key).unwrap().times_sampled).max(1) as u64).sum()
}

#[test]
fn the_draws_that_items_have_left_are_counted() {
    assert_eq!(table(SelectorKind::Uniform, 0, 1, [(1, 1.0)]).draws_left(), None);
    let mut table = table(SelectorKind::Uniform, 3, 1, (0..20).map(|key| (key, 1.0)));
    let (mut drawn, mut rng) = (Vec::new(), SmallRng::seed_from_u64(1));
    assert_eq!(table.draws_left(), Some(60));
    for step in 20..2000_u64 {
        match rng.random_range(0..6) {
            0 => table.insert(item(step, 1.0), step, &mut Vec::new()),
            1 if !drawn.is_empty() => {
                let draw = drawn.swap_remove(rng.random_range(0..drawn.len()));
                table.give_back_loser(draw, &mut Vec::new());
            }
            2 if step % 7 == 0 => drop(table.mutate(&[], &[rng.random_range(0..step)], &mut Vec::new())),
            3 if step % 400 == 0 => drop(table.reset()),
            _ => drop(table.race(Race { limit: 3, ..interval(f64::INFINITY) }, &mut drawn).unwrap()),
        }
        assert_eq!(table.draws_left(), Some(draws_left(&table, 3)), "after step {step}");
    }
}

#[test]
fn a_race_without_a_time_or_a_limit_is_refused() {
    let mut table = table(SelectorKind::Uniform, 0, 1, [(1, 1.0)]);
    for race in [interval(0.0), interval(f64::NAN), interval(-1.0), Race { limit: 0, ..interval(1.0) }] {
        assert!(matches!(table.race(race, &mut Vec::new()), Err(Error::InvalidArgument(_))), "{race:?}");
    }
}

#[test]
fn merge_takes_the_first_of_all_shards_with_probabilities_of_the_whole() {
    let race = Race::new(3, 12.0, 9).unwrap();
    assert_eq!(race, Race { interval: (3.0 + 2.0 * 3_f64.sqrt() + 4.0) / 12.0, limit: 3, by_size: false });
    let reports =
        [report(&[(0.2, 1.0), (0.5, 2.0)], 6.0, 4), report(&[], 0.0, 0), report(&[(0.1, 4.0), (0.6, 3.0)], 10.0, 5)];
    let round = race.merge(3, &reports);
    let winner = |shard, index, probability| RaceWinner { shard, index, probability, table_size: 9 };
    assert_eq!(round.winners, [winner(2, 0, 0.25), winner(0, 0, 0.0625), winner(0, 1, 0.125)]);
    assert_eq!((round.missing, round.next), (0, AfterRound::Done));
}

#[test]
fn round_that_brings_too_little_is_followed_by_one_for_the_rest_at_the_fresh_sums() {
    let mut reports = [report(&[(0.2, 1.0)], 6.0, 4), report(&[(0.1, 4.0)], 10.0, 5)];
    let race = interval(1.0);
    let next = |reports: &[RaceReport]| race.merge(6, reports).next;
    assert_eq!(next(&reports), AfterRound::Race(Race { interval: 12.0 / 16.0, limit: 4, by_size: false }));
    // Draws that have removed their items.
    (reports[0].weight_left, reports[1].weight_left) = (5.0, 6.0);
    assert_eq!(next(&reports), AfterRound::Race(Race { interval: 12.0 / 11.0, limit: 4, by_size: false }));
    for report in &mut reports {
        (report.weight_left, report.size_left) = (0.0, 0);
    }
    assert_eq!(next(&reports), AfterRound::Wait);
    // One of them goes back, so there is an item.
    reports[1].is_cut = true;
    let round = race.merge(6, &reports);
    assert_eq!((round.winners.len(), round.missing), (1, 5));
    assert!(matches!(round.next, AfterRound::Race(_)));
    assert_eq!(race.merge(6, &[report(&[], 0.0, 0)]).next, AfterRound::Wait);
    assert_eq!(Race::new(6, 0.0, 0), None);
}
