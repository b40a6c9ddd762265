//! Descriptions of patterns, before and after their checks.

use crate::{Error, Result};

/// A pattern before any check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PatternConfig {
    /// The columns of the item, in order.
    pub nodes: Vec<NodeConfig>,
    /// Name of the items' table.
    pub table: String,
    /// Priority of the items.
    pub priority: Option<PriorityFn>,
    /// Conditions for an item, which must all hold.
    pub conditions: Vec<ConditionConfig>,
}

/// One column of an item: rows `start:stop:step` of a column of the steps, counted back from the newest row, which is
/// -1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// Index of the column of the steps.
    pub source: i32,
    /// The oldest row.
    pub start: Option<i32>,
    /// End of the rows, exclusive; 0 includes the newest row. Without `start` it is the only row, and the column has no
    /// time axis.
    pub stop: Option<i32>,
    /// Distance between consecutive rows.
    pub step: Option<i32>,
}

/// A comparison, or its opposite if `inverse` is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConditionConfig {
    /// The value that is compared.
    pub left: Option<Left>,
    /// The comparison.
    pub comparison: Option<Comparison>,
    /// Whether the comparison must not hold.
    pub inverse: bool,
}

/// The left side of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Index of the newest step in its episode.
    StepIndex,
    /// Number of steps since the pattern created an item, or since the writer was created.
    StepsSinceApplied,
    /// Number of existing rows, at most the largest number of rows that a pattern of the writer needs.
    BufferLength,
    /// 1 while an episode ends, otherwise 0.
    IsEndEpisode,
    /// The value of a column of the steps in the newest row.
    Source(i32),
}

/// The right side of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Equal to this number.
    Eq(i32),
    /// Greater than or equal to this number.
    Ge(i32),
    /// The remainder after division by `modulus` is `eq`. As in C, it has the sign of the left side.
    ModEq {
        /// The divisor, at least 1.
        modulus: i32,
        /// The remainder, at least 0.
        eq: i32,
    },
}

/// The way to compute the priority of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PriorityFn {
    /// The same priority for all items.
    Constant(f64),
    /// w · max |d| + (1 - w) · mean |d| over the cells d of the item's column made of `source`; the last one if there
    /// are several, and 0 if there is none. Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed
    /// Reinforcement Learning", §2.3.
    TdError {
        /// The weight w of the maximum.
        max_weight: f64,
        /// Index of the column of the steps.
        source: i32,
    },
}

/// A pattern that was checked.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Pattern {
    /// Name of the items' table.
    pub table: String,
    /// The columns of the items, in order.
    pub columns: Vec<AgeRange>,
    /// The way to compute the priority of an item.
    pub priority: PriorityFn,
    /// Conditions for an item, besides the existence of all rows.
    pub conditions: Vec<ConditionConfig>,
}

/// The rows of one column of an item: `count` rows with a distance of `step`, starting at the row of age `first`. The
/// newest row has age 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeRange {
    /// Index of the column of the steps.
    pub source: usize,
    /// Age of the oldest row.
    pub first: u32,
    /// Number of rows, at least 1.
    pub count: u32,
    /// Distance between consecutive rows, at least 1.
    pub step: u32,
    /// Whether the column has no time axis.
    pub squeeze: bool,
}

impl AgeRange {
    /// The ages of the rows, oldest first.
    pub fn ages(&self) -> impl Iterator<Item = u32> + use<> {
        let Self { first, step, count, .. } = *self;
        (0..count).map(move |index| first - index * step)
    }
}

impl Pattern {
    /// Age of the oldest row of an item.
    pub fn max_age(&self) -> u32 {
        self.columns.iter().map(|column| column.first).max().unwrap_or(0)
    }
}

impl TryFrom<PatternConfig> for Pattern {
    type Error = Error;

    /// Checks the description of a pattern.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], with the reference's text, if the pattern is not valid.
    fn try_from(config: PatternConfig) -> Result<Self> {
        if config.nodes.is_empty() {
            return Err(Error::invalid("`flat` must not be empty."));
        }
        if config.table.is_empty() {
            return Err(Error::invalid("`table` must not be empty."));
        }
        let columns = config.nodes.iter().map(age_range).collect::<Result<_>>()?;
        config.conditions.iter().try_for_each(check_condition)?;
        let priority = config.priority.ok_or_else(|| Error::invalid("`priority` must be specified."))?;
        check_priority_fn(priority)?;
        Ok(Self { table: config.table, columns, priority, conditions: config.conditions })
    }
}

fn age_range(node: &NodeConfig) -> Result<AgeRange> {
    let NodeConfig { source, start, stop, step } = *node;
    let source = usize::try_from(source)
        .map_err(|_| Error::invalid(format!("`flat_source_index` must be >= 0 but got {source}.")))?;
    let oldest = match (start, stop) {
        (None, None) => return Err(Error::invalid("At least one of `start` and `stop` must be specified.")),
        (Some(start), _) if start >= 0 => {
            return Err(Error::invalid(format!("`start` must be < 0 but got {start}.")));
        }
        (_, Some(stop)) if stop > 0 => return Err(Error::invalid(format!("`stop` must be <= 0 but got {stop}."))),
        (Some(start), Some(stop)) if stop <= start => {
            let text = format!("`stop` ({stop}) must be > `start` ({start}) when both are specified.");
            return Err(Error::invalid(text));
        }
        (None, Some(0)) => return Err(Error::invalid("`stop` must be < 0 when `start` isn't set but got 0.")),
        (Some(oldest), _) | (None, Some(oldest)) => oldest,
    };
    if step.is_some() && start.is_none() {
        return Err(Error::invalid("`step` must only be set when `start` is set."));
    }
    let step = step.unwrap_or(1);
    if step <= 0 {
        return Err(Error::invalid(format!("`step` must be > 0 but got {step}.")));
    }
    let (first, step) = (oldest.unsigned_abs(), step.unsigned_abs());
    let rows = if start.is_some() { first - stop.unwrap_or(0).unsigned_abs() } else { 1 };
    Ok(AgeRange { source, first, count: rows.div_ceil(step), step, squeeze: start.is_none() })
}

fn check_condition(condition: &ConditionConfig) -> Result<()> {
    let left = condition.left.ok_or_else(|| Error::invalid("Conditions must specify a value for `left`."))?;
    let comparison =
        condition.comparison.ok_or_else(|| Error::invalid("Conditions must specify a value for `cmp`."))?;
    if let Left::Source(source) = left
        && source < 0
    {
        return Err(Error::invalid(format!("flat_source_index must be >= 0 but got {source}.")));
    }
    match comparison {
        Comparison::ModEq { modulus, .. } if modulus <= 0 => {
            return Err(Error::invalid(format!("`mod_eq.mod` must be > 0 but got {modulus}.")));
        }
        Comparison::ModEq { eq, .. } if eq < 0 => {
            return Err(Error::invalid(format!("`mod_eq.eq` must be >= 0 but got {eq}.")));
        }
        _ => {}
    }
    if left == Left::IsEndEpisode && (comparison != Comparison::Eq(1) || condition.inverse) {
        return Err(Error::invalid("Condition must use `eq=1` when using `is_end_episode`."));
    }
    Ok(())
}

fn check_priority_fn(priority: PriorityFn) -> Result<()> {
    match priority {
        PriorityFn::TdError { source, .. } if source < 0 => {
            Err(Error::invalid(format!("`td_error.flat_source_index` must be >= 0 but got {source}.")))
        }
        _ => Ok(()),
    }
}
