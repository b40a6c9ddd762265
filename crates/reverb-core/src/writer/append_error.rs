//! The reasons why a step is not appended.

use crate::tensor::{differ_in_first_axis, shape_text};
use crate::{DType, Error, Shape};

/// The reason why a step was not appended. No part of it was.
#[derive(Debug, Clone)]
pub enum AppendError {
    /// The open step already has a value of the column.
    AlreadySet {
        /// The writer's number of the column.
        column: u32,
    },
    /// The column has values of another element type.
    WrongDType {
        /// The writer's number of the column.
        column: u32,
        /// The property of the value.
        got: DType,
        /// The property of the column.
        expected: DType,
    },
    /// The column has values of another shape.
    WrongShape {
        /// The writer's number of the column.
        column: u32,
        /// The property of the value.
        got: Shape,
        /// The property of the column.
        expected: Shape,
    },
    /// Any other error.
    Other(Error),
}

impl From<Error> for AppendError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl AppendError {
    /// Whether the value differs from those of its column in the length of its first axis alone.
    pub fn is_other_length(&self) -> bool {
        matches!(self, Self::WrongShape { got, expected, .. } if differ_in_first_axis(got, expected))
    }

    /// Converts this to an error for users, who identify columns by their path in a step and values by their text.
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
