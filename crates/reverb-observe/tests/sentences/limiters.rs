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
        if !view.limiter.can_insert(insert) {
            said.push(format!("insert waits: {}", view.insert_waits_for(insert as u64)));
            said.push(format!(
                "on the card: {}",
                view.sentence(WaitingBatches { inserts: Some(insert as u64), samples: None })
            ));
            said.push(format!("in a few words: {}", view.why_inserts_wait()));
        }
        if view.items == 0 || view.samples_allowed().is_some_and(|allowed| allowed < sample) {
            said.push(format!("sample waits: {}", view.sample_waits_for(sample)));
            said.push(format!(
                "on the card: {}",
                view.sentence(WaitingBatches { inserts: None, samples: Some(sample) })
            ));
            said.push(format!("in a few words: {}", view.why_samples_wait()));
        }
        said
    });
}
