//! Checks and converts shapes and sizes in messages.

use reverb_core::{Error, Result, Shape};

/// Maximum number of dimensions of an array, the same as in NumPy.
const MAX_RANK: usize = 64;

/// Checks and converts a shape.
pub fn shape_from_wire(dims: &[u64]) -> Result<Shape> {
    if dims.len() > MAX_RANK {
        return Err(Error::invalid(format!("a shape has {} dimensions; the maximum is {MAX_RANK}", dims.len())));
    }
    dims.iter().map(|&dim| to_usize(dim)).collect()
}

/// Checks and converts a size. A peer may send one that is larger than the address space.
pub fn to_usize(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::invalid(format!("{number} exceeds the address space of this machine")))
}
