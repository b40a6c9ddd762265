//! Effects as bytes of a log: what is decoded is what was encoded, or an error says what is wrong.

mod content;
mod damage;
mod epochs;
mod round_trip;
mod world;
