//! The tests of reverb-net in one executable, which is built and linked once. Tests that count the memory of the process
//! have executables of their own, beside this folder.

mod batches;
mod client_tokens;
mod cluster_draws;
mod cluster_inserts;
mod cluster_largest;
mod cluster_losses;
mod cluster_orders;
mod cluster_ratio;
mod cluster_routes;
mod cluster_waits;
mod cluster_writers;
#[path = "../common/mod.rs"]
mod common;
mod cut;
mod dm_reverb_client;
mod dm_reverb_client_inserts;
mod dm_reverb_inserts;
mod dm_reverb_limits;
mod dm_reverb_round_trip;
mod dm_reverb_samples;
mod dm_reverb_unary;
mod dm_reverb_writers;
mod hostile;
mod http_health;
mod journal;
mod mutated_messages;
mod mutated_writes;
mod race_requests;
mod races;
#[path = "../common/reference.rs"]
mod reference;
mod shards;
mod split_clients;
mod streams;
mod table_figures;
mod tokens;
mod watched;
mod write_stream;
