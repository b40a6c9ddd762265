//! Describes columns: their names, element types and shapes.

use super::schema::ColumnDocument;
use reverb_core::{DType, Signature, TensorSpec};
use reverb_formats::signature::column_names;

/// Describes the columns of a signature.
pub fn of_signature(signature: &Signature) -> Vec<ColumnDocument> {
    let column = |(number, (spec, name)): (usize, (&TensorSpec, String))| ColumnDocument {
        number,
        name,
        dtype: dtype_name(spec.dtype).into(),
        shape: spec.shape.as_ref().map(|dims| dims.iter().map(|dim| dim.map(|dim| dim as u64)).collect()),
    };
    signature.specs.iter().zip(column_names(signature)).enumerate().map(column).collect()
}

/// Returns the names of `count` columns of a table: by its signature, or numbers if it has none.
pub fn names(signature: Option<&Signature>, count: usize) -> Vec<String> {
    let named = signature.map(column_names).filter(|names| names.len() == count);
    named.unwrap_or_else(|| (0..count).map(|number| format!("data/{number}")).collect())
}

/// Returns NumPy's name of an element type, and `string` for strings.
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Float32 => "float32",
        DType::Float64 => "float64",
        DType::Float16 => "float16",
        dtype => dtype.name(),
    }
}
