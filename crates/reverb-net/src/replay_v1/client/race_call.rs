//! The part of one server in a race of several tables, as the client sees it.

use super::calls::answer;
use super::draw_call::{Answer, Asked, DrawCall};
use crate::replay_v1::proto::{self as replay, sample_request};
use crate::replay_v1::wire::{race_to_wire, report_from_wire, winners_to_wire};
use reverb_core::published_room::Tally;
use reverb_core::{Error, Race, RaceReport, Result};
use std::time::Duration;

/// What a client asks of one server in a race.
#[derive(Debug, Clone)]
pub struct RaceRequest {
    /// The name of the table.
    pub table: String,
    /// The race, which is the same for all servers. Its interval is finite.
    pub race: Race,
    /// As in a draw, for the batch of the winners.
    pub squeeze_time: bool,
    /// Time after which the server takes the draws back if the client has not chosen.
    pub hold: Duration,
    /// The number of the client as a learner and what it knows, if the limiter of the table is that of all shards.
    pub claim: Option<(u64, Tally)>,
}

impl RaceRequest {
    pub(super) fn to_wire(&self) -> replay::Race {
        race_to_wire(&self.table, self.race, self.squeeze_time, self.hold, self.claim.as_ref())
    }
}

/// A race that has begun. The server holds its draws until the client has chosen. Dropping it gives them back.
#[derive(Debug)]
pub struct RaceCall {
    /// `None` after the choice.
    asked: Option<Asked>,
    race: Race,
    /// Number of arrivals. `None` before the report.
    num_arrivals: Option<usize>,
}

impl RaceCall {
    pub(super) fn new(asked: Asked, race: Race) -> Self {
        Self { asked: Some(asked), race, num_arrivals: None }
    }

    /// Waits for the report, which can be taken once. Before that, the future may be dropped and the function called
    /// again.
    ///
    /// # Errors
    /// The error of the race, [`Error::Unavailable`] if the connection was lost, or [`Error::DataLoss`] if no table can
    /// have made the report.
    pub async fn report(&mut self) -> Result<RaceReport> {
        let asked = self.asked.as_mut().filter(|_| self.num_arrivals.is_none());
        let asked = asked.ok_or_else(|| Error::invalid("the report of a race can be taken once"))?;
        let Answer::Report(report) = answer(&mut asked.receiver).await? else {
            return Err(Error::DataLoss("expected the report of a race, got another answer".into()));
        };
        let report = report_from_wire(&report, self.race)?;
        self.num_arrivals = Some(report.arrivals.len());
        Ok(report)
    }

    /// Chooses the arrivals at these positions, which ascend, and asks for the batch of their items. All others go back
    /// to the table.
    ///
    /// The call of the batch fails with [`Error::DeadlineExceeded`] if the choice reached the server too late: all draws
    /// are back in the table then.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the report was not taken, if there was a choice before, or if the positions are not
    /// those of arrivals, or none: the race goes on then. The error that ended the stream, if it has ended.
    pub fn choose(&mut self, winners: &[usize]) -> Result<DrawCall> {
        let num_arrivals = self.num_arrivals.filter(|_| self.asked.is_some());
        let num_arrivals = num_arrivals
            .ok_or_else(|| Error::invalid("the winners of a race are chosen once, after its report was taken"))?;
        let is_choice = winners.is_sorted_by(|before, after| before < after)
            && winners.last().is_some_and(|&last| last < num_arrivals);
        if !is_choice {
            return Err(Error::invalid(format!(
                "expected ascending positions of winners below {num_arrivals}, at least one, got {winners:?}"
            )));
        }
        let choice = winners_to_wire(winners)?;
        let Some(asked) = self.asked.take() else { unreachable!("it was seen above") };
        let Asked { receipts, calls, request_id, .. } = asked;
        // If the stream has ended, the server has taken the draws back.
        let receiver = calls.expect(request_id)?;
        receipts.send_request(request_id, sample_request::Kind::Choice(choice));
        Ok(DrawCall::of(Asked { receipts, calls, request_id, receiver }))
    }
}

impl Drop for RaceCall {
    fn drop(&mut self) {
        self.asked.iter().for_each(Asked::cancel);
    }
}
