//! Element types and the dtype and shape of a column.

use crate::{Error, Result};
use smallvec::SmallVec;
use std::fmt;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $size:literal;)*) => {
        /// Element type of a column. The numbers and names are TensorFlow's, as on the reference's wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DType { $(#[doc = $text] $name = $number,)* }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [DType] = &[$(DType::$name,)*];

            /// Returns the type with TensorFlow's number `number`.
            pub fn from_number(number: u32) -> Result<Self> {
                match number {
                    $($number => Ok(Self::$name),)*
                    _ => Err(Error::invalid(format!("dtype number {number} is not supported"))),
                }
            }

            /// TensorFlow's name, as error texts print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Size of an element in bytes; 0 for [`DType::String`], whose elements differ in size.
            pub const fn size(self) -> usize {
                match self { $(Self::$name => $size,)* }
            }
        }
    };
}

dtypes! {
    Float32 = 1, "float", 4;
    Float64 = 2, "double", 8;
    Int32 = 3, "int32", 4;
    UInt8 = 4, "uint8", 1;
    Int16 = 5, "int16", 2;
    Int8 = 6, "int8", 1;
    String = 7, "string", 0;
    Complex64 = 8, "complex64", 8;
    Int64 = 9, "int64", 8;
    Bool = 10, "bool", 1;
    BFloat16 = 14, "bfloat16", 2;
    UInt16 = 17, "uint16", 2;
    Complex128 = 18, "complex128", 16;
    Float16 = 19, "half", 2;
    UInt32 = 22, "uint32", 4;
    UInt64 = 23, "uint64", 8;
    Float8E5M2 = 24, "float8_e5m2", 1;
    Float8E4M3Fn = 25, "float8_e4m3fn", 1;
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fully known shape.
pub type Shape = SmallVec<[usize; 4]>;

/// Formats a shape as in error texts: `[]`, `[3]`, `[2,2]`.
pub fn shape_text(shape: &[usize]) -> String {
    let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(","))
}

/// Whether two different shapes differ in their first axis only.
pub(crate) fn differ_in_first_axis(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && !a.is_empty() && a[1..] == b[1..]
}

/// One entry of a signature: the dtype and the shape that a table accepts in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Path of the leaf in the nest, joined by `/`, followed by the spec's own name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions; an inner `None` is a dimension of any size, an outer `None` a shape of any rank.
    pub shape: Option<Vec<Option<usize>>>,
}

impl TensorSpec {
    /// Whether a tensor of this shape fits.
    pub fn accepts_shape(&self, shape: impl ExactSizeIterator<Item = usize>) -> bool {
        match &self.shape {
            None => true,
            Some(dims) => {
                dims.len() == shape.len()
                    && dims.iter().zip(shape).all(|(want, got)| want.is_none_or(|want| want == got))
            }
        }
    }

    /// The shape as in error texts: `[?,2]`, `<unknown>`.
    pub fn shape_text(&self) -> String {
        match &self.shape {
            None => "<unknown>".into(),
            Some(dims) => {
                let dims: Vec<_> = dims.iter().map(|dim| dim.map_or("?".into(), |n| n.to_string())).collect();
                format!("[{}]", dims.join(","))
            }
        }
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<name: '{}', dtype: {}, shape: {}>", self.name, self.dtype, self.shape_text())
    }
}
