//! Which server has an item, by its key.

use reverb_core::ItemKey;
use std::borrow::Cow;

/// The servers that may have an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Any of them.
    All,
    /// The one at this place among all.
    Member(usize),
}

impl Route {
    /// Whether the route leads to the server at this place.
    pub fn leads_to(self, member: usize) -> bool {
        self == Self::All || self == Self::Member(member)
    }
}

/// Returns the route of an item's key to one of `num_members` servers. Keys are random and do not say which server chose
/// them, so that of several servers each may have the item.
pub fn route(_key: ItemKey, num_members: usize) -> Route {
    if num_members == 1 { Route::Member(0) } else { Route::All }
}

/// Returns the entries whose route leads to a server, without a copy if all do.
pub fn part_of<T: Clone>(entries: &[T], member: usize, route: impl Fn(&T) -> Route) -> Cow<'_, [T]> {
    let is_part = |entry: &T| route(entry).leads_to(member);
    match entries.iter().all(is_part) {
        true => entries.into(),
        false => entries.iter().filter(|entry| is_part(entry)).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys whose last digit says the server, as those of a cluster may. Those that end with 9 say nothing.
    fn by_digit(key: &u64) -> Route {
        match key % 10 {
            9 => Route::All,
            digit => Route::Member(digit as usize),
        }
    }

    #[test]
    fn keys_of_today_lead_to_all_servers_or_to_the_only_one() {
        assert_eq!(route(7, 1), Route::Member(0));
        assert_eq!(route(7, 2), Route::All);
    }

    #[test]
    fn each_server_gets_the_keys_that_lead_to_it_in_order() {
        let keys = [10, 21, 9, 30, 19, 42];
        let part = |member| part_of(&keys, member, by_digit).into_owned();
        assert_eq!(part(0), [10, 9, 30, 19]);
        assert_eq!(part(1), [21, 9, 19]);
        assert_eq!(part(2), [9, 19, 42]);
        assert_eq!(part(3), [9, 19]);
    }

    #[test]
    fn keys_that_all_lead_to_a_server_are_not_copied() {
        assert!(matches!(part_of(&[9, 19], 1, by_digit), Cow::Borrowed([9, 19])));
        assert!(matches!(part_of(&[1, 9], 1, by_digit), Cow::Borrowed([1, 9])));
    }
}
