//! Converts what the members of the limiter over all shards of a cluster tell each other.

use crate::replay_v1::proto::{self as replay, room_message};
use reverb_core::published_room::{
    Counted, Counts, Generation, Holders, Incarnation, MAX_COUNT, MAX_STARTS, MemberId, Publication, Report, Sums,
    Tally,
};
use reverb_core::{Error, Result};
use reverb_service::RoomMessage;
use std::sync::Arc;

/// Maximum number of members in a publication.
const MAX_MEMBERS: usize = 1 << 16;

/// Makes the message of a tally.
pub fn tally_to_wire(tally: &Tally) -> replay::Tally {
    let counts = tally.incarnations().map(|(Incarnation { shard, number }, counts)| {
        let Counts { restored, inserts, deletes, samples } = counts;
        replay::ShardCounts { shard, start: number, restored, inserts, deletes, samples }
    });
    replay::Tally { counts: counts.collect() }
}

/// Reads a tally.
///
/// # Errors
/// [`Error::InvalidArgument`] if it has too many starts, or counts that no shard can have reached.
pub fn tally_from_wire(tally: Option<&replay::Tally>) -> Result<Tally> {
    let counts = tally.map_or(&[][..], |tally| &tally.counts);
    if counts.len() > MAX_STARTS {
        return Err(Error::invalid(format!(
            "expected the counts of at most {MAX_STARTS} starts of shards, got {}",
            counts.len()
        )));
    }
    let read = |counts: &replay::ShardCounts| {
        let replay::ShardCounts { shard, start, restored, inserts, deletes, samples } = *counts;
        Ok((incarnation(shard, start), Counts { restored, inserts, deletes, samples }.checked()?))
    };
    counts.iter().map(read).collect()
}

/// Makes the message of what a member tells.
pub fn room_message_to_wire(message: &RoomMessage) -> replay::RoomMessage {
    let kind = match message {
        RoomMessage::Published(publication) => room_message::Kind::Publication(publication_to_wire(publication)),
        RoomMessage::Reported(report) => room_message::Kind::Report(report_to_wire(report)),
        RoomMessage::Counted(count, counted) => room_message::Kind::Counted(replay::RoomCounted {
            count: *count,
            shard: counted.incarnation.shard,
            start: counted.incarnation.number,
            tally: Some(tally_to_wire(&counted.tally)),
        }),
    };
    replay::RoomMessage { kind: Some(kind) }
}

/// Reads what a member tells. A report that is of no shard is of the client, which is this learner. `None` for a kind that
/// this edition does not know.
///
/// # Errors
/// [`Error::InvalidArgument`] if no member can have made it.
pub fn room_message_from_wire(message: &replay::RoomMessage, learner: u64) -> Result<Option<RoomMessage>> {
    Ok(match &message.kind {
        None => None,
        Some(room_message::Kind::Publication(publication)) => {
            Some(RoomMessage::Published(Arc::new(publication_from_wire(publication)?)))
        }
        Some(room_message::Kind::Report(report)) => Some(RoomMessage::Reported(report_from_wire(report, learner)?)),
        Some(room_message::Kind::Counted(counted)) => {
            let incarnation = incarnation(counted.shard, counted.start);
            let tally = tally_from_wire(counted.tally.as_ref())?;
            Some(RoomMessage::Counted(counted.count, Counted { incarnation, tally }))
        }
    })
}

fn publication_to_wire(publication: &Publication) -> replay::Publication {
    let Publication { generation, sequence, tally, sums, insert_room, sample_room, refill_room, .. } = publication;
    let (mut listed_shards, mut listed_learners) = (Vec::new(), Vec::new());
    for member in &publication.listed {
        match member {
            MemberId::Shard(shard) => listed_shards.push(*shard),
            MemberId::Learner(learner) => listed_learners.push(*learner),
        }
    }
    replay::Publication {
        generation: Some(generation_to_wire(*generation)),
        sequence: *sequence,
        tally: Some(tally_to_wire(tally)),
        items: sums.items,
        insert_room: *insert_room,
        sample_room: *sample_room,
        refill_room: *refill_room,
        shards: publication.holders.shards,
        learners: publication.holders.learners,
        listed_shards,
        listed_learners,
        silent: publication.silent.clone(),
    }
}

fn publication_from_wire(publication: &replay::Publication) -> Result<Publication> {
    let replay::Publication { sequence, items, insert_room, sample_room, refill_room, .. } = *publication;
    let replay::Publication { generation, listed_shards, listed_learners, silent, .. } = publication;
    let members = listed_shards.len() + listed_learners.len() + silent.len();
    if members > MAX_MEMBERS {
        return Err(Error::invalid(format!("expected a publication of at most {MAX_MEMBERS} members, got {members}")));
    }
    for room in [insert_room, sample_room] {
        if !(room.is_finite() && room >= 0.0) {
            return Err(Error::invalid(format!("expected a room that is finite and not negative, got {room}")));
        }
    }
    let generation = generation.as_ref().ok_or_else(|| Error::invalid("a publication says of which home it is"))?;
    let tally = tally_from_wire(publication.tally.as_ref())?;
    let sums = Sums { items, ..tally.sums(&[]) };
    let shards = listed_shards.iter().map(|shard| MemberId::Shard(*shard));
    Ok(Publication {
        generation: generation_from_wire(generation)?,
        sequence,
        tally,
        sums,
        insert_room,
        sample_room,
        refill_room,
        holders: Holders { shards: publication.shards, learners: publication.learners },
        listed: shards.chain(listed_learners.iter().map(|learner| MemberId::Learner(*learner))).collect(),
        silent: silent.clone(),
    })
}

fn report_to_wire(report: &Report) -> replay::RoomReport {
    let shard = match report.from {
        MemberId::Shard(shard) => Some(shard),
        MemberId::Learner(_) => None,
    };
    replay::RoomReport {
        shard,
        tally: Some(tally_to_wire(&report.tally)),
        newest: report.newest.map(generation_to_wire),
        has_home: report.has_home,
        wants: report.wants,
    }
}

fn report_from_wire(report: &replay::RoomReport, learner: u64) -> Result<Report> {
    let &replay::RoomReport { shard, has_home, wants, .. } = report;
    check("a number of samples", wants)?;
    Ok(Report {
        from: shard.map_or(MemberId::Learner(learner), MemberId::Shard),
        tally: tally_from_wire(report.tally.as_ref())?,
        newest: report.newest.as_ref().map(generation_from_wire).transpose()?,
        has_home,
        wants,
    })
}

fn generation_to_wire(generation: Generation) -> replay::Generation {
    let Generation { number, home } = generation;
    replay::Generation { number, shard: home.shard, start: home.number }
}

fn generation_from_wire(generation: &replay::Generation) -> Result<Generation> {
    let &replay::Generation { number, shard, start } = generation;
    check("the number of a generation", number)?;
    Ok(Generation { number, home: incarnation(shard, start) })
}

fn incarnation(shard: u32, start: u64) -> Incarnation {
    Incarnation { shard, number: start }
}

fn check(what: &str, number: u64) -> Result<()> {
    if number < MAX_COUNT {
        Ok(())
    } else {
        Err(Error::invalid(format!("expected {what} below {MAX_COUNT}, got {number}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn tally() -> Tally {
        let counts = Counts { restored: 1, inserts: 2, deletes: 3, samples: MAX_COUNT - 1 };
        Tally::from_iter([(incarnation(3, 9), counts), (incarnation(4, u64::MAX), Counts::default())])
    }

    fn publication() -> Publication {
        Publication {
            generation: Generation { number: 7, home: incarnation(3, 9) },
            sequence: 12,
            tally: tally(),
            sums: Sums { items: 7, ..tally().sums(&[]) },
            insert_room: 0.5,
            sample_room: 1e300,
            refill_room: 4,
            holders: Holders { shards: 2, learners: 1 },
            listed: [MemberId::Shard(0), MemberId::Shard(3), MemberId::Learner(0)].into(),
            silent: vec![4, 5],
        }
    }

    fn messages() -> Vec<RoomMessage> {
        let report = |from, newest| {
            RoomMessage::Reported(Report { from, tally: tally(), newest, has_home: newest.is_some(), wants: 32 })
        };
        let counted = Counted { incarnation: incarnation(3, 9), tally: tally() };
        vec![
            RoomMessage::Published(Arc::new(publication())),
            report(MemberId::Shard(0), None),
            report(MemberId::Learner(9), Some(publication().generation)),
            RoomMessage::Counted(8, counted),
        ]
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        for message in messages() {
            let bytes = room_message_to_wire(&message).encode_to_vec();
            let read = replay::RoomMessage::decode(&*bytes).unwrap();
            assert_eq!(room_message_from_wire(&read, 9), Ok(Some(message)));
        }
        assert_eq!(room_message_from_wire(&replay::RoomMessage::default(), 9), Ok(None));
    }

    #[test]
    fn what_no_member_can_have_made_is_refused_by_name() {
        let counts = |samples| replay::ShardCounts { samples, ..replay::ShardCounts::default() };
        let of = |counts| tally_from_wire(Some(&replay::Tally { counts })).unwrap_err().to_string();
        assert_eq!(
            of(vec![counts(MAX_COUNT)]),
            "expected a count of a shard below 281474976710656, got 281474976710656"
        );
        let many = vec![counts(0); MAX_STARTS + 1];
        assert_eq!(of(many), "expected the counts of at most 8192 starts of shards, got 8193");
        let valid = || publication_to_wire(&publication());
        let far = replay::Generation { number: u64::MAX, ..replay::Generation::default() };
        for (wrong, says) in [
            (replay::Publication { generation: None, ..valid() }, "a publication says of which home it is"),
            (replay::Publication { generation: Some(far), ..valid() }, "expected the number of a generation below"),
            (replay::Publication { insert_room: -1.0, ..valid() }, "expected a room that is finite and not negative"),
            (replay::Publication { sample_room: f64::NAN, ..valid() }, "expected a room that is finite"),
            (
                replay::Publication { silent: vec![0; MAX_MEMBERS], ..valid() },
                "expected a publication of at most 65536",
            ),
        ] {
            let error = publication_from_wire(&wrong).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
        let report = replay::RoomReport { wants: u64::MAX, ..replay::RoomReport::default() };
        assert!(
            report_from_wire(&report, 9).unwrap_err().to_string().starts_with("expected a number of samples below")
        );
    }
}
