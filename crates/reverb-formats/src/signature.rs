//! Signatures of tables, as TensorFlow's nests of specs.

use crate::proto::tensorflow::{ListValue, StructuredValue, TensorShapeProto, TupleValue, structured_value::Kind};
use prost::Message;
use reverb_core::{DType, Error, Result, Signature, TensorSpec};
use std::collections::HashSet;

// limit (Checkpoints): a table's signature in a checkpoint | {} | `DataLossError`
/// Maximum size of a serialised signature in bytes. It takes many times as much memory when decoded.
const MAX_BYTES: usize = 1 << 20;

/// Reads a signature from a serialised `StructuredValue`.
///
/// # Errors
/// [`Error::DataLoss`] if it contains anything other than nests of specs.
pub fn read_signature(structure: &[u8]) -> Result<Signature> {
    if structure.len() > MAX_BYTES {
        return Err(Error::DataLoss(format!(
            "the signature has {} bytes; the maximum is {MAX_BYTES}",
            structure.len()
        )));
    }
    let value = StructuredValue::decode(structure)
        .map_err(|error| Error::DataLoss(format!("cannot decode the signature: {error}")))?;
    Ok(Signature { structure: structure.to_vec().into(), specs: specs_of(&value)? })
}

/// Converts a signature from its message.
///
/// # Errors
/// [`Error::DataLoss`] if it contains anything other than nests of specs.
pub fn signature_of(value: &StructuredValue) -> Result<Signature> {
    Ok(Signature { structure: value.encode_to_vec().into(), specs: specs_of(value)? })
}

fn specs_of(value: &StructuredValue) -> Result<Vec<TensorSpec>> {
    let mut specs = Vec::new();
    flatten(value, &mut Vec::new(), &mut specs)?;
    Ok(specs)
}

/// The parts of a nest, each with its key, its index or the name of its field. The value of a field may be missing.
type Parts<'a> = Vec<(String, Option<&'a StructuredValue>)>;

/// Returns the parts of a nest in the order of the columns: mappings are ordered by key. `None` for a leaf.
fn parts(value: &StructuredValue) -> Option<Parts<'_>> {
    match value.kind.as_ref()? {
        Kind::DictValue(dict) => {
            let mut fields: Vec<_> = dict.fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            Some(fields.into_iter().map(|(key, value)| (key.clone(), Some(value))).collect())
        }
        Kind::ListValue(ListValue { values }) | Kind::TupleValue(TupleValue { values }) => {
            Some(values.iter().enumerate().map(|(index, value)| (index.to_string(), Some(value))).collect())
        }
        Kind::NamedTupleValue(tuple) => {
            Some(tuple.values.iter().map(|pair| (pair.key.clone(), pair.value.as_ref())).collect())
        }
        _ => None,
    }
}

/// Collects the specs in the order of the columns.
fn flatten(value: &StructuredValue, path: &mut Vec<String>, specs: &mut Vec<TensorSpec>) -> Result<()> {
    if let Some(parts) = parts(value) {
        return parts.into_iter().try_for_each(|(name, value)| {
            let value = value.ok_or_else(|| Error::DataLoss("a field has no spec".into()))?;
            path.push(name);
            flatten(value, path, specs)?;
            path.pop();
            Ok(())
        });
    }
    specs.push(match &value.kind {
        Some(Kind::TensorSpecValue(spec)) => to_spec(path, &spec.name, spec.dtype, spec.shape.as_ref())?,
        Some(Kind::BoundedTensorSpecValue(spec)) => to_spec(path, &spec.name, spec.dtype, spec.shape.as_ref())?,
        _ => return Err(Error::DataLoss("the signature contains something other than nests of specs".into())),
    });
    Ok(())
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

/// Returns the names of the columns: their paths in the nest, such as `data/observation/image`. Two paths give the same
/// text if keys contain slashes; the later one is then followed by its number.
pub fn column_names(signature: &Signature) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(signature.specs.len());
    if let Ok(value) = StructuredValue::decode(&signature.structure[..]) {
        name_leaves(&value, "data", &mut names);
    }
    // A signature without a nest, which no table of a server has.
    names.resize_with(signature.specs.len(), || "data".into());
    let mut known = HashSet::with_capacity(names.len());
    for (number, name) in names.iter_mut().enumerate() {
        if known.contains(name) {
            *name = format!("{name}#{number}");
        }
        known.insert(name.clone());
    }
    names
}

fn name_leaves(value: &StructuredValue, path: &str, names: &mut Vec<String>) {
    match parts(value) {
        Some(parts) => {
            let parts = parts.into_iter().filter_map(|(key, value)| Some((key, value?)));
            parts.for_each(|(key, value)| name_leaves(value, &format!("{path}/{key}"), names));
        }
        None => names.push(path.into()),
    }
}

/// Whether data with one signature can be read with the other: the nests and dtypes are the same, and each pair of
/// shapes is compatible.
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

/// Describes the nest without its leaves as a text.
fn outline(value: &StructuredValue) -> String {
    let kind = match &value.kind {
        Some(Kind::DictValue(_)) => "dict",
        Some(Kind::ListValue(_)) => "list",
        Some(Kind::TupleValue(_)) => "tuple",
        Some(Kind::NamedTupleValue(tuple)) => &format!("named tuple {:?}", tuple.name),
        _ => return "*".into(),
    };
    let part = |(key, value): (String, Option<&StructuredValue>)| {
        format!("{key:?}:{}", value.map(outline).unwrap_or_default())
    };
    format!("{kind}({})", parts(value).into_iter().flatten().map(part).collect::<Vec<_>>().join(","))
}
