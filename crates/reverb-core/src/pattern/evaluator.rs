//! Evaluates the patterns of a writer, step by step.
//!
//! An item counts as created when the evaluator is asked for the next one; after an error the item is due again. A
//! [`StepId`], the episode and the index of the newest row, tells whether two passes see the same step.

use super::{AgeRange, Comparison, ConditionConfig, Left, Pattern, PatternConfig, PriorityFn, StepId, Steps};
use crate::{Error, Result};
use std::collections::BTreeSet;

/// The patterns of one writer, and the number of steps since each created an item.
///
/// Evaluate the patterns after every append, even of a part of a step, and before an episode ends:
///
/// ```ignore
/// let mut pass = Pass::new(false);
/// while let Some(item) = evaluator.next_item(&mut pass, &steps)? {
///     make(item)?;
/// }
/// ```
///
/// A pattern creates at most one item for each step. Steps without a value in any column that patterns use do not
/// count.
#[derive(Debug)]
pub struct Evaluator {
    patterns: Vec<PatternState>,
    /// Age of the oldest row that any pattern needs, which is the number of rows that must be kept.
    max_age: u32,
    /// The columns that patterns read.
    sources: BTreeSet<usize>,
}

#[derive(Debug)]
struct PatternState {
    pattern: Pattern,
    steps_since_applied: u64,
    counted: Option<StepId>,
    applied: Option<StepId>,
}

/// One evaluation of all patterns. Keep it until [`Evaluator::next_item`] has returned `None`.
#[derive(Debug)]
pub struct Pass {
    end_of_episode: bool,
    next: usize,
    /// The step of the item that was returned last. The item counts as created if the caller calls again.
    named: Option<StepId>,
}

impl Pass {
    /// Starts an evaluation after an append or, with `end_of_episode`, before an episode ends.
    pub fn new(end_of_episode: bool) -> Self {
        Self { end_of_episode, next: 0, named: None }
    }
}

/// An item that is due now.
#[derive(Debug)]
pub struct MadeItem<'a> {
    /// The pattern, which gives the table and the rows. All rows exist.
    pub pattern: &'a Pattern,
    /// Priority of the item. NaN if the TD errors are NaN, which the caller refuses.
    pub priority: f64,
}

impl Evaluator {
    /// Checks the patterns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are no patterns, or one is not valid, whose position the error names.
    pub fn new(configs: impl IntoIterator<Item = PatternConfig>) -> Result<Self> {
        let to_state = |(position, config)| match Pattern::try_from(config) {
            Ok(pattern) => Ok(PatternState { pattern, steps_since_applied: 0, counted: None, applied: None }),
            Err(reason) => Err(Error::invalid(format!("Invalid configuration at position {position}: {reason}"))),
        };
        let patterns: Vec<PatternState> = configs.into_iter().enumerate().map(to_state).collect::<Result<_>>()?;
        if patterns.is_empty() {
            return Err(Error::invalid("At least one config must be provided."));
        }
        let sources = patterns.iter().flat_map(|state| sources_of(&state.pattern)).collect();
        let max_age = patterns.iter().map(|state| state.pattern.max_age()).max().unwrap_or(0);
        Ok(Self { patterns, max_age, sources })
    }

    /// Age of the oldest row that any pattern needs, which is the number of rows that must be kept.
    pub fn max_age(&self) -> u32 {
        self.max_age
    }

    /// Puts the columns of a pattern's items in another order: each becomes the column at the position at which `order`
    /// has its number.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such pattern, or the order is not one of its columns.
    pub fn reorder(&mut self, pattern: usize, order: &[usize]) -> Result<()> {
        let invalid = || Error::invalid(format!("{order:?} is not an order of the columns of pattern {pattern}"));
        let columns = &mut self.patterns.get_mut(pattern).ok_or_else(invalid)?.pattern.columns;
        let distinct: BTreeSet<_> = order.iter().filter(|&&column| column < columns.len()).collect();
        if order.len() != columns.len() || distinct.len() != columns.len() {
            return Err(invalid());
        }
        *columns = order.iter().map(|&column| columns[column]).collect();
        Ok(())
    }

    /// Whether a pattern reads a column. Others can be dropped.
    pub fn uses(&self, column: u32) -> bool {
        self.sources.contains(&(column as usize))
    }

    /// The next item of this pass; `None` after the last. The item that was returned before counts as created when this
    /// is called again. If creating it failed, do not call this again: the pattern is then evaluated again in the next
    /// pass.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a condition or a priority reads a column that it does not support. The pass ends.
    pub fn next_item(&mut self, pass: &mut Pass, steps: &impl Steps) -> Result<Option<MadeItem<'_>>> {
        if let Some(step) = pass.named.take() {
            let state = &mut self.patterns[pass.next - 1];
            state.applied = Some(step);
            state.steps_since_applied = 0;
        }
        let newest = steps.newest().filter(|_| self.sources.iter().any(|&source| steps.has(source, 1)));
        let Some(newest) = newest else { return Ok(None) };
        let buffer_length = steps.num_rows().min(u64::from(self.max_age));
        while let Some(state) = self.patterns.get_mut(pass.next) {
            pass.next += 1;
            if state.applied == Some(newest) {
                continue;
            }
            if state.counted != Some(newest) {
                state.counted = Some(newest);
                state.steps_since_applied += 1;
            }
            let moment = Moment { newest, buffer_length, end_of_episode: pass.end_of_episode };
            if state.is_due(&moment, steps)? {
                let priority = priority_of(&state.pattern, steps)?;
                pass.named = Some(newest);
                // Looked up again, because the borrow checker does not see that the loop ends here.
                return Ok(Some(MadeItem { pattern: &self.patterns[pass.next - 1].pattern, priority }));
            }
        }
        Ok(None)
    }
}

/// The values that conditions may read, except cells and the counter of the pattern.
struct Moment {
    newest: StepId,
    buffer_length: u64,
    end_of_episode: bool,
}

impl PatternState {
    fn is_due(&self, moment: &Moment, steps: &impl Steps) -> Result<bool> {
        // Missing rows are the common reason at the beginning of an episode, and the cheapest to check.
        if moment.buffer_length < u64::from(self.pattern.max_age()) {
            return Ok(false);
        }
        for condition in &self.pattern.conditions {
            if !self.holds(condition, moment, steps)? {
                return Ok(false);
            }
        }
        let is_there = |column: &AgeRange| column.ages().all(|age| steps.has(column.source, age));
        Ok(self.pattern.columns.iter().all(is_there))
    }

    fn holds(&self, condition: &ConditionConfig, moment: &Moment, steps: &impl Steps) -> Result<bool> {
        let (Some(left), Some(comparison)) = (condition.left, condition.comparison) else {
            return Err(Error::Internal("a condition that was checked has no left side or no comparison".into()));
        };
        let value = match left {
            Left::StepIndex => moment.newest.index.into(),
            Left::StepsSinceApplied => self.steps_since_applied.into(),
            Left::BufferLength => moment.buffer_length.into(),
            Left::IsEndEpisode => moment.end_of_episode.into(),
            Left::Source(source) => {
                let source = source as usize;
                match steps.cell(source, 1) {
                    Some(cell) => cell.integer(source)?,
                    // A missing value satisfies neither a comparison nor its opposite.
                    None => return Ok(false),
                }
            }
        };
        let holds = match comparison {
            Comparison::Eq(right) => value == right.into(),
            Comparison::Ge(right) => value >= right.into(),
            Comparison::ModEq { modulus, eq } => value % i128::from(modulus) == eq.into(),
        };
        Ok(holds != condition.inverse)
    }
}

fn priority_of(pattern: &Pattern, steps: &impl Steps) -> Result<f64> {
    let (weight, source) = match pattern.priority {
        PriorityFn::Constant(value) => return Ok(value),
        PriorityFn::TdError { max_weight, source } => (max_weight, source as usize),
    };
    let Some(column) = pattern.columns.iter().rfind(|column| column.source == source) else { return Ok(0.0) };
    let (mut largest, mut sum) = (0.0_f64, 0.0);
    steps.for_each_cell(source, &mut column.ages(), &mut |cell| {
        let error = cell.td_error()?.abs();
        largest = if error > largest { error } else { largest };
        sum += error;
        Ok(())
    })?;
    Ok(weight * largest + (1.0 - weight) * (sum / f64::from(column.count)))
}

/// The columns that a pattern reads; they may repeat. A TD error reads only cells of the item.
fn sources_of(pattern: &Pattern) -> impl Iterator<Item = usize> {
    let of_items = pattern.columns.iter().map(|column| column.source);
    let of_conditions = pattern.conditions.iter().filter_map(|condition| match condition.left {
        Some(Left::Source(source)) => Some(source as usize),
        _ => None,
    });
    of_items.chain(of_conditions)
}
