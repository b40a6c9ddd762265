//! The kinds of selectors, and the priorities that each kind can take.

use crate::{Error, Result};
use std::fmt::{self, Display, Formatter};

/// Maximum weight of an item: the sum of 2^33 of them, more than a table has slots, is still finite.
const MAX_WEIGHT: f64 = f64::MAX / (1_u64 << 33) as f64;

/// The way in which a table chooses items.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectorKind {
    /// The oldest item.
    Fifo,
    /// The newest item.
    Lifo,
    /// Each item with the same probability.
    Uniform,
    /// Each item with a probability proportional to `priority^priority_exponent`; the weight of priority 0 is 0.
    Prioritized {
        /// The exponent.
        priority_exponent: f64,
    },
    /// The item of lowest priority; among equals the one inserted or updated longest ago.
    MinHeap,
    /// The item of highest priority; among equals the one inserted or updated longest ago.
    MaxHeap,
}

impl Display for SelectorKind {
    /// The name by which people know it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo => f.write_str("fifo"),
            Self::Lifo => f.write_str("lifo"),
            Self::Uniform => f.write_str("uniform"),
            Self::Prioritized { priority_exponent } => write!(f, "prioritized({priority_exponent})"),
            Self::MinHeap => f.write_str("min_heap"),
            Self::MaxHeap => f.write_str("max_heap"),
        }
    }
}

impl SelectorKind {
    /// Whether choices depend on the operations alone and not on chance.
    pub fn is_deterministic(&self) -> bool {
        !matches!(self, Self::Uniform | Self::Prioritized { .. })
    }

    /// Whether it always chooses the item of highest priority.
    pub fn chooses_highest(&self) -> bool {
        *self == Self::MaxHeap
    }

    /// Checks that the selector can be built.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the exponent is NaN or infinite.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Prioritized { priority_exponent } if !priority_exponent.is_finite() => {
                Err(Error::invalid(format!("priority_exponent must be finite, got {priority_exponent}")))
            }
            _ => Ok(()),
        }
    }
}

/// Checks that a selector of this kind can take the priority. Returns the weight that it gives to the item, or the
/// priority itself if the selector has no weights.
///
/// # Errors
/// [`Error::InvalidPriority`] for NaN. For a Prioritized selector, also for a priority that is negative or infinite, or
/// whose weight is so large that sums of weights could become infinite.
#[inline]
pub fn check_priority(kind: &SelectorKind, priority: f64) -> Result<f64> {
    let weight = match kind {
        SelectorKind::Prioritized { priority_exponent } => weight(*priority_exponent, priority),
        _ => priority,
    };
    let fits = match kind {
        SelectorKind::Prioritized { .. } => {
            (0.0..=f64::MAX).contains(&priority) && (0.0..=MAX_WEIGHT).contains(&weight)
        }
        _ => !priority.is_nan(),
    };
    if fits { Ok(weight) } else { Err(refusal(priority, weight)) }
}

#[cold]
fn refusal(priority: f64, weight: f64) -> Error {
    Error::InvalidPriority(if priority.is_nan() {
        "Priority must not be NaN.".into()
    } else if priority < 0.0 {
        "Priority must not be negative.".into()
    } else if priority.is_infinite() {
        format!("Priority must be finite for a Prioritized selector, got {priority}.")
    } else {
        format!(
            "Priority {priority} has weight {weight:e} in a Prioritized selector, which must not be above {MAX_WEIGHT:e}."
        )
    })
}

/// Returns the weight of a priority: `priority^exponent`, but 0 for priority 0 whatever the exponent.
#[inline]
pub(super) fn weight(exponent: f64, priority: f64) -> f64 {
    if priority == 0.0 {
        0.0
    } else if exponent == 1.0 {
        priority
    } else if exponent == 0.5 {
        priority.sqrt()
    } else {
        priority.powf(exponent)
    }
}
