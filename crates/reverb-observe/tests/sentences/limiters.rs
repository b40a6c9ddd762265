//! What is said of limiters: on cards, of requests that wait, and in a few words.

use super::check;
use super::states::Limited;
use reverb_core::WaitingBatches;

#[test]
fn limiters_speak_of_who_is_ahead_and_of_batches() {
    check("limiters.txt", |state| {
        let [limiter, counts, requests] = state[..] else { panic!("expected three lines, got {state:?}") };
        let limited = Limited::new("replay", limiter, counts);
        let view = limited.view();
        let requests: Vec<&str> = requests.split(' ').collect();
        let ["insert", insert, "sample", sample] = requests[..] else { panic!("{requests:?}") };
        let (insert, sample) = (insert.parse().unwrap(), sample.parse().unwrap());
        let mut said = vec![view.sentence(WaitingBatches::default())];
        let mut waits = |name: &str, reason: String, waiting, why| {
            let card = view.sentence(waiting);
            let missing = reason.split("; ").find(|part| part.contains(" until "));
            assert!(missing.is_none_or(|missing| card.contains(missing)), "a client reads {reason}, the card {card}");
            said.push(format!("{name} waits: {reason}"));
            said.push(format!("on the card: {card}"));
            said.push(format!("in a few words: {why}"));
        };
        if !view.limiter.can_insert(insert) {
            let waiting = WaitingBatches { inserts: Some(insert as u64), samples: None };
            waits("insert", view.insert_waits_for(insert as u64), waiting, view.why_inserts_wait());
        }
        if view.items == 0 || view.samples_allowed().is_some_and(|allowed| allowed < sample) {
            let waiting = WaitingBatches { inserts: None, samples: Some(sample) };
            waits("sample", view.sample_waits_for(sample), waiting, view.why_samples_wait());
        }
        said
    });
}
