//! Encodes protobuf messages into gRPC frames and decodes them. The buffer of a frame is reserved once, at full size. Large
//! messages are encoded and decoded beside the tasks of other clients.

use super::checked::{Checked, UNCHECKED_BYTES};
use bytes::Buf;
use prost::Message;
use reverb_service::decoding::on_bytes;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Initial size of a frame buffer, and the size at which it is sent while more messages are ready. Both in bytes.
const BUFFER_BYTES: (usize, usize) = (16 * 1024, 64 * 1024);

/// A codec that replaces the one of tonic, which doubles its buffer as it grows. That would copy a large message once
/// more.
#[derive(Debug, Clone, Default)]
pub struct CheckedCodec<T, U>(PhantomData<(T, U)>);

impl<T: Message + Send + 'static, U: Message + Default + Checked + Send + 'static> Codec for CheckedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = CheckedEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        CheckedEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CheckedDecoder(PhantomData)
    }
}

/// The encoder of [`CheckedCodec`].
#[derive(Debug)]
pub struct CheckedEncoder<T>(PhantomData<T>);

impl<T> Default for CheckedEncoder<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message> Encoder for CheckedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let size = message.encoded_len();
        on_bytes(size, || {
            target.reserve(size);
            message.encode_raw(target);
        });
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES.0, BUFFER_BYTES.1)
    }
}

/// The decoder of [`CheckedCodec`]. Checks the decoded size of large messages first.
#[derive(Debug)]
pub struct CheckedDecoder<U>(PhantomData<U>);

impl<U: Message + Default + Checked> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        on_bytes(source.remaining(), || {
            if source.remaining() > UNCHECKED_BYTES {
                U::check(source.chunk())?;
            }
            U::decode(source).map(Some).map_err(|error| Status::internal(format!("cannot decode a message: {error}")))
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES.0, BUFFER_BYTES.1)
    }
}
