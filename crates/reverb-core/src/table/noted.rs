//! The effects that a journaled table has noted.

use crate::ItemKey;
use crate::effect::{Confirmation, Counters, Effect};
use hashbrown::HashSet;

/// The effects that were not drained yet.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub effects: Vec<Effect>,
    /// The most that an effect since the last [`Table::take_confirmation`] asks for.
    pub confirmation: Confirmation,
    /// The counts at the last drain. Those of draws change without any other effect.
    pub counters: Counters,
    /// Keys that more than one item may have, with those that draws in flight have taken.
    pub contested: HashSet<ItemKey>,
    /// Whether the table limits draws only now, and effects do not tell yet how often its items were drawn.
    pub are_draws_new: bool,
}

impl Noted {
    pub fn push(&mut self, effect: Effect) {
        self.confirmation = self.confirmation.max(effect.confirmation());
        self.effects.push(effect);
    }
}
