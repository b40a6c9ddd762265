//! Generates code for our messages and service, and descriptors of all protos. Uses protox, so `protoc` is not needed.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::path::{Path, PathBuf};

/// The messages with one number for each item of a batch.
const BATCHES: [&str; 3] = ["Batch", "Choice", "RaceReport"];

/// Types of their fields that are generated as bytes. Decoding single numbers would cost as much as the data. A packed
/// field of fixed-size numbers has the same wire format as a field of bytes.
const AS_BYTES: [Type; 6] = [Type::Double, Type::Float, Type::Fixed64, Type::Sfixed64, Type::Fixed32, Type::Sfixed32];

/// Messages that are generated as bytes in the messages of dm-reverb's service.
const RECORDS: [&str; 3] =
    [".deepmind.reverb.ChunkData", ".deepmind.reverb.PrioritizedItem", ".deepmind.reverb.TableInfo"];

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
    std::fs::write(out.join("methods.rs"), methods_of(&descriptors))?;
    let theirs = with_records_as_bytes(descriptors.clone());
    let ours = without_services_of_others(with_numbers_as_bytes(descriptors));
    generate_messages(ours.clone(), &out.join("messages"))?;
    generate_services(ours, &out.join("services"))?;
    generate_dm_reverb(theirs, &out.join("dm_reverb"))?;
    Ok(())
}

/// The methods that are mounted beside the services of `proto/`.
const OTHER_METHODS: [(&str, &str); 4] = [
    ("grpc.health.v1.Health", "Check"),
    ("grpc.health.v1.Health", "Watch"),
    ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"),
    ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"),
];

/// Lists the methods of all services as Rust source, in order. The method `other` of a service, and the service `other`,
/// stand for all names that the server does not know.
fn methods_of(files: &FileDescriptorSet) -> String {
    let other = OTHER_METHODS.map(|(service, method)| (service.to_owned(), method.to_owned()));
    let mut methods = other.to_vec();
    for file in &files.file {
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            methods.extend(service.method.iter().map(|method| (name.clone(), method.name().to_owned())));
        }
    }
    let others: Vec<_> = methods.iter().map(|(service, _)| (service.clone(), "other".to_owned())).collect();
    methods.extend(others);
    methods.push(("other".into(), "other".into()));
    methods.sort_unstable();
    methods.dedup();
    format!(
        "/// The names of the services and their methods, in order.\npub static METHODS: [(&str, &str); {}] = {methods:?};\n",
        methods.len()
    )
}

/// Generates the service of dm-reverb, and the messages of its calls.
fn generate_dm_reverb(files: FileDescriptorSet, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder.join("rpc"))?;
    let mut messages = files.clone();
    messages.file.iter_mut().for_each(|file| file.service.clear());
    let mut config = prost_build::Config::new();
    config.bytes(["."]).out_dir(folder);
    config.extern_path(".tensorflow", "::reverb_formats::proto::tensorflow");
    config.compile_fds(messages)?;
    tonic_prost_build::configure()
        .codec_path("crate::grpc::codec::CheckedCodec")
        .out_dir(folder.join("rpc"))
        .extern_path(".tensorflow", "::reverb_formats::proto::tensorflow")
        .extern_path(".deepmind.reverb", "crate::dm_reverb::proto")
        .compile_fds(files)
}

/// Keeps the messages of the service of dm-reverb, in which chunks and items are bytes: a message of bytes has the same
/// wire format, and reverb-formats reads and writes them.
fn with_records_as_bytes(mut files: FileDescriptorSet) -> FileDescriptorSet {
    let others = ["replay.proto", "patterns.proto", "checkpoint.proto", "reverb_config.proto"];
    files.file.retain(|file| !others.iter().any(|name| file.name().ends_with(name)));
    for file in files.file.iter_mut().filter(|file| file.package() == "deepmind.reverb") {
        file.message_type
            .retain(|message| !RECORDS.iter().any(|record| record.ends_with(&format!(".{}", message.name()))));
        file.message_type.iter_mut().for_each(as_bytes);
        // Comments are found by the positions of the messages, which have changed.
        file.source_code_info = None;
    }
    files
}

fn as_bytes(message: &mut DescriptorProto) {
    for field in &mut message.field {
        if RECORDS.contains(&field.type_name()) {
            field.set_type(Type::Bytes);
            field.type_name = None;
        }
    }
    message.nested_type.iter_mut().for_each(as_bytes);
}

/// Generates the messages alone. The code of the services uses them.
fn generate_messages(mut files: FileDescriptorSet, folder: &Path) -> std::io::Result<()> {
    files.file.iter_mut().for_each(|file| file.service.clear());
    std::fs::create_dir_all(folder)?;
    let mut config = prost_build::Config::new();
    config.bytes(["."]).out_dir(folder);
    for (proto, rust) in extern_paths() {
        config.extern_path(proto, rust);
    }
    config.compile_fds(files)
}

/// Generates the service and its client, which use the generated messages.
fn generate_services(files: FileDescriptorSet, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let builder = tonic_prost_build::configure().codec_path("crate::grpc::codec::CheckedCodec").out_dir(folder);
    let builder = extern_paths().into_iter().fold(builder, |builder, (proto, rust)| builder.extern_path(proto, rust));
    builder.extern_path(".reverb.replay.v1", "crate::replay_v1::proto").compile_fds(files)
}

/// Returns the Rust paths of messages that are not generated here.
fn extern_paths() -> [(&'static str, &'static str); 3] {
    [
        (".deepmind.reverb", "::reverb_formats::proto::deepmind::reverb"),
        (".tensorflow", "::reverb_formats::proto::tensorflow"),
        // Written by hand, so that a batch is gathered directly into the message.
        (".reverb.replay.v1.SampleResponse", "crate::replay_v1::sample_response::SampleResponse"),
    ]
}

fn without_services_of_others(mut files: FileDescriptorSet) -> FileDescriptorSet {
    let others = files.file.iter_mut().filter(|file| file.package() != "reverb.replay.v1");
    others.for_each(|file| file.service.clear());
    files
}

fn with_numbers_as_bytes(mut files: FileDescriptorSet) -> FileDescriptorSet {
    let ours = files.file.iter_mut().filter(|file| file.package() == "reverb.replay.v1");
    let batches = ours.flat_map(|file| &mut file.message_type).filter(|message| BATCHES.contains(&message.name()));
    let is_column =
        |field: &&mut FieldDescriptorProto| field.label() == Label::Repeated && AS_BYTES.contains(&field.r#type());
    for field in batches.flat_map(|batch| &mut batch.field).filter(is_column) {
        field.set_type(Type::Bytes);
        field.set_label(Label::Optional);
    }
    files
}
