//! Decodes `ChunkData` messages to chunks.

use super::allocator::ChunkAllocator;
use super::packed::{PackedTensors, is_worth_packing, may_stay};
use super::{delta, snappy};
use crate::wire::{fields, varint};
use bytes::Bytes;
use reverb_core::{Chunk, DType, EpisodeIds, Error, Layout, RecentLayouts, Result, Shape, StepRange};
use smallvec::SmallVec;
use std::sync::Arc;

// limit (Checkpoints): tensors of a chunk in the reference's format | {} | `DataLossError`
/// Maximum number of tensors of a chunk. An empty tensor takes two bytes, so the message size alone is not a useful
/// bound.
const MAX_TENSORS: usize = 1 << 16;
/// Maximum number of dimensions of a tensor, including that of the rows. The core limits the dimensions of a row
/// itself.
const MAX_RANK: usize = 64;
/// Maximum compression ratio of Snappy: an element of three bytes yields at most 64 bytes.
const MAX_SNAPPY_RATIO: usize = 22;
/// The number of the type of strings in a `TensorProto`.
const STRING: u64 = DType::String as u64;
// limit (Chunks and messages): a chunk that stays packed until its first reader | {} | a larger one is decoded when it
// arrives or is loaded; `ResourceExhaustedError` if there is no memory for it
/// Maximum size in bytes of a chunk that stays packed. Its first reader needs memory for it, and could not fail.
const MAX_PACKED_BYTES: usize = 256 << 20;

/// Decodes chunks.
#[derive(Debug)]
pub struct ChunkDecoder {
    limit_bytes: u64,
    repeats_limit_bytes: u64,
    /// Bytes that chunks of the same message take already.
    spent_bytes: u64,
    packed_from: usize,
    messages_from: usize,
    layouts: RecentLayouts,
    allocator: ChunkAllocator,
}

/// The fields of a message before their tensors are parsed.
#[derive(Debug, Default)]
struct ChunkParts<'a> {
    key: u64,
    episode: u64,
    steps: StepRange,
    delta_encoded: bool,
    tensors: SmallVec<[&'a [u8]; 4]>,
    deprecated: SmallVec<[&'a [u8]; 1]>,
}

/// Returns an upper bound of the bytes that [`ChunkDecoder::decode`] makes at once of a message if it keeps messages: of a
/// chunk of strings or of an old client, which is decoded, and of others, which are only checked.
pub fn most_decoded_bytes(message: &[u8]) -> u64 {
    let bytes = message.len() as u64;
    let is_decoded = ChunkParts::read(message).is_ok_and(|parts| {
        let is_string = |tensor: &&[u8]| {
            let mut fields = fields(tensor).map_while(Result::ok);
            fields.any(|(number, value)| number == 1 && value.varint().is_ok_and(|dtype| dtype == STRING))
        };
        !parts.deprecated.is_empty() || parts.tensors.iter().any(is_string)
    });
    if is_decoded { bytes.saturating_mul(MAX_SNAPPY_RATIO as u64) } else { bytes }
}

/// A `TensorProto`.
#[derive(Debug)]
struct Tensor<'a> {
    dtype: DType,
    rows: usize,
    shape: Shape,
    content: &'a [u8],
    /// The whole message, for strings in the field `string_val`.
    message: &'a [u8],
    num_strings: usize,
    /// Size of the region of the column in bytes, for strings only.
    region_bytes: usize,
}

impl ChunkDecoder {
    /// Creates a decoder that refuses chunks of more than `limit_bytes` bytes of data.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            repeats_limit_bytes: limit_bytes,
            spent_bytes: 0,
            packed_from: usize::MAX,
            messages_from: usize::MAX,
            layouts: RecentLayouts::default(),
            allocator: ChunkAllocator::default(),
        }
    }

    /// Refuses chunks of more than `limit_bytes` bytes in which a message lists strings, because its last string may be
    /// repeated: few bytes can then declare much data. All other data takes at least a fixed share of its size.
    #[must_use]
    pub fn limit_repeats(self, limit_bytes: u64) -> Self {
        Self { repeats_limit_bytes: limit_bytes.min(self.limit_bytes), ..self }
    }

    /// Keeps chunks of at least `from_bytes` bytes, and at most 256 MiB, compressed until they are first read, if they
    /// compress to half or less.
    #[must_use]
    pub fn leave_packed(self, from_bytes: usize) -> Self {
        Self { packed_from: from_bytes, ..self }
    }

    /// Keeps the messages of chunks of at least `from_bytes` bytes until the chunks are first read, so that they can be
    /// sent again unchanged; see [`Chunk::message`]. Chunks of strings, of old checkpoints and of more than 256 MiB are
    /// decoded at once.
    #[must_use]
    pub fn keep_messages(self, from_bytes: usize) -> Self {
        Self { messages_from: from_bytes, ..self }
    }

    /// Sets the number of bytes that the chunks before the next one in a message take. They count towards the limit if
    /// the next chunk must be unpacked at once.
    pub fn set_spent(&mut self, bytes: u64) {
        self.spent_bytes = bytes;
    }

    /// Decodes a serialised `ChunkData`. `episodes` returns the episode ids of the rows for the id in the message.
    ///
    /// # Errors
    /// [`Error::DataLoss`] if the message is damaged; [`Error::InvalidArgument`] if no chunk can hold its content;
    /// [`Error::MessageTooLarge`] if it exceeds the limit; [`Error::ResourceExhausted`] if there is not enough memory.
    /// All name the chunk.
    pub fn decode(&mut self, message: &[u8], episodes: impl FnOnce(u64) -> EpisodeIds) -> Result<Chunk> {
        self.decode_from(message, None, episodes)
    }

    /// As [`ChunkDecoder::decode`]. A chunk that keeps its message shares its memory, with all that is allocated with
    /// it.
    ///
    /// # Errors
    /// Those of [`ChunkDecoder::decode`].
    pub fn decode_shared(&mut self, message: &Bytes, episodes: impl FnOnce(u64) -> EpisodeIds) -> Result<Chunk> {
        self.decode_from(message, Some(message), episodes)
    }

    fn decode_from(
        &mut self,
        message: &[u8],
        shared: Option<&Bytes>,
        episodes: impl FnOnce(u64) -> EpisodeIds,
    ) -> Result<Chunk> {
        let parts = ChunkParts::read(message)?;
        let key = parts.key;
        self.build(&parts, (message, shared), episodes).map_err(|error| match error {
            Error::DataLoss(reason) => Error::DataLoss(format!("chunk {key}: {reason}")),
            Error::InvalidArgument(reason) => Error::InvalidArgument(format!("chunk {key}: {reason}")),
            error => error,
        })
    }

    fn build(
        &mut self,
        parts: &ChunkParts<'_>,
        message: (&[u8], Option<&Bytes>),
        episodes: impl FnOnce(u64) -> EpisodeIds,
    ) -> Result<Chunk> {
        let messages = parts.tensor_messages()?;
        let tensors: SmallVec<[Tensor<'_>; 4]> =
            messages.iter().map(|message| Tensor::read(message, self)).collect::<Result<_>>()?;
        let layout = self.layout(&tensors)?;
        let limit_bytes = self.limit_of(tensors.iter().any(|tensor| tensor.num_strings > 0));
        let size_bytes = layout.size_bytes as u64;
        check_size(|| format!("chunk {}", parts.key), size_bytes, limit_bytes)?;
        for (tensor, index) in tensors.iter().zip(0..) {
            tensor.check_size(layout.columns[index].size_bytes).map_err(|error| in_tensor(index, error))?;
        }
        let (key, episodes, steps) = (parts.key, episodes(parts.episode), parts.steps);
        if let Some(packed) = self.pack(&tensors, &layout, parts, message)? {
            return Ok(Chunk::packed(key, episodes, steps, layout, Arc::new(packed)));
        }
        let what = || format!("a message with chunk {key}");
        check_size(what, self.spent_bytes.saturating_add(size_bytes), self.limit_bytes)?;
        let data = self.allocator.try_zeros(layout.size_bytes);
        let mut data = data.ok_or_else(|| {
            Error::ResourceExhausted(format!("chunk {key}: no memory for its {} bytes", layout.size_bytes))
        })?;
        for (index, (tensor, column)) in tensors.iter().zip(&layout.columns).enumerate() {
            let region = &mut data.as_mut()[column.offset..column.offset + column.size_bytes];
            tensor.fill(region, parts.delta_encoded).map_err(|error| in_tensor(index, error))?;
        }
        Chunk::new(key, episodes, steps, layout, data.into())
    }

    /// Returns the maximum size in bytes of a chunk that may repeat strings, or of another.
    fn limit_of(&self, may_repeat: bool) -> u64 {
        if may_repeat { self.repeats_limit_bytes } else { self.limit_bytes }
    }

    /// Checks the tensors without decoding them. `None` if this chunk must be decoded now.
    fn pack(
        &mut self,
        tensors: &[Tensor<'_>],
        layout: &Layout,
        parts: &ChunkParts<'_>,
        (message, shared): (&[u8], Option<&Bytes>),
    ) -> Result<Option<PackedTensors>> {
        let size_bytes = layout.size_bytes;
        let content_bytes = tensors.iter().map(|tensor| tensor.content.len()).sum();
        if size_bytes > MAX_PACKED_BYTES {
            return Ok(None);
        }
        let keeps_message = size_bytes >= self.messages_from.max(1)
            && parts.deprecated.is_empty()
            && may_stay(message.len(), size_bytes);
        let packs = keeps_message || (size_bytes >= self.packed_from && is_worth_packing(content_bytes, size_bytes));
        if !packs || tensors.iter().any(|tensor| tensor.dtype == DType::String) {
            return Ok(None);
        }
        let mut contents = SmallVec::<[_; 4]>::new();
        for (tensor, index) in tensors.iter().zip(0..) {
            let size_bytes = layout.columns[index].size_bytes;
            let elements = tensor.check_elements(size_bytes).map_err(|error| in_tensor(index, error))?;
            contents.push((elements, tensor.is_delta(parts.delta_encoded)));
        }
        Ok(Some(match keeps_message {
            true => PackedTensors::in_message(message, shared, &layout.columns, &contents),
            false => PackedTensors::new(&layout.columns, &contents, &mut self.allocator),
        }))
    }

    fn layout(&mut self, tensors: &[Tensor<'_>]) -> Result<Arc<Layout>> {
        let rows = tensors.first().map_or(0, |tensor| tensor.rows);
        if let Some((index, other)) = tensors.iter().enumerate().find(|(_, tensor)| tensor.rows != rows) {
            return Err(Error::invalid(format!("tensor 0 has {rows} rows, but tensor {index} has {}", other.rows)));
        }
        if let Some(layout) = self.layouts.find(|(), layout| is_layout_of(layout, rows, tensors)) {
            return Ok(layout);
        }
        let columns = tensors.iter().map(|tensor| (tensor.dtype, tensor.shape.clone(), tensor.region_bytes));
        Ok(self.layouts.keep((), Layout::new(rows, columns)?))
    }
}

fn check_size(what: impl FnOnce() -> String, size_bytes: u64, limit_bytes: u64) -> Result<()> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    let option = "max_message_size (an argument of reverb.Server)".into();
    Err(Error::MessageTooLarge { what: what(), option, size_bytes, limit_bytes })
}

fn is_layout_of(layout: &Layout, rows: usize, tensors: &[Tensor<'_>]) -> bool {
    layout.rows as usize == rows
        && layout.columns.len() == tensors.len()
        && layout.columns.iter().zip(tensors).all(|(column, tensor)| {
            column.dtype == tensor.dtype
                && column.shape == tensor.shape
                && (tensor.dtype != DType::String || column.size_bytes == tensor.region_bytes)
        })
}

fn in_tensor(index: usize, error: Error) -> Error {
    match error {
        Error::DataLoss(reason) => Error::DataLoss(format!("tensor {index}: {reason}")),
        error => error,
    }
}

impl<'a> ChunkParts<'a> {
    fn read(message: &'a [u8]) -> Result<Self> {
        let mut parts = Self::default();
        for field in fields(message) {
            match field? {
                (1, value) => parts.key = value.varint()?,
                (2, value) => parts.read_range(value.bytes()?)?,
                (3, value) => push_tensor(&mut parts.deprecated, value.bytes()?)?,
                (4, value) => parts.delta_encoded = value.varint()? != 0,
                (5, value) => {
                    for field in fields(value.bytes()?) {
                        if let (1, tensor) = field? {
                            push_tensor(&mut parts.tensors, tensor.bytes()?)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    fn read_range(&mut self, message: &[u8]) -> Result<()> {
        for field in fields(message) {
            match field? {
                (1, value) => self.episode = value.varint()?,
                (2, value) => self.steps.first = value.int32()?,
                (3, value) => self.steps.last = value.int32()?,
                (4, value) => self.steps.sparse = value.varint()? != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn tensor_messages(&self) -> Result<&[&'a [u8]]> {
        match (self.tensors.is_empty(), self.deprecated.is_empty()) {
            (false, true) => Ok(&self.tensors),
            (true, false) => Ok(&self.deprecated),
            (true, true) => Err(Error::DataLoss("it has no tensors".into())),
            (false, false) => Err(Error::DataLoss("it has both `data` and `deprecated_data`".into())),
        }
    }
}

fn push_tensor<'a, const N: usize>(tensors: &mut SmallVec<[&'a [u8]; N]>, tensor: &'a [u8]) -> Result<()>
where
    [&'a [u8]; N]: smallvec::Array<Item = &'a [u8]>,
{
    if tensors.len() == MAX_TENSORS {
        return Err(Error::DataLoss(format!("a chunk has more than {MAX_TENSORS} tensors")));
    }
    tensors.push(tensor);
    Ok(())
}

impl<'a> Tensor<'a> {
    fn read(message: &'a [u8], decoder: &ChunkDecoder) -> Result<Self> {
        let (mut dtype, mut dims, mut content, mut num_strings) = (0, Dims::new(), &[][..], 0);
        for field in fields(message) {
            match field? {
                (1, value) => dtype = value.varint()?,
                (2, value) => read_shape(value.bytes()?, &mut dims)?,
                (4, value) => content = value.bytes()?,
                (8, value) => {
                    value.bytes()?;
                    num_strings += 1;
                }
                _ => {}
            }
        }
        let dtype = DType::from_number(u32::try_from(dtype).unwrap_or(u32::MAX))?;
        let (&rows, row) =
            dims.split_first().ok_or_else(|| Error::DataLoss("a tensor is a scalar and has no rows".into()))?;
        let mut tensor =
            Self { dtype, rows, shape: Shape::from_slice(row), content, message, num_strings, region_bytes: 0 };
        if dtype == DType::String {
            let limit = usize::try_from(decoder.limit_of(num_strings > 0)).unwrap_or(usize::MAX);
            tensor.region_bytes = tensor.measure_strings(limit)?;
        }
        Ok(tensor)
    }

    /// Checks that all strings are present. Returns the size in bytes of their region in the chunk.
    fn measure_strings(&self, limit: usize) -> Result<usize> {
        let too_many = || {
            Error::DataLoss(format!(
                "{} rows of strings of shape {:?} do not fit into the content or the size limit",
                self.rows, self.shape
            ))
        };
        let count = self.shape.iter().try_fold(self.rows, |n, &dim| n.checked_mul(dim)).ok_or_else(too_many)?;
        let ends = count.checked_add(1).and_then(|n| n.checked_mul(4)).ok_or_else(too_many)?;
        // The last value in `string_val` is repeated for all missing ones, so few bytes can declare many strings.
        if ends > limit || (self.num_strings == 0 && count > self.content.len()) {
            return Err(too_many());
        }
        let mut text = 0_usize;
        self.for_each_string(count, |string| text = text.saturating_add(string.len()))?;
        Ok(ends.saturating_add(text))
    }

    fn for_each_string(&self, count: usize, mut visit: impl FnMut(&'a [u8])) -> Result<()> {
        if self.num_strings == 0 {
            let mut lengths = self.content;
            let mut bytes = self.content;
            for _ in 0..count {
                varint(&mut bytes)?;
            }
            for _ in 0..count {
                let length = usize::try_from(varint(&mut lengths)?).unwrap_or(usize::MAX);
                let (string, rest) = bytes
                    .split_at_checked(length)
                    .ok_or_else(|| Error::DataLoss("a string extends beyond the content".into()))?;
                visit(string);
                bytes = rest;
            }
            let rest = bytes.len();
            return if rest == 0 {
                Ok(())
            } else {
                Err(Error::DataLoss(format!("{rest} bytes follow the last string")))
            };
        }
        if self.num_strings > count {
            return Err(Error::DataLoss(format!("expected at most {count} strings, got {}", self.num_strings)));
        }
        let mut last = &[][..];
        let mut seen = 0;
        for field in fields(self.message) {
            if let (8, value) = field? {
                last = value.bytes()?;
                visit(last);
                seen += 1;
            }
        }
        (seen..count).for_each(|_| visit(last));
        Ok(())
    }

    /// Checks that the content can decode to a region of `size_bytes`, before that region is allocated.
    fn check_size(&self, size_bytes: usize) -> Result<()> {
        if self.dtype == DType::String || (size_bytes == 0 && self.content.is_empty()) {
            return Ok(());
        }
        let (announced, _) = self.snappy()?;
        if announced != size_bytes {
            return Err(Error::DataLoss(format!(
                "shape and dtype require {size_bytes} bytes, but the content declares {announced} bytes"
            )));
        }
        if size_bytes / MAX_SNAPPY_RATIO > self.content.len() {
            return Err(Error::DataLoss(format!(
                "{} bytes of Snappy cannot decompress to {size_bytes} bytes",
                self.content.len()
            )));
        }
        Ok(())
    }

    /// Returns the decompressed size that the content declares, and the Snappy elements that follow.
    fn snappy(&self) -> Result<(usize, &'a [u8])> {
        snappy::split(self.content).map_err(snappy_error)
    }

    /// Checks that the Snappy elements decode to `size_bytes`, and returns them.
    fn check_elements(&self, size_bytes: usize) -> Result<&'a [u8]> {
        if size_bytes == 0 {
            return Ok(&[]);
        }
        let (_, elements) = self.snappy()?;
        snappy::check(elements, size_bytes).map_err(snappy_error)?;
        Ok(elements)
    }

    fn is_delta(&self, delta_encoded: bool) -> bool {
        delta_encoded && delta::applies(self.dtype, self.shape.len() + 1)
    }

    fn fill(&self, region: &mut [u8], delta_encoded: bool) -> Result<()> {
        if self.dtype == DType::String {
            return self.fill_strings(region);
        }
        if region.is_empty() {
            return Ok(());
        }
        let (_, elements) = self.snappy()?;
        snappy::decode(elements, region).map_err(snappy_error)?;
        if self.is_delta(delta_encoded) {
            delta::decode(region, region.len() / self.rows, self.dtype.size());
        }
        Ok(())
    }

    fn fill_strings(&self, region: &mut [u8]) -> Result<()> {
        let count = self.rows * self.shape.iter().product::<usize>();
        let (ends, text) = region.split_at_mut((count + 1) * 4);
        let mut ends = ends.chunks_exact_mut(4).skip(1);
        let mut end = 0;
        self.for_each_string(count, |string| {
            text[end..end + string.len()].copy_from_slice(string);
            end += string.len();
            if let Some(place) = ends.next() {
                place.copy_from_slice(&(end as u32).to_le_bytes());
            }
        })
    }
}

fn snappy_error(reason: impl std::fmt::Display) -> Error {
    Error::DataLoss(format!("Snappy: {reason}"))
}

type Dims = SmallVec<[usize; 5]>;

fn read_shape(message: &[u8], dims: &mut Dims) -> Result<()> {
    for field in fields(message) {
        match field? {
            (2, dim) => {
                if dims.len() == MAX_RANK {
                    return Err(Error::DataLoss(format!("a tensor has more than {MAX_RANK} dimensions")));
                }
                let mut size = 0;
                for field in fields(dim.bytes()?) {
                    if let (1, value) = field? {
                        size = value.varint()?;
                    }
                }
                let size = i64::try_from(size).ok().and_then(|size| usize::try_from(size).ok());
                dims.push(size.ok_or_else(|| Error::DataLoss("a dimension is negative".into()))?);
            }
            (3, value) if value.varint()? != 0 => {
                return Err(Error::DataLoss("a tensor has an unknown shape".into()));
            }
            _ => {}
        }
    }
    Ok(())
}
