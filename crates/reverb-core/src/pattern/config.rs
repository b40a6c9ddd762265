//! What a pattern says, before and after it is checked.

use crate::{Error, Result};

/// A pattern as it was given: nothing in it is checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PatternConfig {
    /// The columns of the item, in order.
    pub nodes: Vec<NodeConfig>,
    /// Where the items go.
    pub table: String,
    /// How their priority is found.
    pub priority: Option<PriorityFn>,
    /// When they are made: all must hold.
    pub conditions: Vec<ConditionConfig>,
}

/// One column of an item: rows `start:stop:step` of a column of the steps, counted back from the newest, which is -1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// Which column of the steps.
    pub source: i32,
    /// Oldest row.
    pub start: Option<i32>,
    /// Where the rows end, 0 after the newest; alone it is the only row, without time axis.
    pub stop: Option<i32>,
    /// Distance between rows.
    pub step: Option<i32>,
}

/// `left cmp`, or the opposite if `inverse` is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConditionConfig {
    /// What is compared.
    pub left: Option<Left>,
    /// With what.
    pub comparison: Option<Comparison>,
    /// Whether it must not hold.
    pub inverse: bool,
}

/// The left side of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Index of the newest step in its episode.
    StepIndex,
    /// Steps since the pattern made an item, or since the writer began.
    StepsSinceApplied,
    /// Rows there are, at most as many as the pattern of the writer that reaches back farthest needs.
    BufferLength,
    /// 1 while an episode is being ended, else 0.
    IsEndEpisode,
    /// A column of the steps, by its value in the newest row.
    Source(i32),
}

/// The right side of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Eq(i32),
    /// Greater or equal.
    Ge(i32),
    /// The remainder after division by `modulus` is `eq`. As in C it has the sign of the left side.
    ModEq {
        /// At least 1.
        modulus: i32,
        /// At least 0.
        eq: i32,
    },
}

/// How the priority of an item is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PriorityFn {
    /// The same for all.
    Constant(f64),
    /// w · max |d| + (1 - w) · mean |d| over the cells d of the item's column made of `source`; 0 if there is none, of
    /// several the last. Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning",
    /// §2.3.
    TdError {
        /// w.
        max_weight: f64,
        /// Column of the steps.
        source: i32,
    },
}

/// A checked pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    table: String,
    columns: Vec<Selection>,
    priority: PriorityFn,
    conditions: Vec<ConditionConfig>,
}

/// The rows that make one column of an item: `count` of them, `step` apart, the first of age `first` (1 is the newest).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Column of the steps.
    pub source: usize,
    /// Age of the oldest row.
    pub first: u32,
    /// Rows, at least 1.
    pub count: u32,
    /// Distance between rows, at least 1.
    pub step: u32,
    /// Whether the column has no time axis.
    pub squeeze: bool,
}

impl Selection {
    /// The ages of the rows, oldest first.
    pub fn ages(&self) -> impl Iterator<Item = u32> + use<> {
        let Self { first, step, count, .. } = *self;
        (0..count).map(move |index| first - index * step)
    }
}

impl Pattern {
    /// Where the items go.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The columns of the items, in order.
    pub fn columns(&self) -> &[Selection] {
        &self.columns
    }

    /// How the priority of an item is found.
    pub fn priority(&self) -> PriorityFn {
        self.priority
    }

    /// What must hold, besides that all rows are there.
    pub fn conditions(&self) -> &[ConditionConfig] {
        &self.conditions
    }

    /// Age of the oldest row of an item.
    pub fn max_age(&self) -> u32 {
        self.columns.iter().map(|column| column.first).max().unwrap_or(0)
    }
}

impl TryFrom<PatternConfig> for Pattern {
    type Error = Error;

    /// Checks a pattern.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the reference's text for whatever a pattern must not be.
    fn try_from(config: PatternConfig) -> Result<Self> {
        if config.nodes.is_empty() {
            return Err(Error::invalid("`flat` must not be empty."));
        }
        if config.table.is_empty() {
            return Err(Error::invalid("`table` must not be empty."));
        }
        let columns = config.nodes.iter().map(selection).collect::<Result<_>>()?;
        config.conditions.iter().try_for_each(check_condition)?;
        let priority = config.priority.ok_or_else(|| Error::invalid("`priority` must be specified."))?;
        check_priority_fn(priority)?;
        Ok(Self { table: config.table, columns, priority, conditions: config.conditions })
    }
}

fn selection(node: &NodeConfig) -> Result<Selection> {
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
    Ok(Selection { source, first, count: rows.div_ceil(step), step, squeeze: start.is_none() })
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
