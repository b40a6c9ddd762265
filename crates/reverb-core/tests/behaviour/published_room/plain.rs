//! Plain cases of the limiter over shards, message by message.

use reverb_core::published_room::{
    Counts, Generation, Incarnation, LIFE, Learner, MAX_JUMP, MAX_STARTS, MemberId, Publication, Report, RoomConfig,
    SETTLE, Shard, Sums, TAKEOVER_AFTER, Tally, WaitReason,
};
use reverb_core::{Error, RateLimiterConfig};
use std::sync::Arc;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(10);

/// Two samples per insert, a window of 40 around 0.
fn config() -> RoomConfig {
    let limiter = RateLimiterConfig { samples_per_insert: 2.0, min_size_to_sample: 1, min_diff: -20.0, max_diff: 20.0 };
    RoomConfig { limiter, shards: 2, learners: 1, batch: 8 }
}

fn incarnation(shard: u32, number: u64) -> Incarnation {
    Incarnation { shard, number }
}

fn shard(now: Duration, incarnation: Incarnation, tally: Tally, items: u64) -> Shard {
    Shard::new(now, config(), incarnation, &[0, 1], tally, items).unwrap()
}

/// Two shards and a learner that hear each other at once.
struct Room {
    now: Duration,
    shards: Vec<Shard>,
    learner: Learner,
    /// The publication that the learner has got last, and how many it has got.
    heard: Option<Arc<Publication>>,
    publications: u64,
    deaf: Option<u32>,
}

impl Room {
    /// After the first home has listed all.
    fn new() -> Self {
        let zero = Duration::ZERO;
        let shards = vec![
            shard(zero, incarnation(0, 1), Tally::default(), 0),
            shard(zero, incarnation(1, 1), Tally::default(), 0),
        ];
        let learner = Learner::new(zero, config(), 7, &[0, 1]).unwrap();
        let mut room = Self { now: zero, shards, learner, heard: None, publications: 0, deaf: None };
        room.pass(TAKEOVER_AFTER + SETTLE + 2 * TICK);
        room
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            let reports =
                [self.shards[0].report(self.now), self.shards[1].report(self.now), self.learner.report(self.now)];
            for (report, to) in reports {
                let to = to.into_iter().filter(|to| self.deaf != Some(*to));
                to.for_each(|to| self.shards[to as usize].hear_report(self.now, &report));
            }
            // The greater id first: it would be the home if both were in such a hurry.
            for index in [1, 0] {
                let Some((publication, to)) = self.shards[index].publish(self.now) else { continue };
                self.shards[1 - index].hear(self.now, &publication);
                if to.contains(&MemberId::Learner(7)) {
                    self.learner.hear(self.now, &publication);
                    (self.heard, self.publications) = (Some(publication), self.publications + 1);
                }
            }
        }
    }

    fn allowed(&self) -> (u64, u64, u64) {
        let [one, other] = [0, 1].map(|shard: usize| self.shards[shard].inserts_allowed(self.now));
        (one, other, self.learner.samples_allowed(self.now))
    }
}

#[test]
fn each_holder_may_use_its_share_less_its_own_use() {
    let mut room = Room::new();
    assert_eq!((room.shards[0].home().is_some(), room.shards[1].home()), (true, None));
    // 20 / 2 shards / 2 samples per insert; no item yet to sample.
    assert_eq!(room.allowed(), (5, 5, 0));
    room.shards[1].inserted(3);
    assert_eq!(room.allowed(), (5, 2, 0));
    room.pass(TICK);
    assert_eq!(room.allowed(), (3, 3, 26));
    assert!(room.learner.take(room.now, 8));
    assert_eq!(room.allowed(), (3, 3, 18));
    let counted = room.shards[0].sampled(8, room.learner.tally());
    room.learner.counted(8, &counted);
    assert_eq!(room.learner.samples_allowed(room.now), 18);
    room.pass(TICK);
    assert_eq!(room.allowed(), (5, 5, 18));
}

#[test]
fn construction_is_refused_with_the_figures_if_the_window_is_too_small() {
    let mut config = config();
    (config.shards, config.learners) = (4, 4);
    config.validate().unwrap();
    config.batch = 9;
    let Err(Error::InvalidArgument(text)) =
        Shard::new(Duration::ZERO, config, incarnation(0, 1), &[0], Tally::default(), 0)
    else {
        panic!("accepted")
    };
    assert!(text.contains("4 × 2 + 4 × 9 = 44") && text.contains("20 - -20 = 40"), "{text}");
}

#[test]
fn a_shard_knows_as_many_starts_as_others_take_with_its_own() {
    let starts = |count| (0..count).map(|number| (incarnation(1, number), Counts::default())).collect::<Tally>();
    let made = |tally| Shard::new(Duration::ZERO, config(), incarnation(0, 1), &[0, 1], tally, 0);
    assert!(matches!(made(starts(MAX_STARTS as u64)), Err(Error::ResourceExhausted(_))));
    let mut full = made(starts(MAX_STARTS as u64 - 1)).unwrap();
    assert_eq!(full.tally().len(), MAX_STARTS);
    let told = full.sampled(1, &Tally::default()).tally;
    full.check(&told, None).unwrap();
    let one = Tally::from_iter([(incarnation(9, 1), Counts::default())]);
    assert!(matches!(full.check(&one, None), Err(Error::ResourceExhausted(_))));
}

#[test]
fn only_a_shard_itself_says_what_it_has_counted_and_that_it_has_started_again() {
    let mut room = Room::new();
    room.shards[0].inserted(3);
    let wrong = Counts { inserts: 1000, samples: 1000, restored: 1000, deletes: 1000 };
    let others = [(incarnation(0, 1), wrong), (incarnation(0, 2), wrong), (incarnation(0, 0), wrong)];
    let tally = Tally::from_iter(others);
    let from = MemberId::Learner(8);
    let report = Report { from, tally: tally.clone(), newest: None, has_home: false, wants: 0 };
    room.shards[0].hear_report(room.now, &report);
    room.shards[0].sampled(2, &tally);
    let publication = Publication { tally: tally.clone(), ..(*room.heard.clone().unwrap()).clone() };
    room.shards[0].hear(room.now, &Arc::new(publication));
    let counts = Counts { inserts: 3, samples: 2, ..Counts::default() };
    assert_eq!(room.shards[0].counts(), counts);
    let known: Vec<_> = room.shards[0].tally().incarnations().filter(|(of, _)| of.shard == 0).collect();
    // An earlier start may have told others more than its checkpoint knows.
    assert_eq!(known, [(incarnation(0, 0), wrong), (incarnation(0, 1), counts)]);
    assert_eq!(shard(room.now, incarnation(0, 1), tally, 5).counts(), Counts { restored: 5, ..Counts::default() });
}

#[test]
fn a_generation_that_no_home_can_have_reached_is_refused() {
    let room = Room::new();
    let check = |number| room.shards[0].check(&Tally::default(), Some(Generation { number, home: incarnation(1, 1) }));
    check(1 + MAX_JUMP).unwrap();
    let error = check(2 + MAX_JUMP).unwrap_err().to_string();
    assert_eq!(error, "expected the number of a generation up to 1048577, got 1048578");
}

#[test]
fn publication_dies_and_an_older_home_is_not_believed() {
    let mut room = Room::new();
    let old = room.heard.clone().unwrap();
    room.shards[0].inserted(5);
    room.shards[1].inserted(5);
    room.pass(TICK);
    assert_eq!((room.allowed().0, room.allowed().1), (0, 0));
    let newer = Generation { number: old.generation.number + 1, home: incarnation(1, 1) };
    let newest = room.heard.clone().unwrap();
    let newer = Arc::new(Publication { generation: newer, sequence: 1, ..Publication::clone(&newest) });
    room.shards[0].hear(room.now, &newer);
    assert_eq!(room.shards[0].home(), None);
    // The old home says that there is much room, with a later number.
    let late =
        Arc::new(Publication { sequence: 1000, sample_room: 40.0, insert_room: 400.0, ..Publication::clone(&old) });
    assert!(!room.shards[0].hear(room.now, &late));
    assert_eq!(room.shards[0].inserts_allowed(room.now), 0);
    room.learner.hear(room.now, &newer);
    assert_eq!(room.learner.samples_allowed(room.now + LIFE - TICK), 40);
    assert_eq!(room.learner.samples_allowed(room.now + LIFE), 0);
    assert_eq!(room.learner.wait(room.now + LIFE, 8).unwrap().reason, WaitReason::NoHome);
}

#[test]
fn counts_of_a_lost_shard_stay_when_it_returns_with_older_ones_and_when_it_is_removed() {
    let mut room = Room::new();
    room.shards[1].inserted(2);
    room.pass(TICK);
    let checkpoint = room.shards[1].tally().clone();
    room.shards[1].inserted(2);
    room.pass(TICK);
    room.shards[1] = shard(room.now, incarnation(1, 2), checkpoint, 2);
    room.pass(SETTLE);
    let sums = |room: &Room| room.shards[0].wait(room.now, 1000).unwrap().sums.unwrap();
    assert_eq!(sums(&room), Sums { inserts: 4, samples: 0, items: 2 });
    room.shards[1].inserted(1);
    room.pass(TICK);
    assert_eq!(sums(&room), Sums { inserts: 5, samples: 0, items: 3 });
    assert_eq!(room.shards[1].counts(), Counts { restored: 2, inserts: 1, ..Counts::default() });
    room.shards[0].set_map(&[0]);
    room.pass(TICK);
    assert_eq!(sums(&room), Sums { inserts: 5, samples: 0, items: 0 });
}

#[test]
fn waiting_learner_is_woken_by_what_ends_its_wait_and_rarely_else() {
    let mut room = Room::new();
    assert!(!room.learner.take(room.now, 30));
    room.pass(TICK);
    let before = room.publications;
    room.pass(50 * TICK);
    assert_eq!(room.publications - before, 10);
    let wait = room.learner.wait(room.now, 30).unwrap();
    assert_eq!((wait.reason, wait.missing, wait.missing_items), (WaitReason::Items, 5, 1));
    room.shards[0].inserted(4);
    room.pass(5 * TICK);
    let wait = room.learner.wait(room.now, 30).unwrap();
    assert_eq!((wait.reason, wait.missing, wait.sums.unwrap().inserts), (WaitReason::Room, 1, 4));
    room.pass(TICK);
    let before = room.publications;
    room.shards[0].inserted(1);
    room.pass(TICK);
    assert_eq!(room.publications - before, 1);
    assert!(room.learner.take(room.now, 30));
}

#[test]
fn waiting_insert_says_what_is_missing_and_which_shards_are_silent() {
    let mut room = Room::new();
    room.shards[0].inserted(5);
    room.pass(TICK);
    room.shards[0].inserted(2);
    let wait = room.shards[0].wait(room.now, 1).unwrap();
    // (1 + 2 of its own) × 2 × 2 shards are 12, and 10 are left.
    assert_eq!((wait.reason, wait.own_use, wait.missing, wait.age.unwrap()), (WaitReason::Room, 2, 2, Duration::ZERO));
    assert!(wait.silent.is_empty());
    for _ in 0..25 {
        room.now += TICK;
        let (report, _) = room.learner.report(room.now);
        room.shards[0].hear_report(room.now, &report);
        room.shards[0].publish(room.now);
    }
    assert_eq!(room.shards[0].wait(room.now, 100).unwrap().silent, [1]);
    assert_eq!(room.shards[1].wait(room.now, 1).unwrap().reason, WaitReason::NoHome);
}

#[test]
fn shard_that_hears_nobody_does_not_become_the_home() {
    let mut deaf = shard(Duration::ZERO, incarnation(0, 1), Tally::default(), 0);
    assert!((0..100).all(|tick| deaf.publish(tick * TICK).is_none()));
    let mut alone = Shard::new(Duration::ZERO, config(), incarnation(0, 1), &[0], Tally::default(), 0).unwrap();
    assert!((0..100).any(|tick| alone.publish(tick * TICK).is_some()));
}

#[test]
fn home_that_hears_nobody_gives_up_and_another_follows() {
    let mut room = Room::new();
    room.deaf = Some(0);
    room.pass(2 * TAKEOVER_AFTER + SETTLE + 10 * TICK);
    assert_eq!((room.shards[0].home(), room.shards[1].home().unwrap().number), (None, 2));
    // Its own reports arrive, so it has a share.
    assert_eq!(room.allowed(), (5, 5, 0));
    // It stays the home when the smaller id hears again.
    room.deaf = None;
    room.pass(2 * SETTLE);
    assert_eq!((room.shards[0].home(), room.allowed()), (None, (5, 5, 0)));
}

#[test]
fn home_outbids_a_newer_one_that_is_gone() {
    let mut room = Room::new();
    room.shards[0].inserted(5);
    room.pass(TICK);
    let generation = Generation { number: 8, home: incarnation(1, 1) };
    let gone = Publication { generation, ..Publication::clone(room.heard.as_ref().unwrap()) };
    room.learner.hear(room.now, &Arc::new(gone));
    room.pass(LIFE + SETTLE + 3 * TICK);
    assert_eq!(room.shards[0].home().unwrap().number, 9);
    assert_eq!(room.allowed(), (2, 2, 30));
}

#[test]
fn members_are_counted_before_and_after_they_are_listed() {
    let mut room = Room::new();
    let newcomer = MemberId::Learner(8);
    let report = Report { from: newcomer, ..room.learner.report(room.now).0 };
    let mut seen = Vec::new();
    for tick in 0..80 {
        if tick < 30 {
            room.shards[0].hear_report(room.now, &report);
        }
        room.pass(TICK);
        let publication = room.heard.as_ref().unwrap();
        seen.push((publication.holders.learners, publication.listed.contains(&newcomer)));
    }
    seen.dedup();
    assert_eq!(seen, [(2, false), (2, true), (2, false), (1, false)]);
}

#[test]
fn room_is_never_more_than_the_window() {
    let mut room = Room::new();
    room.shards[0].sampled(30, &Tally::default());
    room.pass(TICK);
    // 20 + 30 would be 12 for each of the two, of two samples.
    assert_eq!((room.allowed().0, room.allowed().1), (10, 10));
}
