//! Calls that go to all servers at the same time.

use super::at_server::{at_server, is_lost};
use super::set::Servers;
use crate::client::call::Call;
use crate::client::join::join;
use crate::client::started::Started;
use reverb_core::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// The answer of each server.
pub type Answers<T> = Vec<(Arc<str>, Result<T>)>;

/// The answer of each server that has answered.
pub type Reached<T> = Vec<(Arc<str>, T)>;

/// A call that clients of several servers make at all of them.
pub trait ToAll: Call + Clone + Sync {
    /// Whether the call is made again, at the next server, if it finds that its server is lost. The server of an older
    /// connection may have been stopped and replaced by another.
    const FINDS_NEXT_SERVER: bool = false;

    /// Makes the call at all servers, and merges their answers.
    fn to_all(self, all: All<'_>) -> impl Future<Output = Result<Self::Answer>> + Send;
}

/// All servers of a client, for one call.
#[derive(Debug, Clone, Copy)]
pub struct All<'s> {
    /// The servers.
    pub servers: &'s Arc<Servers>,
    /// Until when the call waits for connections.
    pub connect_by: Option<Instant>,
    /// Until when it waits for answers.
    pub deadline: Option<Instant>,
}

impl All<'_> {
    /// Makes a call at all servers, and waits for all answers. A server that is down answers with the reason.
    pub async fn ask<C: Call + Clone>(&self, call: C) -> Result<Answers<C::Answer>> {
        self.ask_some(|_, _| Some(call.clone())).await
    }

    /// As [`All::ask`], with a call of its own for each server, made of its place among all and of their number. Servers
    /// without a call are not asked.
    pub async fn ask_some<C: Call>(&self, call: impl Fn(usize, usize) -> Option<C>) -> Result<Answers<C::Answer>> {
        let all = self.servers.all(self.connect_by).await?;
        let (mut peers, mut calls) = (Vec::new(), Vec::new());
        let number = all.len();
        for (place, (peer, road)) in all.into_iter().enumerate() {
            let Some(call) = call(place, number) else { continue };
            peers.push(peer);
            calls.push(match road {
                Ok(road) => road.call(call, self.deadline).into_future(),
                Err(error) => Started::Done(Err(error)).into_future(),
            });
        }
        Ok(peers.into_iter().zip(join(calls, None).await.into_iter().flatten()).collect())
    }

    /// Whether a server is lost that another may have replaced, and there is time left to ask that one.
    pub fn is_next_due<T>(&self, answers: &Answers<T>) -> bool {
        answers.iter().any(|(_, answer)| answer.as_ref().is_err_and(is_lost))
            && self.deadline.is_none_or(|end| Instant::now() < end)
    }

    /// Returns the error of a call that is made at one server only.
    pub fn one_at_a_time(&self, what: &str) -> Error {
        Error::invalid(format!(
            "only one server can be {what} at a time, and `{}` names several; use one of their addresses",
            self.servers.address()
        ))
    }
}

/// Returns the answers if all servers have answered.
///
/// # Errors
/// [`Error::Unavailable`] with the servers that the call did not reach, or the error that a server answered.
pub fn of_all<T>(answers: Answers<T>, what: &str) -> Result<Reached<T>> {
    let is_of_lost = |answer: &Result<T>| answer.as_ref().is_err_and(is_lost);
    let lost: Vec<_> = answers.iter().filter(|(_, answer)| is_of_lost(answer)).collect();
    if lost.is_empty() || answers.iter().any(|(_, answer)| answer.is_err() && !is_of_lost(answer)) {
        return of_reached(answers);
    }
    let reasons = lost.iter().map(|(peer, answer)| match answer {
        Err(error) => format!("{peer} ({error})"),
        Ok(_) => peer.to_string(),
    });
    let (reasons, others) = (reasons.collect::<Vec<_>>().join(", "), answers.len() - lost.len());
    let rest = if others == 0 { "no server has confirmed it" } else { "the other servers have confirmed it" };
    Err(Error::Unavailable(format!("{what} was not confirmed by {reasons}; {rest}")))
}

/// Returns the answers of the servers that have answered.
///
/// # Errors
/// The error that a server answered, or the reason why none did.
pub fn of_reached<T>(answers: Answers<T>) -> Result<Reached<T>> {
    match reached_and_lost(answers)? {
        (reached, Some(error)) if reached.is_empty() => Err(error),
        (reached, _) => Ok(reached),
    }
}

/// Returns the answers of the servers that have answered, and the error of one that is lost, if any is.
///
/// # Errors
/// The error that a server answered.
pub fn reached_and_lost<T>(answers: Answers<T>) -> Result<(Reached<T>, Option<Error>)> {
    let errors = answers.iter().filter_map(|(peer, answer)| Some((peer, answer.as_ref().err()?)));
    let answered: Vec<_> = errors.filter(|(_, error)| !is_lost(error)).collect();
    if let Some(&(peer, error)) = answered.first() {
        let all_say_it = answered.len() == answers.len() && answered.iter().all(|(_, other)| *other == error);
        return Err(if all_say_it { error.clone() } else { at_server(error.clone(), peer) });
    }
    let mut reached = Vec::with_capacity(answers.len());
    let mut lost = None;
    for (peer, answer) in answers {
        match answer {
            Ok(answer) => reached.push((peer, answer)),
            Err(error) => lost = Some(at_server(error, &peer)),
        }
    }
    Ok((reached, lost))
}
