//! Why a step was not taken.

use crate::tensor::shape_text;
use crate::{DType, Error, Shape};

/// Why a step was not taken. Nothing of it was.
#[derive(Debug, Clone)]
pub enum AppendError {
    /// The open step has a value of the column already.
    AlreadySet {
        /// The column.
        column: u32,
    },
    /// The column has values of another element type.
    WrongDType {
        /// The column.
        column: u32,
        /// Of the value.
        got: DType,
        /// Of the column.
        expected: DType,
    },
    /// The column has values of another shape.
    WrongShape {
        /// The column.
        column: u32,
        /// Of the value.
        got: Shape,
        /// Of the column.
        expected: Shape,
    },
    /// Anything else.
    Other(Error),
}

impl From<Error> for AppendError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl AppendError {
    /// As an error for people, who know columns by their path in a step and values by their text.
    pub fn describe(self, path: impl Fn(u32) -> String, value: impl Fn(u32) -> String) -> Error {
        match self {
            Self::AlreadySet { column } => Error::invalid(format!(
                "Field {} has already been set in the active step by previous (partial) append call and thus must be \
                 omitted or set to None but got: {}",
                path(column),
                value(column)
            )),
            Self::WrongDType { column, got, expected } => Error::invalid(format!(
                "Tensor of wrong dtype provided for column {}. Got {got} but expected {expected}.",
                path(column)
            )),
            Self::WrongShape { column, got, expected } => Error::invalid(format!(
                "Tensor of incompatible shape provided for column {}. Got {} which is incompatible with {}.",
                path(column),
                shape_text(&got),
                shape_text(&expected)
            )),
            Self::Other(error) => error,
        }
    }
}
