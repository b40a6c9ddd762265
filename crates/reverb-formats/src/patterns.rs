//! Reads pattern configurations from the messages of the reference.

use crate::proto::schema::{self, condition, pattern_node, priority};
use prost::Message;
use reverb_core::pattern::{Comparison, ConditionConfig, Evaluator, Left, NodeConfig, PatternConfig, PriorityFn};
use reverb_core::{Error, Result};

/// Reads and checks the patterns in serialised `StructuredWriterConfig` messages.
///
/// # Errors
/// [`Error::InvalidArgument`] if a message does not parse or a pattern is not valid, naming its position; also if
/// there are no patterns.
pub fn evaluator_from_bytes(configs: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Evaluator> {
    let parse = |(position, bytes): (usize, _)| {
        let bytes: &[u8] = AsRef::as_ref(&bytes);
        schema::StructuredWriterConfig::decode(bytes).map(pattern_from_wire).map_err(|error| {
            Error::invalid(format!("Invalid configuration at position {position}: it does not parse: {error}"))
        })
    };
    let configs: Vec<_> = configs.into_iter().enumerate().map(parse).collect::<Result<_>>()?;
    Evaluator::new(configs)
}

/// Converts a configuration without checking it. Drops the structure of the item, which the core does not use.
pub fn pattern_from_wire(config: schema::StructuredWriterConfig) -> PatternConfig {
    PatternConfig {
        nodes: config.flat.iter().map(node_from_wire).collect(),
        table: config.table,
        priority: config.priority.and_then(|priority| priority.priority_fn).map(priority_from_wire),
        conditions: config.conditions.iter().map(condition_from_wire).collect(),
    }
}

fn node_from_wire(node: &schema::PatternNode) -> NodeConfig {
    NodeConfig {
        source: node.flat_source_index,
        start: node.start_or_none.map(|pattern_node::StartOrNone::Start(start)| start),
        stop: node.stop_or_none.map(|pattern_node::StopOrNone::Stop(stop)| stop),
        step: node.step_or_none.map(|pattern_node::StepOrNone::Step(step)| step),
    }
}

/// As in the reference, the choice of the left field matters, but the value of a bool in it does not.
fn condition_from_wire(condition: &schema::Condition) -> ConditionConfig {
    let left = condition.left.map(|left| match left {
        condition::Left::StepIndex(_) => Left::StepIndex,
        condition::Left::StepsSinceApplied(_) => Left::StepsSinceApplied,
        condition::Left::BufferLength(_) => Left::BufferLength,
        condition::Left::IsEndEpisode(_) => Left::IsEndEpisode,
        condition::Left::FlatSourceIndex(source) => Left::Source(source),
    });
    let comparison = condition.cmp.map(|comparison| match comparison {
        condition::Cmp::Eq(value) => Comparison::Eq(value),
        condition::Cmp::Ge(value) => Comparison::Ge(value),
        condition::Cmp::ModEq(condition::ModuloEq { r#mod, eq }) => Comparison::ModEq { modulus: r#mod, eq },
    });
    ConditionConfig { left, comparison, inverse: condition.inverse }
}

fn priority_from_wire(priority: priority::PriorityFn) -> PriorityFn {
    match priority {
        priority::PriorityFn::ConstantFn(constant) => PriorityFn::Constant(constant.value),
        priority::PriorityFn::TdError(error) => {
            PriorityFn::TdError { max_weight: error.max_priority_weight, source: error.flat_source_index }
        }
    }
}
