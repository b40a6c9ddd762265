//! The calls with one request and one answer, and what each does on each road.

use super::call::Call;
use super::servers::{
    All, Route, Shards, ToAll, merge_items, merge_tables, of_all, of_reached, part_of, reached_and_lost, route,
};
use super::started::Started;
use crate::dm_reverb::client as dm_reverb;
use crate::dm_reverb::proto::{self as theirs, KeyWithPriority, MutatePrioritiesRequest};
use crate::dm_reverb::rpc::reverb_service_client::ReverbServiceClient;
use crate::grpc::largest;
use crate::replay_v1::client::{BenchHold, Connection, GRACE, timeout_ms};
use crate::replay_v1::proto::{
    CheckpointRequest, GetRequest, InfoRequest, MutateRequest, NewerRequest, ObserveRequest, PeekRequest, ResetRequest,
};
use crate::replay_v1::wire::{changes_to_wire, got_from_wire, newer_from_wire, peeked_from_wire, status_from_wire};
use reverb_core::{Error, ItemKey, Result, TableChanges};
use reverb_observe::documents::observed;
use reverb_service::decoding::{beside_others, on_items};
use reverb_service::get::{Found, Got, MAX_KEYS, get, newer};
use reverb_service::peek::{Peeked, peek};
use reverb_service::{Batch, Replay, TableHandle, TableStatus};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// Deletes items, then sets priorities. Unknown keys are ignored. Of several servers, those are asked that may have an
/// item. Answers how many deletes and updates found their item; `None` if a server does not count them, because it is
/// older or one of dm-reverb.
///
/// Fails with [`Error::TableNotFound`] if there is no such table, and with [`Error::InvalidPriority`] if a priority is
/// not valid. Nothing is changed then.
#[derive(Debug, Clone)]
pub struct Mutate<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Keys and their new priorities.
    pub updates: Cow<'a, [(ItemKey, f64)]>,
    /// Keys of the items to delete.
    pub deletes: Cow<'a, [ItemKey]>,
}

impl<'a> Mutate<'a> {
    /// Makes the call.
    pub fn new(table: &'a str, updates: &'a [(ItemKey, f64)], deletes: &'a [ItemKey]) -> Self {
        Self { table, updates: updates.into(), deletes: deletes.into() }
    }

    /// Returns the part of the call that concerns one of several servers. `None` if it has none of the items.
    fn part(&self, member: usize, route: impl Fn(ItemKey) -> Route) -> Option<Mutate<'_>> {
        let updates = part_of(&self.updates, member, |update| route(update.0));
        let deletes = part_of(&self.deletes, member, |key| route(*key));
        // A call without items says whether there is such a table.
        let is_part = !(updates.is_empty() && deletes.is_empty()) || self.updates.is_empty() && self.deletes.is_empty();
        is_part.then_some(Mutate { table: self.table, updates, deletes })
    }

    /// Makes the call at the shards of a cluster, each of which gets its own keys. Each also checks the most extreme
    /// priorities of all, so that it refuses its part if another has an invalid one.
    async fn at_shards(&self, shards: &Shards<'_>) -> Result<Vec<(Arc<str>, Option<u64>)>> {
        let route = |key| shards.owners().route(key);
        let extremes = self.extremes();
        let part = |member| {
            let mut part = self.part(member, route)?;
            let others = extremes.iter().filter(|update| !route(update.0).leads_to(member));
            let others: Vec<_> = others.copied().collect();
            if !others.is_empty() {
                part.updates.to_mut().extend(others);
            }
            Some(part)
        };
        let keys = self.updates.iter().map(|update| update.0).chain(self.deletes.iter().copied());
        shards.settle(shards.ask(part, keys).await, &self.what())
    }

    /// Returns the updates with the lowest, the lowest positive and the highest priority. If a table takes these, it takes
    /// all. NaN is the lowest or the highest.
    fn extremes(&self) -> Vec<(ItemKey, f64)> {
        let by = |one: &&(ItemKey, f64), other: &&(ItemKey, f64)| one.1.total_cmp(&other.1);
        let all = || self.updates.iter();
        let extremes = [all().min_by(by), all().filter(|update| update.1 > 0.0).min_by(by), all().max_by(by)];
        let mut extremes: Vec<_> = extremes.into_iter().flatten().copied().collect();
        extremes.dedup();
        extremes
    }

    fn what(&self) -> String {
        format!("the update of table `{}`", self.table)
    }
}

impl Call for Mutate<'_> {
    type Answer = Option<u64>;

    fn here<'a>(self, replay: Arc<Replay>, _: Option<Instant>) -> Started<'a, Option<u64>> {
        let count = self.updates.len() + self.deletes.len();
        let mutate = |table: &TableHandle| on_items(count, || table.mutate(&self.updates, &self.deletes).map(Some));
        Started::Done(replay.table(self.table).and_then(mutate))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<Option<u64>> {
        let (update_keys, priorities) = self.updates.iter().copied().unzip();
        let delete_keys = self.deletes.into_owned();
        let request = MutateRequest { table: self.table.into(), update_keys, priorities, delete_keys };
        let changed = connection.unary(deadline, async |mut service| service.mutate(request).await).await?;
        connection.link.note_largest(&changed.largest);
        if !connection.knows_largest {
            largest::note(&connection.peer, self.table, self.updates.iter().map(|update| update.1));
        }
        Ok(changed.num_changed)
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, deadline: Option<Instant>) -> Result<Option<u64>> {
        let updates = self.updates.iter().map(|&(key, priority)| KeyWithPriority { key, priority }).collect();
        let delete_keys = self.deletes.into_owned();
        let request = MutatePrioritiesRequest { table: self.table.into(), updates, delete_keys };
        let call = async |mut service: ReverbServiceClient<_>| service.mutate_priorities(request).await;
        connection.unary(Some(self.table), deadline, call).await?;
        largest::note(&connection.peer, self.table, self.updates.iter().map(|update| update.1));
        // The server does not count the items that it finds.
        Ok(None)
    }
}

impl ToAll for Mutate<'_> {
    async fn to_all(self, all: All<'_>) -> Result<Option<u64>> {
        let changed = match all.shards().await? {
            Some(shards) => self.at_shards(&shards).await?,
            None => of_all(all.ask_some(|member, of| self.part(member, |key| route(key, of))).await?, &self.what())?,
        };
        // An item is at one server, so the counts are summed.
        Ok(changed.into_iter().map(|(_, changed)| changed).sum())
    }
}

/// Removes all items of a table and sets its counters to zero.
///
/// Fails with [`Error::TableNotFound`] if there is no such table.
#[derive(Debug, Clone)]
pub struct Reset<'a> {
    /// Name of the table.
    pub table: &'a str,
}

impl Call for Reset<'_> {
    type Answer = ();

    fn here<'a>(self, replay: Arc<Replay>, _: Option<Instant>) -> Started<'a, ()> {
        Started::Done(replay.table(self.table).and_then(|table| beside_others(|| table.reset())))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<()> {
        let request = ResetRequest { table: self.table.into() };
        connection.unary(deadline, async |mut service| service.reset(request).await).await.map(drop)
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, deadline: Option<Instant>) -> Result<()> {
        let request = theirs::ResetRequest { table: self.table.into() };
        let call = async |mut service: ReverbServiceClient<_>| service.reset(request).await;
        connection.unary(Some(self.table), deadline, call).await.map(drop)
    }
}

impl ToAll for Reset<'_> {
    async fn to_all(self, all: All<'_>) -> Result<()> {
        let what = format!("the reset of table `{}`", self.table);
        of_all(all.ask(self).await?, &what).map(drop)
    }
}

/// Changes options of a table. Waiting requests are looked at again at once, and items that no longer fit leave before
/// the answer.
///
/// Fails with [`Error::TableNotFound`] if there is no such table, and with [`Error::InvalidArgument`] if an option is not
/// valid. Nothing is changed then. Fails with [`Error::Unimplemented`] if the server is one of dm-reverb, or older than
/// this call.
#[derive(Debug, Clone)]
pub struct Configure<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// The new options.
    pub changes: &'a TableChanges,
}

impl Call for Configure<'_> {
    type Answer = ();

    const NOT_IN_DM_REVERB: &'static str = "which cannot change the options of a table; restart it with other options, \
                                            or start the server with this package";

    fn here<'a>(self, replay: Arc<Replay>, _: Option<Instant>) -> Started<'a, ()> {
        Started::Done(replay.table(self.table).and_then(|table| beside_others(|| table.configure(self.changes))))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<()> {
        let request = changes_to_wire(self.table, self.changes);
        let answer = connection.unary(deadline, async |mut service| service.configure(request).await).await;
        answer.map(drop).map_err(|error| {
            let lacks = "has an earlier version of this package, which cannot change the options of a table; restart it \
                         with this version";
            of_earlier(connection, error, lacks)
        })
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, _: Option<Instant>) -> Result<()> {
        connection.tables.get(self.table)?;
        Err(connection.lacks(Self::NOT_IN_DM_REVERB))
    }
}

impl ToAll for Configure<'_> {
    async fn to_all(self, all: All<'_>) -> Result<()> {
        let what = format!("the change of table `{}`", self.table);
        of_all(all.ask(self).await?, &what).map(drop)
    }
}

/// Asks for the status of all tables. Those of several servers are merged.
#[derive(Debug, Clone)]
pub struct Info;

impl Call for Info {
    type Answer = Vec<TableStatus>;

    fn here<'a>(self, replay: Arc<Replay>, _: Option<Instant>) -> Started<'a, Vec<TableStatus>> {
        Started::Done(Ok(replay.status()))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<Vec<TableStatus>> {
        let mut answer = connection.unary(deadline, async |mut service| service.info(InfoRequest {}).await).await?;
        connection.link.note_shard(answer.shard.as_mut());
        answer.tables.into_iter().map(status_from_wire).collect()
    }

    async fn dm_reverb(
        self,
        connection: &dm_reverb::Connection,
        deadline: Option<Instant>,
    ) -> Result<Vec<TableStatus>> {
        connection.info(deadline).await
    }
}

impl ToAll for Info {
    const FINDS_NEXT_SERVER: bool = true;

    async fn to_all(self, all: All<'_>) -> Result<Vec<TableStatus>> {
        if let Some(shards) = all.shards().await? {
            let answers = shards.ask(|_| Some(self.clone()), std::iter::empty()).await;
            return merge_tables(shards.settle(answers, "the status of the tables")?);
        }
        let answers = all.ask(self.clone()).await?;
        let answers = if all.is_next_due(&answers) { all.ask(self).await? } else { answers };
        merge_tables(of_reached(answers)?)
    }
}

/// Saves all tables. Answers the path of the checkpoint on the machine of the server; of several servers, one path a
/// line, in the order of the servers.
#[derive(Debug, Clone)]
pub struct Checkpoint;

impl Call for Checkpoint {
    type Answer = String;

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, String> {
        let late = "the checkpoint was not saved in time; the save continues";
        let saved = async move { replay.checkpoint().await.map(|path| path.to_string_lossy().into_owned()) };
        Started::here(by(deadline, saved, late))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<String> {
        Ok(connection.unary(deadline, async |mut service| service.checkpoint(CheckpointRequest {}).await).await?.path)
    }

    async fn dm_reverb(self, connection: &dm_reverb::Connection, deadline: Option<Instant>) -> Result<String> {
        let request = theirs::CheckpointRequest {};
        let call = async |mut service: ReverbServiceClient<_>| service.checkpoint(request).await;
        Ok(connection.unary(None, deadline, call).await?.checkpoint_path)
    }
}

impl ToAll for Checkpoint {
    async fn to_all(self, all: All<'_>) -> Result<String> {
        let paths = of_all(all.ask(self).await?, "the checkpoint")?.into_iter().map(|(_, path)| path);
        Ok(paths.collect::<Vec<_>>().join("\n"))
    }
}

/// Asks for up to `count` items of a table without drawing or counting them: the newest ones, or the oldest ones.
///
/// Fails with [`Error::TableNotFound`] if there is no such table.
#[derive(Debug, Clone)]
pub struct Peek<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Maximum number of items.
    pub count: u32,
    /// Whether the newest items are wanted.
    pub newest: bool,
}

impl Call for Peek<'_> {
    type Answer = Vec<Peeked>;

    const NOT_IN_DM_REVERB: &'static str = "which cannot show items without sampling them; sample them, or start the \
                                            server with this package";

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, Vec<Peeked>>
    where
        Self: 'a,
    {
        let peeked = async move { peek(&replay, self.table, self.count as usize, self.newest).await };
        Started::here(by(deadline, peeked, "the items were not read in time"))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<Vec<Peeked>> {
        let request = PeekRequest { table: self.table.into(), count: self.count, newest: self.newest };
        peeked_from_wire(connection.unary(deadline, async |mut service| service.peek(request).await).await?)
    }
}

impl ToAll for Peek<'_> {
    async fn to_all(self, all: All<'_>) -> Result<Vec<Peeked>> {
        let (count, newest) = (self.count, self.newest);
        let items = of_reached(all.ask(self).await?)?.into_iter().map(|(_, items)| items);
        Ok(merge_items(items.collect(), count, newest))
    }
}

/// Reads items by their keys, without drawing or counting them. Unknown keys are left out. Answers parts, each of which has
/// the items of some of the keys, whose places are among all keys. Several servers are all asked. One that is lost is an
/// error only if the others do not have all of the items.
///
/// Fails with [`Error::TableNotFound`] if there is no such table, with [`Error::InvalidArgument`] if an item lacks a column
/// or if the items cannot be stacked, with [`Error::ResourceExhausted`] if an item has more than 1 GiB of data, and with
/// [`Error::Unimplemented`] if the server is one of dm-reverb, or older than this call.
#[derive(Debug, Clone)]
pub struct Get<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Keys of the items.
    pub keys: &'a [ItemKey],
    /// Numbers of the columns to read, in this order. Empty: all columns.
    pub columns: &'a [u32],
}

impl Get<'_> {
    /// Makes the call at the shards of a cluster, each of which gets its own keys.
    async fn at_shards(&self, shards: &Shards<'_>) -> Result<Vec<Found>> {
        let places: Vec<_> = (0..self.keys.len() as u32).collect();
        let parts = (0..shards.len()).map(|member| {
            let places = part_of(&places, member, |&place| shards.owners().route(self.keys[place as usize]));
            let keys: Vec<_> = places.iter().map(|&place| self.keys[place as usize]).collect();
            (places, keys)
        });
        let parts: Vec<_> = parts.collect();
        let call = |member: usize| {
            let keys = &*parts[member].1;
            // A call without keys says whether there is such a table.
            (!keys.is_empty() || self.keys.is_empty()).then_some(Get { keys, ..*self })
        };
        let answers = shards.ask(call, self.keys.iter().copied()).await;
        let mut all = Vec::new();
        for (peer, found) in shards.settle(answers, &format!("the read of table `{}`", self.table))? {
            let of_shard = &parts[shards.place_of(&peer)].0;
            all.extend(found.into_iter().map(|Found { places, batch }| {
                let places = places.into_iter().map(|place| of_shard[place as usize]).collect();
                Found { places, batch }
            }));
        }
        Ok(all)
    }
}

/// A reader of keys from the first on.
struct Reading<'a> {
    keys: &'a [ItemKey],
    /// Number of keys about which there is an answer.
    first: usize,
    parts: Vec<Found>,
}

impl<'a> Reading<'a> {
    fn new(keys: &'a [ItemKey]) -> Self {
        Self { keys, first: 0, parts: Vec::new() }
    }

    /// Returns the keys to ask for. The first request is made even if there are none, to find the table.
    fn next(&self) -> &'a [ItemKey] {
        let left = &self.keys[self.first..];
        &left[..left.len().min(MAX_KEYS)]
    }

    /// Takes an answer. Returns whether there is one about each key.
    fn take(&mut self, Got { num_keys, found }: Got) -> bool {
        let first = self.first as u32;
        self.parts.extend(found.map(|Found { places, batch }| {
            let places = places.into_iter().map(|place| place + first).collect();
            Found { places, batch }
        }));
        self.first += num_keys;
        self.first == self.keys.len()
    }
}

impl Call for Get<'_> {
    type Answer = Vec<Found>;

    const NOT_IN_DM_REVERB: &'static str = "which cannot read items by their keys; sample them, or start the server with \
                                            this package";

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, Vec<Found>>
    where
        Self: 'a,
    {
        let found = async move {
            let mut reading = Reading::new(self.keys);
            while !reading.take(get(&replay, self.table, reading.next(), self.columns).await?) {}
            Ok(reading.parts)
        };
        Started::here(by(deadline, found, "the items were not read in time"))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<Vec<Found>> {
        let lacks = "has an earlier version of this package, which cannot read items by their keys; sample them, or \
                     restart it with this version";
        let mut reading = Reading::new(self.keys);
        loop {
            let keys = reading.next();
            let request = GetRequest { table: self.table.into(), keys: keys.into(), columns: self.columns.into() };
            let answer = connection.unary(deadline, async |mut service| service.get(request).await).await;
            let answer = answer.map_err(|error| of_earlier(connection, error, lacks))?;
            if reading.take(got_from_wire(answer, keys.len())?) {
                return Ok(reading.parts);
            }
        }
    }
}

impl ToAll for Get<'_> {
    async fn to_all(self, all: All<'_>) -> Result<Vec<Found>> {
        if let Some(shards) = all.shards().await? {
            return self.at_shards(&shards).await;
        }
        let num_keys = self.keys.len();
        let (reached, lost) = reached_and_lost(all.ask(self).await?)?;
        let parts: Vec<_> = reached.into_iter().flat_map(|(_, parts)| parts).collect();
        let places: HashSet<_> = parts.iter().flat_map(|part| &part.places).collect();
        match lost {
            Some(error) if places.len() < num_keys => Err(error),
            _ => Ok(parts),
        }
    }
}

/// Waits until the newest item of a table has another key than the one that was seen. It is not a draw. Answers a batch of
/// one, without a time axis if the item has one step.
///
/// Fails with [`Error::DeadlineExceeded`] if there is none in time, with [`Error::TableNotFound`] if there is no such table,
/// with [`Error::InvalidArgument`] if it does not know its newest item or the client has several servers, and with
/// [`Error::Unimplemented`] if the server is one of dm-reverb, or older than this call.
#[derive(Debug, Clone)]
pub struct Newer<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Key of the item that was seen.
    pub seen: Option<ItemKey>,
}

impl Newer<'_> {
    fn late(&self) -> Error {
        let other = if self.seen.is_some() { "other item than the one seen" } else { "item" };
        Error::DeadlineExceeded(format!("Timeout exceeded: table `{}` has got no {other}", self.table))
    }
}

impl Call for Newer<'_> {
    type Answer = Batch;

    const NOT_IN_DM_REVERB: &'static str = "which cannot wait for another item of a table; sample it again, or start the \
                                            server with this package";

    fn here<'a>(self, replay: Arc<Replay>, deadline: Option<Instant>) -> Started<'a, Batch>
    where
        Self: 'a,
    {
        Started::here(async move {
            let here = (replay.this_process(), Instant::now());
            newer(&replay, self.table, self.seen, here, deadline).await?.ok_or_else(|| self.late())
        })
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<Batch> {
        let lacks = "has an earlier version of this package, which cannot wait for another item of a table; sample it \
                     again, or restart it with this version";
        let begun = Instant::now();
        loop {
            let (timeout_ms, waited_ms) = (timeout_ms(deadline), begun.elapsed().as_millis() as u64);
            let request = NewerRequest { table: self.table.into(), seen: self.seen, timeout_ms, waited_ms };
            // The server answers at the deadline.
            let give_up = deadline.and_then(|deadline| deadline.checked_add(GRACE));
            let answer = connection.unary(give_up, async |mut service| service.newer(request).await).await;
            if let Some(batch) = newer_from_wire(answer.map_err(|error| of_earlier(connection, error, lacks))?)? {
                return Ok(batch);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.late());
            }
        }
    }
}

impl ToAll for Newer<'_> {
    async fn to_all(self, all: All<'_>) -> Result<Batch> {
        Err(all.one_at_a_time("waited for"))
    }
}

/// Asks for a description of the server as JSON, for display: see [`reverb_observe::documents::ObservedDocument`].
///
/// Fails with [`Error::InvalidArgument`] if the client has several servers, and with [`Error::Unimplemented`] if the
/// server is of an earlier version, or one of dm-reverb.
#[derive(Debug, Clone)]
pub struct Observe;

impl Call for Observe {
    type Answer = Vec<u8>;

    const NOT_IN_DM_REVERB: &'static str = "which cannot be observed; ask for its tables with `server_info`, or start \
                                            the server with this package";

    fn here<'a>(self, replay: Arc<Replay>, _: Option<Instant>) -> Started<'a, Vec<u8>> {
        Started::Done(Ok(observed(&replay)))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<Vec<u8>> {
        let answer = connection.unary(deadline, async |mut service| service.observe(ObserveRequest {}).await).await;
        answer.map(|answer| answer.json.into()).map_err(|error| {
            let lacks = "is of an earlier version, which cannot be observed; ask for its tables with `server_info`, or \
                         start it with this version";
            of_earlier(connection, error, lacks)
        })
    }
}

impl ToAll for Observe {
    async fn to_all(self, all: All<'_>) -> Result<Vec<u8>> {
        Err(all.one_at_a_time("observed"))
    }
}

/// Makes an empty table to measure with, which exists until the answer is dropped. Draws and inserts over connections
/// find it by its name.
///
/// Fails with [`Error::InvalidArgument`] if the client has several servers, or one of this process, with
/// [`Error::Unimplemented`] if the server is of an earlier version, or one of dm-reverb, and with
/// [`Error::ResourceExhausted`] if others measure too.
#[derive(Debug, Clone)]
pub struct Bench;

impl Call for Bench {
    type Answer = BenchHold;

    const NOT_IN_DM_REVERB: &'static str = "which has no tables for measurements";

    fn here<'a>(self, _: Arc<Replay>, _: Option<Instant>) -> Started<'a, BenchHold> {
        let text = "a server of this process cannot be measured; measure it from another process";
        Started::Done(Err(Error::invalid(text)))
    }

    async fn replay_v1(self, connection: &Connection, deadline: Option<Instant>) -> Result<BenchHold> {
        let lacks = "is of an earlier version, which has no tables for measurements";
        connection.hold_bench(deadline).await.map_err(|error| of_earlier(connection, error, lacks))
    }
}

impl ToAll for Bench {
    async fn to_all(self, all: All<'_>) -> Result<BenchHold> {
        Err(all.one_at_a_time("measured"))
    }
}

/// Says what a server of an earlier version lacks, if it does not know a call.
fn of_earlier(connection: &Connection, error: Error, lacks: &str) -> Error {
    match error {
        Error::Unimplemented(_) => Error::Unimplemented(format!("the server at {} {lacks}", connection.peer)),
        error => error,
    }
}

/// Awaits work of this process until the deadline.
async fn by<T>(deadline: Option<Instant>, work: impl Future<Output = Result<T>>, late: &str) -> Result<T> {
    let Some(deadline) = deadline else { return work.await };
    tokio::time::timeout_at(deadline.into(), work).await.unwrap_or_else(|_| Err(Error::DeadlineExceeded(late.into())))
}
