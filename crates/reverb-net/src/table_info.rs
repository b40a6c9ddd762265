//! Describes tables in serialised messages of the reference.

use prost::Message;
use reverb_formats::definitions;
use reverb_service::TableStatus;

/// Returns the description of a table as a serialised message of the reference.
pub fn info_bytes(status: &TableStatus) -> Vec<u8> {
    definitions::table_info(&status.info).encode_to_vec()
}
