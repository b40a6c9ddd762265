//! What a batch says of each of its items, besides the data.

use crate::{Drawn, Error, Result};
use std::mem::offset_of;
use std::slice;

/// The one list of what a batch says of each item: the field of [`Drawn`], the column of [`BatchInfo`] and of the message
/// `Batch`, the type, and that of Python's array. A fact that is added needs these three fields, which the compiler
/// names; all else follows. A type is never larger than the one before it, so that all columns are aligned.
///
/// Calls the macro that it is given with the list.
#[macro_export]
macro_rules! for_each_fact {
    ($call:ident) => {
        $call! {
            /// Keys of the items.
            key, keys: u64 = UInt64;
            /// Probability of each draw.
            probability, probabilities: f64 = Float64;
            /// Number of items in the table at each draw.
            table_size, table_sizes: i64 = Int64;
            /// Priorities of the items.
            priority, priorities: f64 = Float64;
            /// Number of draws of each item, including this one.
            times_sampled, times_sampled: i32 = Int32;
        }
    };
}

/// Information on each sample of a batch, column by column, in one block of memory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct BatchInfo {
    /// The columns, one after the other.
    words: Vec<u64>,
    count: usize,
}

macro_rules! columns {
    ($($(#[$doc:meta])* $fact:ident, $column:ident: $type:ty = $dtype:ident;)*) => {
        /// A column begins where as many fields of all rows end as lie before it here.
        #[repr(C, packed)]
        struct Row {
            $($column: $type,)*
        }

        $(const _: () = assert!(offset_of!(Row, $column) % align_of::<$type>() == 0);)*

        /// The columns, for writing.
        pub(crate) struct InfoColumns<'a> {
            $(pub(crate) $column: &'a mut [$type],)*
        }

        impl BatchInfo {
            /// Collects the information on drawn items.
            pub fn of(items: &[Drawn]) -> Self {
                let mut info = Self::zeros(items.len());
                let columns = info.columns_mut();
                for (index, item) in items.iter().enumerate() {
                    $(columns.$column[index] = item.$fact;)*
                }
                info
            }

            /// Collects rows of others, each given by its position there.
            pub(crate) fn of_rows<'a>(rows: impl ExactSizeIterator<Item = (&'a Self, usize)>) -> Self {
                let mut info = Self::zeros(rows.len());
                let columns = info.columns_mut();
                for (place, (from, index)) in rows.enumerate() {
                    $(columns.$column[place] = from.$column()[index];)*
                }
                info
            }

            /// Reads little-endian bytes of each column.
            ///
            /// # Errors
            /// [`Error::DataLoss`] if the columns have different lengths.
            pub fn from_le_bytes(columns: [&[u8]; Self::NUM_COLUMNS]) -> Result<Self> {
                let count = columns[0].len() / Self::SIZES[0];
                if columns.iter().zip(Self::SIZES).any(|(column, size)| column.len() != size * count) {
                    return Err(Self::differ_in_number(columns));
                }
                let mut info = Self::zeros(count);
                let numbers = info.columns_mut();
                let [$($column),*] = columns;
                $(
                    let pairs = numbers.$column.iter_mut().zip($column.as_chunks().0);
                    pairs.for_each(|(number, &bytes)| *number = <$type>::from_le_bytes(bytes));
                )*
                Ok(info)
            }

            pub(crate) fn columns_mut(&mut self) -> InfoColumns<'_> {
                let (begin, count) = (self.words.as_mut_ptr().cast::<u8>(), self.count);
                $(
                    // SAFETY: the words have room for `count` rows. Columns do not overlap. Each is aligned as its place
                    // in a row is, and any bits are a valid number.
                    let $column = unsafe {
                        slice::from_raw_parts_mut(begin.add(count * offset_of!(Row, $column)).cast::<$type>(), count)
                    };
                )*
                InfoColumns { $($column),* }
            }

            $(
                $(#[$doc])*
                pub fn $column(&self) -> &[$type] {
                    let begin = self.words.as_ptr().cast::<u8>();
                    // SAFETY: as in `columns_mut`.
                    unsafe {
                        slice::from_raw_parts(begin.add(self.count * offset_of!(Row, $column)).cast(), self.count)
                    }
                }
            )*

            const SIZES: [usize; Self::NUM_COLUMNS] = [$(size_of::<$type>()),*];
            const NUM_COLUMNS: usize = [$(stringify!($column)),*].len();
        }
    };
}

for_each_fact!(columns);

impl BatchInfo {
    pub(crate) fn zeros(count: usize) -> Self {
        Self { words: vec![0; (count * size_of::<Row>()).div_ceil(size_of::<u64>())], count }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the batch has no samples.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The error of columns that have different lengths.
    #[cold]
    fn differ_in_number(columns: [&[u8]; Self::NUM_COLUMNS]) -> Error {
        let lengths = |of: usize| {
            let columns = columns.iter().zip(Self::SIZES).filter(move |(_, size)| *size == of);
            columns.map(|(column, _)| column.len()).collect::<Vec<_>>()
        };
        let (eights, fours) = (lengths(8), lengths(4));
        let fours: Vec<_> = fours.iter().map(usize::to_string).collect();
        Error::DataLoss(format!(
            "the sample infos of a batch differ in number: {eights:?} bytes in columns of 8 bytes, {} bytes in one of 4",
            fours.join(", ")
        ))
    }
}
