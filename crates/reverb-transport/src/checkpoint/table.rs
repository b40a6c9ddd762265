//! Tables as `PriorityTableCheckpoint` messages, and back.

use crate::convert::selector_options;
use crate::proto::schema::key_distribution_options::Distribution;
use crate::proto::schema::{KeyDistributionOptions, RateLimiterCheckpoint};
use crate::proto::tensorflow::{StructuredValue, TensorShapeProto, structured_value::Kind};
use crate::reference_chunk::wire::{Value, fields, put_bytes, put_int32, put_number};
use prost::Message;
use reverb_core::{
    DType, Error, RateLimiterConfig, Result, SelectorKind, Signature, TableConfig, TableSnapshot, TensorSpec,
};
use std::sync::Arc;

/// Bytes of a table's record without items; decoded, its signature takes many times as much.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Counts that a checkpoint keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// New items inserted.
    pub inserts: i64,
    /// Items drawn.
    pub samples: i64,
    /// Items removed.
    pub deletes: i64,
    /// Episodes of which the last item has left.
    pub num_deleted_episodes: u64,
    /// Items that were drawn at least once.
    pub num_unique_samples: u64,
}

/// A table of a checkpoint, without its items.
#[derive(Debug, Clone)]
pub struct TableRecord {
    /// What the table was made of. The reference's record has neither `max_bytes` nor a seed.
    pub config: TableConfig,
    /// Its counts.
    pub counts: Counts,
    /// Old checkpoints: the whole message, which has items.
    with_items: Option<Vec<u8>>,
}

impl TableRecord {
    /// Whether its items are in the record itself, as in old checkpoints.
    pub fn has_items(&self) -> bool {
        self.with_items.is_some()
    }

    /// The items of old checkpoints, each a serialised `PrioritizedItem`.
    pub fn items(&self) -> impl Iterator<Item = &[u8]> {
        let all = fields(self.with_items.as_deref().unwrap_or_default());
        all.filter_map(|field| if let Ok((2, Value::Bytes(item))) = field { Some(item) } else { None })
    }
}

/// The message of a table of `items` items.
pub fn encode_table(snapshot: &TableSnapshot, items: u64) -> Vec<u8> {
    let TableSnapshot { config, limiter, .. } = snapshot;
    let RateLimiterConfig { samples_per_insert, min_size_to_sample, min_diff, max_diff } = config.rate_limiter;
    let limiter = RateLimiterCheckpoint {
        samples_per_insert,
        min_diff,
        max_diff,
        min_size_to_sample,
        sample_count: limiter.samples,
        insert_count: limiter.inserts,
        delete_count: limiter.deletes,
    };
    let mut out = Vec::new();
    put_bytes(&mut out, 1, config.name.as_bytes());
    put_bytes(&mut out, 3, &limiter.encode_to_vec());
    put_bytes(&mut out, 4, &selector_options(&config.sampler).encode_to_vec());
    put_bytes(&mut out, 5, &selector_options(&config.remover).encode_to_vec());
    // The reference refuses a table that is over its size; the file beside has the size itself.
    put_number(&mut out, 6, config.max_size.max(items).min(i64::MAX as u64));
    put_int32(&mut out, 7, config.max_times_sampled);
    put_number(&mut out, 8, snapshot.num_deleted_episodes);
    if let Some(signature) = &config.signature {
        put_bytes(&mut out, 9, &signature.structure);
    }
    put_number(&mut out, 10, snapshot.num_unique_samples);
    out
}

/// Reads a serialised `PriorityTableCheckpoint`.
///
/// # Errors
/// [`Error::DataLoss`] where it cannot be read, [`Error::InvalidArgument`] where no table can be made of it; both name it.
pub fn decode_table(message: &[u8]) -> Result<TableRecord> {
    let mut parts = Parts::default();
    for field in fields(message) {
        match field? {
            (1, value) => parts.name = String::from_utf8_lossy(value.bytes()?).into_owned(),
            (2, value) => {
                value.bytes()?;
                parts.with_items = Some(message);
            }
            (3, value) => parts.limiter = value.bytes()?,
            (4, value) => parts.sampler = value.bytes()?,
            (5, value) => parts.remover = value.bytes()?,
            (6, value) => parts.max_size = value.varint()?,
            (7, value) => parts.max_times_sampled = value.int32()?,
            (8, value) => parts.num_deleted_episodes = value.varint()?,
            (9, value) => parts.signature = Some(value.bytes()?),
            (10, value) => parts.num_unique_samples = value.varint()?,
            _ => {}
        }
    }
    let name = parts.name.clone();
    parts.into_record().map_err(|error| match error {
        Error::DataLoss(reason) => Error::DataLoss(format!("table `{name}`: {reason}")),
        Error::InvalidArgument(reason) => Error::InvalidArgument(format!("table `{name}`: {reason}")),
        error => error,
    })
}

#[derive(Default)]
struct Parts<'a> {
    name: String,
    with_items: Option<&'a [u8]>,
    limiter: &'a [u8],
    sampler: &'a [u8],
    remover: &'a [u8],
    max_size: u64,
    max_times_sampled: i32,
    num_deleted_episodes: u64,
    signature: Option<&'a [u8]>,
    num_unique_samples: u64,
}

impl Parts<'_> {
    fn into_record(self) -> Result<TableRecord> {
        let unreadable = |error: prost::DecodeError| Error::DataLoss(error.to_string());
        let limiter = RateLimiterCheckpoint::decode(self.limiter).map_err(unreadable)?;
        let counts = Counts {
            inserts: limiter.insert_count,
            samples: limiter.sample_count,
            deletes: limiter.delete_count,
            num_deleted_episodes: self.num_deleted_episodes,
            num_unique_samples: self.num_unique_samples,
        };
        let config = TableConfig {
            sampler: read_selector("sampler", self.sampler)?,
            remover: read_selector("remover", self.remover)?,
            max_size: i64::try_from(self.max_size).map_or(0, |size| size as u64),
            max_times_sampled: self.max_times_sampled,
            rate_limiter: RateLimiterConfig {
                samples_per_insert: limiter.samples_per_insert,
                min_size_to_sample: limiter.min_size_to_sample,
                min_diff: limiter.min_diff,
                max_diff: limiter.max_diff,
            },
            signature: self.signature.map(read_signature).transpose()?.map(Arc::new),
            max_bytes: None,
            seed: None,
            name: self.name,
        };
        config.validate()?;
        Ok(TableRecord { config, counts, with_items: self.with_items.map(<[u8]>::to_vec) })
    }
}

fn read_selector(role: &str, message: &[u8]) -> Result<SelectorKind> {
    let options =
        KeyDistributionOptions::decode(message).map_err(|error| Error::DataLoss(format!("{role}: {error}")))?;
    Ok(match options.distribution {
        Some(Distribution::Fifo(true)) => SelectorKind::Fifo,
        Some(Distribution::Lifo(true)) => SelectorKind::Lifo,
        Some(Distribution::Uniform(true)) => SelectorKind::Uniform,
        Some(Distribution::Prioritized(options)) => {
            SelectorKind::Prioritized { priority_exponent: options.priority_exponent }
        }
        Some(Distribution::Heap(heap)) if heap.min_heap => SelectorKind::MinHeap,
        Some(Distribution::Heap(_)) => SelectorKind::MaxHeap,
        other => return Err(Error::DataLoss(format!("{role}: {other:?} is no selector"))),
    })
}

/// A signature from its serialised `StructuredValue`.
///
/// # Errors
/// [`Error::DataLoss`] if it holds something else than nests of specs.
pub fn read_signature(structure: &[u8]) -> Result<Signature> {
    if structure.len() > MAX_RECORD_BYTES {
        return Err(Error::DataLoss(format!(
            "the signature takes {} bytes; at most {MAX_RECORD_BYTES} are possible",
            structure.len()
        )));
    }
    let value = StructuredValue::decode(structure)
        .map_err(|error| Error::DataLoss(format!("the signature cannot be read: {error}")))?;
    let mut specs = Vec::new();
    flatten(&value, &mut Vec::new(), &mut specs)?;
    Ok(Signature { structure: structure.to_vec().into(), specs })
}

/// The specs in the order of the columns: mappings by key.
fn flatten(value: &StructuredValue, path: &mut Vec<String>, specs: &mut Vec<TensorSpec>) -> Result<()> {
    let mut step = |name: String, value: &StructuredValue| {
        path.push(name);
        flatten(value, path, specs)?;
        path.pop();
        Ok(())
    };
    match &value.kind {
        Some(Kind::DictValue(dict)) => {
            let mut keys: Vec<_> = dict.fields.keys().collect();
            keys.sort();
            keys.into_iter().try_for_each(|key| step(key.clone(), &dict.fields[key]))
        }
        Some(Kind::ListValue(list)) => {
            list.values.iter().enumerate().try_for_each(|(i, value)| step(i.to_string(), value))
        }
        Some(Kind::TupleValue(tuple)) => {
            tuple.values.iter().enumerate().try_for_each(|(i, value)| step(i.to_string(), value))
        }
        Some(Kind::NamedTupleValue(tuple)) => tuple.values.iter().try_for_each(|pair| {
            let value = pair.value.as_ref().ok_or_else(|| Error::DataLoss("a field has no spec".into()))?;
            step(pair.key.clone(), value)
        }),
        Some(Kind::TensorSpecValue(spec)) => {
            specs.push(to_spec(path, &spec.name, spec.dtype, spec.shape.as_ref())?);
            Ok(())
        }
        Some(Kind::BoundedTensorSpecValue(spec)) => {
            specs.push(to_spec(path, &spec.name, spec.dtype, spec.shape.as_ref())?);
            Ok(())
        }
        _ => Err(Error::DataLoss("the signature holds something else than nests of specs".into())),
    }
}

fn to_spec(path: &[String], name: &str, dtype: i32, shape: Option<&TensorShapeProto>) -> Result<TensorSpec> {
    let mut name_parts = path.to_vec();
    if !name.is_empty() {
        name_parts.push(name.into());
    }
    let dims = |shape: &TensorShapeProto| shape.dim.iter().map(|dim| usize::try_from(dim.size).ok()).collect();
    let shape = match shape {
        Some(shape) if shape.unknown_rank => None,
        Some(shape) => Some(dims(shape)),
        None => Some(Vec::new()),
    };
    let dtype = DType::from_number(u32::try_from(dtype).unwrap_or_default())?;
    Ok(TensorSpec { name: name_parts.join("/"), dtype, shape })
}

/// Whether data of one signature can be read by the other: the same nest, dtypes, and shapes that can both be true.
pub fn are_compatible(a: &Signature, b: &Signature) -> bool {
    let paths = |signature: &Signature| StructuredValue::decode(&signature.structure[..]).map(|value| outline(&value));
    let fits = |(a, b): (&TensorSpec, &TensorSpec)| {
        let shapes_fit = match (&a.shape, &b.shape) {
            (Some(a), Some(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_none_or(|a| b.is_none_or(|b| a == b)))
            }
            _ => true,
        };
        a.dtype == b.dtype && shapes_fit
    };
    a.specs.len() == b.specs.len()
        && a.specs.iter().zip(&b.specs).all(fits)
        && matches!((paths(a), paths(b)), (Ok(a), Ok(b)) if a == b)
}

/// The nest without its leaves, as text.
fn outline(value: &StructuredValue) -> String {
    let list = |values: &[StructuredValue]| values.iter().map(outline).collect::<Vec<_>>().join(",");
    match &value.kind {
        Some(Kind::DictValue(dict)) => {
            let mut fields: Vec<_> =
                dict.fields.iter().map(|(key, value)| format!("{key:?}:{}", outline(value))).collect();
            fields.sort();
            format!("{{{}}}", fields.join(","))
        }
        Some(Kind::ListValue(values)) => format!("[{}]", list(&values.values)),
        Some(Kind::TupleValue(values)) => format!("({})", list(&values.values)),
        Some(Kind::NamedTupleValue(tuple)) => {
            let outlines = tuple
                .values
                .iter()
                .map(|pair| format!("{:?}={}", pair.key, pair.value.as_ref().map(outline).unwrap_or_default()));
            format!("{}({})", tuple.name, outlines.collect::<Vec<_>>().join(","))
        }
        _ => "*".into(),
    }
}
