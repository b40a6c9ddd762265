//! Compiles the protos with protox, so that nobody needs `protoc`.

use prost::Message;
use std::path::PathBuf;

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
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::ReplayCodec")
        // Written by hand, so that a batch is gathered straight into the message.
        .extern_path(".reverb.replay.v1.SampleResponse", "crate::sample_response::SampleResponse")
        .compile_fds(descriptors)?;
    Ok(())
}
