//! Converts races, their reports, choices and waits to messages and back.

use super::changes::{limiter_from_wire, limiter_to_wire};
use super::sums::tally_to_wire;
use crate::replay_v1::proto as replay;
use bytes::Bytes;
use reverb_core::published_room::Tally;
use reverb_core::{Error, Race, RaceArrival, RaceReport, Result};
use reverb_service::Stock;
use std::time::Duration;

/// By what part the weight of an item, which is calculated from its probability, may exceed that of all items.
const ROUNDING: f64 = 1e-6;

/// Makes the message of a race, with the number of the learner and what it knows if the limiter is that of all shards.
pub fn race_to_wire(
    table: &str,
    race: Race,
    squeeze_time: bool,
    hold: Duration,
    claim: Option<&(u64, Tally)>,
) -> replay::Race {
    let Race { interval, limit, by_size } = race;
    // A part of a millisecond is not "no time".
    let hold_ms = u64::try_from(hold.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
    let (learner, known) = claim.map_or((0, None), |(learner, tally)| (*learner, Some(tally_to_wire(tally))));
    replay::Race {
        table: table.to_owned(),
        interval,
        limit: limit as u64,
        by_size,
        squeeze_time,
        hold_ms,
        learner,
        known,
    }
}

/// Reads what a race asks of its table, which checks the rest, and how long its draws are held.
///
/// # Errors
/// [`Error::InvalidArgument`] if the interval is not finite, or if the draws are not held at all.
pub fn race_from_wire(race: &replay::Race) -> Result<(Race, Duration)> {
    let &replay::Race { interval, limit, by_size, hold_ms, .. } = race;
    if !interval.is_finite() {
        return Err(Error::invalid(format!("the interval of a race must be above 0 and finite, got {interval}")));
    }
    if hold_ms == 0 {
        return Err(Error::invalid("the time for which a race is held must be at least 1 ms, got 0"));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok((Race { interval, limit, by_size }, Duration::from_millis(hold_ms)))
}

/// Makes the message of a report.
pub fn report_to_wire(report: &RaceReport) -> replay::RaceReport {
    let numbers = |of: fn(&RaceArrival) -> f64| {
        let numbers: Vec<_> = report.arrivals.iter().map(|arrival| of(arrival).to_le_bytes()).collect();
        Bytes::from(numbers.into_flattened())
    };
    let &RaceReport { is_cut, weight, size, weight_left, size_left, draws_left, in_order, .. } = report;
    let limiter = Some(limiter_to_wire(&report.limiter));
    let (times, weights) = (numbers(|arrival| arrival.time), numbers(|arrival| arrival.weight));
    let report = replay::RaceReport { limiter, draws_left, in_order, ..replay::RaceReport::default() };
    replay::RaceReport { times, weights, weight, size, weight_left, size_left, is_cut, ..report }
}

/// Reads the report of a race.
///
/// # Errors
/// [`Error::DataLoss`] if no table can have made it: its parts do not fit together or to the race, a number is not finite,
/// a weight is negative or above that of all items, or times descend.
pub fn report_from_wire(report: &replay::RaceReport, race: Race) -> Result<RaceReport> {
    let lost = |what: String| Err(Error::DataLoss(format!("a report of a race has {what}")));
    let replay::RaceReport { times, weights, weight, size, weight_left, size_left, is_cut, .. } = report;
    let (Some(times), Some(weights)) = (numbers(times, f64::from_le_bytes), numbers(weights, f64::from_le_bytes))
    else {
        return lost("a part of a number".into());
    };
    if times.len() != weights.len() || times.len() > race.limit {
        return lost(format!(
            "{} times and {} weights, of at most {} arrivals",
            times.len(),
            weights.len(),
            race.limit
        ));
    }
    if !is_cut && times.len() == race.limit {
        return lost(format!("all {} arrivals, but is not cut", times.len()));
    }
    let mut earliest = 0.0;
    for &time in &times {
        // Also if it is not a number.
        if !(time >= earliest && time < race.interval) {
            return lost(format!("the time {time} where {earliest} to {} was expected", race.interval));
        }
        earliest = time;
    }
    for &weight in [weight, weight_left] {
        if !(weight.is_finite() && weight >= 0.0) {
            return lost(format!("the weight {weight}"));
        }
    }
    let rate = if race.by_size { *size as f64 } else { *weight };
    for &weight in &weights {
        if !(0.0..=rate * (1.0 + ROUNDING)).contains(&weight) {
            return lost(format!("an item of weight {weight} where all have {rate}"));
        }
    }
    // So many that sizes of all servers can be added up.
    let most = u64::from(u32::MAX);
    if *size > most || *size_left > most {
        return lost(format!("the sizes {size} and {size_left}; a table has at most {most} items"));
    }
    let limiter = report.limiter.as_ref().map(limiter_from_wire).filter(|limiter| limiter.validate().is_ok());
    let Some(limiter) = limiter else {
        return lost(format!("the rate limiter {:?}", report.limiter));
    };
    // As for the sizes: each item has at most as many draws as a number of 32 bits.
    if let Some(draws) = report.draws_left.filter(|&draws| draws < *size || draws > most * most) {
        return lost(format!("{draws} draws left of {size} items"));
    }
    if !times.is_empty() && rate == 0.0 {
        return lost(format!("{} arrivals from {size} items of weight {weight}", times.len()));
    }
    let arrivals = times.into_iter().zip(weights).map(|(time, weight)| RaceArrival { time, weight }).collect();
    let (weight, size, weight_left, size_left) = (*weight, *size, *weight_left, *size_left);
    let (draws_left, in_order) = (report.draws_left, report.in_order);
    Ok(RaceReport { arrivals, is_cut: *is_cut, weight, size, weight_left, size_left, draws_left, in_order, limiter })
}

/// Makes the message of a wait for a stock.
pub fn wait_to_wire(table: &str, stock: Stock, is_ahead: bool) -> replay::Wait {
    let Stock { at_least, of_draws, min_size } = stock;
    replay::Wait { table: table.to_owned(), at_least, of_draws, min_size_to_sample: min_size, is_ahead }
}

/// Reads what a client waits for.
pub fn stock_from_wire(wait: &replay::Wait) -> Stock {
    let &replay::Wait { at_least, of_draws, min_size_to_sample: min_size, .. } = wait;
    Stock { at_least, of_draws, min_size }
}

/// Makes the message of a choice.
///
/// # Errors
/// [`Error::InvalidArgument`] if a position is not a number of 32 bits.
pub fn winners_to_wire(winners: &[usize]) -> Result<replay::Choice> {
    let number = |&position: &usize| u32::try_from(position).map(u32::to_le_bytes);
    let winners: std::result::Result<Vec<_>, _> = winners.iter().map(number).collect();
    let winners = winners.map_err(|_| Error::invalid("the position of a winner is not a number of 32 bits"))?;
    Ok(replay::Choice { winners: winners.into_flattened().into() })
}

/// Reads the positions of the winners among `num_arrivals`.
///
/// # Errors
/// [`Error::InvalidArgument`] if there are more, or a part of one.
pub fn winners_from_wire(choice: &replay::Choice, num_arrivals: usize) -> Result<Vec<usize>> {
    let bytes = choice.winners.len();
    if bytes.div_ceil(4) > num_arrivals {
        return Err(Error::invalid(format!("expected at most {num_arrivals} winners, got {}", bytes.div_ceil(4))));
    }
    let winners = numbers(&choice.winners, u32::from_le_bytes);
    let winners = winners.ok_or_else(|| Error::invalid(format!("expected 4 bytes for each winner, got {bytes}")))?;
    Ok(winners.into_iter().map(|position| position as usize).collect())
}

/// Reads numbers of `N` bytes each. `None` if the last is not complete.
fn numbers<T, const N: usize>(bytes: &[u8], from_le_bytes: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
    let (numbers, rest) = bytes.as_chunks::<N>();
    rest.is_empty().then(|| numbers.iter().map(|&number| from_le_bytes(number)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverb_core::RateLimiterConfig;

    const RACE: Race = Race { interval: 10.0, limit: 4, by_size: false };

    const LIMITER: RateLimiterConfig =
        RateLimiterConfig { samples_per_insert: 1.0, min_size_to_sample: 2, min_diff: -f64::MAX, max_diff: 3.0 };

    fn report(arrivals: &[(f64, f64)]) -> replay::RaceReport {
        report_to_wire(&RaceReport {
            arrivals: arrivals.iter().map(|&(time, weight)| RaceArrival { time, weight }).collect(),
            is_cut: arrivals.len() == RACE.limit,
            weight: 6.0,
            size: 3,
            weight_left: 5.0,
            size_left: 2,
            draws_left: Some(4),
            in_order: false,
            limiter: LIMITER,
        })
    }

    /// The reason for which a report is refused.
    fn refused(report: &replay::RaceReport, race: Race) -> String {
        match report_from_wire(report, race) {
            Err(Error::DataLoss(reason)) => reason,
            answer => panic!("expected data loss, got {answer:?}"),
        }
    }

    #[test]
    fn a_report_arrives_as_it_was_sent() {
        for arrivals in [&[][..], &[(0.0, 1.0), (2.0, 0.0), (2.0, 3.0)], &[(1.0, 1.0); 4]] {
            let sent = report(arrivals);
            assert_eq!(report_to_wire(&report_from_wire(&sent, RACE).unwrap()), sent);
        }
        // A server may stop before the limit.
        let cut = replay::RaceReport { is_cut: true, ..report(&[(1.0, 1.0)]) };
        assert!(report_from_wire(&cut, RACE).unwrap().is_cut);
        let of_no_weight = replay::RaceReport { weight: 0.0, ..report(&[(1.0, 1.0)]) };
        assert!(report_from_wire(&of_no_weight, Race { by_size: true, ..RACE }).is_ok());
    }

    #[test]
    fn reports_that_no_table_can_have_made_are_data_loss() {
        let good = || report(&[(1.0, 1.0), (2.0, 2.0)]);
        let times = |first: f64, second: f64| report(&[(first, 1.0), (second, 2.0)]);
        let weight = |weight: f64| report(&[(1.0, 1.0), (2.0, weight)]);
        for (bad, reason) in [
            (times(2.0, 1.0), "the time 1 where 2 to 10 was expected"),
            (times(-1.0, 1.0), "the time -1 where 0 to 10 was expected"),
            (times(1.0, 10.0), "the time 10 where 1 to 10 was expected"),
            (times(f64::NAN, 1.0), "the time NaN where 0 to 10 was expected"),
            (times(1.0, f64::INFINITY), "the time inf where 1 to 10 was expected"),
            (weight(-1.0), "an item of weight -1 where all have 6"),
            (weight(7.0), "an item of weight 7 where all have 6"),
            (weight(f64::NAN), "an item of weight NaN where all have 6"),
            (weight(f64::INFINITY), "an item of weight inf where all have 6"),
            (replay::RaceReport { weight: f64::NAN, ..good() }, "the weight NaN"),
            (replay::RaceReport { weight_left: -0.5, ..good() }, "the weight -0.5"),
            (replay::RaceReport { times: good().times.slice(..8), ..good() }, "1 times and 2 weights"),
            (replay::RaceReport { weights: Bytes::new(), ..good() }, "2 times and 0 weights"),
            (replay::RaceReport { times: good().times.slice(..15), ..good() }, "a part of a number"),
            (replay::RaceReport { weights: good().weights.slice(..15), ..good() }, "a part of a number"),
            (report(&[(1.0, 1.0); 5]), "5 times and 5 weights, of at most 4 arrivals"),
            (replay::RaceReport { is_cut: false, ..report(&[(1.0, 1.0); 4]) }, "all 4 arrivals, but is not cut"),
            (replay::RaceReport { size: u64::MAX, ..good() }, "the sizes 18446744073709551615 and 2"),
            (replay::RaceReport { size_left: 1 << 32, ..good() }, "the sizes 3 and 4294967296"),
            (replay::RaceReport { weight: f64::INFINITY, ..good() }, "the weight inf"),
            (replay::RaceReport { limiter: None, ..good() }, "the rate limiter None"),
            (replay::RaceReport { draws_left: Some(2), ..good() }, "2 draws left of 3 items"),
            (replay::RaceReport { draws_left: Some(u64::MAX), ..good() }, "18446744073709551615 draws left of 3"),
            (replay::RaceReport { weight: 0.0, ..report(&[(1.0, 0.0)]) }, "1 arrivals from 3 items of weight 0"),
        ] {
            let text = refused(&bad, RACE);
            assert!(text.starts_with("a report of a race has ") && text.contains(reason), "{text}");
        }
    }

    #[test]
    fn a_race_by_sizes_has_arrivals_of_tables_with_items_only() {
        let by_size = Race { by_size: true, ..RACE };
        let sized = |size| replay::RaceReport { size, weight: 0.0, ..report(&[(1.0, 1.0)]) };
        assert!(report_from_wire(&sized(1), by_size).is_ok());
        assert!(refused(&sized(0), by_size).contains("an item of weight 1 where all have 0"));
        let of_nothing = replay::RaceReport { weights: Bytes::from_static(&[0; 8]), ..sized(0) };
        assert!(refused(&of_nothing, by_size).contains("1 arrivals from 0 items"));
    }

    #[test]
    fn a_time_that_is_less_than_a_millisecond_is_one() {
        let hold = |hold| race_to_wire("table", RACE, false, hold, None).hold_ms;
        assert_eq!(hold(Duration::from_micros(1)), 1);
        assert_eq!(hold(Duration::from_secs(5)), 5000);
        assert_eq!(hold(Duration::MAX), u64::MAX);
    }

    #[test]
    fn winners_arrive_as_they_were_sent() {
        let sent = winners_to_wire(&[0, 3, 70_000]).unwrap();
        assert_eq!(winners_from_wire(&sent, 70_001).unwrap(), [0, 3, 70_000]);
        assert!(winners_to_wire(&[1 << 32]).is_err());
    }
}
