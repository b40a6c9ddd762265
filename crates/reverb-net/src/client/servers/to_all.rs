//! Calls that go to all servers at the same time.

use super::merge::{merge_items, merge_tables};
use super::set::{Reached, Servers};
use crate::client::road::Road;
use crate::client::started::{Rest, Started};
use reverb_core::{Error, Result, TableChanges};
use reverb_service::TableStatus;
use reverb_service::peek::Peeked;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// The answer of each server.
type Answers<T> = Vec<(Arc<str>, Result<T>)>;

impl Servers {
    /// See [`crate::client::Client::mutate`]. Keys exist on one server each, so the counts are summed.
    pub async fn mutate(
        &self,
        table: &str,
        updates: &[(u64, f64)],
        deletes: &[u64],
        deadline: Option<Instant>,
    ) -> Result<Option<u64>> {
        let answers = self.ask(deadline, |road| road.mutate(table, updates, deletes, deadline)).await?;
        let changed = of_all(answers, &format!("the update of table `{table}`"))?;
        Ok(changed.into_iter().map(|(_, changed)| changed).sum())
    }

    /// See [`crate::client::Client::reset`].
    pub async fn reset(&self, table: &str, deadline: Option<Instant>) -> Result<()> {
        let answers = self.ask(deadline, |road| road.reset(table, deadline)).await?;
        of_all(answers, &format!("the reset of table `{table}`")).map(drop)
    }

    /// See [`crate::client::Client::configure`].
    pub async fn configure(&self, table: &str, changes: &TableChanges, deadline: Option<Instant>) -> Result<()> {
        let answers = self.ask(deadline, |road| road.configure(table, changes, deadline)).await?;
        of_all(answers, &format!("the change of table `{table}`")).map(drop)
    }

    /// See [`crate::client::Client::checkpoint`]. Returns the paths, one a line, in the order of the servers.
    pub async fn checkpoint(&self, deadline: Option<Instant>) -> Result<String> {
        let answers = self.ask(deadline, |road| road.checkpoint(deadline)).await?;
        let paths: Vec<_> = of_all(answers, "the checkpoint")?.into_iter().map(|(_, path)| path).collect();
        Ok(paths.join("\n"))
    }

    /// See [`crate::client::Client::info`]. Merges the tables of the servers that answer.
    pub async fn info(&self, connect_by: Option<Instant>, deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        let answers = self.ask(connect_by, |road| road.info(deadline)).await?;
        let is_lost = |(_, answer): &(_, Result<_>)| answer.as_ref().is_err_and(is_lost);
        // The server of an older connection may have been stopped and replaced by another.
        let answers = match answers.iter().any(is_lost) && deadline.is_none_or(|end| Instant::now() < end) {
            true => self.ask(connect_by, |road| road.info(deadline)).await?,
            false => answers,
        };
        merge_tables(of_reached(answers)?)
    }

    /// See [`crate::client::Client::peek`]. Merges the items of the servers that answer.
    pub async fn peek(&self, table: &str, count: u32, newest: bool, deadline: Option<Instant>) -> Result<Vec<Peeked>> {
        let answers = self.ask(deadline, |road| road.peek(table, count, newest, deadline)).await?;
        let items = of_reached(answers)?.into_iter().map(|(_, items)| items).collect();
        Ok(merge_items(items, count, newest))
    }

    /// Makes a call at all servers, and waits for all answers. A server that is down answers with the reason.
    async fn ask<'a, T: Send + 'a>(
        &self,
        connect_by: Option<Instant>,
        call: impl Fn(Road) -> Started<'a, T>,
    ) -> Result<Answers<T>> {
        let Reached { roads, down } = self.all(connect_by).await?;
        let (peers, calls): (Vec<_>, Vec<_>) =
            roads.into_iter().map(|(peer, road)| (peer, call(road).into_future())).unzip();
        let answers = peers.into_iter().zip(join(calls).await);
        Ok(answers.chain(down.into_iter().map(|(peer, error)| (peer, Err(error)))).collect())
    }
}

/// Awaits several calls at the same time.
async fn join<T>(mut calls: Vec<Rest<'_, T>>) -> Vec<Result<T>> {
    let mut answers: Vec<Option<Result<T>>> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (call, answer) in calls.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(result) = call.as_mut().poll(context)
            {
                *answer = Some(result);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Whether an error says that the server is lost.
fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::Unreached(_) | Error::Cancelled(_) | Error::SplitClient { .. })
}

/// Returns the answers if all servers have answered.
///
/// # Errors
/// [`Error::Unavailable`] with the servers that the call did not reach, or the error that a server answered.
fn of_all<T>(answers: Answers<T>, what: &str) -> Result<Vec<(Arc<str>, T)>> {
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
fn of_reached<T>(answers: Answers<T>) -> Result<Vec<(Arc<str>, T)>> {
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
    match lost {
        Some(error) if reached.is_empty() => Err(error),
        _ => Ok(reached),
    }
}

/// Adds the server to the text of an error.
pub fn at_server(error: Error, peer: &str) -> Error {
    let at = |text: String| format!("{text} (server {peer})");
    match error {
        Error::InvalidArgument(text) => Error::InvalidArgument(at(text)),
        Error::TableNotFound { table, known } => Error::TableNotFound { table, known: at(known) },
        Error::SignatureMismatch(text) => Error::SignatureMismatch(at(text)),
        Error::InvalidPriority(text) => Error::InvalidPriority(at(text)),
        Error::ResourceExhausted(text) => Error::ResourceExhausted(at(text)),
        Error::DeadlineExceeded(text) => Error::DeadlineExceeded(at(text)),
        Error::Unreached(text) => Error::Unreached(at(text)),
        Error::Cancelled(text) => Error::Cancelled(at(text)),
        Error::Unavailable(text) => Error::Unavailable(at(text)),
        Error::DataLoss(text) => Error::DataLoss(at(text)),
        Error::Storage(text) => Error::Storage(at(text)),
        Error::Unimplemented(text) => Error::Unimplemented(at(text)),
        Error::Internal(text) => Error::Internal(at(text)),
        known => known,
    }
}
