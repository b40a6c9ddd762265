//! Compiles the messages of dm-reverb with protox, so that the build does not need `protoc`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let files = [
        "reverb/cc/schema.proto",
        "reverb/cc/patterns.proto",
        "reverb/cc/checkpointing/checkpoint.proto",
        "reverb/cc/reverb_service.proto",
        "reverb/server_executable/reverb_config.proto",
    ];
    prost_build::Config::new().bytes(["."]).compile_fds(protox::compile(files, [root])?)?;
    Ok(())
}
