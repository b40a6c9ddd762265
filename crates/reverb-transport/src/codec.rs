//! Protobuf messages in gRPC frames, with the frame's room reserved in one go.

use crate::decoded_size::{UNCHECKED_BYTES, check_insert, check_write};
use crate::proto::replay::{InsertRequest, WriteRequest};
use crate::status::to_status;
use bytes::Buf;
use prost::Message;
use reverb_core::Error;
use std::any::TypeId;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Bytes a frame buffer starts with, and collects before it goes out while more messages are ready.
const BUFFER_BYTES: (usize, usize) = (16 * 1024, 64 * 1024);

/// Like tonic's own codec, which grows its buffer by doubling: with large messages that copies them once more.
#[derive(Debug, Clone, Default)]
pub struct ReplayCodec<T, U>(PhantomData<(T, U)>);

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for ReplayCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ReplayEncoder<T>;
    type Decoder = ReplayDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ReplayEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        ReplayDecoder(PhantomData)
    }
}

/// See [`ReplayCodec`].
#[derive(Debug)]
pub struct ReplayEncoder<T>(PhantomData<T>);

impl<T> Default for ReplayEncoder<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message> Encoder for ReplayEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.reserve(message.encoded_len());
        message.encode_raw(target);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES.0, BUFFER_BYTES.1)
    }
}

/// See [`ReplayCodec`].
#[derive(Debug)]
pub struct ReplayDecoder<U>(PhantomData<U>);

impl<U: Message + Default + 'static> Decoder for ReplayDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if source.remaining() > UNCHECKED_BYTES {
            let checked = match TypeId::of::<U>() {
                kind if kind == TypeId::of::<InsertRequest>() => check_insert(source.chunk()),
                kind if kind == TypeId::of::<WriteRequest>() => check_write(source.chunk()),
                _ => Ok(()),
            };
            checked.map_err(|reason| to_status(&Error::ResourceExhausted(reason)))?;
        }
        U::decode(source).map(Some).map_err(|error| Status::internal(format!("a message does not decode: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES.0, BUFFER_BYTES.1)
    }
}
