//! Compiles the protos with protox, so that nobody needs `protoc`.

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::{Label, Type};
use std::path::PathBuf;

/// Numbers of a batch, one an item, that are taken as the bytes they are on the wire: a number at a time, they cost as
/// much as the data. (A packed field of numbers of a fixed size looks like a field of bytes.)
const AS_BYTES: [&str; 5] = ["keys", "probabilities", "table_sizes", "priorities", "times_sampled"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let files = [
        "reverb/replay/v1/replay.proto",
        "reverb/cc/schema.proto",
        "reverb/cc/patterns.proto",
        "reverb/cc/checkpointing/checkpoint.proto",
        "reverb/cc/reverb_service.proto",
        "reverb/server_executable/reverb_config.proto",
    ];
    let descriptors = protox::compile(files, [&root])?;
    let descriptors_of_code = with_numbers_as_bytes(descriptors.clone());
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::ReplayCodec")
        // Written by hand, so that a batch is gathered straight into the message.
        .extern_path(".reverb.replay.v1.SampleResponse", "crate::sample_response::SampleResponse")
        .compile_fds(descriptors_of_code)?;
    Ok(())
}

fn with_numbers_as_bytes(mut files: FileDescriptorSet) -> FileDescriptorSet {
    let ours = files.file.iter_mut().filter(|file| file.package() == "reverb.replay.v1");
    let batches = ours.flat_map(|file| &mut file.message_type).filter(|message| message.name() == "Batch");
    for field in batches.flat_map(|batch| &mut batch.field).filter(|field| AS_BYTES.contains(&field.name())) {
        field.set_type(Type::Bytes);
        field.set_label(Label::Optional);
    }
    files
}
