//! Signatures: the dtype and shape that a table accepts in every column.

use crate::mismatch::{column_line, count_line};
use crate::tensor::shape_text;
use crate::trajectory::ColumnView;
use crate::{Column, DType, Error, Result, Shape, TensorSpec, Trajectory};
use bytes::Bytes;

/// The signature of a table: the specs of the flat columns, and the nest that they come from as opaque bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The nest, as a serialised `tensorflow.StructuredValue`. The core only stores and returns it.
    pub structure: Bytes,
    /// The specs in flattening order.
    pub specs: Vec<TensorSpec>,
}

impl Signature {
    /// Returns a number, never 0, that identifies the signature in every process. Different signatures differ in it
    /// except by chance.
    pub fn token(&self) -> u64 {
        // FNV-1a, because processes compare tokens and the hash must not be seeded.
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.structure.iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
    }

    /// Checks that an item of whole rows fits. A column passes if the spec fits one row, or all rows with their time
    /// axis.
    ///
    /// # Errors
    /// [`Error::SignatureMismatch`]: a line that names the column, then the text of the reference's row-wise writer.
    pub fn check_rows(&self, table: &str, columns: &[Column], num_rows: usize) -> Result<()> {
        let columns: Vec<_> = columns.iter().map(|column| (column.dtype, &column.shape)).collect();
        self.check_row_types(table, &columns, num_rows)
    }

    /// As [`Signature::check_rows`], for columns of these dtypes and row shapes.
    ///
    /// # Errors
    /// The errors of [`Signature::check_rows`].
    pub fn check_row_types(&self, table: &str, columns: &[(DType, &Shape)], num_rows: usize) -> Result<()> {
        if columns.len() != self.specs.len() {
            return Err(Error::SignatureMismatch(format!(
                "{}\nUnable to CreateItem in table '{table}' because Append was called with a tensor signature inconsistent with \
                 table signature.  Append for timestep offset 0 was called with {} tensors, but table requires {} tensors per \
                 entry.  Table signature: {}, data signature: {}.",
                count_line(table, &self.specs, columns.len()),
                columns.len(),
                self.specs.len(),
                self.text(),
                row_types_text(columns)
            )));
        }
        for (index, (spec, (dtype, row_shape))) in self.specs.iter().zip(columns).enumerate() {
            let row = row_shape.iter().copied();
            let with_time = || {
                let mut shape = vec![num_rows];
                shape.extend_from_slice(row_shape);
                shape.into_iter()
            };
            let shape_fits = spec.accepts_shape(row) || spec.accepts_shape(with_time());
            if spec.dtype != *dtype || !shape_fits {
                return Err(Error::SignatureMismatch(format!(
                    "{}\nUnable to CreateItem in table '{table}' because Append was called with a tensor signature inconsistent \
                     with the table signature. At timestep offset 0, flattened index {index}, saw a tensor of dtype {}, shape \
                     {}, but expected tensor '{}' of dtype {} and shape compatible with {}.  (Flattened) table signature: {}, \
                     data signature: {}.",
                    column_line(table, (index, spec), (*dtype, row_shape), shape_fits),
                    dtype,
                    shape_text(row_shape),
                    spec.name,
                    spec.dtype,
                    spec.shape_text(),
                    self.text(),
                    row_types_text(columns)
                )));
            }
        }
        Ok(())
    }

    /// Checks that an item of arbitrary columns fits. A column passes if the spec fits its whole array, or one of its
    /// rows without the time axis.
    ///
    /// # Errors
    /// [`Error::SignatureMismatch`]: a line that names the column, then the text of the reference's trajectory writer.
    pub fn check_trajectory(&self, table: &str, trajectory: &Trajectory) -> Result<()> {
        let got: Vec<_> = (0..trajectory.num_columns()).map(|index| array_type(trajectory, index)).collect();
        self.check_types(table, &got)
    }

    /// As [`Signature::check_trajectory`], for arrays of these types.
    ///
    /// # Errors
    /// The errors of [`Signature::check_trajectory`].
    pub fn check_types(&self, table: &str, got: &[ArrayType]) -> Result<()> {
        let got_text = || {
            let specs = got.iter().enumerate().map(|(i, ArrayType { dtype, shape, .. })| {
                format!("{i}: Tensor<name: '{i}', dtype: {dtype}, shape: {}>", shape_text(shape))
            });
            specs.collect::<Vec<_>>().join(", ")
        };
        let start = format!(
            "Unable to create item in table '{table}' since the provided trajectory is inconsistent with the table signature."
        );
        if got.len() != self.specs.len() {
            return Err(Error::SignatureMismatch(format!(
                "{}\n{start} The trajectory has {} columns but the table signature has {} columns.\n\nThe table signature \
                 is:\n\t{}\n\nThe provided trajectory signature was:\n\t{}.\n",
                count_line(table, &self.specs, got.len()),
                got.len(),
                self.specs.len(),
                self.text(),
                got_text()
            )));
        }
        for (index, (spec, array)) in self.specs.iter().zip(got).enumerate() {
            let ArrayType { dtype, shape, .. } = array;
            let shape_fits = array.fits(spec);
            if spec.dtype != *dtype || !shape_fits {
                return Err(Error::SignatureMismatch(format!(
                    "{}\n{start} The table expects column {index} to be a {} {} tensor but got a {dtype} {} tensor.\n\nThe table \
                     signature is:\n\t{}\n\nThe provided trajectory signature is:\n\t{}.\n",
                    column_line(table, (index, spec), (*dtype, shape), shape_fits),
                    spec.dtype,
                    spec.shape_text(),
                    shape_text(shape),
                    self.text(),
                    got_text()
                )));
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        let specs = self.specs.iter().enumerate().map(|(i, spec)| format!("{i}: {spec}"));
        specs.collect::<Vec<_>>().join(", ")
    }
}

/// Columns of rows, as the reference prints a data signature.
fn row_types_text(columns: &[(DType, &Shape)]) -> String {
    let specs = columns.iter().enumerate();
    let specs =
        specs.map(|(i, (dtype, shape))| format!("{i}: Tensor<name: '', dtype: {dtype}, shape: {}>", shape_text(shape)));
    specs.collect::<Vec<_>>().join(", ")
}

/// The type of one column of an item as an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayType {
    /// Element type.
    pub dtype: DType,
    /// Shape, with the time axis unless it is dropped.
    pub shape: Vec<usize>,
    /// Whether the first axis is time.
    pub has_time: bool,
}

impl ArrayType {
    fn fits(&self, spec: &TensorSpec) -> bool {
        spec.accepts_shape(self.shape.iter().copied())
            || self.has_time && spec.accepts_shape(self.shape[1..].iter().copied())
    }
}

impl Trajectory {
    /// Returns the type of column `index`, which must exist, as an array.
    pub fn array_type(&self, index: usize) -> ArrayType {
        array_type(self, index)
    }
}

fn array_type(trajectory: &Trajectory, index: usize) -> ArrayType {
    let (column, length, squeeze) = match trajectory.column(index) {
        ColumnView::One { chunk, column, length, squeeze, .. } => {
            (&chunk.columns()[column as usize], length as usize, squeeze)
        }
        ColumnView::Many(many) => {
            let slice = &many.slices[0];
            (&slice.chunk.columns()[slice.column as usize], many.length(), many.squeeze)
        }
    };
    let mut shape = Vec::with_capacity(column.shape.len() + 1);
    if !squeeze {
        shape.push(length);
    }
    shape.extend_from_slice(&column.shape);
    ArrayType { dtype: column.dtype, shape, has_time: !squeeze }
}
