//! Bounds what decoding a message may allocate, before it is decoded.
//!
//! An empty message in a list takes 2 bytes on the wire and up to hundreds in memory, so a message of some hundred
//! megabytes could take tens of gigabytes. The check visits the entries of lists and skips data, so it costs almost
//! nothing if the message consists of data.

use reverb_core::Result;
use reverb_formats::wire::{Value, fields};
use tonic::Status;

/// Size in bytes up to which messages are decoded without a check.
pub const UNCHECKED_BYTES: usize = 1 << 20;

/// A message with a check of its decoded size. The codec requires it of every message that it decodes.
pub trait Checked {
    /// Checks a large encoded message. Accepts every message by default, for types that do not grow.
    ///
    /// # Errors
    /// The reason if the message would grow too much, or if it cannot be read.
    fn check(_message: &[u8]) -> std::result::Result<(), Status> {
        Ok(())
    }
}

/// Implements [`Checked`] for messages with lists, by a function and the fields that it gets, and for others.
macro_rules! checked {
    ($check:ident: $($message:ty: $fields:expr),* ; others: $($other:ty),* $(,)?) => {
        $(
            /// Also refuses groups, which the decoder would skip. No peer sends groups.
            impl Checked for $message {
                fn check(message: &[u8]) -> std::result::Result<(), Status> {
                    $check(message, $fields)
                }
            }
        )*
        $(impl Checked for $other {})*
    };
}
pub(crate) use checked;

/// A repeated field, which takes more memory decoded than on the wire.
#[derive(Debug)]
pub struct Field {
    /// The number of the field.
    pub number: u32,
    /// What it repeats.
    pub kind: Kind,
}

/// The entries of a repeated field.
#[derive(Debug)]
pub enum Kind {
    /// Bytes or messages: the size of an entry in bytes, and its repeated fields.
    Entries(usize, &'static [Field]),
    /// Numbers of 8 bytes.
    Numbers,
}

/// Returns the memory in bytes that the entries of a message take when it is decoded. Stops above `most`.
///
/// # Errors
/// [`reverb_core::Error::DataLoss`] if the message cannot be read.
pub fn entry_bytes(message: &[u8], repeated: &[Field], most: usize) -> Result<usize> {
    let mut bytes = 0;
    add_entries(message, repeated, most, &mut bytes)?;
    Ok(bytes)
}

fn add_entries(message: &[u8], repeated: &[Field], most: usize, bytes: &mut usize) -> Result<()> {
    for field in fields(message) {
        let (number, value) = field?;
        let kind = repeated.iter().find(|field| field.number == number).map(|field| &field.kind);
        match (kind, value) {
            (Some(Kind::Numbers), Value::Bytes(packed)) => {
                *bytes += packed.iter().filter(|&&byte| byte < 0x80).count() * size_of::<u64>();
            }
            (Some(Kind::Numbers), _) => *bytes += size_of::<u64>(),
            (Some(Kind::Entries(size, repeated)), value) => {
                *bytes += size;
                if !repeated.is_empty() && *bytes <= most {
                    add_entries(value.bytes()?, repeated, most, bytes)?;
                }
            }
            (None, _) => {}
        }
        if *bytes > most {
            break;
        }
    }
    Ok(())
}
