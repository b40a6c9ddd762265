//! Record files: TensorFlow's TFRecord format inside a zlib stream, as the reference writes them.

mod inflate;
mod record;

pub use record::{Checksum, RecordReader, RecordWriter, Tallied, Tally, hash_text, put_record};
