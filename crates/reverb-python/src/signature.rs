//! Signatures of tables, as Python gives them.

use reverb_core::{DType, Error, Signature, TensorSpec};

/// A leaf of a signature: name, number of the dtype, and dimensions with -1 where unknown; `None` if the rank is
/// unknown.
pub type FlatSpec = (String, u32, Option<Vec<i64>>);

/// A signature of flat specs.
///
/// `structure` is the serialized nest that they belong to; it is empty where only dtypes and shapes are checked.
pub fn to_signature(structure: &[u8], specs: Vec<FlatSpec>) -> Result<Signature, Error> {
    let spec = |(name, dtype, dims): FlatSpec| {
        let shape = dims.map(|dims| dims.into_iter().map(|dim| usize::try_from(dim).ok()).collect());
        Ok(TensorSpec { name, dtype: DType::from_number(dtype)?, shape })
    };
    let specs = specs.into_iter().map(spec).collect::<Result<_, Error>>()?;
    Ok(Signature { structure: structure.to_vec().into(), specs })
}
