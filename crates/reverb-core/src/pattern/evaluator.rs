//! Asks the patterns of a writer, step by step, which items to make.

use super::{Comparison, ConditionConfig, Left, Pattern, PatternConfig, PriorityFn, Selection, StepId, Steps};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The patterns of one writer, and how long ago each made an item.
///
/// Ask it after every append, also of a part of a step, and before an episode ends:
///
/// ```ignore
/// let mut pass = Pass::new(false);
/// while let Some(item) = evaluator.next_item(&mut pass, &steps)? {
///     make(item)?;
/// }
/// ```
///
/// A pattern makes at most one item of a step. Steps without a value in any column that patterns use do not count.
#[derive(Debug)]
pub struct Evaluator {
    patterns: Vec<State>,
    max_age: u32,
    sources: BTreeMap<usize, u32>,
}

#[derive(Debug)]
struct State {
    pattern: Pattern,
    steps_since_applied: u64,
    counted: Option<StepId>,
    applied: Option<StepId>,
}

/// One round over all patterns. Keep it until [`Evaluator::next_item`] has returned `None`.
#[derive(Debug)]
pub struct Pass {
    end_of_episode: bool,
    next: usize,
    /// The item that was named last: made, if the caller comes back.
    named: Option<StepId>,
}

impl Pass {
    /// A round after an append, or, with `end_of_episode`, before an episode ends.
    pub fn new(end_of_episode: bool) -> Self {
        Self { end_of_episode, next: 0, named: None }
    }
}

/// An item to be made now.
#[derive(Debug)]
pub struct MadeItem<'a> {
    /// Where it goes, and of which rows it is made. All of them are there.
    pub pattern: &'a Pattern,
    /// Its priority. NaN if the TD errors are: who makes items refuses that.
    pub priority: f64,
}

impl Evaluator {
    /// Checks the patterns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is none, or one is not valid; then it says which.
    pub fn new(configs: impl IntoIterator<Item = PatternConfig>) -> Result<Self> {
        let to_state = |(position, config)| match Pattern::try_from(config) {
            Ok(pattern) => Ok(State { pattern, steps_since_applied: 0, counted: None, applied: None }),
            Err(reason) => Err(Error::invalid(format!("Invalid configuration at position {position}: {reason}"))),
        };
        let patterns: Vec<State> = configs.into_iter().enumerate().map(to_state).collect::<Result<_>>()?;
        if patterns.is_empty() {
            return Err(Error::invalid("At least one config must be provided."));
        }
        let mut sources = BTreeMap::new();
        for State { pattern, .. } in &patterns {
            for (source, age) in sources_of(pattern) {
                let oldest = sources.entry(source).or_insert(age);
                *oldest = age.max(*oldest);
            }
        }
        let max_age = patterns.iter().map(|state| state.pattern.max_age()).max().unwrap_or(0);
        Ok(Self { patterns, max_age, sources })
    }

    /// Age of the oldest row that any pattern needs: so many rows must be kept.
    pub fn max_age(&self) -> u32 {
        self.max_age
    }

    /// The columns that patterns use, each with the age of the oldest row that is needed of it. Others can be dropped.
    pub fn sources(&self) -> &BTreeMap<usize, u32> {
        &self.sources
    }

    /// The patterns in order.
    pub fn patterns(&self) -> impl ExactSizeIterator<Item = &Pattern> {
        self.patterns.iter().map(|state| &state.pattern)
    }

    /// The next item of this round; `None` after the last. The item that was named before counts as made when this is
    /// called again, so do not if making it failed: the pattern is then asked again in the next round.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a condition or a priority reads a column that it cannot work with. The round ends.
    pub fn next_item(&mut self, pass: &mut Pass, steps: &impl Steps) -> Result<Option<MadeItem<'_>>> {
        if let Some(step) = pass.named.take() {
            let state = &mut self.patterns[pass.next - 1];
            state.applied = Some(step);
            state.steps_since_applied = 0;
        }
        let newest = steps.newest().filter(|_| self.sources.keys().any(|&source| steps.has(source, 1)));
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
                // Looked up again: the borrow checker does not see that the loop ends here.
                return Ok(Some(MadeItem { pattern: &self.patterns[pass.next - 1].pattern, priority }));
            }
        }
        Ok(None)
    }
}

/// What conditions may ask for, cells and the pattern's own counter aside.
struct Moment {
    newest: StepId,
    buffer_length: u64,
    end_of_episode: bool,
}

impl State {
    fn is_due(&self, moment: &Moment, steps: &impl Steps) -> Result<bool> {
        // Rows that are missing are the common reason at the beginning of an episode, and the cheapest to see.
        if moment.buffer_length < u64::from(self.pattern.max_age()) {
            return Ok(false);
        }
        for condition in self.pattern.conditions() {
            if !self.holds(condition, moment, steps)? {
                return Ok(false);
            }
        }
        let is_there = |column: &Selection| column.ages().all(|age| steps.has(column.source, age));
        Ok(self.pattern.columns().iter().all(is_there))
    }

    fn holds(&self, condition: &ConditionConfig, moment: &Moment, steps: &impl Steps) -> Result<bool> {
        let (Some(left), Some(comparison)) = (condition.left, condition.comparison) else {
            return Err(Error::Internal("a checked condition is not complete".into()));
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
                    // Nothing can be said of what is not there, nor the opposite.
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
    let (weight, source) = match pattern.priority() {
        PriorityFn::Constant(value) => return Ok(value),
        PriorityFn::TdError { max_weight, source } => (max_weight, source as usize),
    };
    let Some(column) = pattern.columns().iter().rfind(|column| column.source == source) else { return Ok(0.0) };
    let (mut largest, mut sum) = (0.0_f64, 0.0);
    steps.for_each_cell(source, &mut column.ages(), &mut |cell| {
        let error = cell.td_error()?.abs();
        largest = if error > largest { error } else { largest };
        sum += error;
        Ok(())
    })?;
    Ok(weight * largest + (1.0 - weight) * (sum / f64::from(column.count)))
}

/// The columns that a pattern reads, and how far back; some more than once. A TD error reads what the item has anyway.
fn sources_of(pattern: &Pattern) -> impl Iterator<Item = (usize, u32)> {
    let of_items = pattern.columns().iter().map(|column| (column.source, column.first));
    let of_conditions = pattern.conditions().iter().filter_map(|condition| match condition.left {
        Some(Left::Source(source)) => Some((source as usize, 1)),
        _ => None,
    });
    of_items.chain(of_conditions)
}
