//! The bytes of effects, from which a log makes tables again.
//!
//! [`EffectEncoder`] puts effects into the payloads of frames, and [`EffectDecoder`] takes them out again ([`format`] has
//! the bytes). Items share chunks, so a chunk is put into a log once and then named by its number. Neither knows files.

mod chunk;
mod decode;
mod encode;
mod format;
mod input;
mod layout;
mod output;

pub use decode::{EffectDecoder, Record};
pub use encode::{Begin, EffectEncoder};
