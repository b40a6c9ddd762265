//! The first line of errors about signatures, which is for people. The texts of the reference follow it.

use crate::tensor::shape_text;
use crate::{DType, TensorSpec};

/// Names of columns that a text lists at most.
const LISTED: usize = 12;

/// Says which column does not fit, what it holds, and what the table takes, in NumPy's names.
///
/// If only the dtype is wrong, says how to convert the value.
pub(crate) fn column_line(
    table: &str,
    (index, spec): (usize, &TensorSpec),
    (dtype, shape): (DType, &[usize]),
    shape_fits: bool,
) -> String {
    let hint = match numpy_class(spec.dtype) {
        Some(class) if shape_fits && dtype != spec.dtype && dtype != DType::String => {
            format!(" np.{class}(x) makes one.")
        }
        _ => String::new(),
    };
    format!(
        "{}: got {} {}, table \"{table}\" takes {} {}.{hint}",
        place(index, spec),
        numpy_name(dtype),
        shape_text(shape),
        numpy_name(spec.dtype),
        spec.shape_text()
    )
}

/// Says that an item has another number of columns than the signature.
pub(crate) fn count_line(table: &str, specs: &[TensorSpec], got: usize) -> String {
    let mut names: Vec<_> = specs.iter().take(LISTED).enumerate().map(|(index, spec)| place(index, spec)).collect();
    if specs.len() > LISTED {
        names.push("...".into());
    }
    let plural = if specs.len() == 1 { "" } else { "s" };
    format!("table \"{table}\" takes {} column{plural} ({}), got {got}.", specs.len(), names.join(", "))
}

/// The path of a column; its number if it has no name.
fn place(index: usize, spec: &TensorSpec) -> String {
    match spec.name.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("column {index}"),
        false => spec.name.clone(),
    }
}

fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Float16 => "float16",
        DType::Float32 => "float32",
        DType::Float64 => "float64",
        other => other.name(),
    }
}

/// The class of NumPy that makes values of this type; `None` if NumPy itself has none.
fn numpy_class(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::Bool => Some("bool_"),
        DType::String | DType::BFloat16 | DType::Float8E5M2 | DType::Float8E4M3Fn => None,
        other => Some(numpy_name(other)),
    }
}
