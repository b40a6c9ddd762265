//! Inserts of a client, and what they wait for.

use super::answering::within;
use super::connection::Connection;
use super::insert_call::{Failure, InsertCall};
use super::insert_link::{InsertLink, check_message_size};
use super::tables::Tables;
use crate::dm_reverb::status::from_status;
use crate::grpc::largest;
use reverb_core::{Error, ItemKeys, Result, TableInfo};
use reverb_service::insert::name_row;
use reverb_service::local::RowInsert;
use reverb_service::{TIMED_OUT, warn};
use smallvec::smallvec;
use std::borrow::Cow;
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// Time after which a wait is reported.
const REPORT_DELAY: Duration = Duration::from_secs(10);
/// Maximum time to ask the server what an insert waits for.
const ASK_TIME: Duration = Duration::from_secs(2);

impl Connection {
    /// See [`crate::client::Client::insert`]. Dropping the future ends its stream. Items that the server has received by
    /// then are still inserted.
    pub async fn insert(&self, mut insert: RowInsert, deadline: Option<Instant>) -> Result<ItemKeys> {
        self.check_insert(&insert, deadline).await?;
        for (table, priorities) in &mut insert.tables {
            if std::mem::take(&mut priorities.take_largest) {
                self.warn_of_largest(table);
                priorities.values = smallvec![largest::known(&self.peer, table)];
            }
            largest::note(&self.peer, table, priorities.values.iter().copied());
        }
        let tables: Vec<String> = insert.tables.iter().map(|(table, _)| table.clone()).collect();
        let mut call = InsertCall::new(insert)?;
        let mut stream = self.idle_inserts.take(InsertLink::is_idle).unwrap_or_else(|| self.open_insert());
        let ended = {
            let inserted = call.run(&mut stream);
            let inserted = async {
                tokio::select! {
                    ended = inserted => ended,
                    () = self.report_wait(&tables) => unreachable!("a report does not end the wait"),
                }
            };
            within(deadline, inserted).await
        };
        match ended {
            Some(Ok(())) => {
                self.idle_inserts.give_back(stream);
                Ok(call.into_keys())
            }
            Some(Err(Failure::Invalid(error))) => Err(error),
            Some(Err(Failure::Ended(status))) => Err(self.insert_failed(status)),
            None => {
                drop(stream);
                let (done, total) = call.progress();
                let reason = self.explain_insert(&tables).await;
                let reason = reason.unwrap_or_else(|| "the server has not confirmed the others".into());
                Err(Error::DeadlineExceeded(format!("{done} of {total} items were inserted; {reason}\n{TIMED_OUT}")))
            }
        }
    }

    /// Says once that items with the largest priority so far may enter with a lower one.
    pub fn warn_of_largest(&self, table: &str) {
        if largest::begin_warning(&self.peer) {
            warn(&format!(
                "the server at {} is one of dm-reverb, which does not know the largest priority of table `{table}`: \
                 items with priority \"max\" get the largest one that this process has set there",
                self.peer
            ));
        }
    }

    /// Opens an insert stream.
    pub fn open_insert(&self) -> InsertLink {
        InsertLink::open(self.service())
    }

    /// Returns a table. Asks the server if the table was not there when the connection was made.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], or the error of the question.
    pub async fn table(&self, name: &str, deadline: Option<Instant>) -> Result<Cow<'_, TableInfo>> {
        match self.tables.get(name) {
            Ok(info) => Ok(Cow::Borrowed(info)),
            Err(_) => Tables::of(self.info(deadline).await?, Vec::new()).get(name).cloned().map(Cow::Owned),
        }
    }

    /// Checks what the server does not check, or would answer with the end of the stream.
    async fn check_insert(&self, insert: &RowInsert, deadline: Option<Instant>) -> Result<()> {
        let (items, rows) = (insert.num_items(), insert.rows_per_item);
        insert.check()?;
        let largest = match insert.more.is_empty() {
            true => insert.chunk.decoded_bytes() / items.max(1) as usize,
            false => insert.chunks().map(|chunk| chunk.decoded_bytes()).max().unwrap_or_default(),
        };
        check_message_size(largest)?;
        let mut tables = Vec::with_capacity(insert.tables.len());
        for (name, _) in &insert.tables {
            tables.push(self.table(name, deadline).await?);
        }
        for ((name, priorities), info) in insert.tables.iter().zip(tables) {
            if let Some(signature) = &info.config.signature {
                insert.chunks().try_for_each(|chunk| signature.check_rows(name, chunk.columns(), rows as usize))?;
            }
            if priorities.take_largest {
                info.config.check_takes_largest()?;
            }
            for (row, &priority) in priorities.values.iter().enumerate() {
                info.config.check_priority(priority).map_err(|error| name_row(row, items as usize, error))?;
            }
        }
        Ok(())
    }

    /// Returns the error of a call whose stream has ended.
    fn insert_failed(&self, status: Option<Status>) -> Error {
        let peer = &self.peer;
        match status {
            Some(status) if status.code() == Code::NotFound => {
                Error::InvalidArgument(format!("{peer}: {}", status.message()))
            }
            Some(status) => from_status(&status, peer).of_sent_insert(),
            None => Error::Unavailable(format!("the server at {peer} ended the stream before it confirmed the insert"))
                .of_sent_insert(),
        }
    }

    /// Logs once why an insert waits for a long time. Never completes.
    async fn report_wait(&self, tables: &[String]) {
        tokio::time::sleep(REPORT_DELAY).await;
        if let Some(reason) = self.explain_insert(tables).await {
            warn(&reason);
        }
        std::future::pending().await
    }

    /// Asks the server which of the tables allows no insert now, and says why. `None` if all seem to allow it.
    pub async fn explain_insert<T: AsRef<str>>(&self, tables: &[T]) -> Option<String> {
        let statuses = self.info(Instant::now().checked_add(ASK_TIME)).await.ok()?;
        statuses.iter().find_map(|status| {
            let name = &status.info.config.name;
            let limiter = status.info.limiter();
            let waits = tables.iter().any(|table| table.as_ref() == name) && !limiter.can_insert(1);
            waits.then(|| {
                format!("insert into table `{name}` waits: {}", status.info.view(&limiter).insert_waits_for(1))
            })
        })
    }
}
